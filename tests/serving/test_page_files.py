"""The files of the page: no scripts or styles from other sites, no missing files."""

import re
from pathlib import Path

import pytest

from gmaflow.serving.routes import PAGE

FILES = sorted(PAGE.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[a-z][^\s\"'`]*", path.read_text())
    assert [each for each in addresses if not each.startswith("http://www.w3.org/")] == []


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)


def test_every_file_that_is_asked_for_is_there_and_every_script_is_asked_for() -> None:
    page = (PAGE / "index.html").read_text()
    asked = set(re.findall(r'(?:src|href)="/static/([^"]+)"', page))
    for script in SCRIPTS:
        asked |= set(re.findall(r'from "\./([^"]+)"', script.read_text()))
    assert asked <= set(names(FILES))
    assert set(names(SCRIPTS)) <= asked


def test_every_part_that_a_script_looks_up_is_on_the_page() -> None:
    text = "".join(path.read_text() for path in FILES if path.suffix in (".js", ".html"))
    there = set(re.findall(r'\bid(?:="|: ")([\w-]+)"', text))
    wanted = set(re.findall(r'byId\("([\w-]+)"\)', text)) | set(
        re.findall(r'"#(icon-[\w-]+)"', text)
    )
    assert wanted <= there

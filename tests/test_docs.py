"""The Python page of the docs does what it says, and the links of all pages work."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli import main
from gmaflow.data import catalog, layouts
from gmaflow.example import load_example
from gmaflow.io import read_image, write_image
from tests.data import trees

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


@pytest.mark.usefixtures("few_textures")
def test_the_python_of_the_page_and_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = load_example().image1
    for number in (1, 2, 3):
        shifted = np.ascontiguousarray(image[100:164, 100 - 2 * number : 196 - 2 * number])
        write_image(tmp_path / f"frame{number}.png", shifted)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8") + (PAGE.parent.parent / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  (our own page)
    assert {"flow.flo", "flow.png", "mine.safetensors", "run"} <= {
        p.name for p in tmp_path.iterdir()
    }
    assert names["found"].array.shape == (64, 96, 2)  # type: ignore[attr-defined]
    assert "done after 2 steps" in capsys.readouterr().out


@pytest.mark.usefixtures("few_textures")
def test_the_first_commands_of_the_readme_can_be_pasted_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (PAGE.parent.parent / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^```sh\n(gmaflow demo .*?)^```", readme, re.MULTILINE | re.DOTALL)
    faster = {"demo": ["--iters", "1"], "flow": ["--iters", "1"], "scenes": ["--size", "64x80"]}
    for line in block.partition("; ")[0].splitlines() + block.partition("; ")[2].splitlines():
        command, *words = shlex.split(line, comments=True)
        if command == "cp":  # a corner of the picture: small ones take less time
            write_image(words[1], read_image(words[0])[:104, :144])
        else:
            main([*words, *faster.get(words[0], [])])
    assert {"flow.png", "flow.flo", "legend.png", "both", "looks", "small.png", "sheet.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_the_readme_says_how_to_download_less() -> None:
    readme = " ".join((PAGE.parent.parent / "README.md").read_text("utf-8").split())
    assert "install the CPU build of PyTorch first" in readme
    assert "`git clone --depth 1`" in readme


def test_every_name_that_a_page_imports_is_there() -> None:
    for page in sorted(PAGE.parent.glob("*.md")):
        for line in re.findall(r"^ *(from gmaflow.* import .*)$", page.read_text("utf-8"), re.M):
            exec(line, {})  # noqa: S102  (our own pages)


def test_the_data_set_of_the_page_can_be_added(tmp_path: Path) -> None:
    text = (PAGE.parent / "data.md").read_text("utf-8").partition("## Adding a data set")[2]
    listing, entry = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[:2]
    names = {**vars(layouts), **vars(catalog)}
    exec(listing, names)  # noqa: S102  (our own page)
    info = eval(entry, names)  # noqa: S307
    trees.put_images(tmp_path / "scene_1", "first.png", "second.png")
    trees.put_flows(tmp_path / "scene_1", "flow.flo")
    assert (tmp_path / info.example).is_file()
    (pair,) = info.list_pairs(layouts.DirectoryCache(), tmp_path, info.splits[0], info.passes[0])
    assert pair.dataset == info.name
    assert pair.load().flow.shape == (trees.HEIGHT, trees.WIDTH, 2)


def test_every_link_leads_to_a_file() -> None:
    """As a forge follows them; the site's links are checked when it is built."""
    root = PAGE.parent.parent
    for page in (root / "README.md", root / "CHANGELOG.md", *sorted(PAGE.parent.glob("*.md"))):
        for link in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=PAGE.parent.parent,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hidden motion" in (tmp_path / "index.html").read_text("utf-8")
    api = (tmp_path / "api.html").read_text("utf-8")
    for name in ("FlowEstimator", "from_pretrained", "raft_large", "TrainConfig"):
        assert f'id="gmaflow.{name}' in api or f".{name}" in api

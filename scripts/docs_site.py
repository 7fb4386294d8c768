"""What the documentation site has beyond docs/: README, changelog, API reference, linked sources.

The pages link to each other and to files of the repository, as a forge shows them. Here the same
links are pointed at the site: README.md is its home page, and a linked source file becomes a page.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
HOMES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages at the root of the repository, and their place on the site."""

COMPAT = ["raft_large", "raft_small", "gma", "NormalisedFlow", "DenseOpticalFlow"]
API = {
    "gmaflow": None,
    "gmaflow.compat": COMPAT,
    "gmaflow.evaluation": ["measure"],
    "gmaflow.training": ["RunOptions", "TrainConfig", "train"],
}
"""Modules of the API reference and the names to show; None for all that `__all__` has."""

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
"""The file that a Markdown link goes to, without its anchor."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that are not in docs/."""
    for name, place in HOMES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    files.append(File.generated(config, "api.md", content=api_page()))
    pages = [file for file in files if file.is_documentation_page()]
    linked = {path for page in pages for path in linked_sources(page.content_string, page.src_uri)}
    for path in sorted(linked):
        files.append(
            File.generated(
                config,
                source_place(path),
                content=source_page(path),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
        )
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Point links at the site."""
    own = page.file.src_uri

    def point(match: re.Match[str]) -> str:
        path = repository_path(match[1], own)
        if path in HOMES:
            target = HOMES[path]
        elif path.startswith("docs/"):
            target = path.removeprefix("docs/")
        elif (ROOT / path).exists():
            target = source_place(path)
        else:
            return match[1]  # mkdocs reports it
        return posixpath.relpath(target, posixpath.dirname(own) or ".")

    return LINK.sub(point, markdown)


def repository_path(link: str, page: str) -> str:
    """Return where in the repository a link of a page goes."""
    at_root = page in HOMES.values() or page == "api.md"
    return posixpath.normpath(link if at_root else f"docs/{posixpath.dirname(page)}/{link}")


def linked_sources(markdown: str, page: str) -> set[str]:
    """Return the files and folders outside docs/ that a page links to."""
    paths = {repository_path(link, page) for link in LINK.findall(markdown)}
    return {
        path
        for path in paths
        if path not in HOMES and not path.startswith(("docs/", "..")) and (ROOT / path).exists()
    }


def source_place(path: str) -> str:
    """Return the place of a source file's page on the site."""
    return f"source/{path}.md"


def source_page(path: str) -> str:
    """Show a source file, or list a folder."""
    full = ROOT / path
    if full.is_dir():
        text, language = "\n".join(sorted(each.name for each in full.iterdir())), "text"
    else:
        text = full.read_text("utf-8")
        language = {".py": "python", ".cff": "yaml"}.get(full.suffix, "text")
    return f"# {path}\n\n``````{language}\n{text.rstrip()}\n``````\n"


def api_page() -> str:
    """Return the API reference as directives of mkdocstrings."""
    parts = ["# API reference\n"]
    for module, shown in API.items():
        parts.append(f"## {module}\n")
        parts += [f"::: {module}.{name}\n" for name in shown or public_names(module)]
    return "\n".join(parts)


def public_names(module: str) -> list[str]:
    """Read `__all__` of a package without importing it."""
    path = ROOT / "src" / module.replace(".", "/") / "__init__.py"
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    raise ValueError(f"{path} has no __all__")

"""The layers point one way."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "gmaflow"
LAYERS = (
    "version",
    "errors",
    "geometry",
    "runtime",
    "io",
    "viz",
    "model",
    "weights",
    "inference",
    "compat",
    "example",
    "scenes",
    "data",
    "evaluation",
    "training",
    "bench",
    "export",
    "batch",
    "serving",
    "cli",
)
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(file: Path) -> set[str]:
    """Layers that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            if node.module == "gmaflow":
                found |= {f"gmaflow.{alias.name}" for alias in node.names}
    return {layer_of(name) for name in found if name.startswith("gmaflow.")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_layer_imports_only_what_is_below_it(file: Path) -> None:
    own = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    allowed = set(LAYERS[: LAYERS.index(own) + 1])
    if own == "model":
        allowed = {"errors", "runtime", "model"}
    assert imports(file) <= allowed

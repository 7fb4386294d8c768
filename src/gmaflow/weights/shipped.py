"""The weights that come with the package, and how a name becomes a file."""

from pathlib import Path

from gmaflow.errors import WeightsError, suggest
from gmaflow.model import MODELS, NetworkConfig, model_config
from gmaflow.weights.checkpoint import Checkpoint, load_checkpoint

SHIPPED_FOLDER = Path(__file__).parent / "files"
DEFAULT_MODEL = "gma"


def shipped_weights() -> dict[str, Path]:
    """Return the weights inside the package: their names, which are models' names, and files."""
    return {path.stem: path for path in sorted(SHIPPED_FOLDER.glob("*.safetensors"))}


def find_config(model: str | None) -> NetworkConfig | None:
    """Return a model's config by name; None stays None.

    Raises:
        WeightsError: There is no such model.
    """
    try:
        return None if model is None else model_config(model)
    except ValueError as err:
        raise WeightsError(str(err)) from None


def find_checkpoint(weights: Path | str | None = None, *, model: str | None = None) -> Checkpoint:
    """Load weights by file or by the name of shipped ones; by default those of the model.

    Args:
        weights: A file, or the name of shipped weights.
        model: A model's name.

    Raises:
        WeightsError: There are none, or they do not fit.
    """
    config = find_config(model)
    shipped = shipped_weights()
    name = str(model or DEFAULT_MODEL) if weights is None else str(weights)
    if name in shipped:
        return load_checkpoint(shipped[name], model=config)
    path = Path(name)
    if weights is not None and (path.exists() or path.suffix or path.name != name):
        return load_checkpoint(weights, model=config)
    if name not in MODELS and shipped:
        raise WeightsError(
            f"no weights are called {name!r}, nor is there such a file; {suggest(name, shipped)}"
        )
    there_are = f"there are {', '.join(shipped)}" if shipped else "none ship with gmaflow yet"
    raise WeightsError(
        f"no trained weights for {name}: {there_are}; give a file of weights (.safetensors, or a "
        "published .pth)"
    )

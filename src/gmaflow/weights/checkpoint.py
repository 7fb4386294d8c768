"""Checkpoints on disk: ours (safetensors with config and card) and the authors' (`.pth`).

`.pth` files are read with torch's `weights_only`, which unpickles tensors and plain containers and
refuses everything else.
"""

import io
import json
import logging
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gmaflow.errors import WeightsError
from gmaflow.io import atomic_write
from gmaflow.io.paths import require_file
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig
from gmaflow.weights.published import (
    blank_network,
    check_same_tensors,
    empty_state,
    from_published,
    recognise,
    to_published,
    unwrap,
)

log = logging.getLogger(__name__)

METADATA_KEY = "gmaflow"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a person should know about a set of weights."""

    title: str = ""
    trained_on: str = "unknown"
    licence: str = "unknown"
    notes: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    """Measured errors, by the name of the data."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A network's weights, with all that is needed to build it."""

    config: NetworkConfig
    tensors: dict[str, Tensor]
    """Under our names, float32."""
    card: ModelCard = ModelCard()
    origin: str = "gmaflow"
    """Who wrote the file: `gmaflow`, or `published` for the authors' format."""

    def build(self) -> FlowNetwork:
        """Return the network with these weights, in evaluation mode.

        Raises:
            WeightsError: They are not this network's.
        """
        network = blank_network(self.config)
        check_same_tensors(self.tensors, network.state_dict())
        network.load_state_dict(self.tensors, strict=True)
        return network.eval().requires_grad_(False)

    @property
    def num_parameters(self) -> int:
        """How many numbers were learned; running statistics do not count."""
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        learned = (v for name, v in self.tensors.items() if not name.endswith(statistics))
        return sum(value.numel() for value in learned)


def load_checkpoint(path: Path | str, *, model: NetworkConfig | None = None) -> Checkpoint:
    """Read a checkpoint of either kind.

    Args:
        path: A safetensors file of ours or a `.pth` file of the authors.
        model: The network it should be. Needed to tell content, content + position and
            position-only files of the authors apart; otherwise only checked.

    Raises:
        WeightsError: The file is missing, broken, unsafe or of another network.
    """
    path = require_file(path, WeightsError, "a .safetensors or .pth file of weights")
    with naming(path):
        if looks_like_safetensors(path):
            return read_ours(path, model)
        return read_published(path, model)


def save_checkpoint(path: Path | str, checkpoint: Checkpoint, *, half: bool = False) -> None:
    """Write a checkpoint: `.safetensors` in our format, `.pth` in the authors'.

    Args:
        path: Where to; the suffix picks the format.
        checkpoint: What to write.
        half: Store in half precision, at half the size; a safetensors file only.

    Raises:
        WeightsError: The suffix is neither.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        from safetensors.torch import save

        tensors = {
            name: (value.half() if half and value.is_floating_point() else value).contiguous()
            for name, value in checkpoint.tensors.items()
        }
        about = {"config": asdict(checkpoint.config), "card": asdict(checkpoint.card)}
        with atomic_write(path) as temporary:
            # Not save_file: its files are readable by their owner only.
            temporary.write_bytes(save(tensors, {METADATA_KEY: json.dumps(about)}))
    elif path.suffix == ".pth":
        if half:
            raise WeightsError("half precision is for .safetensors files; .pth files stay float32")
        theirs = to_published(checkpoint.tensors, checkpoint.config)
        content = io.BytesIO()
        torch.save({f"module.{name}": value for name, value in theirs.items()}, content)
        with atomic_write(path) as temporary:
            temporary.write_bytes(content.getvalue())
    else:
        raise WeightsError(f"{path}: weights are written as .safetensors or .pth, choose one")


def read_ours(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a safetensors file that we wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get(METADATA_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as err:
        raise WeightsError(f"the file is truncated or damaged ({err}); fetch it again") from None
    if about is None:
        raise WeightsError(
            "a safetensors file without gmaflow's description of the network; only files that "
            "gmaflow wrote can be read, convert others from their .pth"
        )
    config, card = parse_about(about)
    if model is not None and model != config:
        raise WeightsError(
            f"the file holds {describe(config)}, but {describe(model)} was asked for; leave "
            "the model out to take the file's"
        )
    check_same_tensors(tensors, empty_state(config))
    return Checkpoint(config=config, tensors=as_float32(tensors), card=card)


def read_published(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a `.pth` file as the authors saved it."""
    theirs = unwrap(load_tensors_only(path))
    config = recognise(theirs, model)
    if config.aggregates and model is None:
        log.warning(
            "%s: content, content + position and position-only checkpoints hold the same tensors; "
            "taking it for gma (content), name the model gma-p or gma-p-only if it is one of those",
            path.name,
        )
    tensors = as_float32(from_published(theirs, config))
    card = ModelCard(title=path.stem, notes="converted from the authors' format")
    return Checkpoint(config=config, tensors=tensors, card=card, origin="published")


def load_tensors_only(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Let torch read a `.pth` file, nothing but tensors and plain containers in it."""
    try:
        with warnings.catch_warnings():
            # torch comments on odd pickles before it refuses them; our sentence is enough.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as err:
        if "Unsupported" in str(err) or "Weights only load failed" in str(err):
            raise WeightsError(
                "refused: it is not made of tensors alone, and unpickling anything else could run "
                "foreign code"
            ) from None
        raise WeightsError("not a checkpoint, or a damaged one; fetch it again") from None
    except Exception as err:  # noqa: BLE001  foreign bytes: torch raises whatever it stumbles over
        reason = str(err).strip().splitlines()[0][:120] if str(err).strip() else type(err).__name__
        raise WeightsError(
            f"not a checkpoint, or a truncated one ({reason}); fetch it again"
        ) from None


def parse_about(text: str) -> tuple[NetworkConfig, ModelCard]:
    """Read the description of a network from a safetensors file's metadata."""
    try:
        about = json.loads(text)
        known = {entry.name for entry in fields(ModelCard)}
        card = {name: value for name, value in about.get("card", {}).items() if name in known}
        return NetworkConfig(**about["config"]), ModelCard(**card)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise WeightsError(
            f"its description of the network cannot be read ({err}); was it written by a newer "
            "gmaflow?"
        ) from None


def describe(config: NetworkConfig) -> str:
    """Name a network: a model's name where there is one, and what differs from it."""
    for name, known in MODELS.items():
        if known == config:
            return name
    base = next(name for name, known in MODELS.items() if known.attention == config.attention)
    changes = [
        f"{key}={value}"
        for key, value in asdict(config).items()
        if asdict(MODELS[base])[key] != value
    ]
    return f"{base} with {', '.join(changes)}"


def fingerprint(network: FlowNetwork) -> str:
    """Return a short name for a network and its weights, whatever file they came from."""
    hashed = sha256(repr(network.config).encode())
    for name, tensor in sorted(network.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:24]


def as_float32(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return floating point tensors as float32, counters as they are."""
    return {
        name: value.float() if value.is_floating_point() else value
        for name, value in tensors.items()
    }


def looks_like_safetensors(path: Path) -> bool:
    """Tell safetensors by content: eight bytes of length, then a JSON object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before whatever is wrong with it."""
    try:
        yield
    except WeightsError as err:
        raise WeightsError(f"{path}: {err}") from None
    except OSError as err:
        raise WeightsError(f"{path}: cannot be read ({err.strerror})") from None

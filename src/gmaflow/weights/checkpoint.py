"""Checkpoints: ours (safetensors with config and card), the authors' (`.pth`), and shipped ones.

`.pth` files are loaded with `weights_only=True`: torch refuses anything but tensors and plain
containers.
"""

import io
import json
import logging
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gmaflow.errors import WeightsError, suggest
from gmaflow.io import atomic_write
from gmaflow.io.paths import require_file
from gmaflow.io.sizes import shape_text
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig, model_config

log = logging.getLogger(__name__)

State = Mapping[str, Tensor]
"""The tensors of a network by name."""

METADATA_KEY = "gmaflow"
SHIPPED_FOLDER = Path(__file__).parent / "files"
DEFAULT_MODEL = "gma"
SHIPPED_ITERS = 12
"""Refinements that suit the shipped weights, whose files do not name a number; 32 are worse."""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A description of a set of weights for people."""

    title: str = ""
    trained_on: str = "unknown"
    licence: str = "unknown"
    notes: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    """Measured errors, by name of the data."""
    iters: int | None = None
    """Refinements that suit the weights; None if that is not known."""

    def __post_init__(self) -> None:
        if self.iters is not None and (type(self.iters) is not int or self.iters < 1):
            raise ValueError(f"iters is {self.iters!r}, not a whole number from 1 on")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The weights of a network, and everything else needed to build it."""

    config: NetworkConfig
    tensors: dict[str, Tensor]
    """By our names, in float32."""
    card: ModelCard = ModelCard()
    origin: str = "gmaflow"
    """The format of the file: `gmaflow`, or `published` for the authors'."""

    def build(self) -> FlowNetwork:
        """Return the network with these weights, in evaluation mode.

        Raises:
            WeightsError: The tensors do not fit the config.
        """
        network = blank_network(self.config)
        check_same_tensors(self.tensors, network.state_dict())
        network.load_state_dict(self.tensors, strict=True)
        return network.eval().requires_grad_(False)

    @property
    def num_parameters(self) -> int:
        """The number of parameters, without running statistics."""
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        learned = (v for name, v in self.tensors.items() if not name.endswith(statistics))
        return sum(value.numel() for value in learned)


def load_checkpoint(path: Path | str, *, model: NetworkConfig | None = None) -> Checkpoint:
    """Read a checkpoint in either format.

    Args:
        path: A safetensors file written by gmaflow, or a `.pth` file of the authors.
        model: The expected network. Needed to tell content, content + position and position-only
            files of the authors apart; otherwise only checked.

    Raises:
        WeightsError: The file is missing, damaged, unsafe or of another network.
    """
    path = require_file(path, WeightsError, "a .safetensors or .pth file of weights")
    with naming(path):
        if looks_like_safetensors(path):
            return read_ours(path, model)
        return read_published(path, model)


def save_checkpoint(path: Path | str, checkpoint: Checkpoint, *, half: bool = False) -> None:
    """Write a checkpoint: `.safetensors` in our format, `.pth` in the authors'.

    Args:
        path: The file; its suffix selects the format.
        checkpoint: What to write.
        half: Store in half precision, at half the size; safetensors only.

    Raises:
        WeightsError: The suffix is neither of the two.
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
            # Not `save_file`, whose files only their owner can read.
            temporary.write_bytes(save(tensors, {METADATA_KEY: json.dumps(about)}))
    elif path.suffix == ".pth":
        if half:
            raise WeightsError("half precision is for .safetensors files; .pth files stay float32")
        from gmaflow.weights.published import to_published

        theirs = to_published(checkpoint.tensors, checkpoint.config)
        content = io.BytesIO()
        torch.save({f"module.{name}": value for name, value in theirs.items()}, content)
        with atomic_write(path) as temporary:
            temporary.write_bytes(content.getvalue())
    else:
        raise WeightsError(
            f"{path}: weights are written as .safetensors or .pth; use one of these suffixes"
        )


def read_ours(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a safetensors file that gmaflow wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get(METADATA_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as err:
        raise WeightsError(f"the file is truncated or damaged ({err}); download it again") from None
    if about is None:
        raise WeightsError(
            "the safetensors file has no description of the network by gmaflow; only files that "
            "gmaflow wrote can be read, convert others from their .pth"
        )
    config, card = parse_about(about)
    if model is not None and model != config:
        raise WeightsError(
            f"the file holds {describe(config)}, but {describe(model)} was requested; omit the "
            "model to use that of the file"
        )
    check_same_tensors(tensors, empty_state(config))
    return Checkpoint(config=config, tensors=as_float32(tensors), card=card)


def read_published(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a `.pth` file as the authors saved it."""
    from gmaflow.weights.published import from_published, recognise, unwrap

    theirs = unwrap(load_tensors_only(path))
    config = recognise(theirs, model)
    if config.aggregates and model is None:
        log.warning(
            "%s: content, content + position and position-only checkpoints hold the same tensors; "
            "assuming gma (content), specify the model if it is gma-p or gma-p-only",
            path.name,
        )
    tensors = as_float32(from_published(theirs, config))
    card = ModelCard(title=path.stem, notes="converted from the authors' format")
    return Checkpoint(config=config, tensors=tensors, card=card, origin="published")


def load_tensors_only(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Read a `.pth` file with torch, refusing anything but tensors and plain containers."""
    try:
        with warnings.catch_warnings():
            # torch warns about unusual pickles before it refuses them; our message is enough.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as err:
        if "Unsupported" in str(err) or "Weights only load failed" in str(err):
            raise WeightsError(
                "refused: it holds more than tensors, and unpickling anything else could run "
                "untrusted code"
            ) from None
        raise WeightsError("not a checkpoint, or a damaged one; download it again") from None
    except Exception as err:  # noqa: BLE001  torch raises any error on arbitrary bytes
        reason = str(err).strip().splitlines()[0][:120] if str(err).strip() else type(err).__name__
        raise WeightsError(
            f"not a checkpoint, or a truncated one ({reason}); download it again"
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
    """Return the model's name of a network, and how it differs from that model."""
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
    """Return a hash of a network and its weights, independent of the file they came from."""
    hashed = sha256(repr(network.config).encode())
    for name, tensor in sorted(network.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:24]


def empty_state(config: NetworkConfig) -> dict[str, Tensor]:
    """Return the names, shapes and types of a network's tensors, without memory."""
    return {name: value.to("meta") for name, value in blank_network(config).state_dict().items()}


def blank_network(config: NetworkConfig) -> FlowNetwork:
    """Return a network to load weights into, without changing the random state.

    In float32 on the CPU, whatever torch's defaults are. Not on the meta device, where torch's
    initialisers load its compiler, which takes two seconds.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return FlowNetwork(config).float()


def check_same_tensors(found: State, wanted: State) -> None:
    """Refuse tensors that are not exactly the expected ones, and name those that differ."""
    odd = [n for n, v in found.items() if v.is_sparse or v.is_complex() or v.is_quantized]
    if odd:
        raise WeightsError(f"its tensors are not plain numbers: {shorten(odd)}")
    missing = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    misshapen = [
        f"{name} is {shape_text(found[name].shape)} instead of {shape_text(wanted[name].shape)}"
        for name in sorted(found.keys() & wanted.keys())
        if found[name].shape != wanted[name].shape
    ]
    misshapen += [
        f"{name} holds {found[name].dtype}"
        for name in sorted(found.keys() & wanted.keys())
        if wanted[name].is_floating_point() and not found[name].is_floating_point()
    ]
    complaints = []
    if missing:
        complaints.append(f"missing {shorten(missing)}")
    if extra:
        complaints.append(f"unexpected {shorten(extra)}")
    if misshapen:
        complaints.append(f"of another shape or type: {shorten(misshapen)}")
    if complaints:
        raise WeightsError(f"its tensors do not fit this network: {'; '.join(complaints)}")


def shorten(names: list[str], most: int = 4) -> str:
    """List a few names and count the rest."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def as_float32(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return floating point tensors as float32, and counters unchanged."""
    return {
        name: value.float() if value.is_floating_point() else value
        for name, value in tensors.items()
    }


def looks_like_safetensors(path: Path) -> bool:
    """Recognise safetensors by content: eight bytes of length, then a JSON object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix errors with the name of the file."""
    try:
        yield
    except WeightsError as err:
        raise WeightsError(f"{path}: {err}") from None
    except OSError as err:
        raise WeightsError(f"{path}: cannot be read ({err.strerror})") from None


def shipped_weights() -> dict[str, Path]:
    """Return the files of the weights in the package, by name, which is that of a model."""
    return {path.stem: path for path in sorted(SHIPPED_FOLDER.glob("*.safetensors"))}


def find_config(model: str | None) -> NetworkConfig | None:
    """Return the config of a model by name, or None for None.

    Raises:
        WeightsError: There is no such model.
    """
    try:
        return None if model is None else model_config(model)
    except ValueError as err:
        raise WeightsError(str(err)) from None


def find_checkpoint(weights: Path | str | None = None, *, model: str | None = None) -> Checkpoint:
    """Load weights from a file, or shipped weights by name; by default those of the model.

    Args:
        weights: A file, or the name of shipped weights.
        model: The name of a model.

    Raises:
        WeightsError: There are no such weights, or they are of another model.
    """
    config = find_config(model)
    shipped = shipped_weights()
    name = str(model or DEFAULT_MODEL) if weights is None else str(weights)
    if name in shipped:
        found = load_checkpoint(shipped[name], model=config)
        card = replace(found.card, iters=found.card.iters or SHIPPED_ITERS)
        return replace(found, card=card)
    path = Path(name)
    if weights is not None and (path.exists() or path.suffix or path.name != name):
        return load_checkpoint(weights, model=config)
    if name not in MODELS and shipped:
        raise WeightsError(
            f"there are no weights and no file called {name!r}; {suggest(name, shipped)}"
        )
    there_are = f"there are {', '.join(shipped)}" if shipped else "none ship with gmaflow yet"
    raise WeightsError(
        f"no trained weights for {name}: {there_are}; use a file of weights (.safetensors, or a "
        "published .pth)"
    )

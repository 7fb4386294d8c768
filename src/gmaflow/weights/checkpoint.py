"""Checkpoints: ours (safetensors with config and card), the authors' (`.pth`), and shipped ones.

`.pth` files are loaded with `weights_only=True`: torch refuses anything but tensors and plain
containers.
"""

import io
import json
import logging
import pickle
import pickletools
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gmaflow.errors import WeightsError, look_up, os_reason, suggest
from gmaflow.io import atomic_write
from gmaflow.io.images import shape_text
from gmaflow.io.paths import as_path, exists, require_file
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig

log = logging.getLogger(__name__)

Value = TypeVar("Value")
StateDict = Mapping[str, Tensor]
"""The tensors of a network by name."""

METADATA_KEY = "gmaflow"
SHIPPED_FOLDER = Path(__file__).parent / "files"
DEFAULT_MODEL = "gma"
TRUNKS = {"gma": "gma-affine"}
"""Networks whose weights ship as a part of another's: both were trained together."""
SHIPPED_ITERS = 12
"""Refinements that suit the shipped weights, whose files do not name a number; 32 are worse, and so
is a warm start."""

RUN_WEIGHTS = ("best.safetensors", "weights.safetensors")
"""The weights in the folder of a training run: the best, if it was validated, and the newest."""

ZIP_MAGIC = b"PK\3\4"
PICKLE_MAGIC = pickle.PROTO
DAMAGE_ERRORS = (
    ValueError,
    LookupError,
    RuntimeError,
    MemoryError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
)
"""The errors that Python raises for damaged archives and pickles."""
LEGACY_PICKLES = 5
"""A number, a version, the system, the tensors, and the names of their storages; then raw data."""
TENSOR_GLOBALS = re.compile(
    r"collections OrderedDict|torch Size|torch [a-z]\w*|torch (?!Untyped|Typed)[A-Z]\w*Storage"
    r"|torch\._utils _rebuild_(tensor|tensor_v2|parameter)|torch\.nn\.parameter Parameter"
    r"|builtins set|_codecs encode"
)
"""The globals that pickles of tensors use: module and name."""

DAMAGED = "not a checkpoint, or a damaged one; download it again"
UNSAFE = (
    "refused: it holds more than tensors, and unpickling anything else could run untrusted code"
)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A human-readable description of a set of weights."""

    title: str = ""
    trained_on: str = "unknown"
    licence: str = "unknown"
    notes: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    """Measured errors, by name of the data."""
    iters: int | None = None
    """Refinements that suit the weights; None if that is not known."""
    warm_start: bool | None = None
    """Whether a warm start makes sequences better; None if that is not known."""

    def __post_init__(self) -> None:
        if self.iters is not None and (type(self.iters) is not int or self.iters < 1):
            raise ValueError(f"iters is {self.iters!r}, not a whole number of 1 or more")
        if self.warm_start not in (None, True, False):
            raise ValueError(f"warm_start is {self.warm_start!r}, not true or false")
        for name in ("title", "trained_on", "licence", "notes"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {getattr(self, name)!r}, not a text")
        if not isinstance(self.figures, dict) or not all(
            isinstance(figure, int | float) for figure in self.figures.values()
        ):
            raise ValueError(f"figures is {self.figures!r}, not numbers by name")


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
        """Return the network with these weights, in evaluation mode."""
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
            files of the authors apart; otherwise only checked. Weights of `gma` serve as weights
            of `gma-affine` and the other way round, see `fit_to`.

    Raises:
        WeightsError: The file is missing, damaged, unsafe or of another network.
    """
    path = require_file(path, WeightsError, "a .safetensors or .pth file of weights")
    with naming_file(path):
        read = read_safetensors if looks_like_safetensors(path) else read_published
        return fit_to(read(path, model), model)


def save_checkpoint(path: Path | str, checkpoint: Checkpoint, *, half: bool = False) -> None:
    """Write a checkpoint: `.safetensors` in our format, `.pth` in the authors'.

    Args:
        path: The file; its suffix selects the format.
        checkpoint: What to write.
        half: Store in half precision, at half the size; safetensors only.

    Raises:
        WeightsError: The suffix is neither of the two, or the tensors are not the network's.
    """
    path = as_path(path)
    if not isinstance(checkpoint, Checkpoint):
        raise WeightsError(
            f"a {type(checkpoint).__name__} cannot be saved; use "
            "Checkpoint(config=network.config, tensors=network.state_dict())"
        )
    with naming_file(path):  # such as those of a network inside torch.compile
        check_same_tensors(checkpoint.tensors, blank_network(checkpoint.config).state_dict())
    if path.suffix == ".safetensors":
        from safetensors.torch import save

        tensors = {
            name: (value.half() if half and value.is_floating_point() else value).contiguous()
            for name, value in checkpoint.tensors.items()
        }
        about = {"config": asdict(checkpoint.config), "card": asdict(checkpoint.card)}
        with atomic_write(path) as file:
            # Not `save_file`, whose files only their owner can read.
            file.write(save(tensors, {METADATA_KEY: json.dumps(about)}))
    elif path.suffix == ".pth":
        if half:
            raise WeightsError("half precision is for .safetensors files; .pth files stay float32")
        from gmaflow.weights.published import to_published

        theirs = to_published(checkpoint.tensors, checkpoint.config)
        content = io.BytesIO()
        torch.save({f"module.{name}": value for name, value in theirs.items()}, content)
        with atomic_write(path) as file:
            file.write(content.getbuffer())
    else:
        raise WeightsError(
            f"{path}: weights are written as .safetensors or .pth; use one of these suffixes"
        )


def read_safetensors(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a safetensors file that gmaflow wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise WeightsError("its path is not UTF-8; rename the file or its folder") from None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = (file.metadata() or {}).get(METADATA_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as err:
        raise WeightsError(f"the file is truncated or damaged ({err}); download it again") from None
    if metadata is None:
        raise WeightsError(
            "the safetensors file has no description of the network by gmaflow; only files that "
            "gmaflow wrote can be read, convert others from their .pth"
        )
    config, card = parse_metadata(metadata)
    check_model(config, model)
    check_same_tensors(tensors, blank_network(config).state_dict())
    return Checkpoint(config=config, tensors=as_float32(tensors), card=card)


def check_model(config: NetworkConfig, requested: NetworkConfig | None) -> None:
    """Refuse weights that do not fit the requested network."""
    if requested not in (
        None,
        config,
        with_continuation(config),
        replace(config, continuation="none"),
    ):
        assert requested is not None
        raise WeightsError(
            f"the file holds {describe(config)}, but {describe(requested)} was requested; omit the "
            "model to use that of the file"
        )


def read_published(path: Path, model: NetworkConfig | None) -> Checkpoint:
    """Read a `.pth` file as the authors saved it."""
    from gmaflow.weights.published import from_published, infer_config, unwrap

    theirs = unwrap(load_tensors_only(path))
    config = infer_config(theirs, model)
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
    check_pickles(path)
    try:
        with warnings.catch_warnings():
            # torch warns about unusual pickles before it refuses them; our message is enough.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as err:
        if "Unsupported" in str(err) or "Weights only load failed" in str(err):
            raise WeightsError(UNSAFE) from None
        raise WeightsError(DAMAGED) from None
    except Exception as err:  # noqa: BLE001  torch raises any error on arbitrary bytes
        reason = str(err).strip().splitlines()[0][:120] if str(err).strip() else type(err).__name__
        raise WeightsError(
            f"not a checkpoint, or a truncated one ({reason}); download it again"
        ) from None


def check_pickles(path: Path) -> None:
    """Refuse a `.pth` file that would take more memory than its own size.

    torch's `weights_only` allows calls that allocate at will, such as `bytearray(6_000_000_000)`,
    and unpacks compressed members. `torch.save` writes neither for a network.
    """
    with path.open("rb") as file:
        start = file.read(len(ZIP_MAGIC))
        file.seek(0)
        is_zip = start == ZIP_MAGIC  # how torch tells the formats apart
        if not is_zip and not start.startswith(PICKLE_MAGIC):
            raise WeightsError("not a weights file; give a .safetensors or .pth file")
        try:
            if is_zip:
                check_archive(file)
            else:
                for _ in range(LEGACY_PICKLES):
                    check_calls(file)
        except WeightsError:
            raise
        except DAMAGE_ERRORS:
            raise WeightsError(DAMAGED) from None


def check_archive(file: IO[bytes]) -> None:
    """Refuse a zip file of compressed tensors, or with a pickle that `check_calls` refuses."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > file.seek(0, io.SEEK_END):
            raise WeightsError("refused: it is compressed; save it again with torch.save")
        for member in members:
            if member.filename.endswith(".pkl"):
                check_calls(archive.read(member))


def check_calls(source: bytes | IO[bytes]) -> None:
    """Refuse a pickle that calls more than is needed to build tensors."""
    for code, value, _ in pickletools.genops(source):
        is_known = code.name == "GLOBAL" and TENSOR_GLOBALS.fullmatch(str(value))
        if code.name in ("GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4") and not is_known:
            raise WeightsError(UNSAFE)


def parse_metadata(text: str) -> tuple[NetworkConfig, ModelCard]:
    """Read the description of a network from a safetensors file's metadata."""
    try:
        metadata = json.loads(text)
        field_names = {entry.name for entry in fields(ModelCard)}
        card = {
            name: value for name, value in metadata.get("card", {}).items() if name in field_names
        }
        return NetworkConfig(**metadata["config"]), ModelCard(**card)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
        raise WeightsError(
            f"its description of the network cannot be read ({err}); was it written by a newer "
            "gmaflow?"
        ) from None


def describe(config: NetworkConfig) -> str:
    """Return the name of a network's model, and how it differs from that model."""
    for name, model in MODELS.items():
        if model == config:
            return name
    same = [name for name, model in MODELS.items() if model.attention == config.attention]
    base = same[0] if same else "gma"
    changes = [
        f"{key}={value}"
        for key, value in asdict(config).items()
        if asdict(MODELS[base])[key] != value
    ]
    return f"{base} with {', '.join(changes)}"


def with_continuation(config: NetworkConfig) -> NetworkConfig | None:
    """Return the config with affine continuation; None if such a network cannot have it."""
    try:
        return replace(config, continuation="affine")
    except ValueError:
        return None


def fit_to(checkpoint: Checkpoint, requested: NetworkConfig | None) -> Checkpoint:
    """Convert weights of `gma` to `gma-affine` if requested, and vice versa.

    A continuation that is added has its initial values, which leave the flow unchanged. Dropping it
    leaves the network that was trained together with it.
    """
    config = checkpoint.config
    if requested is None or requested == config:
        return checkpoint
    if requested == replace(config, continuation="none"):
        tensors = {n: v for n, v in checkpoint.tensors.items() if not n.startswith("continuation.")}
        return replace(checkpoint, config=requested, tensors=tensors)
    if requested != with_continuation(config):
        return checkpoint
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = new_network(requested)
    network.load_state_dict(checkpoint.tensors, strict=False)
    assert network.attention is not None
    assert network.continuation is not None
    network.continuation.start_from(network.attention.to_query_key.weight)
    return replace(checkpoint, config=requested, tensors=dict(network.state_dict()))


def average(first: Checkpoint, *others: Checkpoint, share: float | None = None) -> Checkpoint:
    """Return the mean of sets of weights of the same network.

    The mean of weights from successive parts of a training is often better than each of them.

    Args:
        first: The first set of weights.
        others: One or more sets of weights.
        share: The share of the last set; the others share the rest equally. By default all shares
            are equal.

    Raises:
        WeightsError: They are of different networks, fewer than two, or the share is not between 0
            and 1.
    """
    if not others:
        raise WeightsError("there is one set of weights; give two or more to average")
    if share is not None and not 0 <= share <= 1:
        raise WeightsError(f"the share of the last weights is {share}; use one from 0 to 1")
    for other in others:
        if first.config != other.config:
            raise WeightsError(
                f"only weights of the same network can be averaged, not of "
                f"{describe(first.config)} and {describe(other.config)}"
            )
    checkpoints = [first, *others]
    expected = blank_network(first.config).state_dict()
    for checkpoint in checkpoints:
        check_same_tensors(checkpoint.tensors, expected)
    last = 1 / len(checkpoints) if share is None else share
    shares = [(1 - last) / len(others)] * len(others) + [last]
    tensors = {
        name: weighted_sum([checkpoint.tensors[name] for checkpoint in checkpoints], shares)
        if expected[name].is_floating_point()
        else value
        for name, value in checkpoints[-1].tensors.items()
    }
    cards = [checkpoint.card for checkpoint in checkpoints]
    card = ModelCard(
        title=f"mean of {len(checkpoints)} sets of weights, {last:.3g} of it the last",
        trained_on="; ".join(dict.fromkeys(card.trained_on for card in cards)),
        licence=agreed(card.licence for card in cards) or "unknown",
        iters=agreed(card.iters for card in cards),
        warm_start=agreed(card.warm_start for card in cards),
    )
    return Checkpoint(config=first.config, tensors=tensors, card=card)


def weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted sum. A weight of 0 leaves a tensor out, even if it is not finite."""
    parts = zip(weights, tensors, strict=True)
    return torch.stack([weight * tensor for weight, tensor in parts if weight]).sum(0)


def agreed(values: Iterable[Value]) -> Value | None:
    """Return the value if all are the same, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def fingerprint(network: FlowNetwork) -> str:
    """Return a hash of a network and its weights, independent of the file they came from."""
    hashed = sha256(repr(network.config).encode())
    for name, tensor in sorted(network.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:24]


def blank_network(config: NetworkConfig) -> FlowNetwork:
    """Return a network with uninitialised weights, to load others into.

    Not on the meta device, on which many operations load torch's compiler, which takes two seconds.
    """
    with SkipInit():
        return new_network(config)


def new_network(config: NetworkConfig) -> FlowNetwork:
    """Return a network with initial weights, without changing the random state.

    In float32 on the CPU, whatever torch's defaults are.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return FlowNetwork(config).float()


class SkipInit(TorchFunctionMode):
    """Skips initialisers: drawing parameters takes longer than loading others."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = kwargs or {}
        # Some initialisers are intercepted themselves, others only through the methods they call.
        initialises = getattr(func, "__module__", None) == torch.nn.init.__name__
        if initialises or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def check_same_tensors(actual: StateDict, expected: StateDict) -> None:
    """Refuse tensors that are not exactly the expected ones, and name those that differ."""
    unusual = [
        name
        for name, value in actual.items()
        if value.is_sparse or value.is_complex() or value.is_quantized or value.is_meta
    ]
    if unusual:
        raise WeightsError(f"its tensors are not plain numbers: {shorten(unusual)}")
    common = sorted(actual.keys() & expected.keys())
    misshapen = [
        f"{name} is {shape_text(actual[name].shape)} instead of {shape_text(expected[name].shape)}"
        for name in common
        if actual[name].shape != expected[name].shape
    ]
    misshapen += [
        f"{name} holds {actual[name].dtype}"
        for name in common
        if expected[name].is_floating_point() and not actual[name].is_floating_point()
    ]
    complaints = {
        "missing": sorted(expected.keys() - actual.keys()),
        "unexpected": sorted(actual.keys() - expected.keys()),
        "of another shape or type:": misshapen,
    }
    if any(complaints.values()):
        text = "; ".join(f"{what} {shorten(names)}" for what, names in complaints.items() if names)
        raise WeightsError(f"its tensors do not fit this network: {text}")


def shorten(names: list[str]) -> str:
    """List a few names and count the rest."""
    rest = len(names) - 4
    return ", ".join(names[:4]) + (f" and {rest} more" if rest > 0 else "")


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
def naming_file(path: Path) -> Iterator[None]:
    """Prefix errors with the name of the file."""
    try:
        yield
    except WeightsError as err:
        raise WeightsError(f"{path}: {err}") from None
    except OSError as err:
        raise WeightsError(f"{path}: cannot be read ({os_reason(err)})") from None


def shipped_weights() -> dict[str, Path]:
    """Return the files of the weights in the package by model, that of the default first."""
    files = {path.stem: path for path in SHIPPED_FOLDER.glob("*.safetensors")}
    files = {name: files[whole] for name, whole in TRUNKS.items() if whole in files} | files
    return {name: files[name] for name in sorted(files, key=lambda n: (n != DEFAULT_MODEL, n))}


def find_config(model: str | None) -> NetworkConfig | None:
    """Return the config of a model by name, or None for None."""
    return None if model is None else look_up("model", model, MODELS, WeightsError)


def find_checkpoint(weights: Path | str | None = None, *, model: str | None = None) -> Checkpoint:
    """Load weights from a file or the folder of a training run, or shipped weights by name.

    By default those of the model.
    """
    if not isinstance(weights, str | PathLike | None):
        raise WeightsError(
            f"the weights are of type {type(weights).__name__}; use a file, a name, or "
            "Checkpoint(config=network.config, tensors=network.state_dict())"
        )
    config = find_config(model)
    shipped = shipped_weights()
    name = str(model or DEFAULT_MODEL) if weights is None else str(weights)
    if name in shipped:
        checkpoint = load_checkpoint(shipped[name])
        if name in TRUNKS:
            checkpoint = fit_to(checkpoint, MODELS[name])
        with naming_file(shipped[name]):
            check_model(checkpoint.config, config)
        return replace(
            fit_to(checkpoint, config), card=shipped_card(checkpoint.card, shipped[name], name)
        )
    path = as_path(name, WeightsError)
    with naming_file(path):  # a name may be too long for the file system
        is_file = path.suffix or path.name != name or exists(path)
    if weights is not None and is_file:
        # An empty name is not the working folder.
        file = find_weights(path) if name and is_folder(path) else weights
        return load_checkpoint(file, model=config)
    if name not in MODELS and shipped:
        raise WeightsError(
            f"there are no weights and no file called {name!r}; {suggest(name, shipped)}"
        )
    available = f"there are {', '.join(shipped)}" if shipped else "none ship with gmaflow yet"
    raise WeightsError(
        f"no trained weights for {name}: {available}; use a file of weights (.safetensors, or a "
        "published .pth)"
    )


def shipped_card(card: ModelCard, file: Path, name: str) -> ModelCard:
    """Return the card of one of the networks of a file that ships."""
    is_part = name != file.stem
    figures = {
        key.partition("/")[2]: value
        for key, value in card.figures.items()
        if key.startswith(f"{name}/")
    }
    return replace(
        card,
        title=f"{name}, trained together with {file.stem}" if is_part else card.title,
        figures=figures or card.figures,
        iters=card.iters or SHIPPED_ITERS,
        warm_start=False,
    )


def find_weights(run: Path) -> Path:
    """Return the best weights of a training run, or the newest if it was not validated."""
    for name in RUN_WEIGHTS:
        if (run / name).is_file():
            return run / name
    raise WeightsError(
        f"{run} contains no trained weights; give a file of weights, or the folder of a run"
    )


def name_weights(weights: str) -> str:
    """Return a short name for weights: that of their file without suffix, or of their run."""
    path = as_path(weights, WeightsError)
    return path.resolve().name if is_folder(path) else path.stem


def is_folder(path: Path) -> bool:
    with naming_file(path):  # a name may be too long for the file system
        return exists(path) and path.is_dir()

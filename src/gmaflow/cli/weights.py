"""`gmaflow weights`: list, show, convert and average network weights."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import Json, Overwrite, run_action
from gmaflow.errors import OutputError, counted, printable

if TYPE_CHECKING:
    from gmaflow.weights import Checkpoint


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the models, and which of them have weights that ship with gmaflow."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Show what a weights file holds.

    Examples:
      gmaflow weights show gma-sintel.pth
      gmaflow weights show mine.safetensors --json
    """

    file: Annotated[Path, tyro.conf.Positional]
    """A .safetensors file, a published .pth, the folder of a training run, or the name of shipped
    weights."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model of a published GMA file: gma, gma-p or gma-p-only."""
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Convert weights between the authors' .pth and our .safetensors.

    Examples:
      gmaflow weights convert gma-sintel.pth gma-sintel.safetensors --half
      gmaflow weights convert mine.safetensors for-the-published-code.pth
    """

    source: Annotated[Path, tyro.conf.Positional]
    """The file to read, the folder of a training run, or the name of shipped weights."""
    target: Annotated[Path, tyro.conf.Positional]
    """The file to write: .safetensors or .pth."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model of a published GMA file: gma, gma-p or gma-p-only."""
    half: bool = False
    """Store half precision, at half the size (.safetensors only)."""
    overwrite: Overwrite = False


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """Average two or more sets of weights of one network.

    The mean of weights from before and after a part of the training is often better than either.

    Examples:
      gmaflow weights average before.safetensors after.safetensors mean.safetensors
      gmaflow weights average gma runs/more mean.safetensors --share 0.75 --half
    """

    files: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE FILE [...] TARGET")
    ]
    """Files of weights, folders of training runs, or names of shipped weights, all of the same
    network; then the file to write: .safetensors or .pth."""
    share: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """The share of the last weights, from 0 to 1; the others share the rest equally. By default all
    shares are equal."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model of published GMA files: gma, gma-p or gma-p-only."""
    half: bool = False
    """Store half precision, at half the size (.safetensors only)."""
    overwrite: Overwrite = False


def main(args: list[str]) -> None:
    run_action(
        args,
        "weights",
        {
            "list": (ListOptions, list_models),
            "show": (ShowOptions, show),
            "convert": (ConvertOptions, convert),
            "average": (AverageOptions, average_weights),
        },
    )


def list_models(options: ListOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    from gmaflow.model import MODELS
    from gmaflow.weights import shipped_weights

    shipped = shipped_weights()
    if options.json:
        weights = {name: str(shipped[name]) if name in shipped else None for name in MODELS}
        print(json.dumps(weights, indent=2))
        return
    table = Table("model", "attention compares", "weights that ship")
    for name, config in MODELS.items():
        table.add_row(name, config.attention, "yes" if name in shipped else "none yet")
    Console().print(table)


def show(options: ShowOptions) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gmaflow.weights import describe, find_checkpoint

    checkpoint = find_checkpoint(options.file, model=options.model)
    about = {
        "file": str(options.file),
        "model": describe(checkpoint.config),
        "parameters": checkpoint.num_parameters,
        "format": checkpoint.origin,
        "config": asdict(checkpoint.config),
        "card": asdict(checkpoint.card),
    }
    if options.json:
        print(json.dumps(about, indent=2))
        return
    table = Table(show_header=False)
    about["parameters"] = f"{checkpoint.num_parameters:,}"
    for name, value in about.items():
        table.add_row(name, Text(printable(as_text(value))))  # untrusted text: no markup
    Console().print(table)


def as_text(value: object, between: str = "\n", mark: str = ": ") -> str:
    """Write a value for a table; a dictionary gets a line for each entry, one inside it a part."""
    if isinstance(value, dict):
        return between.join(
            f"{key}{mark}{as_text(entry, ', ', ' ')}" for key, entry in value.items()
        )
    return str(value)


def convert(options: ConvertOptions) -> None:
    """Write the weights of one file into another."""
    from gmaflow.io import ensure_can_write
    from gmaflow.weights import find_checkpoint

    ensure_can_write(options.target, options.overwrite)
    save(options.target, find_checkpoint(options.source, model=options.model), half=options.half)


def average_weights(options: AverageOptions) -> None:
    """Write the mean of sets of weights."""
    from gmaflow.io import ensure_can_write
    from gmaflow.io.paths import exists
    from gmaflow.weights import average, find_checkpoint

    if len(options.files) < 3:
        raise OutputError(
            f"got {counted(len(options.files), 'file')}; give two or more sets of weights, then "
            "the file to write"
        )
    *sources, target = options.files
    if exists(target) and not options.overwrite:
        raise OutputError(
            f"the mean would be written to the last file, and {target} exists; name another file "
            "after the weights, or add --overwrite to replace it"
        )
    ensure_can_write(target, options.overwrite)
    checkpoints = [find_checkpoint(source, model=options.model) for source in sources]
    save(target, average(*checkpoints, share=options.share), half=options.half)


def save(target: Path, checkpoint: "Checkpoint", *, half: bool) -> None:
    """Write weights, and say what was written."""
    from gmaflow.weights import describe, save_checkpoint

    save_checkpoint(target, checkpoint, half=half)
    size = target.stat().st_size / 2**20
    print(f"wrote {target}: {describe(checkpoint.config)}, {size:.1f} MiB")

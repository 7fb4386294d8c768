"""The options of `gmaflow scenes`, and what they mean."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.errors import FlowError, OutputError
from gmaflow.io import PICTURE_SUFFIXES, ensure_can_write

if TYPE_CHECKING:
    import torch

    from gmaflow.scenes import TextureBank

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
Size = Annotated[str, tyro.conf.arg(metavar="HxW")]

LARGEST = 8192
_LAST_PAIR = 2**53


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the presets."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    """What the scenes are made of, and where."""

    textures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """A folder of images to take surfaces from; by default built-in patterns."""
    textures_split: Literal["all", "train", "held-out"] = "all"
    """Which images of the folder: all, those used for training, or the tenth withheld from it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    def pick_device(self) -> "torch.device":
        """Return where to render."""
        from gmaflow.runtime.device import pick_device

        picked = pick_device(self.device)
        if picked.type == "mps" and self.device == "auto":
            return pick_device("cpu")
        if picked.type not in ("cpu", "cuda"):
            raise FlowError(f"scenes cannot be rendered on {picked}; use --device cpu")
        return picked

    def load_textures(self) -> "TextureBank":
        """Read the textures, or make them."""
        from gmaflow.scenes import TextureBank

        if self.textures is not None:
            return TextureBank.load(self.textures, split=self.textures_split)
        if self.textures_split != "all":
            raise FlowError(
                f"--textures-split {self.textures_split} needs a folder of images; add --textures"
            )
        return TextureBank.procedural()


Look = Annotated[LookOptions, tyro.conf.OmitArgPrefixes]


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """Render pairs with their true flow into a data set in Sintel's layout.

    Examples:
      gmaflow scenes render --count 1000 -o scenes
      gmaflow scenes render --preset drive --size 375x1242 --count 200 --seed 7 -o drive
      gmaflow scenes render --count 1000 --textures photos/ -o scenes --resume
    """

    output: Output
    """The folder to write to."""
    count: int
    """How many pairs."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "mix"
    """One of those that gmaflow scenes list names."""
    size: Size = "368x496"
    """Height and width of the frames."""
    seed: int = 0
    """Another seed gives other pairs."""
    start: int = 0
    """Number of the first pair."""
    look: Look = LookOptions()
    resume: bool = False
    """Go on with a data set that was begun; pairs that are whole are kept."""
    overwrite: bool = False
    """Replace a data set that is there."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Make a contact sheet: both frames, the flow as colour, and what is hidden.

    Examples:
      gmaflow scenes show --preset film -o film.png
      gmaflow scenes show --preset all --count 2 -o all.jpg
    """

    output: Output
    """The picture to write."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "mix"
    """One of those that gmaflow scenes list names, or all."""
    count: int = 8
    """How many pairs of each preset."""
    size: Annotated[str | None, tyro.conf.arg(metavar="HxW")] = None
    """Height and width of the frames; by default small, in the shape that the preset imitates."""
    seed: int = 0
    """Another seed gives other pairs."""
    start: int = 0
    """Number of the first pair."""
    look: Look = LookOptions()
    overwrite: bool = False
    """Replace the picture if it exists."""


@dataclass(frozen=True, kw_only=True)
class StatsOptions:
    """Count how far things move and how much is hidden, and compare with real truth.

    Examples:
      gmaflow scenes stats --preset film --against MPI-Sintel -o film.png
      gmaflow scenes stats --preset all --count 200 --json
    """

    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "all"
    """One of those that gmaflow scenes list names, or all."""
    count: int = 100
    """How many pairs of each preset."""
    against: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """A folder with real true flow, of any data set's layout; may be given again."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """A picture of the distributions to write."""
    size: Annotated[str | None, tyro.conf.arg(metavar="HxW")] = None
    """The size of frames that the numbers are for; by default the one that the preset imitates."""
    shrink: int = 4
    """Render frames so many times smaller, and count motion so many times longer."""
    seed: int = 0
    """Another seed gives other pairs."""
    start: int = 0
    """Number of the first pair."""
    look: Look = LookOptions()
    overwrite: bool = False
    """Replace the picture if it exists."""
    json: bool = False
    """Print JSON."""


def parse_size(text: str) -> tuple[int, int]:
    """Read a size such as 368x496: height, then width.

    Raises:
        FlowError: it is none, or scenes of that size cannot be rendered.
    """
    from gmaflow.io.sizes import read_size
    from gmaflow.scenes.renderer import SMALLEST

    return read_size(text, smallest=SMALLEST, largest=LARGEST)


def check_numbers(start: int, count: int) -> None:
    """Refuse pairs that cannot be counted.

    Raises:
        FlowError: there are none, or they have no number.
    """
    if count < 1:
        raise FlowError(f"--count is {count}; give 1 or more")
    if start < 0 or start + count > _LAST_PAIR:
        raise FlowError(f"--start is {start}; give the number of a pair, 0 or more")


def presets_of(name: str) -> list[str]:
    """Return the presets that a name stands for.

    Raises:
        FlowError: there is no such preset.
    """
    from gmaflow.scenes.presets import PRESETS, check_preset

    if name == "all":
        return list(PRESETS)
    check_preset(name)
    return [name]


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse a picture that cannot be written, before any work is done for it.

    Raises:
        OutputError: it exists, or its suffix names no format.
    """
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise OutputError(f"{path}: no image format is called {path.suffix!r}; use .png or .jpg")
    ensure_can_write(path, overwrite)

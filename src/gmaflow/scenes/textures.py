"""The textures and silhouettes of a run, read once and kept on the device as bytes."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int32, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from gmaflow.errors import ImageError
from gmaflow.io.images import BROKEN, DECODERS
from gmaflow.scenes.outline import outline_texels, spread_colours
from gmaflow.scenes.patterns import draw_patterns
from gmaflow.scenes.silhouettes import KINDS, draw_silhouettes
from gmaflow.scenes.threads import in_threads

log = logging.getLogger(__name__)

TexturesSplit = Literal["all", "train", "held-out"]

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".ppm", ".bmp", ".tif", ".tiff"}
LOADED_SIZE, DRAWN_SIZE = 512, 256
"""Texels along the side of a texture: of those that are read, and of those made by rule alone."""
SHAPE_SHARE = 2
"""A silhouette has half the resolution of a texture; its distances interpolate well."""

_UNUSABLE = (*BROKEN, Image.DecompressionBombError, MemoryError)
_MOST_TEXELS = 2**30
"""Of the largest levels together: texels are numbered in 32 bits, the smaller levels included."""


@dataclass(frozen=True)
class TextureBank:
    """Textures with their smaller versions, and silhouettes, addressed by number.

    Attributes:
        texels: Every texture's levels one after another, from full size to a single texel; red,
            green and blue are the three low bytes, so that one read fetches them all.
        outlines: The silhouettes, see `outline.py`. Number 0 is empty, number 1 full.
        size: Height and width of a texture's first level, a power of two.
        tileable: For each texture whether its opposite edges fit; the others are mirrored.
        textures: The numbers of the textures of each kind: "photo", "material" and "pattern".
        shapes: The numbers of the silhouettes of each kind; "cutout" shape i has texture
            `textures["cutout"][i]`.
        skipped: Files that could not be read, with the reason.
    """

    texels: Int32[Tensor, " texels"]
    outlines: UInt8[Tensor, "m shape shape"]
    size: int
    tileable: tuple[bool, ...]
    textures: dict[str, range]
    shapes: dict[str, range]
    skipped: tuple[str, ...] = ()

    @classmethod
    def load(
        cls, folder: Path | str, size: int = LOADED_SIZE, split: TexturesSplit = "all"
    ) -> "TextureBank":
        """Read a folder of images and its subfolders; images with transparency become cut-outs.

        Images below a folder called `materials` are used for grounds, walls and objects, the rest
        also for backdrops. The built-in patterns and silhouettes are added to them.

        Args:
            folder: the folder.
            size: height and width of the textures, a power of two.
            split: "train" leaves out the images that `is_held_out` names, "held-out" reads only
                those, "all" reads every image.

        Raises:
            ImageError: there is no such folder, or no image in it can be read.
        """
        folder = Path(folder)
        paths = list_pictures(folder, split)
        read = {kind: _Kind() for kind in ("photo", "material", "cutout")}
        skipped: list[str] = []
        found = in_threads(lambda path: _try_to_read(path, size), paths)
        for path, texture in zip(paths, found, strict=True):
            if isinstance(texture, str):
                skipped.append(f"{path.name}: {texture}")
                log.warning("texture %s skipped: %s", path, texture)
                continue
            kind = "material" if "materials" in path.relative_to(folder).parts else "photo"
            read["cutout" if texture.mask is not None else kind].add(texture)
        count = sum(len(kind.colours) for kind in read.values())
        if count > _MOST_TEXELS // (size * size):
            raise ImageError(
                f"{folder}: {count} images of {size}x{size} texels are more than fit; give at most "
                f"{_MOST_TEXELS // (size * size)}, or a smaller size"
            )
        if count == 0:
            raise ImageError(
                f"{folder}: no readable image among {len(paths)}"
                f"{'' if split == 'all' else f' of the split {split}'}; give a folder with JPEG, "
                "PNG or WebP images, or none for the built-in textures"
            )
        return _assemble(read, size, tuple(skipped))

    @classmethod
    def procedural(cls, size: int = DRAWN_SIZE) -> "TextureBank":
        """Textures made by rule, no file needed."""
        return _procedural(size)

    @classmethod
    def blank(cls, size: int) -> "TextureBank":
        """A few black textures and full silhouettes, at no cost: for work whose result is nothing.

        It has something of every kind.
        """
        kinds = ("photo", "material", "cutout", "pattern")
        shapes = ("whole", *KINDS, "cutout")
        texels_each = (4 * size * size - 1) // 3
        side = size // SHAPE_SHARE
        return cls(
            texels=torch.zeros(2 * len(kinds) * texels_each, dtype=torch.int32),
            outlines=torch.full((2 * len(shapes), side, side), 255, dtype=torch.uint8),
            size=size,
            tileable=(True,) * (2 * len(kinds)),
            textures=_ranges(dict.fromkeys(kinds, 2)),
            shapes=_ranges(dict.fromkeys(shapes, 2)),
        )

    def mark_counts_as_free(self) -> None:
        """Tell torch's compiler that what serves this bank shall serve others of its texture size.

        Nothing that renders depends on how many textures and silhouettes there are.
        """
        from torch._dynamo import maybe_mark_dynamic

        for tensor in (self.texels, self.outlines):
            maybe_mark_dynamic(tensor, 0)

    def to(self, device: torch.device | str) -> "TextureBank":
        """The same bank on a device."""
        return replace(self, texels=self.texels.to(device), outlines=self.outlines.to(device))

    @property
    def texels_each(self) -> int:
        """Texels of one texture, all its levels together."""
        return (4 * self.size * self.size - 1) // 3


def is_held_out(name: str) -> bool:
    """Whether an image of this file name is withheld from training: one in ten is.

    A hash of the name decides, so neither the order nor the presence of other files matters.
    """
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 10 == 0


def list_pictures(folder: Path, split: TexturesSplit = "all") -> list[Path]:
    """List the images of a split in a folder and its subfolders, sorted.

    Raises:
        ImageError: there is no such folder.
    """
    if not folder.is_dir():
        raise ImageError(f"{folder}: not a folder; give one with images for textures")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if split == "all":
        return found
    return [path for path in found if is_held_out(path.name) == (split == "held-out")]


class _Kind:
    """What was read of one kind."""

    def __init__(self) -> None:
        self.colours: list[Tensor] = []
        self.masks: list[Tensor] = []
        self.tileable: list[bool] = []

    def add(self, texture: "_Texture") -> None:
        self.colours.append(texture.levels)
        self.tileable.append(texture.tileable)
        if texture.mask is not None:
            self.masks.append(texture.mask)


class _Texture(NamedTuple):
    """One image, as the bank keeps it."""

    levels: Int32[Tensor, " texels"]
    tileable: bool
    mask: Tensor | None

    @classmethod
    def make(cls, colours: Float[Tensor, "3 s s"], alpha: Tensor | None) -> "_Texture":
        mask = None if alpha is None else outline_texels((alpha > 0.5)[None])[0]
        return cls(_levels(colours), alpha is None and _is_tileable(colours), mask)


def _try_to_read(path: Path, size: int) -> "_Texture | str":
    """An image as a texture, or what is wrong with it."""
    try:
        return _Texture.make(*_read(path, size))
    except _UNUSABLE as err:
        return str(err)


@cache
def _procedural(size: int) -> TextureBank:
    return _assemble({kind: _Kind() for kind in ("photo", "material", "cutout")}, size, ())


def _assemble(read: dict[str, _Kind], size: int, skipped: tuple[str, ...]) -> TextureBank:
    patterns = _Kind()
    for colours in draw_patterns(size, count=66):
        patterns.add(_Texture.make(torch.from_numpy(colours).float(), None))
    kinds = {**read, "pattern": patterns}
    shape_size = size // SHAPE_SHARE
    whole = torch.tensor([1, 255], dtype=torch.uint8)[:, None, None].expand(-1, *2 * [shape_size])
    cutouts = [torch.stack(read["cutout"].masks)] if read["cutout"].masks else [whole[:0]]
    drawn = {"whole": whole, **draw_silhouettes(shape_size, each=8), "cutout": cutouts[0]}
    return TextureBank(
        texels=torch.cat([c for kind in kinds.values() for c in kind.colours]),
        outlines=torch.cat(list(drawn.values())),
        size=size,
        tileable=tuple(t for kind in kinds.values() for t in kind.tileable),
        textures=_ranges({name: len(kind.colours) for name, kind in kinds.items()}),
        shapes=_ranges({name: len(shapes) for name, shapes in drawn.items()}),
        skipped=skipped,
    )


def _ranges(counts: dict[str, int]) -> dict[str, range]:
    ends = np.cumsum(list(counts.values())).tolist()
    return {
        name: range(end - count, end)
        for (name, count), end in zip(counts.items(), ends, strict=True)
    }


def _read(path: Path, size: int) -> tuple[Float[Tensor, "3 s s"], Float[Tensor, "s s"] | None]:
    """Colours in 0..1 and, where the image has transparency, its alpha."""
    with Image.open(path, formats=DECODERS) as image:
        picture = image.convert("RGBA")
    has_alpha = bool((np.asarray(picture.getchannel("A")) < 128).any())
    if has_alpha:
        # A cut-out keeps its proportions and a margin that is surely outside.
        side = round(max(picture.size) * 1.06) + 2
        padded = Image.new("RGBA", (side, side))
        padded.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
        picture = padded
    else:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    rgba = torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255).permute(2, 0, 1)
    if not has_alpha:
        return rgba[:3], None
    return spread_colours(rgba[:3], rgba[3]), rgba[3]


def _levels(colours: Float[Tensor, "3 s s"]) -> Int32[Tensor, " texels"]:
    """A texture's levels, each half the size of the one before, packed."""
    return _packed(torch.cat([level.flatten(1) for level in _halvings(colours)], dim=1))


def _halvings(colours: Tensor) -> Iterator[Tensor]:
    while True:
        yield colours
        if colours.shape[-1] == 1:
            return
        colours = F.avg_pool2d(colours[None], 2)[0]


def _packed(colours: Float[Tensor, "3 n"]) -> Int32[Tensor, " n"]:
    red, green, blue = (colours * 255).round().clamp(0, 255).to(torch.int32)
    return red | (green << 8) | (blue << 16)


def _is_tileable(colours: Float[Tensor, "3 s s"]) -> bool:
    """Whether the step across the seam is like the steps inside."""
    seams: Iterable[tuple[Tensor, Tensor]] = (
        (colours[:, :, 0] - colours[:, :, -1], colours[:, :, 1:] - colours[:, :, :-1]),
        (colours[:, 0] - colours[:, -1], colours[:, 1:] - colours[:, :-1]),
    )
    return all(bool(seam.abs().mean() < 1.6 * inside.abs().mean()) for seam, inside in seams)

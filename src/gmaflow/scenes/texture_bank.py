"""The bank of textures and silhouettes that scenes use, kept on the device as bytes."""

import hashlib
import logging
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
from gmaflow.scenes.procedural_assets import draw_patterns, draw_silhouettes, in_threads
from gmaflow.scenes.signed_distance import outline_texels

log = logging.getLogger(__name__)

TexturesSplit = Literal["all", "train", "held-out"]
"""A part of a texture folder, see `is_held_out`."""

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".ppm", ".bmp", ".tif", ".tiff"}
LOADED_SIZE, DRAWN_SIZE = 512, 256
"""Height and width of textures: read from files, and in a bank without files."""
SHAPE_SHARE = 2
"""Silhouettes have half the resolution of textures; their distances interpolate well."""

_FROM_FILES = ("photo", "material", "cutout")
_UNUSABLE = (*BROKEN, Image.DecompressionBombError, MemoryError)
_MAX_TEXELS = 2**30
"""Limit for the largest mipmap levels together: texels have 32-bit indices."""


@dataclass(frozen=True)
class TextureBank:
    """Textures with their mipmaps, and silhouettes, addressed by number."""

    texels: Int32[Tensor, " texels"]
    """The mipmap levels of all textures, from full size to a single texel; red, green and blue are
    the three low bytes, so that one read fetches them all."""
    outlines: UInt8[Tensor, "m shape shape"]
    """The silhouettes, see `signed_distance`. Number 0 is empty, number 1 full."""
    size: int  # height and width of the textures, a power of two
    tileable: tuple[bool, ...]  # whether opposite edges of a texture fit; others are mirrored
    textures: dict[str, range]  # numbers by kind: "photo", "material", "cutout", "pattern"
    shapes: dict[str, range]  # numbers by kind; "cutout" i has the texture textures["cutout"][i]
    skipped: tuple[str, ...] = ()  # files that could not be read, with the reason

    @classmethod
    def load(
        cls, folder: Path | str, size: int = LOADED_SIZE, split: TexturesSplit = "all"
    ) -> "TextureBank":
        """Read a folder of images and its subfolders; images with transparency become cut-outs.

        Images below a folder named `materials` are used for grounds, walls and objects, others for
        backdrops too. The built-in patterns and silhouettes are added. The split "train" leaves out
        the images for which `is_held_out` is true, "held-out" reads only those.
        """
        folder = Path(folder)
        paths = list_pictures(folder, split)
        read: dict[str, list[_Texture]] = {kind: [] for kind in _FROM_FILES}
        skipped: list[str] = []
        textures = in_threads(lambda path: _try_to_read(path, size), paths)
        for path, texture in zip(paths, textures, strict=True):
            if isinstance(texture, str):
                skipped.append(f"{path.name}: {texture}")
                log.warning("texture %s skipped: %s", path, texture)
                continue
            kind = "material" if "materials" in path.relative_to(folder).parts else "photo"
            read["cutout" if texture.outline is not None else kind].append(texture)
        count = sum(map(len, read.values()))
        if count > _MAX_TEXELS // (size * size):
            raise ImageError(
                f"{folder}: {count} images are too many for textures of {size}x{size}; give at "
                f"most {_MAX_TEXELS // (size * size)}, or a smaller size"
            )
        if count == 0:
            raise ImageError(
                f"{folder}: no readable image among {len(paths)}"
                f"{'' if split == 'all' else f' of the split {split}'}; give a folder with JPEG, "
                "PNG or WebP images, or none for the built-in textures"
            )
        return _assemble(read, size, tuple(skipped))

    @classmethod
    @cache
    def procedural(cls, size: int = DRAWN_SIZE) -> "TextureBank":
        """The built-in textures; no files needed."""
        return _assemble({kind: [] for kind in _FROM_FILES}, size, ())

    def mark_counts_as_free(self) -> None:
        """Let compiled code accept banks with any number of textures of this size."""
        from torch._dynamo import maybe_mark_dynamic

        for tensor in (self.texels, self.outlines):
            maybe_mark_dynamic(tensor, 0)

    def to(self, device: torch.device | str) -> "TextureBank":
        return replace(self, texels=self.texels.to(device), outlines=self.outlines.to(device))

    @property
    def texels_each(self) -> int:
        """Number of texels of one texture with its mipmaps."""
        return (4 * self.size * self.size - 1) // 3


def is_held_out(name: str) -> bool:
    """Whether images with this file name are held out from training; one in ten is.

    Only a hash of the name decides, so the split does not depend on other files or their order.
    """
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 10 == 0


def list_pictures(folder: Path, split: TexturesSplit = "all") -> list[Path]:
    """List the images of a split in a folder and its subfolders, sorted by path."""
    if not folder.is_dir():
        raise ImageError(f"{folder}: not a folder; give one with images for textures")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if split == "all":
        return paths
    return [path for path in paths if is_held_out(path.name) == (split == "held-out")]


class _Texture(NamedTuple):
    """One texture as the bank keeps it; cut-outs have an outline."""

    levels: Int32[Tensor, " texels"]
    tileable: bool
    outline: UInt8[Tensor, "shape shape"] | None

    @classmethod
    def make(
        cls, colours: Float[Tensor, "3 s s"], alpha: Float[Tensor, "s s"] | None = None
    ) -> "_Texture":
        outline = None if alpha is None else outline_texels((alpha > 0.5)[None])[0]
        return cls(_levels(colours), alpha is None and _is_tileable(colours), outline)


def _try_to_read(path: Path, size: int) -> "_Texture | str":
    """Read an image as a texture, or return why it cannot be read."""
    try:
        return _Texture.make(*_read(path, size))
    except _UNUSABLE as err:
        return str(err)


def _assemble(read: dict[str, list[_Texture]], size: int, skipped: tuple[str, ...]) -> TextureBank:
    """Add the built-in patterns and silhouettes to the textures from files."""
    patterns = [
        _Texture.make(torch.from_numpy(colours).float())
        for colours in draw_patterns(size, count=66)
    ]
    kinds = {**read, "pattern": patterns}
    textures = [texture for kind in kinds.values() for texture in kind]
    side = size // SHAPE_SHARE
    whole = torch.tensor([1, 255], dtype=torch.uint8)[:, None, None].expand(-1, side, side)
    cutouts = [texture.outline for texture in read["cutout"] if texture.outline is not None]
    shapes = {
        "whole": whole,
        **draw_silhouettes(side, each=8),
        "cutout": torch.stack(cutouts) if cutouts else whole[:0],
    }
    return TextureBank(
        texels=torch.cat([texture.levels for texture in textures]),
        outlines=torch.cat(list(shapes.values())),
        size=size,
        tileable=tuple(texture.tileable for texture in textures),
        textures=_ranges({name: len(kind) for name, kind in kinds.items()}),
        shapes=_ranges({name: len(kind) for name, kind in shapes.items()}),
        skipped=skipped,
    )


def _ranges(counts: dict[str, int]) -> dict[str, range]:
    """Number things of several kinds consecutively."""
    ends = np.cumsum(list(counts.values())).tolist()
    return {
        name: range(end - count, end)
        for (name, count), end in zip(counts.items(), ends, strict=True)
    }


def _read(path: Path, size: int) -> tuple[Float[Tensor, "3 s s"], Float[Tensor, "s s"] | None]:
    """Read colours in 0..1 and, if the image has transparency, its alpha."""
    with Image.open(path, formats=DECODERS) as image:
        picture = image.convert("RGBA")
    has_alpha = bool((np.asarray(picture.getchannel("A")) < 128).any())
    if has_alpha:
        # A cut-out keeps its proportions and gets a transparent margin.
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


def spread_colours(
    colours: Float[Tensor, "3 h w"], alpha: Float[Tensor, "h w"]
) -> Float[Tensor, "3 h w"]:
    """Fill transparent areas with nearby colours, so that edges show no halo."""
    weight = (alpha > 0.9).float()[None, None]
    weighted = colours[None] * weight
    levels = [(weighted, weight)]
    while min(levels[-1][0].shape[-2:]) > 1:
        colour, share = levels[-1]
        levels.append(
            (F.avg_pool2d(colour, 2, ceil_mode=True), F.avg_pool2d(share, 2, ceil_mode=True))
        )
    colour, share = levels[-1]
    filled = colour / share.clamp_min(1e-6)
    for colour, share in reversed(levels[:-1]):
        coarse = F.interpolate(filled, size=colour.shape[-2:], mode="bilinear", align_corners=False)
        filled = colour + coarse * (1 - share)
    return filled[0].clamp(0, 1)


def _levels(colours: Float[Tensor, "3 s s"]) -> Int32[Tensor, " texels"]:
    """The mipmap levels of a texture, each half the size of the one before, packed."""
    levels = [colours]
    while levels[-1].shape[-1] > 1:
        levels.append(F.avg_pool2d(levels[-1][None], 2)[0])
    texels = torch.cat([level.flatten(1) for level in levels], dim=1)
    red, green, blue = (texels * 255).round().clamp(0, 255).to(torch.int32)
    return red | (green << 8) | (blue << 16)


def _is_tileable(colours: Float[Tensor, "3 s s"]) -> bool:
    """Whether the difference across the seam is like the differences inside."""
    seams = (
        (colours[:, :, 0] - colours[:, :, -1], colours[:, :, 1:] - colours[:, :, :-1]),
        (colours[:, 0] - colours[:, -1], colours[:, 1:] - colours[:, :-1]),
    )
    return all(bool(seam.abs().mean() < 1.6 * inside.abs().mean()) for seam, inside in seams)

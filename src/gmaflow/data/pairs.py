"""A pair of frames with its true flow, in three forms: files, arrays, tensors.

`FlowPair` lists the files of a data set, `FlowSample` is what they hold, and `Batch` is what
training learns from: pairs of one size on a device.

Legend: h w rows and columns; *b an optional batch dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame
from gmaflow.io import read_flow_arrays, read_image
from gmaflow.io.images import check_same_size

# Larger values in dense ground truth are renderer errors; RAFT and GMA ignore them too.
_LARGEST_DENSE = 1000

Pixels = UInt8[np.ndarray, "h w 3"] | Float32[np.ndarray, "h w 3"]


@dataclass(frozen=True, kw_only=True)
class FlowSample:
    """A pair of images with optional ground truth, as a data set stores it."""

    image1: UInt8[np.ndarray, "h w 3"]
    image2: UInt8[np.ndarray, "h w 3"]
    flow: Float32[np.ndarray, "h w 2"] | None = None
    """True flow from the first to the second frame, 0 where unknown."""
    valid: Bool[np.ndarray, "h w"] | None = None
    """Where the flow is known."""
    occluded_in: Bool[np.ndarray, "h w"] | None = None
    """Pixels hidden in the second frame whose target lies inside it."""
    occluded_out: Bool[np.ndarray, "h w"] | None = None
    """Pixels whose target lies outside the second frame."""
    unmatched: Bool[np.ndarray, "h w"] | None = None
    """The data set's own mask of pixels not visible in the second frame."""
    invalid: Bool[np.ndarray, "h w"] | None = None
    """Sintel's mask of unreliable flow; the benchmark and the paper count those pixels."""
    foreground: Bool[np.ndarray, "h w"] | None = None
    """KITTI 2015's mask of moving objects."""

    @property
    def occluded(self) -> Bool[np.ndarray, "h w"] | None:
        """All pixels known to be occluded, inside the frame or outside."""
        if self.occluded_in is None or self.occluded_out is None:
            return self.occluded_out
        return self.occluded_in | self.occluded_out


@dataclass(frozen=True, kw_only=True)
class FlowPair:
    """The files of a pair of frames and its ground truth."""

    dataset: str
    scene: str
    """The sequence that the pair belongs to."""
    frame: str
    """The first frame's number, as written in its file name."""
    image1: Path
    image2: Path
    flow: Path | None = None
    visible_flow: Path | None = None
    """The true flow of non-occluded pixels only (KITTI's flow_noc)."""
    occlusion: Path | None = None
    """A mask of occluded pixels."""
    invalid: Path | None = None
    """A mask of pixels whose flow is unreliable."""
    foreground: Path | None = None
    """A mask of moving objects."""
    sparse: bool = False
    """Whether the flow has gaps everywhere, like that of a laser scanner."""
    flow_stride: int = 1
    """Rows and columns of flow per image pixel; the first one is used."""
    camera: str = "left"
    """`left` or `right`."""
    direction: str = "forward"
    """`forward` in time, or `backward`."""

    def follows(self, before: "FlowPair") -> bool:
        """Return whether this pair continues another, in the same sequence and direction."""
        own, other = ((p.scene, p.camera, p.direction) for p in (self, before))
        return own == other and before.image2 == self.image1

    @property
    def files(self) -> tuple[Path, ...]:
        truth = (self.flow, self.visible_flow, self.occlusion, self.invalid, self.foreground)
        return (self.image1, self.image2, *(path for path in truth if path is not None))

    def load(self) -> FlowSample:
        image1, image2 = read_image(self.image1), read_image(self.image2)
        self._check_same_size(image1.shape, self.image2, image2)
        if self.flow is None:
            return FlowSample(image1=image1, image2=image2)
        flow, valid = self._read_truth(self.flow, image1.shape[:2])
        if not self.sparse:
            valid = valid & (np.abs(flow) < _LARGEST_DENSE).all(axis=2)
            flow[~valid] = 0
        unmatched = self._read_occlusion(valid)
        occluded_in, occluded_out = split_occlusion(unmatched, flow, valid)
        return FlowSample(
            image1=image1,
            image2=image2,
            flow=flow,
            valid=valid,
            occluded_in=occluded_in,
            occluded_out=occluded_out,
            unmatched=unmatched,
            invalid=self._read_mask(self.invalid, valid.shape),
            foreground=self._read_mask(self.foreground, valid.shape),
        )

    def _read_truth(
        self, path: Path, size: tuple[int, ...]
    ) -> tuple[Float32[np.ndarray, "h w 2"], Bool[np.ndarray, "h w"]]:
        step = self.flow_stride
        flow = read_flow_arrays(path)
        array, valid = flow.array[::step, ::step], flow.valid[::step, ::step]
        self._check_same_size(size, path, valid)
        return np.ascontiguousarray(array), np.ascontiguousarray(valid)

    def _read_occlusion(self, valid: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"] | None:
        if self.occlusion is not None:
            return self._read_mask(self.occlusion, valid.shape)
        if self.visible_flow is not None:
            _, visible = self._read_truth(self.visible_flow, valid.shape)
            return valid & ~visible
        return None

    def _read_mask(
        self, path: Path | None, size: tuple[int, ...]
    ) -> Bool[np.ndarray, "h w"] | None:
        if path is None:
            return None
        mask = read_image(path).max(axis=2) > 0
        self._check_same_size(size, path, mask)
        return mask

    def _check_same_size(self, size: tuple[int, ...], path: Path, array: np.ndarray) -> None:
        check_same_size(
            {str(self.image1): size, str(path): array},
            error=DatasetError,
            remedy="images, flow and masks of a pair must have the same size",
        )


def split_occlusion(
    occluded: Bool[np.ndarray, "h w"] | None,
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
) -> tuple[Bool[np.ndarray, "h w"] | None, Bool[np.ndarray, "h w"]]:
    """Separate pixels occluded inside the frame (None without a mask) from those that leave it."""
    outside = leaves_frame(flow) & valid
    return (None if occluded is None else occluded & ~outside), outside


class Batch(NamedTuple):
    """Image pairs with ground truth. A single pair has no batch dimension."""

    image1: Float[Tensor, "*b 3 h w"]
    """First frames, RGB in 0..1."""
    image2: Float[Tensor, "*b 3 h w"]
    flow: Float[Tensor, "*b 2 h w"]
    """True flow in pixels; undefined where not valid."""
    valid: Bool[Tensor, "*b h w"]
    """Where the flow is known."""
    occluded: Bool[Tensor, "*b h w"]
    """Pixels of the first frame known to be invisible in the second."""

    @classmethod
    def from_arrays(
        cls,
        images: tuple[Pixels, Pixels],
        flow: Float32[np.ndarray, "h w 2"],
        valid: Bool[np.ndarray, "h w"],
        occluded: Bool[np.ndarray, "h w"],
    ) -> "Batch":
        """Convert one pair; images hold values in 0..255."""
        image1, image2 = (
            torch.from_numpy(image.transpose(2, 0, 1) / np.float32(255)) for image in images
        )
        return cls(
            image1,
            image2,
            torch.from_numpy(flow.transpose(2, 0, 1).copy()),
            torch.from_numpy(valid),
            torch.from_numpy(occluded),
        )

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device; copies from pinned memory are asynchronous."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @classmethod
    def join(cls, parts: Sequence["Batch"]) -> "Batch":
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def split(self, parts: int) -> list["Batch"]:
        chunks = (tensor.chunk(parts) for tensor in self)
        return [Batch(*part) for part in zip(*chunks, strict=True)]

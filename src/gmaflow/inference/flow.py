"""What an estimate is: a value that can be saved, looked at and used."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.io import encode_png, read_flow_arrays, write_flow, write_image
from gmaflow.io.sizes import check_same_size
from gmaflow.viz import flow_to_image, flow_with_legend, warp_back

BESIDE_FLOW = ("occluded_in", "occluded_out", "confidence")
"""What an .npz holds beside the flow, if flow was estimated both ways."""


@dataclass(frozen=True, kw_only=True)
class FlowStatistics:
    """A flow in a few numbers; lengths in pixels, over the valid pixels."""

    height: int
    width: int
    mean_length: float
    median_length: float
    p95_length: float
    max_length: float
    mean_x: float
    mean_y: float
    valid_share: float


@dataclass(frozen=True, eq=False)
class Flow:
    """The motion of every pixel, from one frame to another."""

    array: Float32[np.ndarray, "h w 2"]
    """In pixels, x to the right, then y down."""
    valid: Bool[np.ndarray, "h w"] | None = None
    """Where the flow is known; None: everywhere, as in all estimates."""
    coarse: Float32[np.ndarray, "h8 w8 2"] | None = None
    """The network's own flow on its padded 1/8 grid, which a warm start begins from."""
    in_tiles: bool = False
    """Whether it was estimated in tiles, for want of memory: with more, it would be another."""
    backward: bool = False
    """Whether it leads from the second frame to the first; .exr alone tells, by its channels."""

    def __repr__(self) -> str:
        told = self.statistics()
        return (
            f"<Flow of {told.height}x{told.width}: mean {told.mean_length:.2f} px, longest "
            f"{told.max_length:.2f} px>"
        )

    def _repr_png_(self) -> bytes:
        """Return the picture, which is what notebooks show."""
        return encode_png(self.picture())

    @property
    def length(self) -> Float32[np.ndarray, "h w"]:
        """How far each pixel moves."""
        return np.hypot(self.array[..., 0], self.array[..., 1])

    def save(self, path: str | Path) -> None:
        """Write the flow; the suffix picks .flo .pfm .npy .npz .flo5 .exr or KITTI's .png."""
        write_flow(path, self.array, self.valid, self.backward)

    def picture(
        self, *, max_length: float | None = None, legend: bool = False
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Draw the flow by the Middlebury colour wheel.

        Args:
            max_length: The length shown at full saturation; the longest by default.
            legend: Add the wheel and its scale in a corner.
        """
        draw = flow_with_legend if legend else flow_to_image
        return draw(self.array, max_length=max_length, valid=self.valid)

    def save_picture(self, path: str | Path, *, max_length: float | None = None) -> None:
        """Draw the flow into an image file."""
        write_image(path, self.picture(max_length=max_length))

    def warp(self, image2: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
        """Bring the second frame back onto the first; the better the flow, the more alike."""
        return warp_back(image2, self.array)

    def mean_error(self, truth: "Flow") -> float:
        """Return the mean end-point error, over the pixels whose truth is known.

        Raises:
            FlowError: The truth is of another size, or knows nothing.
        """
        check_same_size({"the flow": self.array, "the truth": truth.array})
        if self.backward != truth.backward:
            raise FlowError("the truth is of the other direction; give that of this one")
        error = np.linalg.norm(self.array - truth.array, axis=2)
        known = error if truth.valid is None else error[truth.valid]
        if not known.size:
            raise FlowError("no pixel of the truth is known, so there is no error; give another")
        return float(known.mean())

    def statistics(self) -> FlowStatistics:
        """Return the flow in a few numbers."""
        known = np.isfinite(self.array).all(axis=2)
        if self.valid is not None:
            known &= self.valid
        vectors = self.array[known].astype(np.float64)
        if len(vectors) == 0:
            vectors = np.zeros((1, 2))
        length = np.hypot(vectors[:, 0], vectors[:, 1])
        return FlowStatistics(
            height=self.array.shape[0],
            width=self.array.shape[1],
            mean_length=float(length.mean()),
            median_length=float(np.median(length)),
            p95_length=float(np.quantile(length, 0.95)),
            max_length=float(length.max()),
            mean_x=float(vectors[:, 0].mean()),
            mean_y=float(vectors[:, 1].mean()),
            valid_share=float(known.mean()),
        )


def read_flow(path: str | Path) -> Flow:
    """Read a flow file of any known format.

    Raises:
        FlowFileError: It is no flow file, or a broken one.
    """
    array, valid, backward = read_flow_arrays(path)
    return Flow(array, None if valid.all() else valid, backward=backward)


@dataclass(frozen=True, eq=False)
class BidirectionalFlow:
    """Flow both ways, and what follows from it about the first frame's pixels."""

    forward: Flow
    backward: Flow
    occluded_in: Bool[np.ndarray, "h w"]
    """Hidden in the second frame by something else."""
    occluded_out: Bool[np.ndarray, "h w"]
    """Gone from the second frame."""
    confidence: Float32[np.ndarray, "h w"]
    """How well the two directions agree: 1 exactly, below 0.5 occluded, 0 out of the frame."""

    @property
    def occluded(self) -> Bool[np.ndarray, "h w"]:
        """Not visible in the second frame, for either reason."""
        return self.occluded_in | self.occluded_out

    def __repr__(self) -> str:
        return f"<Flow both ways, {self.occluded.mean():.1%} occluded; forward {self.forward!r}>"

    def save(self, path: str | Path) -> None:
        """Write the forward flow, with what is known of its pixels, as an .npz.

        Beside `flow` and `valid` it holds `occluded_in`, `occluded_out` and `confidence`. The
        backward flow is a flow like any other: `backward.save` writes it.

        Raises:
            FlowFileError: The suffix is another; no other format holds occlusion.
        """
        beside = {name: getattr(self, name) for name in BESIDE_FLOW}
        write_flow(path, self.forward.array, self.forward.valid, beside=beside)

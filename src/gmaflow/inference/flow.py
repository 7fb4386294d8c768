"""The result of an estimate: a flow that can be saved, drawn and used."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.inference.camera import CameraMotion, fit_camera
from gmaflow.io import (
    USUAL_BOUND,
    encode_png,
    is_picture,
    read_flow_arrays,
    write_flow,
    write_image,
)
from gmaflow.io.images import check_flow, check_same_size
from gmaflow.viz import flow_to_image, flow_with_legend, occlusion_overlay, panel, warp_back

BESIDE_FLOW = ("occluded_in", "occluded_out", "confidence")
"""Arrays that an .npz holds in addition to the flow, if flow was estimated both ways."""


@dataclass(frozen=True, kw_only=True)
class FlowStatistics:
    """Statistics of a flow: lengths in pixels, over the valid pixels."""

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
    """Where the flow is known; None for everywhere, as in all estimates."""
    coarse: Float32[np.ndarray, "h8 w8 2"] | None = None
    """The flow on the network's padded 1/8 grid, from which a warm start begins."""
    in_tiles: bool = False
    """Whether it was estimated in tiles to save memory, which changes the flow."""
    backward: bool = False
    """Whether it goes from the second frame to the first; only .exr stores this."""
    iterations: int | None = None
    """How many refinements it took; None if it was not estimated here."""

    def __post_init__(self) -> None:
        check_flow(self.array)
        if not self.array.size:
            raise FlowError(f"the flow has the shape {self.array.shape}, which is empty")
        check_mask("valid", self.valid)
        check_same_size({"the flow": self.array, "its valid": self.valid})

    def __repr__(self) -> str:
        stats = self.statistics()
        return (
            f"<Flow of {stats.height}x{stats.width}: mean {stats.mean_length:.2f} px, longest "
            f"{stats.max_length:.2f} px>"
        )

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is None:
            return np.asarray(self.array, dtype=dtype)
        return np.array(self.array, dtype=dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, and 2."""
        height, width, _ = self.array.shape
        return height, width, 2

    def _repr_png_(self) -> bytes:
        """Return the picture that notebooks show."""
        return encode_png(self.picture())

    @property
    def length(self) -> Float32[np.ndarray, "h w"]:
        """How far each pixel moves, in pixels."""
        return np.hypot(self.array[..., 0], self.array[..., 1])

    def save(self, path: str | Path, *, bound: float = USUAL_BOUND) -> None:
        """Write the flow; the name selects the format.

        .flo .pfm .npy .npz .flo5 .exr, .kitti.png (KITTI's 16-bit format), .f16.npz (float16) and
        flow_x.jpg (8 bits, with flow_y.jpg) are flow files; .png .jpg .webp and other image formats
        are pictures, as by `save_picture`.

        Args:
            path: Where to; an existing file is replaced.
            bound: flow_x.jpg: the longest motion in x and in y; longer ones are clipped.
        """
        if is_picture(path):
            self.save_picture(path)
        else:
            write_flow(path, self.array, self.valid, self.backward, bound=bound)

    def picture(
        self, *, max_length: float | None = None, legend: bool = False
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Draw the flow with the Middlebury colour wheel.

        Args:
            max_length: The length at full saturation; the longest by default.
            legend: Add the wheel and its scale in a corner.
        """
        draw = flow_with_legend if legend else flow_to_image
        return draw(self.array, max_length=max_length, valid=self.valid)

    def save_picture(self, path: str | Path, *, max_length: float | None = None) -> None:
        """Draw the flow into an image file."""
        write_image(path, self.picture(max_length=max_length))

    def warp(self, image2: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
        """Warp the second frame onto the first; the better the flow, the more similar they are."""
        if not isinstance(image2, np.ndarray):
            raise FlowError(
                f"the second frame is of type {type(image2).__name__}; use an array height x width "
                "x 3 of uint8, such as from gmaflow.io.read_image"
            )
        return warp_back(image2, self.array)

    def mean_error(self, truth: "Flow") -> float:
        """Return the mean end-point error, over the pixels whose truth is known.

        Raises:
            FlowError: The truth has another size or direction, or no valid pixels.
        """
        if not isinstance(truth, Flow):
            raise FlowError(
                f"the truth is of type {type(truth).__name__}; use a Flow, such as from "
                "gmaflow.read_flow"
            )
        check_same_size({"the flow": self.array, "the truth": truth.array})
        if self.backward != truth.backward:
            raise FlowError(
                "the truth has the opposite direction; use the truth for this direction"
            )
        valid = known_pixels(truth)
        if not valid.any():
            raise FlowError("the truth has no valid pixels; use another")
        error = np.linalg.norm(self.array - truth.array, axis=2)
        return float(error[valid].mean())

    def camera(self, *, ignore: Bool[np.ndarray, "h w"] | None = None) -> CameraMotion:
        """Find the motion of the camera, the residual flow, and what moves by itself.

        Args:
            ignore: Pixels that are not used to find it.

        Raises:
            FlowError: The mask has another size, or leaves too few pixels.
        """
        return fit_camera(self.array, _pixel_weights(self, None, ignore))

    def statistics(self) -> FlowStatistics:
        """Return statistics of the flow."""
        valid = known_pixels(self)
        vectors = self.array[valid].astype(np.float64)
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
            valid_share=float(valid.mean()),
        )


def known_pixels(flow: Flow) -> Bool[np.ndarray, "h w"]:
    """Return where a flow is valid and finite."""
    finite: np.ndarray = np.isfinite(flow.array).all(axis=2)
    return finite if flow.valid is None else finite & flow.valid


def check_mask(name: str, mask: object) -> None:
    """Refuse a mask that is not an array of bool; None is no mask."""
    if mask is None or (isinstance(mask, np.ndarray) and mask.dtype == bool and mask.ndim == 2):
        return
    what = f"of type {type(mask).__name__}"
    if isinstance(mask, np.ndarray):
        what = f"{mask.dtype} {mask.shape}"
    raise FlowError(f"{name} is {what}; use an array of bool, height x width, such as mask > 127")


def read_flow(path: str | Path) -> Flow:
    """Read a flow file of any known format.

    Raises:
        FlowFileError: It is not a flow file, or is damaged.
    """
    array, valid, backward = read_flow_arrays(path)
    return Flow(array, None if valid.all() else valid, backward=backward)


@dataclass(frozen=True, eq=False)
class BidirectionalFlow:
    """Flow both ways, and occlusion and confidence of the first frame's pixels."""

    forward: Flow
    backward: Flow
    occluded_in: Bool[np.ndarray, "h w"]
    """Hidden by something else in the second frame."""
    occluded_out: Bool[np.ndarray, "h w"]
    """Outside the second frame."""
    confidence: Float32[np.ndarray, "h w"]
    """How well the two directions agree: 1 exactly, below 0.5 occluded, 0 out of frame."""

    @property
    def occluded(self) -> Bool[np.ndarray, "h w"]:
        """Not visible in the second frame, for either reason."""
        return self.occluded_in | self.occluded_out

    def camera(self, *, ignore: Bool[np.ndarray, "h w"] | None = None) -> CameraMotion:
        """Find the motion of the camera as `Flow.camera` does; pixels count by confidence."""
        return fit_camera(self.forward.array, _pixel_weights(self.forward, self.confidence, ignore))

    def __repr__(self) -> str:
        return f"<Flow both ways, {self.occluded.mean():.1%} occluded; forward {self.forward!r}>"

    def _repr_png_(self) -> bytes:
        """Return the picture that notebooks show: both directions with one scale, and occlusion."""
        longest = max(flow.statistics().max_length for flow in (self.forward, self.backward))
        scale = longest or None
        hidden = occlusion_overlay(
            np.full((*self.occluded.shape, 3), 255, np.uint8), self.occluded_in, self.occluded_out
        )
        pictures = [self.forward.picture(max_length=scale), self.backward.picture(max_length=scale)]
        return encode_png(panel([*pictures, hidden], ["forward", "backward", "occluded"]))

    def save(self, path: str | Path) -> None:
        """Write the forward flow with its occlusion and confidence as an .npz.

        It holds `flow`, `valid`, `occluded_in`, `occluded_out` and `confidence`. `backward.save`
        writes the backward flow.

        Raises:
            FlowFileError: The suffix is not .npz; no other format holds occlusion.
        """
        beside = {name: getattr(self, name) for name in BESIDE_FLOW}
        write_flow(path, self.forward.array, self.forward.valid, beside=beside)


def _pixel_weights(
    flow: Flow,
    confidence: Float32[np.ndarray, "h w"] | None,
    ignore: Bool[np.ndarray, "h w"] | None,
) -> Float32[np.ndarray, "h w"]:
    """Return how much each pixel counts: not at all if it is ignored or not valid."""
    check_mask("ignore", ignore)
    check_same_size({"the flow": flow.array, "the mask": ignore}, remedy="give a mask of its size")
    weight = np.ones(flow.shape[:2], np.float32) if confidence is None else confidence
    for excluded in (ignore, None if flow.valid is None else ~flow.valid):
        weight = weight if excluded is None else weight * ~excluded
    return weight

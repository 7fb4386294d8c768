"""What can be looked at of a pair: pictures, numbers and files."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from gmaflow import viz
from gmaflow.errors import FlowFileError
from gmaflow.io import write_flow
from gmaflow.serving.jobs import Job, Task
from gmaflow.serving.refusals import RefusedError
from gmaflow.serving.results import Visibility

Picture = UInt8[np.ndarray, "h w *channels"]


@dataclass(frozen=True)
class Look:
    """A pair of a job, as seen by one of its models."""

    job: Job
    task: Task
    max_flow: float | None = None
    """The length that is drawn in full colour; by default the job's longest."""
    iteration: int | None = None
    """Show the flow after so many refinements; the last if None."""

    @property
    def scale(self) -> float | None:
        """The length that is drawn in full colour, or None where nothing moves."""
        return self.max_flow or self.job.max_flow or None

    def frame(self, number: int) -> UInt8[np.ndarray, "h w 3"]:
        """Return the pair's first (0) or second (1) frame."""
        return self.job.footage.folder.frame(self.task.pair + number)

    def flow(self) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow, of the iteration that was asked for."""
        folder, task = self.job.footage.folder, self.task
        if self.iteration is None or self.iteration == self.job.wish.iters:
            return folder.flow(task.pair, task.model)
        return folder.iteration(task.pair, task.model, self.iteration)

    def is_early(self) -> bool:
        """Tell whether this is the flow of a refinement that is there before the result is."""
        folder, task = self.job.footage.folder, self.task
        return self.iteration is not None and folder.has_iteration(
            task.pair, task.model, self.iteration
        )

    def visibility(self) -> Visibility:
        """Return occlusion and confidence."""
        return self.job.footage.folder.visibility(self.task.pair, self.task.model)


def draw_occlusion(look: Look) -> Picture:
    """Draw hidden pixels as a layer to lay over a frame."""
    return viz.occlusion_layer(*look.visibility().occlusion)


def draw_difference(look: Look) -> Picture:
    """Draw how far two models are apart.

    Raises:
        RefusedError: The job has one model only.
    """
    if len(look.job.wish.models) != 2:
        raise RefusedError(404, "this job has one model; compare_model asks for a second")
    other = Look(look.job, Task(look.task.pair, 1 - look.task.model), iteration=look.iteration)
    return viz.error_map(look.flow(), other.flow())


def draw_error(look: Look) -> Picture:
    """Draw how far the flow is from the truth.

    Raises:
        RefusedError: The truth is not known.
    """
    if not look.job.footage.truth:
        raise RefusedError(404, "the true flow is known for the example alone")
    return viz.error_map(look.flow(), look.job.footage.folder.truth())


def draw_panel(look: Look) -> Picture:
    """Draw everything in one figure."""
    seen = look.visibility()
    return viz.pair_panel(
        look.frame(0),
        look.frame(1),
        look.flow(),
        occlusion=seen.occlusion,
        confidence=seen.confidence,
        error=draw_error(look) if look.job.footage.truth else None,
        max_length=look.scale,
    )


PICTURES: dict[str, Callable[[Look], Picture]] = {
    "frame1": lambda look: look.frame(0),
    "frame2": lambda look: look.frame(1),
    "flow": lambda look: viz.flow_to_image(look.flow(), max_length=look.scale),
    "arrows": lambda look: viz.flow_arrows(look.frame(0), look.flow()),
    "warped": lambda look: viz.warp_back(look.frame(1), look.flow()),
    "occlusion": draw_occlusion,
    "confidence": lambda look: viz.confidence_map(look.visibility().confidence),
    "difference": draw_difference,
    "error": draw_error,
    "panel": draw_panel,
}
"""Pictures by name."""

FLOW_FILES = {"flow.flo": ".flo", "flow.npz": ".npz", "flow.png16": ".png"}
"""Files with the numbers, by name, and the suffix that chooses their format."""


def pack_values(look: Look) -> bytes:
    """Return u, v, occlusion and confidence of every pixel, float32, row by row."""
    seen = look.visibility()
    flow = look.flow()
    values = np.empty((*flow.shape[:2], 4), "<f4")
    values[..., :2], values[..., 2], values[..., 3] = flow, seen.code, seen.confidence
    return values.tobytes()


def pack_both(look: Look) -> bytes:
    """Return flow, occlusion and confidence as the bytes of an .npz file."""
    seen, flow, buffer = look.visibility(), look.flow(), BytesIO()
    occluded_in, occluded_out = seen.occlusion
    np.savez_compressed(
        buffer,
        flow=flow,
        valid=np.ones(flow.shape[:2], bool),
        occluded_in=occluded_in,
        occluded_out=occluded_out,
        confidence=seen.confidence,
    )
    return buffer.getvalue()


def flow_file(look: Look, name: str) -> Path:
    """Return a file with the flow, which is written when it is first asked for.

    Raises:
        FlowFileError: The format cannot hold this flow.
    """
    folder, task = look.job.footage.folder, look.task
    iteration = look.iteration or look.job.wish.iters
    path = folder.place(task.pair, task.model) / f"flow-{iteration:02d}{FLOW_FILES[name]}"
    if not path.exists():
        try:
            write_flow(path, look.flow())
        except FlowFileError as err:
            # Where the file lies is nobody's business.
            raise FlowFileError(str(err).replace(str(path), name)) from err
    return path

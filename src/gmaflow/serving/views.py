"""Views of a result: pictures, values, files, attention."""

import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow import viz
from gmaflow.errors import FlowFileError
from gmaflow.inference import FlowEstimator, FrameAttention
from gmaflow.inference.flow import BESIDE_FLOW
from gmaflow.io import atomic_write, encode_png, write_flow
from gmaflow.serving.http_errors import ApiError
from gmaflow.serving.jobs import Job, Task, frame_name, iteration_name
from gmaflow.serving.results import ResultFolder

Picture = UInt8[np.ndarray, "h w *channels"]

CACHED_FRAMES = 8
"""For attention maps. One of 450,000 pixels takes about 7 MB."""


@dataclass(frozen=True)
class ResultView:
    """The result of one model for one pair of a job, and how to draw it."""

    job: Job
    task: Task
    max_flow: float | None = None
    """Length that is drawn in full colour; by default the longest of the job."""
    iteration: int | None = None
    """Number of refinements after which to show the flow; None for the final flow."""

    @property
    def folder(self) -> ResultFolder:
        return self.job.footage.folder

    @property
    def scale(self) -> float | None:
        """Length that is drawn in full colour, or None if nothing moves."""
        return self.max_flow or self.job.max_flow or None

    def frame(self, number: int) -> UInt8[np.ndarray, "h w 3"]:
        """Return the first (0) or second (1) frame."""
        return self.folder.load(frame_name(self.task.number + number))

    def flow(self) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow after `iteration` refinements."""
        if self.iteration is None or self.iteration == self.job.request.iters:
            return self.folder.load(self.task.name("flow"))
        name = self.task.name(iteration_name(self.iteration))
        return self.folder.load(name).astype(np.float32)

    def is_early(self) -> bool:
        """Return whether this is the flow of a refinement that exists before the final flow."""
        return self.iteration is not None and self.folder.has(
            self.task.name(iteration_name(self.iteration))
        )

    def occlusion_code(self) -> UInt8[np.ndarray, "h w"]:
        """Return 0 for visible pixels, 1 for occluded ones, 2 for those out of the frame."""
        return self.folder.load(self.task.name("occlusion"))

    def occlusion(self) -> tuple[Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Return masks of the occluded pixels and of those out of the frame."""
        code = self.occlusion_code()
        return code == 1, code == 2

    def confidence(self) -> Float32[np.ndarray, "h w"]:
        return self.folder.load(self.task.name("confidence")).astype(np.float32)


def draw_difference(view: ResultView) -> Picture:
    """Draw the distance between the flows of two models."""
    if len(view.job.request.models) != 2:
        raise ApiError(404, "this job has one model; set compare_model to compute a second")
    other = ResultView(view.job, Task(view.task.number, 1 - view.task.model), None, view.iteration)
    return viz.error_map(view.flow(), other.flow())


def draw_error(view: ResultView) -> Picture:
    """Draw the distance between the flow and the true flow."""
    if not view.job.footage.truth:
        raise ApiError(404, "the true flow is known only for the built-in example")
    return viz.error_map(view.flow(), view.folder.load("truth"))


def draw_panel(view: ResultView) -> Picture:
    return viz.pair_panel(
        view.frame(0),
        view.frame(1),
        view.flow(),
        occlusion=view.occlusion(),
        confidence=view.confidence(),
        error=draw_error(view) if view.job.footage.truth else None,
        max_length=view.scale,
    )


PICTURES: dict[str, Callable[[ResultView], Picture]] = {
    "frame1": lambda view: view.frame(0),
    "frame2": lambda view: view.frame(1),
    "flow": lambda view: viz.flow_to_image(view.flow(), max_length=view.scale),
    "arrows": lambda view: viz.flow_arrows(view.frame(0), view.flow()),
    "warped": lambda view: viz.warp_back(view.frame(1), view.flow()),
    "occlusion": lambda view: viz.occlusion_layer(*view.occlusion()),
    "confidence": lambda view: viz.confidence_map(view.confidence()),
    "difference": draw_difference,
    "error": draw_error,
    "panel": draw_panel,
}
"""Pictures by name."""

FLOW_FILES = {"flow.flo": ".flo", "flow.npz": ".npz", "flow.png16": ".png"}
"""Flow files by name, and the suffix of their format."""

ARCHIVED = {
    "pair": ("frame1", "frame2", "flow", "arrows", "warped", "occlusion", "confidence", "panel"),
    "clip": ("flow",),
}
"""Pictures in the archive of a pair; fewer in that of a clip, which has many pairs."""


def pack_values(view: ResultView) -> bytes:
    """Return u, v, occlusion and confidence of every pixel as float32, row by row."""
    flow = view.flow()
    values = np.empty((*flow.shape[:2], 4), "<f4")
    values[..., :2] = flow
    values[..., 2], values[..., 3] = view.occlusion_code(), view.confidence()
    return values.tobytes()


def pack_bidirectional(view: ResultView) -> bytes:
    """Return flow, occlusion and confidence as an .npz file."""
    values = (*view.occlusion(), view.confidence())
    beside = dict(zip(BESIDE_FLOW, values, strict=True))
    path = view.folder.make_once(
        view.task.name("both.npz"), lambda path: write_flow(path, view.flow(), beside=beside)
    )
    return path.read_bytes()


def flow_file(view: ResultView, name: str) -> Path:
    """Return a flow file, which is written on the first request."""
    iteration = view.iteration or view.job.request.iters
    file = view.task.name(f"flow-{iteration:02d}{FLOW_FILES[name]}")
    try:
        return view.folder.make_once(file, lambda path: write_flow(path, view.flow()))
    except FlowFileError as err:  # clients must not see paths of the server
        raise FlowFileError(str(err).replace(str(view.folder.path / file), name)) from err


def archive(job: Job) -> Path:
    """Return a zip file with all results of a finished job, which is written on first request."""

    def write(path: Path) -> None:
        # Pictures are compressed already; the plain .flo files are not.
        with atomic_write(path) as file, zipfile.ZipFile(file, "w") as bundle:
            for task in sorted(job.done, key=lambda task: (task.model, task.number)):
                view = ResultView(job, task)
                stem = f"{job.request.models[task.model]}/{task.number:04d}"
                bundle.write(flow_file(view, "flow.flo"), f"{stem}-flow.flo", zipfile.ZIP_DEFLATED)
                for name in ARCHIVED[job.footage.kind]:
                    bundle.writestr(f"{stem}-{name}.png", encode_png(PICTURES[name](view)))

    return job.footage.folder.make_once("all.zip", write)


class AttentionCache:
    """Encoded frames for attention maps; the least recently used are dropped."""

    def __init__(self) -> None:
        self._frames: OrderedDict[tuple[str, Task], FrameAttention] = OrderedDict()
        self._lock = Lock()

    def prepare(self, job: Job, task: Task, estimator: FlowEstimator) -> FrameAttention:
        """Return the encoded first frame of a pair, encoding it if it is not in the cache."""
        key = (job.id, task)
        # Locked while encoding, so that two requests at once do not encode twice.
        with self._lock:
            if key not in self._frames:
                self._frames[key] = estimator.attend(ResultView(job, task).frame(0))
                while len(self._frames) > CACHED_FRAMES:
                    self._frames.popitem(last=False)
            self._frames.move_to_end(key)
            return self._frames[key]

    def forget(self, job: Job) -> None:
        with self._lock:
            for key in [key for key in self._frames if key[0] == job.id]:
                del self._frames[key]

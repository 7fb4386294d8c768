"""A job: its input, what was requested, and its progress."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from gmaflow.inference import TrackedFrame
from gmaflow.serving.results import ResultFolder

Kind = Literal["pair", "clip"]


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether the state is final."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class Size:
    """Size of an image in pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width} x {self.height}"


@dataclass(frozen=True)
class Footage:
    """The frames of a job."""

    kind: Kind
    folder: ResultFolder
    frames: int
    size: Size
    original: Size
    notes: tuple[str, ...] = ()
    """Changes to the upload, in sentences."""
    truth: bool = False
    """Whether the true flow is known."""
    fps: float = 2.0
    """Frames per second; two images are shown slowly."""

    @property
    def pairs(self) -> int:
        """Number of pairs of consecutive frames."""
        return self.frames - 1


@dataclass(frozen=True)
class JobRequest:
    """What to compute."""

    models: tuple[str, ...]
    iters: int
    bidirectional: bool = True
    every_iteration: bool = True
    """Keep the flow after each refinement."""
    prepare_attention: bool = False
    """Encode the frame for attention maps in advance, so that the first click is fast."""
    reference: int | None = None
    """Track every pixel of this frame through all others, instead of the flow of pairs."""


@dataclass(frozen=True)
class Task:
    """One pair with one model; of a job that tracks, one frame."""

    number: int
    """Of the pair, or of the frame, from 0."""
    model: int = 0

    def name(self, what: str) -> str:
        """Return the name of a result in the folder of the job."""
        return f"pair-{self.number:04d}-{self.model}/{what}"


def frame_name(number: int) -> str:
    """Return the name of a frame in the folder of the job."""
    return f"frame-{number:04d}"


def iteration_name(number: int) -> str:
    """Return the name of the flow after some refinements, for `Task.name`."""
    return f"iteration-{number:02d}"


def track_name(number: int) -> str:
    """Return the name of the tracks in a frame, in the folder of the job."""
    return f"tracks-{number:04d}"


IN_TILES = "computed in tiles to fit in memory; motion out of a tile cannot be matched"


@dataclass(frozen=True)
class JobStatus:
    """The status of a job as clients see it."""

    id: str
    kind: Kind
    state: str
    position: int
    """Place in the queue; 0 if the job is not waiting."""
    progress: float
    """From 0 to 1."""
    step: str
    error: str | None
    notes: tuple[str, ...]
    """What was changed, in sentences: scaled down, cut short, computed in tiles."""
    width: int
    height: int
    original_width: int
    original_height: int
    pairs: int
    done_pairs: list[int]
    """Pairs that all models have finished."""
    models: tuple[str, ...]
    iterations: int
    every_iteration: bool
    """Whether pictures of the flow accept `iteration`: not for clips, nor if memory is short."""
    max_flow: float
    """Longest motion so far in pixels: the length that pictures show in full colour."""
    truth: bool
    """Whether the true flow is known and the view `error` exists."""
    frames: int
    fps: float
    reference: int | None
    """The frame whose pixels are tracked, from 0; None for a job that estimates flow."""
    tracked_frames: list[int]
    """Frames in which the tracks are known, in order."""
    seconds: float
    """Computing time."""


@dataclass(eq=False)
class Job:
    """A job. Only the job queue changes it."""

    client: str
    footage: Footage
    request: JobRequest
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: JobState = JobState.QUEUED
    todo: list[Task] = field(init=False)
    tracking: Iterator[TrackedFrame] | None = None
    """The tracks, frame by frame, once they are begun. They keep the last frames in memory."""
    deadline: float = 0.0
    """When the current task must be finished."""
    done: set[Task] = field(default_factory=set)
    iteration: int = 0
    """Refinement of the current task."""
    in_parts: bool = False
    """Whether memory was short, so that no flow between refinements could be kept."""
    in_tiles: bool = False
    """Whether a pair had to be computed in tiles."""
    error: str | None = None
    failure: int | None = None
    """HTTP status of a failure that the client's data did not cause."""
    stop: str | None = None
    """Why the job is being stopped, if it is."""
    max_flow: float = 0.0
    seconds: float = 0.0
    last_seen: float = field(default_factory=time.monotonic)
    """When a client last asked about it."""
    listeners: set[Callable[[], None]] = field(default_factory=set)
    """Called when the status may have changed."""
    making_files: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a file is made on request, so that it is made once."""

    def __post_init__(self) -> None:
        reference = self.request.reference
        if reference is None:
            self.todo = self._tasks(range(self.footage.pairs))
        else:  # in the order of `FlowEstimator.track`
            frames = (*range(reference, -1, -1), *range(reference + 1, self.footage.frames))
            self.todo = [Task(frame) for frame in frames]

    def seek(self, pair: int) -> None:
        """Compute this pair next, then the ones after it, then the ones before."""
        left = set(self.todo)
        order = (*range(pair, self.footage.pairs), *range(pair))
        self.todo = [task for task in self._tasks(order) if task in left]

    def finished_pairs(self) -> list[int]:
        """Return the pairs that all models have finished."""
        if self.request.reference is not None:
            return []
        counts = [0] * self.footage.pairs
        for task in tuple(self.done):
            counts[task.number] += 1
        return [pair for pair, count in enumerate(counts) if count == len(self.request.models)]

    def tracked_frames(self) -> list[int]:
        """Return the frames in which the tracks are known."""
        if self.request.reference is None:
            return []
        return sorted(task.number for task in tuple(self.done))

    def status(self, position: int) -> JobStatus:
        """Return the status as clients see it."""
        footage, request = self.footage, self.request
        total = len(self.done) + len(self.todo)
        running = self.state is JobState.RUNNING
        part = len(self.done) + (self.iteration / request.iters if running else 0)
        return JobStatus(
            id=self.id,
            kind=footage.kind,
            state=self.state.value,
            position=position,
            progress=round(min(1.0, part / total), 4),
            step=self._step(),
            error=self.error,
            notes=(*self._scaling_note(), *footage.notes, *((IN_TILES,) if self.in_tiles else ())),
            width=footage.size.width,
            height=footage.size.height,
            original_width=footage.original.width,
            original_height=footage.original.height,
            pairs=footage.pairs,
            done_pairs=self.finished_pairs(),
            models=request.models,
            iterations=request.iters,
            every_iteration=request.every_iteration and not self.in_parts,
            max_flow=round(self.max_flow, 4),
            truth=footage.truth,
            frames=footage.frames,
            fps=footage.fps,
            reference=request.reference,
            tracked_frames=self.tracked_frames(),
            seconds=round(self.seconds, 3),
        )

    def _scaling_note(self) -> tuple[str, ...]:
        size, original = self.footage.size, self.footage.original
        if size == original:
            return ()
        sizes = f"scaled down from {original} to {size}"
        if self.request.reference is not None:
            return (f"{sizes}; files of tracks are in pixels of the original",)
        return (f"{sizes}; flow is in pixels of the smaller size",)

    def _step(self) -> str:
        if self.request.reference is not None and self.done and not self.state.over:
            return f"tracking, {len(self.done)} of {self.footage.frames} frames"
        if self.state is not JobState.RUNNING:
            return {JobState.QUEUED: "waiting"}.get(self.state, self.state.value)
        step = (
            f"refining, {self.iteration} of {self.request.iters}" if self.iteration else "encoding"
        )
        if self.footage.pairs > 1:
            step = f"pair {len(self.finished_pairs()) + 1} of {self.footage.pairs}: {step}"
        return step

    def _tasks(self, pairs: range | tuple[int, ...]) -> list[Task]:
        models = range(len(self.request.models))
        return [Task(pair, model) for pair in pairs for model in models]

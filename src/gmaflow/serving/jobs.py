"""A job: what was asked, how far it is, and what became of it."""

import secrets
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from gmaflow.serving.results import ResultFolder

Kind = Literal["pair", "clip"]


class State(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class Size:
    """Of an image, in pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width} x {self.height}"


@dataclass(frozen=True)
class Footage:
    """What a job works on."""

    kind: Kind
    folder: ResultFolder
    frames: int
    size: Size
    original: Size
    notes: tuple[str, ...] = ()
    """What was changed about it, in sentences."""
    truth: bool = False
    """Whether the true flow is known."""

    @property
    def pairs(self) -> int:
        """Pairs of consecutive frames."""
        return self.frames - 1


@dataclass(frozen=True)
class Wish:
    """What is to be done with the footage."""

    models: tuple[str, ...]
    iters: int
    bidirectional: bool = True
    every_iteration: bool = True
    """Keep the flow after each refinement, too."""
    prepare_attention: bool = False
    """Somebody will ask for attention maps, and shall not wait."""


@dataclass(frozen=True)
class Task:
    """One pair with one model: what is computed in one go."""

    pair: int
    model: int


IN_TILES = "computed in tiles for want of memory: what leaves its tile cannot be matched"


@dataclass(frozen=True)
class JobStatus:
    """What a client is told of a job."""

    id: str
    kind: Kind
    state: str
    position: int
    """Jobs that have their turn before it."""
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
    """Pairs that can be looked at, all models of them."""
    models: tuple[str, ...]
    iterations: int
    every_iteration: bool
    """Whether pictures of the flow take `iteration`: of pairs that fit the memory, not of clips."""
    max_flow: float
    """Longest motion so far in pixels: the length that pictures show in full colour."""
    truth: bool
    """Whether the true flow is known, and the view `error` is there."""
    seconds: float
    """Of computing."""


@dataclass(eq=False)
class Job:
    """A job. The workshop alone changes it."""

    client: str
    footage: Footage
    wish: Wish
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: State = State.QUEUED
    todo: list[Task] = field(init=False)
    done: set[Task] = field(default_factory=set)
    iteration: int = 0
    """Of the task at hand."""
    in_parts: bool = False
    """Whether memory was short, so that there was no flow to keep between refinements."""
    in_tiles: bool = False
    """Whether memory was too short for anything but tiles, of a pair at least."""
    error: str | None = None
    timed_out: bool = False
    stop: str | None = None
    """Why it is to stop, where it is."""
    max_flow: float = 0.0
    seconds: float = 0.0
    seen: float = field(default_factory=time.monotonic)
    """When a client last asked about it."""

    def __post_init__(self) -> None:
        self.todo = self._ordered(range(self.footage.pairs))

    def seek(self, pair: int) -> None:
        """Do this pair next, then those after it, then those before."""
        pairs = (*range(pair, self.footage.pairs), *range(pair))
        left = set(self.todo)
        self.todo = [task for task in self._ordered(pairs) if task in left]

    def finished_pairs(self) -> list[int]:
        """Return the pairs that all models are done with."""
        counts = [0] * self.footage.pairs
        for task in tuple(self.done):
            counts[task.pair] += 1
        return [pair for pair, count in enumerate(counts) if count == len(self.wish.models)]

    def status(self, position: int) -> JobStatus:
        """Return what a client is told."""
        footage, wish = self.footage, self.wish
        total = footage.pairs * len(wish.models)
        part = len(self.done) + (self.iteration / wish.iters if self.state is State.RUNNING else 0)
        return JobStatus(
            id=self.id,
            kind=footage.kind,
            state=self.state.value,
            position=position,
            progress=round(min(1.0, part / total), 4),
            step=self._step(),
            error=self.error,
            notes=(*footage.notes, IN_TILES) if self.in_tiles else footage.notes,
            width=footage.size.width,
            height=footage.size.height,
            original_width=footage.original.width,
            original_height=footage.original.height,
            pairs=footage.pairs,
            done_pairs=self.finished_pairs(),
            models=wish.models,
            iterations=wish.iters,
            every_iteration=wish.every_iteration and not self.in_parts,
            max_flow=round(self.max_flow, 4),
            truth=footage.truth,
            seconds=round(self.seconds, 3),
        )

    def _step(self) -> str:
        if self.state is not State.RUNNING:
            return {State.QUEUED: "waiting"}.get(self.state, self.state.value)
        doing = f"refining, {self.iteration} of {self.wish.iters}" if self.iteration else "looking"
        if self.footage.pairs > 1:
            doing = f"pair {len(self.finished_pairs()) + 1} of {self.footage.pairs}: {doing}"
        return doing

    def _ordered(self, pairs: range | tuple[int, ...]) -> list[Task]:
        models = range(len(self.wish.models))
        return [Task(pair, model) for pair in pairs for model in models]

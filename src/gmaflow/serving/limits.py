"""How much one request, one client and all of them together may ask for."""

from dataclasses import dataclass, fields

from gmaflow.errors import FlowError

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server does, and beyond which it says no."""

    upload_bytes: int = 64 * MIB
    """Of one request."""
    pixels: int = 34_000_000
    """Of one image or frame; larger ones are refused before they are decoded."""
    work_pixels: int = 450_000
    """Of the frames that are worked on; larger ones are scaled down to it."""
    clip_seconds: float = 10.0
    """Of a clip; the rest is left out."""
    clip_frames: int = 121
    """Of a clip; the rest is left out."""
    iters: int = 64
    """Most refinements that may be asked for."""
    queue: int = 16
    """Unfinished jobs of one client."""
    job_seconds: float = 120.0
    """That one pair may take with one model."""
    keep_minutes: float = 30.0
    """Results nobody looked at for so long are deleted."""
    keep_results: int = 32
    """Finished jobs that are kept; of more, the longest unseen are deleted."""
    keep_bytes: int = 8 * 2**30
    """Of disk that all jobs together take; finished ones make room, longest unseen first."""
    upload_seconds: float = 120.0
    """That the body of a request may take to arrive."""
    silence_seconds: float = 15.0
    """That may pass between two pieces of it."""
    unseen_seconds: float = 120.0
    """An unfinished job that nobody asked about for so long is given up."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise FlowError(f"the limit {field.name} is {value}; it must be more than 0")

    @property
    def queue_of_all(self) -> int:
        """Unfinished jobs of all clients together."""
        return 4 * self.queue


def work_pixels_of(device: str) -> int:
    """Return how large frames may be so that a pair takes seconds: 1024 x 440, or full HD."""
    return 450_000 if device == "cpu" else 2_200_000

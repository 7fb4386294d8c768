"""Limits on requests, clients and the server as a whole."""

from dataclasses import dataclass, fields

from gmaflow.errors import FlowError

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the server. All must be positive."""

    upload_bytes: int = 64 * MIB
    """Size of one request."""
    pixels: int = 34_000_000
    """Pixels of one image or frame; larger ones are refused before decoding."""
    work_pixels: int = 450_000
    """Pixels of the frames that flow is computed on; larger frames are scaled down."""
    clip_seconds: float = 10.0
    """Length of a clip; the rest is ignored."""
    clip_frames: int = 121
    """Frames of a clip; the rest is ignored."""
    clip_pixels: int = 1_200_000_000
    """Pixels of all frames of a clip; the rest is ignored. 121 frames of 3840 x 2160 are fewer."""
    iters: int = 64
    """Refinements per pair."""
    queue: int = 16
    """Unfinished jobs and uploads of one client."""
    job_seconds: float = 120.0
    """Time to compute one pair with one model, and to decode one upload."""
    keep_minutes: float = 30.0
    """Results are deleted when they were not requested for this long."""
    keep_results: int = 32
    """Finished jobs to keep; the least recently used are deleted first."""
    keep_bytes: int = 8 * 2**30
    """Disk space of all jobs; the least recently used finished jobs are deleted first."""
    upload_seconds: float = 120.0
    """Time for the body of a request to arrive."""
    silence_seconds: float = 15.0
    """Time between two pieces of a body."""
    upload_rate: int = 8 * 1024
    """Lowest average rate of a body in bytes per second, after `silence_seconds`."""
    unseen_seconds: float = 120.0
    """An unfinished job is cancelled when no client asked about it for this long."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise FlowError(f"the limit {field.name} is {value}; it must be more than 0")

    @property
    def track_pixels(self) -> int:
        """Pixels of frames that are tracked: fewer, because all frames of a clip are waited for."""
        return max(1, self.work_pixels // 4)

    @property
    def queue_of_all(self) -> int:
        """Unfinished jobs of all clients together."""
        return 4 * self.queue


def work_pixels_of(device: str) -> int:
    """Return the default of `work_pixels`, at which a pair takes seconds: 1024 x 440 or full HD."""
    return 450_000 if device == "cpu" else 2_200_000

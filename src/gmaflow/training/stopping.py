"""Ending a run between two steps: on Ctrl-C, on a kind kill, or after some time."""

import signal
import threading
import time
from types import FrameType

import torch

from gmaflow.training.distributed import World

AGREE_EVERY = 10
"""Steps after which several processes ask each other; asking costs a little."""


class StopRequest:
    """Remembers that the run should end. A second Ctrl-C ends it at once."""

    def __init__(self, *, after: float | None) -> None:
        self.deadline = None if after is None else time.monotonic() + after
        self.signalled = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set handlers; elsewhere the program around us rules.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signalled:
            raise KeyboardInterrupt
        self.signalled = True

    @property
    def reason(self) -> str:
        """Why to stop; empty if there is no reason."""
        if self.signalled:
            return "interrupted"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "the time is up"
        return ""

    def agreed(self, step: int, world: World, device: torch.device) -> bool:
        """Whether to stop after this step; all processes decide alike."""
        if world.size == 1:
            return bool(self.reason)
        if step % AGREE_EVERY:
            return False
        return bool(world.any(torch.tensor(float(bool(self.reason)), device=device)))

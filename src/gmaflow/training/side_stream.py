"""A second CUDA stream: the next batch is made while the last step still computes."""

from collections import deque
from collections.abc import Callable

import torch

from gmaflow.data import Batch

AHEAD = 2
"""How many batches the CPU may be ahead of the GPU: enough that the GPU never waits."""


class SideStream:
    """A second queue of work for a GPU; on other devices work is done at once.

    Kernels of another stream run where those of a step do not fill the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._handed_over: deque[torch.cuda.Event] = deque()
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def make(self, batch: Callable[[], Batch]) -> Batch:
        """Return a new batch; the caller's stream waits for it, the caller does not."""
        if self._stream is None:
            return batch()
        while len(self._handed_over) >= AHEAD:
            self._handed_over.popleft().synchronize()
        with torch.cuda.stream(self._stream):
            made = batch()
        steps = torch.cuda.current_stream(self._stream.device)
        steps.wait_stream(self._stream)
        for tensor in made:
            # The memory is the side stream's, which must not reuse it before the step reads it.
            tensor.record_stream(steps)
        self._handed_over.append(steps.record_event())
        return made

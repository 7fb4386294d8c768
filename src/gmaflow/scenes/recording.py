"""Work on a GPU recorded once and repeated, so that it costs the CPU one launch."""

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[Tensor], list[Tensor]]


class Recording:
    """A CUDA graph of a function of one tensor; every call repeats it with new contents.

    The function must not look at values, and everything else it reads must stay where it is.
    """

    def __init__(self, work: Work, example: Tensor) -> None:
        self._input = example.clone()
        # What is set up lazily, compiled or tuned at first use must not be part of the recording.
        side = torch.cuda.Stream(example.device)
        side.wait_stream(torch.cuda.current_stream(example.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                work(self._input)
        torch.cuda.current_stream(example.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # A stream of its own, not torch's for all recordings: what runs at the same time as another
        # recording must not share its scratch memory for products of matrices, kept by stream.
        # What other threads do meanwhile is not recorded.
        with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
            self._outputs = work(self._input)
        self._done = torch.cuda.Event()

    def __call__(self, values: Tensor) -> list[Tensor]:
        """Repeat the work for values on the CPU; the results are the caller's to keep."""
        stream = torch.cuda.current_stream(self._input.device)
        stream.wait_event(self._done)  # the last call may have been on another stream
        self._input.copy_(values.pin_memory(), non_blocking=True)
        self._graph.replay()
        results = [output.clone() for output in self._outputs]
        self._done.record(stream)
        return results

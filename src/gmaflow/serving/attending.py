"""Attention maps at a click: the last few frames stay encoded."""

from collections import OrderedDict
from threading import Lock

import numpy as np
from jaxtyping import Float32

from gmaflow.inference import FlowEstimator, FrameAttention
from gmaflow.serving.jobs import Job, Task

Key = tuple[str, Task]


class AttentionCache:
    """Encoded frames, the longest unused forgotten first.

    Args:
        size: How many are kept; one of 450,000 pixels is about 7 MB.
    """

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._kept: OrderedDict[Key, FrameAttention] = OrderedDict()
        self._lock = Lock()

    def prepare(self, job: Job, task: Task, estimator: FlowEstimator) -> FrameAttention:
        """Return a pair's first frame as the network sees it, encoding it if need be."""
        key = (job.id, task)
        # Locked while encoding: two clicks at once shall not do it twice.
        with self._lock:
            if key not in self._kept:
                self._kept[key] = estimator.attend(job.footage.folder.frame(task.pair))
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def forget(self, job: Job) -> None:
        """Drop what is kept of a job."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == job.id]:
                del self._kept[key]


def attention_cells(
    attention: FrameAttention, point: tuple[float, float]
) -> Float32[np.ndarray, "h w"]:
    """Return what a point borrows from each cell of the padded 1/8 grid."""
    return attention.cells([point])[0].cpu().numpy()

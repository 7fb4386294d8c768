"""Flow for whole data sets: a list of clips in, files for each clip out, on any number of machines.

- `manifest`: what to do; inputs become a stream of `Clip`s.
- `destination`: where results go, a folder or an object store, and how finished work is recognised.
- `clip_outputs`: which files a clip becomes.
- `worker`: reads a clip, estimates its flow, writes its files.
- `local_engine`, `ray_engine`: workers in processes of this machine, or on a Ray cluster.
- `job`: the run: what is left to do, and progress.
- `clip_lists`: the table of finished clips, and the list of failures.
"""

from gmaflow.batch.config import BatchConfig
from gmaflow.batch.job import BatchProgress, run_batch
from gmaflow.batch.manifest import Clip, ClipList
from gmaflow.batch.worker import ClipProgress, ClipResult, ClipWorker

__all__ = [
    "BatchConfig",
    "BatchProgress",
    "Clip",
    "ClipList",
    "ClipProgress",
    "ClipResult",
    "ClipWorker",
    "run_batch",
]

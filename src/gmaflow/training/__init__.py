"""Training: data to weights.

A run is a `TrainConfig` (`config`) and `RunOptions`. `setup` checks and builds it, and
`loop` executes its steps (`step`, `loss`; on a GPU compiled and recorded, `recorded`)
on batches from `sources`. `run_folder` saves and resumes it. `validation` and `reporting` measure
and show progress.

from pathlib import Path
from gmaflow.training import RunOptions, preset, train

train(preset("scenes-pretrain"), RunOptions(output=Path("runs/mine")))
"""

from gmaflow.data import Batch
from gmaflow.training.config import PRESETS, StepPlan, TrainConfig, plan_at, preset
from gmaflow.training.loop import RunSummary, train
from gmaflow.training.setup import RunOptions
from gmaflow.training.step import StepResult, TrainStep

__all__ = [
    "PRESETS",
    "Batch",
    "RunOptions",
    "RunSummary",
    "StepPlan",
    "StepResult",
    "TrainConfig",
    "TrainStep",
    "plan_at",
    "preset",
    "train",
]

"""Samples to weights: presets, the loss, one step, the loop, and runs that can be trusted.

from pathlib import Path
from gmaflow.training import RunOptions, preset, train

train(preset("scenes-pretrain"), RunOptions(output=Path("runs/mine")))
"""

from gmaflow.training.batch import Batch
from gmaflow.training.config import TrainConfig
from gmaflow.training.loop import RunSummary, train
from gmaflow.training.preparing import RunOptions
from gmaflow.training.presets import PRESETS, preset
from gmaflow.training.schedule import StepPlan, plan_at
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

"""The network: tensors to tensors. Imports nothing else of the package."""

from gmaflow.model.aggregation import MAX_OFFSET, AttentionWeights
from gmaflow.model.config import MODELS, NetworkConfig, model_config
from gmaflow.model.network import (
    MIN_SIDE,
    EncodedFrame,
    FlowNetwork,
    MatchOptions,
    MemoryPlan,
    OnIteration,
    Prediction,
)
from gmaflow.model.upsample import STRIDE, pixel_grid

__all__ = [
    "MAX_OFFSET",
    "MIN_SIDE",
    "MODELS",
    "STRIDE",
    "AttentionWeights",
    "EncodedFrame",
    "FlowNetwork",
    "MatchOptions",
    "MemoryPlan",
    "NetworkConfig",
    "OnIteration",
    "Prediction",
    "model_config",
    "pixel_grid",
]

"""The network: tensors to tensors. Imports nothing else of the package."""

from gmaflow.model.aggregation import MAX_OFFSET, AttentionWeights
from gmaflow.model.config import MODELS, NetworkConfig, model_config
from gmaflow.model.network import (
    MIN_SIDE,
    EncodedFrame,
    FlowNetwork,
    MemoryPlan,
    OnIteration,
    Prediction,
)
from gmaflow.model.reference import REFERENCE_MIN_SIDE, ReferenceNetwork
from gmaflow.model.upsample import STRIDE, pixel_grid

__all__ = [
    "MAX_OFFSET",
    "MIN_SIDE",
    "MODELS",
    "REFERENCE_MIN_SIDE",
    "STRIDE",
    "AttentionWeights",
    "EncodedFrame",
    "FlowNetwork",
    "MemoryPlan",
    "NetworkConfig",
    "OnIteration",
    "Prediction",
    "ReferenceNetwork",
    "model_config",
    "pixel_grid",
]

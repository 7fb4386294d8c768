"""The network: tensors to tensors.

- `network`: the whole network; `config`: the models by name.
- `encoder`, `correlation`, `aggregation`, `continuation`, `update`: its parts, in the order of use.
- `correlation_kernels`, `upsample_kernels`: the same by Triton kernels, with gradients.
- `gathered_gradients`: gradients that all iterations share, computed once.
- `mixed_product`: a half-precision matrix times float32 values.
"""

from gmaflow.model.aggregation import MAX_OFFSET, AttentionWeights
from gmaflow.model.config import MODELS, NetworkConfig, model_config
from gmaflow.model.correlation import pixel_grid
from gmaflow.model.network import (
    MIN_SIDE,
    EncodedFrame,
    FlowNetwork,
    MatchOptions,
    MemoryPlan,
    OnIteration,
    Prediction,
)
from gmaflow.model.update import STRIDE

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

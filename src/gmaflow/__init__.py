"""Optical flow with global motion aggregation.

    import gmaflow

    flow = gmaflow.estimate("frame1.png", "frame2.png")
    flow.save("flow.flo")
    flow.save_picture("flow.png")

Names are loaded on first use, so the command line answers before torch is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gmaflow.version import __version__

if TYPE_CHECKING:
    from gmaflow.errors import FlowError as FlowError
    from gmaflow.geometry import compose as compose
    from gmaflow.geometry import sample as sample
    from gmaflow.geometry import warp as warp
    from gmaflow.inference import BidirectionalFlow as BidirectionalFlow
    from gmaflow.inference import Flow as Flow
    from gmaflow.inference import FlowEstimator as FlowEstimator
    from gmaflow.inference import Padding as Padding
    from gmaflow.inference import estimate as estimate
    from gmaflow.inference import read_flow as read_flow
    from gmaflow.model import MODELS as MODELS
    from gmaflow.model import FlowNetwork as FlowNetwork
    from gmaflow.model import NetworkConfig as NetworkConfig
    from gmaflow.viz import flow_to_image as flow_to_image
    from gmaflow.weights import Checkpoint as Checkpoint
    from gmaflow.weights import load_checkpoint as load_checkpoint
    from gmaflow.weights import save_checkpoint as save_checkpoint

_HOMES = {
    "MODELS": "gmaflow.model",
    "BidirectionalFlow": "gmaflow.inference",
    "Checkpoint": "gmaflow.weights",
    "Flow": "gmaflow.inference",
    "FlowError": "gmaflow.errors",
    "FlowEstimator": "gmaflow.inference",
    "FlowNetwork": "gmaflow.model",
    "NetworkConfig": "gmaflow.model",
    "Padding": "gmaflow.inference",
    "compose": "gmaflow.geometry",
    "estimate": "gmaflow.inference",
    "flow_to_image": "gmaflow.viz",
    "load_checkpoint": "gmaflow.weights",
    "read_flow": "gmaflow.inference",
    "sample": "gmaflow.geometry",
    "save_checkpoint": "gmaflow.weights",
    "warp": "gmaflow.geometry",
}

__all__ = [
    "MODELS",
    "BidirectionalFlow",
    "Checkpoint",
    "Flow",
    "FlowError",
    "FlowEstimator",
    "FlowNetwork",
    "NetworkConfig",
    "Padding",
    "__version__",
    "compose",
    "estimate",
    "flow_to_image",
    "load_checkpoint",
    "read_flow",
    "sample",
    "save_checkpoint",
    "warp",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'gmaflow' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

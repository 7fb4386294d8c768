"""Entry points for `torch.hub.load`.

torch.hub.load("path/to/gmaflow", "gma", source="local")        # a network, for tensors
torch.hub.load("path/to/gmaflow", "estimator", source="local")  # images in, flow out
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# torch.hub adds the root of the repository to the path only while it imports this file; the
# package is in `src` and loads parts of itself later.
_SOURCE = str(Path(__file__).resolve().parent / "src")
if _SOURCE not in sys.path:
    sys.path.insert(0, _SOURCE)

if TYPE_CHECKING:
    from gmaflow import FlowEstimator, FlowNetwork

dependencies = ["torch", "numpy", "PIL", "av", "safetensors", "jaxtyping"]


def gma(pretrained: bool = True, weights: str | None = None) -> "FlowNetwork":
    """RAFT with global motion aggregation, the paper's final model.

    Args:
        pretrained: Load the weights that ship with gmaflow; otherwise start from random ones.
        weights: A file of weights to load instead, `.safetensors` or a published `.pth`.
    """
    return _network("gma", pretrained, weights)


def gma_affine(pretrained: bool = True, weights: str | None = None) -> "FlowNetwork":
    """GMA that continues motion into hidden pixels; experimental. See `gma`."""
    return _network("gma-affine", pretrained, weights)


def gma_p(pretrained: bool = False, weights: str | None = None) -> "FlowNetwork":
    """GMA whose attention compares content and position; no weights ship. See `gma`."""
    return _network("gma-p", pretrained, weights)


def gma_p_only(pretrained: bool = False, weights: str | None = None) -> "FlowNetwork":
    """GMA whose attention compares position only; no weights ship. See `gma`."""
    return _network("gma-p-only", pretrained, weights)


def raft(pretrained: bool = True, weights: str | None = None) -> "FlowNetwork":
    """RAFT, the baseline without aggregation. See `gma`."""
    return _network("raft", pretrained, weights)


def raft_small(pretrained: bool = False, weights: str | None = None) -> "FlowNetwork":
    """RAFT-small; no weights ship. See `gma`."""
    return _network("raft-small", pretrained, weights)


def estimator(*args: Any, **options: Any) -> "FlowEstimator":  # noqa: ANN401
    """Return a `gmaflow.FlowEstimator`; arguments are its own."""
    from gmaflow import FlowEstimator

    return FlowEstimator(*args, **options)


def _network(model: str, pretrained: bool, weights: str | None) -> "FlowNetwork":
    from gmaflow import MODELS, FlowNetwork
    from gmaflow.weights import find_checkpoint

    if pretrained or weights is not None:
        return find_checkpoint(weights, model=model).build()
    return FlowNetwork(MODELS[model])

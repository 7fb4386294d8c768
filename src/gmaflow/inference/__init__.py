"""Images in, flow out."""

from gmaflow.inference.backend import Backend, as_backend
from gmaflow.inference.device import Precision, as_precision
from gmaflow.inference.estimator import BatchEstimate, FlowEstimator, estimate
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.images import ImageLike, load_image
from gmaflow.inference.padding import PaddingKind

__all__ = [
    "Backend",
    "BatchEstimate",
    "BidirectionalFlow",
    "Flow",
    "FlowEstimator",
    "FlowStatistics",
    "ImageLike",
    "PaddingKind",
    "Precision",
    "as_backend",
    "as_precision",
    "estimate",
    "load_image",
    "read_flow",
]

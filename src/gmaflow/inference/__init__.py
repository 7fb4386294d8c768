"""Images in, flow out."""

from gmaflow.inference.device import Precision, as_precision
from gmaflow.inference.estimator import BatchEstimate, FlowEstimator, estimate
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.frames import Frame
from gmaflow.inference.images import ImageLike, load_image
from gmaflow.inference.padding import PaddingKind

__all__ = [
    "BatchEstimate",
    "BidirectionalFlow",
    "Flow",
    "FlowEstimator",
    "FlowStatistics",
    "Frame",
    "ImageLike",
    "PaddingKind",
    "Precision",
    "as_precision",
    "estimate",
    "load_image",
    "read_flow",
]

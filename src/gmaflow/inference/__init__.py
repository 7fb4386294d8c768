"""Images in, flow out."""

from gmaflow.inference.attention import FrameAttention
from gmaflow.inference.device import Precision, as_precision
from gmaflow.inference.estimator import BatchEstimate, FlowEstimator, estimate
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.images import ImageLike, load_image
from gmaflow.inference.padding import PaddingKind
from gmaflow.inference.refinement import Refinement, Watcher

__all__ = [
    "BatchEstimate",
    "BidirectionalFlow",
    "Flow",
    "FlowEstimator",
    "FlowStatistics",
    "FrameAttention",
    "ImageLike",
    "PaddingKind",
    "Precision",
    "Refinement",
    "Watcher",
    "as_precision",
    "estimate",
    "load_image",
    "read_flow",
]

"""Images in, flow out."""

from gmaflow.inference.attention import FrameAttention
from gmaflow.inference.backend import Backend, as_backend
from gmaflow.inference.engine import BatchEstimate
from gmaflow.inference.estimator import FlowEstimator, estimate
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.frames import Frame
from gmaflow.inference.images import ImageLike, load_image
from gmaflow.inference.padding import PaddingKind
from gmaflow.inference.refinement import Refinement, Watcher
from gmaflow.inference.shot_cuts import CUT_THRESHOLD, cut_score
from gmaflow.inference.video import VideoStep, estimate_video
from gmaflow.runtime.device import Precision, as_precision

__all__ = [
    "CUT_THRESHOLD",
    "Backend",
    "BatchEstimate",
    "BidirectionalFlow",
    "Flow",
    "FlowEstimator",
    "FlowStatistics",
    "Frame",
    "FrameAttention",
    "ImageLike",
    "PaddingKind",
    "Precision",
    "Refinement",
    "VideoStep",
    "Watcher",
    "as_backend",
    "as_precision",
    "cut_score",
    "estimate",
    "estimate_video",
    "load_image",
    "read_flow",
]

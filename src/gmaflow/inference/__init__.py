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
from gmaflow.inference.sequence import (
    CUT_THRESHOLD,
    PairEstimate,
    SequenceFrame,
    VideoStep,
    cut_score,
    estimate_pairs,
    estimate_video,
)
from gmaflow.inference.warm_start import LastFlows
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
    "LastFlows",
    "PaddingKind",
    "PairEstimate",
    "Precision",
    "Refinement",
    "SequenceFrame",
    "VideoStep",
    "Watcher",
    "as_backend",
    "as_precision",
    "cut_score",
    "estimate",
    "estimate_pairs",
    "estimate_video",
    "load_image",
    "read_flow",
]

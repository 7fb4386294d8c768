"""Images in, flow out.

- `estimator`: `FlowEstimator`, which most callers use.
- `engine`: runs the network with a back end (`fast/`), as `planning` and `tiles` allow.
- `images`: what a caller passes in; `flow`, `attention`, `visibility`: what comes out.
"""

from gmaflow.inference.attention import FrameAttention
from gmaflow.inference.engine import Backend, BatchEstimate, Refinement, Watcher, as_backend
from gmaflow.inference.estimator import FlowEstimator, estimate
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.images import Frame, ImageLike, PaddingKind, load_image
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

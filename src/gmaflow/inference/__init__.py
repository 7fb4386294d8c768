"""Images in, flow out.

- `estimator`: `FlowEstimator`, which most callers use.
- `engine`: runs the network with a back end (`fast/`), as `planning` and `tiles` allow.
- `tracking`: points followed through a shot; `tracks`: what comes out of it.
- `images`: what a caller passes in; `flow`, `visibility`: what comes out.
- `sequence`: consecutive frames; `camera`: the camera's motion; `scoring`: a clip in a few numbers.
"""

from gmaflow.inference.camera import CameraMotion, fit_camera
from gmaflow.inference.engine import (
    Backend,
    BatchEstimate,
    FrameAttention,
    Refinement,
    Watcher,
    as_backend,
)
from gmaflow.inference.estimator import (
    EstimatorSettings,
    FlowEstimator,
    device_arguments,
    estimate,
)
from gmaflow.inference.flow import BidirectionalFlow, Flow, FlowStatistics, read_flow
from gmaflow.inference.images import Frame, ImageLike, Padding, PaddingKind, load_image
from gmaflow.inference.scoring import MotionScore, MotionScorer, score_motion
from gmaflow.inference.sequence import (
    CUT_THRESHOLD,
    PairEstimate,
    SequenceFrame,
    VideoStep,
    cut_score,
    estimate_pairs,
    estimate_video,
    is_cut,
)
from gmaflow.inference.tracks import (
    TrackedFrame,
    Tracks,
    default_spacing,
    read_tracks,
    st_map,
)
from gmaflow.inference.warm_start import LastFlows
from gmaflow.runtime.device import Precision, as_precision
from gmaflow.viz.arrows import grid_points

__all__ = [
    "CUT_THRESHOLD",
    "Backend",
    "BatchEstimate",
    "BidirectionalFlow",
    "CameraMotion",
    "EstimatorSettings",
    "Flow",
    "FlowEstimator",
    "FlowStatistics",
    "Frame",
    "FrameAttention",
    "ImageLike",
    "LastFlows",
    "MotionScore",
    "MotionScorer",
    "Padding",
    "PaddingKind",
    "PairEstimate",
    "Precision",
    "Refinement",
    "SequenceFrame",
    "TrackedFrame",
    "Tracks",
    "VideoStep",
    "Watcher",
    "as_backend",
    "as_precision",
    "cut_score",
    "default_spacing",
    "device_arguments",
    "estimate",
    "estimate_pairs",
    "estimate_video",
    "fit_camera",
    "grid_points",
    "is_cut",
    "load_image",
    "read_flow",
    "read_tracks",
    "score_motion",
    "st_map",
]

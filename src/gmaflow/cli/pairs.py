"""Everything that is wanted of one pair."""

from typing import TYPE_CHECKING

from gmaflow.cli.outputs import PairResult

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, ImageLike


def estimate_pair(
    estimator: "FlowEstimator",
    first: "ImageLike",
    second: "ImageLike",
    *,
    backward: bool,
    points: tuple[tuple[float, float], ...],
    previous: "Flow | None" = None,
) -> PairResult:
    """Find out everything that is wanted of a pair."""
    from gmaflow.inference import load_image

    image1, image2 = load_image(first), load_image(second)
    maps = estimator.attention(image1, points) if points else None
    if not backward:
        flow = estimator(image1, image2, previous=previous)
        return PairResult(image1, image2, flow, attention=maps, points=points)
    both = estimator.bidirectional(image1, image2, previous=previous)
    return PairResult(image1, image2, both.forward, both, attention=maps, points=points)


def settings(estimator: "FlowEstimator") -> dict[str, object]:
    """Return how a flow was estimated."""
    from gmaflow.weights import describe

    return {
        "model": describe(estimator.config),
        "iters": estimator.iters,
        "device": str(estimator.device),
        "precision": str(estimator.dtype).removeprefix("torch."),
    }

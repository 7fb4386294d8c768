"""Everything that is wanted of one pair."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.outputs import PairResult
from gmaflow.errors import counted, say
from gmaflow.io import find_breaks

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, Frame, ImageLike


def estimate_pair(
    estimator: "FlowEstimator",
    first: "ImageLike | Frame",
    second: "ImageLike | Frame",
    *,
    backward: bool,
    points: tuple[tuple[float, float], ...],
    previous: "Flow | None" = None,
) -> PairResult:
    """Find out everything that is wanted of a pair; frames of sequences come encoded."""
    from gmaflow.inference import Frame, load_image

    first, second = (
        image if isinstance(image, Frame) else load_image(image) for image in (first, second)
    )
    image1, image2 = (
        image.image if isinstance(image, Frame) else image for image in (first, second)
    )
    maps = estimator.attention(first, points) if points else None
    if not backward:
        flow = estimator(first, second, previous=previous)
        return PairResult(image1, image2, flow, attention=maps, points=points)
    both = estimator.bidirectional(first, second, previous=previous)
    return PairResult(image1, image2, both.forward, both, attention=maps, points=points)


def tell_of_breaks(frames: Sequence[Path]) -> None:
    """Say it where the names of frames do not look like one shot without gaps."""
    if breaks := find_breaks(frames):
        first, second = breaks[0]
        say(
            f"gmaflow: {len(breaks)} of {len(frames) - 1} pairs do not look like neighbours, the "
            f"first {first.name} -> {second.name}; give one shot without gaps, unless it is meant"
        )


def how_estimated(report: Mapping[str, object]) -> str:
    """Return the settings of a report, and how long it took, as a person would say it."""
    iters = report["iters"]
    assert isinstance(iters, int)
    where = "{device}, {precision}, {seconds} s".format(**report)
    return f"{report['model']}, {counted(iters, 'iteration')}, {where}"


def full_scale(length: object) -> str:
    """Return the scale of a report's pictures as a person would say it, nothing if there is none.

    Args:
        length: The length at full colour, or None.
    """
    return f", full scale at {length:.3g} px" if isinstance(length, float) else ""


def settings(estimator: "FlowEstimator") -> dict[str, object]:
    """Return how a flow was estimated."""
    from gmaflow.weights import describe

    return {
        "model": describe(estimator.config),
        "iters": estimator.iters,
        "device": str(estimator.device),
        "precision": str(estimator.dtype).removeprefix("torch."),
    }

"""Middlebury: other-data/Venus/frame10.png, frame11.png, other-gt-flow/Venus/flow10.flo."""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf


def list_middlebury(shelf: Shelf, root: Path, split: str, _variant: str) -> Iterator[FlowPair]:
    """List the scenes with a public truth, or those of the evaluation."""
    has_truth = split == "training"
    images = root / ("other-data" if has_truth else "eval-data")
    flows = root / "other-gt-flow"
    # Four of the twelve scenes in other-data have no truth, and are left out by this.
    for scene in shelf.folders(flows if has_truth else images):
        yield FlowPair(
            dataset="middlebury",
            scene=scene,
            frame="10",
            image1=images / scene / "frame10.png",
            image2=images / scene / "frame11.png",
            flow=flows / scene / "flow10.flo" if has_truth else None,
        )

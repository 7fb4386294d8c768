"""HD1K: hd1k_input/image_2/000000_0001.png and hd1k_flow_gt/flow_occ/000000_0001.png."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following

_NAME = re.compile(r"([0-9]+)_([0-9]+)\.png")


def list_hd1k(shelf: Shelf, root: Path, split: str, _variant: str) -> Iterator[FlowPair]:
    """List the pairs of a split; the last truth of each sequence has no second frame."""
    has_truth = split == "training"
    images = root / ("hd1k_input" if has_truth else "hd1k_challenge") / "image_2"
    flows = root / "hd1k_flow_gt" / "flow_occ"
    names = shelf.files(images) | (shelf.files(flows) if has_truth else frozenset())
    sequences: dict[str, set[str]] = defaultdict(set)
    for name in sorted(names):
        if match := _NAME.fullmatch(name):
            sequences[match[1]].add(match[2])
    for scene, frames in sequences.items():
        for now, then in following(frames):
            yield FlowPair(
                dataset="hd1k",
                scene=scene,
                frame=now,
                image1=images / f"{scene}_{now}.png",
                image2=images / f"{scene}_{then}.png",
                flow=flows / f"{scene}_{now}.png" if has_truth else None,
                sparse=True,
            )

"""Slow Flow: 100/sequence/Animals/seq1_0000000.png, seq1_0000001.png; images alone.

The first folder is the largest motion in pixels. The flow that comes with them was itself estimated
(from frames of a high-speed camera), hence it is not read as truth.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following

_NAME = re.compile(r"(.+_)([0-9]+)\.png")


def list_slowflow(shelf: Shelf, root: Path, _split: str, variant: str) -> Iterator[FlowPair]:
    """List the pairs whose motion goes up to `variant` pixels: 100, 200 or 300."""
    top = root / variant / "sequence"
    for scene in shelf.folders(top):
        sequences: dict[str, set[str]] = defaultdict(set)
        for name in sorted(shelf.files(top / scene)):
            if match := _NAME.fullmatch(name):
                sequences[match[1]].add(match[2])
        for prefix, numbers in sequences.items():
            for now, then in following(numbers):
                yield FlowPair(
                    dataset="slowflow",
                    scene=scene,
                    frame=f"{prefix}{now}",
                    image1=top / scene / f"{prefix}{now}.png",
                    image2=top / scene / f"{prefix}{then}.png",
                )

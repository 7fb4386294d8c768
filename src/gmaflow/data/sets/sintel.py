"""MPI Sintel: training/clean/alley_1/frame_0001.png and training/flow/alley_1/frame_0001.flo."""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following, successor


def list_sintel(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    """List the pairs of a pass: clean, final or albedo."""
    top, has_truth = root / split, split == "training"
    scenes = set(shelf.folders(top / variant))
    if has_truth and scenes:
        scenes.update(shelf.folders(top / "flow"))
    for scene in sorted(scenes):
        images, flows = top / variant / scene, top / "flow" / scene
        numbers = shelf.numbers(images, "frame_#.png")
        known = shelf.numbers(flows, "frame_#.flo") if has_truth else set()
        # A truth whose second frame is nowhere to be seen still tells of a pair.
        steps = dict(following(numbers | known)) | {now: successor(now) for now in known}
        for now in sorted(steps):
            mask = f"frame_{now}.png"
            yield FlowPair(
                dataset="sintel",
                scene=scene,
                frame=now,
                image1=images / f"frame_{now}.png",
                image2=images / f"frame_{steps[now]}.png",
                flow=flows / f"frame_{now}.flo" if has_truth else None,
                occlusion=shelf.if_there(top / "occlusions" / scene / mask) if has_truth else None,
                invalid=shelf.if_there(top / "invalid" / scene / mask) if has_truth else None,
            )

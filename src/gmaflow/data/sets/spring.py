"""Spring: train/0001/frame_left/frame_left_0001.png, flow_FW_left/flow_FW_left_0001.flo5.

The truth has twice the images' resolution, in pixels of the images; every second pixel of every
second row belongs to a pixel of the image.
"""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following

_SPLITS = {"training": "train", "test": "test"}
_DIRECTIONS = {"FW": "forward", "BW": "backward"}


def list_spring(shelf: Shelf, root: Path, split: str, _variant: str) -> Iterator[FlowPair]:
    """List both directions of both cameras."""
    top = root / _SPLITS[split]
    if not shelf.folders(top):  # the archives unpack into a folder of this name
        top = root / "spring" / _SPLITS[split]
    for scene in shelf.folders(top):
        for camera in ("left", "right"):
            for short in _DIRECTIONS:
                yield from _list_scene(
                    shelf, top / scene, camera, short, has_truth=top.name == "train"
                )


def _list_scene(
    shelf: Shelf, folder: Path, camera: str, short: str, *, has_truth: bool
) -> Iterator[FlowPair]:
    images, flows = folder / f"frame_{camera}", folder / f"flow_{short}_{camera}"
    numbers = shelf.numbers(images, f"frame_{camera}_#.png")
    if has_truth:
        if not shelf.files(flows):  # each direction and camera is a download of its own
            return
        numbers |= shelf.numbers(flows, f"flow_{short}_{camera}_#.flo5")
    for earlier, later in following(numbers):
        now, then = (earlier, later) if short == "FW" else (later, earlier)
        yield FlowPair(
            dataset="spring",
            scene=folder.name,
            frame=now,
            image1=images / f"frame_{camera}_{now}.png",
            image2=images / f"frame_{camera}_{then}.png",
            flow=flows / f"flow_{short}_{camera}_{now}.flo5" if has_truth else None,
            flow_stride=2,
            camera=camera,
            direction=_DIRECTIONS[short],
        )

"""A folder of one's own: consecutive frames, in it or in its subfolders, with or without truth.

The truth from a frame to the next is a flow file of the same stem, beside the frame (.flo, .pfm,
.npy, .npz, .flo5) or in a folder `flow` beside it (KITTI's .png and .exr too).
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf
from gmaflow.io import FLOW_SUFFIXES, IMAGE_SUFFIXES
from gmaflow.io.folders import natural_key


def list_folder(shelf: Shelf, root: Path, _split: str, _variant: str) -> Iterator[FlowPair]:
    """List the consecutive frames of the folder, and of each folder in it."""
    yield from _list_frames(shelf, root, scene=root.name)
    for name in shelf.folders(root):
        if name != "flow" and not name.startswith("."):
            yield from _list_frames(shelf, root / name, scene=name)


def _list_frames(shelf: Shelf, folder: Path, *, scene: str) -> Iterator[FlowPair]:
    frames = [
        name
        for name in sorted(shelf.files(folder), key=natural_key)
        if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
    ]
    for now, then in pairwise(frames):
        flow = _find_flow(shelf, folder / now)
        yield FlowPair(
            dataset="folder",
            scene=scene,
            frame=Path(now).stem,
            image1=folder / now,
            image2=folder / then,
            flow=flow,
            sparse=flow is not None and flow.suffix.lower() == ".png",
        )


def _find_flow(shelf: Shelf, image: Path) -> Path | None:
    # What may be a picture would be the frame itself, or another.
    beside = [image.with_suffix(suffix) for suffix in sorted(FLOW_SUFFIXES - IMAGE_SUFFIXES)]
    apart = [image.parent / "flow" / f"{image.stem}{suffix}" for suffix in sorted(FLOW_SUFFIXES)]
    return next((path for path in (*beside, *apart) if shelf.has(path)), None)

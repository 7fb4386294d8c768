"""KITTI 2012 and 2015: training/image_2/000000_10.png, _11.png, training/flow_occ/000000_10.png."""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf

_SPLITS = {"training": "training", "test": "testing"}


def list_kitti_2012(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    """List KITTI 2012's pairs, in colour if they are there; `variant` is occ or noc."""
    top = root / _SPLITS[split]
    folder = "colored_0" if shelf.files(top / "colored_0") else "image_0"
    return _list(shelf, top / folder, variant, "kitti-2012")


def list_kitti_2015(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    """List KITTI 2015's pairs; `variant` is occ or noc."""
    return _list(shelf, root / _SPLITS[split] / "image_2", variant, "kitti-2015")


def _list(shelf: Shelf, images: Path, variant: str, dataset: str) -> Iterator[FlowPair]:
    top = images.parent
    flows = top / f"flow_{variant}"
    has_truth = top.name == "training"
    if has_truth and not shelf.files(flows):
        return
    # The multi-view extension adds frames 00 to 20; only 10 and 11 have a truth.
    scenes = shelf.numbers(images, "#_10.png") | shelf.numbers(flows, "#_10.png")
    for scene in sorted(scenes):
        name = f"{scene}_10.png"
        yield FlowPair(
            dataset=dataset,
            scene=scene,
            frame="10",
            image1=images / name,
            image2=images / f"{scene}_11.png",
            flow=flows / name if has_truth else None,
            visible_flow=shelf.if_there(top / "flow_noc" / name) if variant == "occ" else None,
            foreground=shelf.if_there(top / "obj_map" / name) if has_truth else None,
            sparse=True,
        )

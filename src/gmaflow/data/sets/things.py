"""FlyingThings3D: ten frames a scene, two cameras, flow into the future and into the past.

frames_cleanpass/TRAIN/A/0000/left/0006.png
optical_flow/TRAIN/A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm
"""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following
from gmaflow.errors import DatasetError

NUM_TEST_PAIRS = 7866
"""Of the left camera: 437 scenes, 9 pairs each, both directions."""
_SPLITS = {"training": "TRAIN", "test": "TEST"}
# What GMA's authors judge by: one in ten test pairs of the left camera, all forward ones before all
# backward ones, but for these tens. It is a list of theirs, without a rule that is known.
_FORWARD_TENS_LEFT_OUT = {4, 20, 54, 84, 96, 102, 113, 122, 137, 184, 199}
_BACKWARD_TENS_LEFT_OUT = {400, 405, 406, 451, 478, 486, 496, 505, 506, 509, 564, 577}


def list_things(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    """List both directions of both cameras; `variant` is clean or final.

    `validation` are the test pairs that the paper's figures are of, of the left camera alone.
    """
    if split == "validation":
        return choose_validation(list(_list_split(shelf, root, "test", variant)), root)
    return _list_split(shelf, root, split, variant)


def choose_validation(pairs: list[FlowPair], root: Path) -> Iterator[FlowPair]:
    """Choose the pairs that the paper's figures are of from all test pairs, scene by scene.

    Raises:
        DatasetError: not all of them are there.
    """
    left = [pair for pair in pairs if pair.camera == "left"]
    if not left:
        return
    if len(left) != NUM_TEST_PAIRS:
        raise DatasetError(
            f"{root} has {len(left)} of FlyingThings3D's {NUM_TEST_PAIRS} test pairs of the left "
            "camera, and validation is chosen by their place among all; the split 'test' is "
            "whatever is there"
        )
    ordered = sorted(left, key=lambda pair: pair.direction != "forward")
    left_out = _FORWARD_TENS_LEFT_OUT | _BACKWARD_TENS_LEFT_OUT
    for ten, pair in enumerate(ordered[::10]):
        if ten not in left_out:
            yield pair


def _list_split(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    frames, suffix = root / f"frames_{variant}pass", ".png"
    if not shelf.folders(frames):  # the smaller download has the frames as WebP
        frames, suffix = root / f"frames_{variant}pass_webp", ".webp"
    if not shelf.folders(frames):
        return
    for part, scene in _scenes(shelf, (frames, root / "optical_flow"), _SPLITS[split]):
        place = Path(_SPLITS[split], part, scene)
        for camera in ("left", "right"):
            images = frames / place / camera
            flows = root / "optical_flow" / place
            yield from _list_scene(shelf, images, flows, suffix=suffix, scene=f"{part}/{scene}")


def _scenes(shelf: Shelf, tops: tuple[Path, ...], split: str) -> list[tuple[str, str]]:
    found = {
        (part, scene)
        for top in tops
        for part in shelf.folders(top / split)
        for scene in shelf.folders(top / split / part)
    }
    return sorted(found)


def _list_scene(
    shelf: Shelf, images: Path, flows: Path, *, suffix: str, scene: str
) -> Iterator[FlowPair]:
    camera = images.name
    letter = camera[0].upper()
    future, past = flows / "into_future" / camera, flows / "into_past" / camera
    in_future = shelf.numbers(future, f"OpticalFlowIntoFuture_#_{letter}.pfm")
    in_past = shelf.numbers(past, f"OpticalFlowIntoPast_#_{letter}.pfm")
    # The first and last frames have truth for neighbours that were not published.
    steps = following(shelf.numbers(images, f"#{suffix}") | in_future | in_past)
    forward = (future, "OpticalFlowIntoFuture", "forward", steps)
    backward = (past, "OpticalFlowIntoPast", "backward", [(now, then) for then, now in steps])
    for folder, name, direction, ways in (forward, backward):
        for now, then in ways:
            yield FlowPair(
                dataset="things",
                scene=scene,
                frame=now,
                image1=images / f"{now}{suffix}",
                image2=images / f"{then}{suffix}",
                flow=folder / f"{name}_{now}_{letter}.pfm",
                camera=camera,
                direction=direction,
            )

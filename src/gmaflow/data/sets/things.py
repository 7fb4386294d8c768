"""FlyingThings3D: ten frames a scene, two cameras, flow into the future and into the past.

frames_cleanpass/TRAIN/A/0000/left/0006.png
optical_flow/TRAIN/A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm
"""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf, following

_SPLITS = {"training": "TRAIN", "test": "TEST"}


def list_things(shelf: Shelf, root: Path, split: str, variant: str) -> Iterator[FlowPair]:
    """List both directions of both cameras; `variant` is clean or final."""
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

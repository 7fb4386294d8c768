"""The folder of a rendered data set: what lies where, and whether one may be written there."""

import json
from pathlib import Path

from gmaflow.errors import DatasetError, OutputError
from gmaflow.io import ensure_can_fill

CARD = "scenes.json"
"""The file that tells a data set of ours from anybody else's folder."""

FILES = {
    "clean": ("frame_0001.png", "frame_0002.png"),
    "final": ("frame_0001.png", "frame_0002.png"),
    "occlusions": ("frame_0001.png",),
    "invalid": ("frame_0001.png",),
    "flow": ("frame_0001.flo",),
}
"""What belongs to a pair, by the part of the data set."""


def scene_name(preset: str, number: int) -> str:
    """Name the scene that holds a pair."""
    return f"{preset}_{number:06d}"


def scene_files(folder: Path, scene: str) -> list[Path]:
    """List all files of a pair."""
    return [
        folder / "training" / part / scene / name for part, names in FILES.items() for name in names
    ]


def rendered_scenes(folder: Path) -> list[str] | None:
    """Name the scenes that a data set of ours should hold; None if the folder is none of ours.

    Raises:
        DatasetError: its card cannot be read.
    """
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text())
        start, count = int(card["start"]), int(card["count"])
        return [scene_name(card["preset"], number) for number in range(start, start + count)]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise DatasetError(
            f"{path} is broken; `gmaflow scenes render --overwrite` begins anew"
        ) from err


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> dict[str, object] | None:
    """Look at the folder that a data set is to be written to; nothing is changed.

    Returns:
        What the card of the data set says that is there already; None if the folder is new or
        empty.

    Raises:
        OutputError: the folder holds something that must stay, or cannot be written to.
    """
    if resume and overwrite:
        raise OutputError("--resume keeps what is there and --overwrite does not; give one of them")
    ensure_can_fill(folder)
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return None
        if not (folder / CARD).is_file():
            raise OutputError(
                f"{folder} is not empty and has no {CARD}, so it is no data set of ours; "
                "choose another folder"
            )
        if not (resume or overwrite):
            raise OutputError(
                f"{folder} holds a data set; add --resume to go on with it, or --overwrite to "
                "replace it"
            )
        text = (folder / CARD).read_bytes()
    except OSError as err:
        raise OutputError(
            f"{folder} cannot be looked at ({err.strerror}); choose another folder"
        ) from err
    try:
        card = json.loads(text)
    except ValueError:
        card = None
    if isinstance(card, dict):
        return card
    if overwrite:
        return {}
    raise OutputError(f"{folder / CARD} is broken; add --overwrite to begin anew")

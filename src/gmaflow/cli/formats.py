"""The formats that a folder of results may have, in one word each, for every verb that has them."""

from typing import Literal

from gmaflow.io import KITTI_ENDING

FileFormat = Literal["flo", "pfm", "npy", "npz", "flo5", "exr", "kitti", "png"]
"""Flow as numbers, or png for pictures."""

PICTURES = "png"


def holds_numbers(word: FileFormat) -> bool:
    """Tell whether a format holds the flow itself, for which nothing is drawn."""
    return word != PICTURES


def ending_of(word: FileFormat) -> str:
    """Return how the names of files in a format end."""
    return KITTI_ENDING if word == "kitti" else f".{word}"

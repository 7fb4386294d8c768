"""FlyingChairs: data/00001_img1.ppm, 00001_img2.ppm, 00001_flow.flo."""

from collections.abc import Iterator
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.shelf import Shelf
from gmaflow.errors import DatasetError

SPLIT_FILE = "FlyingChairs_train_val.txt"
SPLIT_SOURCE = (
    f"https://lmb.informatik.uni-freiburg.de/resources/datasets/FlyingChairs/{SPLIT_FILE}"
)
_FLAGS = {"training": "1", "validation": "2"}


def list_chairs(shelf: Shelf, root: Path, split: str, _variant: str) -> Iterator[FlowPair]:
    """List the pairs of a split; `all` needs no split file."""
    folder = _data_folder(shelf, root)
    numbers = (
        shelf.numbers(folder, "#_img1.ppm")
        | shelf.numbers(folder, "#_img2.ppm")
        | shelf.numbers(folder, "#_flow.flo")
    )
    if numbers and split != "all":
        flags = _read_flags(shelf, (root, folder, folder.parent))
        numbers &= {f"{n:05d}" for n, flag in enumerate(flags, 1) if flag == _FLAGS[split]}
    for number in sorted(numbers):
        yield FlowPair(
            dataset="chairs",
            scene=number,
            frame=number,
            image1=folder / f"{number}_img1.ppm",
            image2=folder / f"{number}_img2.ppm",
            flow=folder / f"{number}_flow.flo",
        )


def _data_folder(shelf: Shelf, root: Path) -> Path:
    for folder in (root / "data", root / "FlyingChairs_release" / "data"):
        if shelf.files(folder):
            return folder
    return root


def _read_flags(shelf: Shelf, folders: tuple[Path, ...]) -> list[str]:
    for folder in folders:
        if shelf.has(folder / SPLIT_FILE):
            flags = (folder / SPLIT_FILE).read_text(errors="replace").split()
            if not flags or set(flags) - set(_FLAGS.values()):
                raise DatasetError(
                    f"{folder / SPLIT_FILE} is no list of 1 (training) and 2 (validation); "
                    f"get it again from {SPLIT_SOURCE}"
                )
            return flags
    raise DatasetError(
        f"{folders[0]} has no {SPLIT_FILE}, which tells training from validation; get it from "
        f"{SPLIT_SOURCE}, or take the split 'all'"
    )

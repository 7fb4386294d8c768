"""Opening data sets by name."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data.catalog import DatasetInfo, dataset_info
from gmaflow.data.dataset import FlowDataset
from gmaflow.data.pairs import FlowPair
from gmaflow.data.roots import find_root, suggest_inside
from gmaflow.data.shelf import Shelf
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """The pairs that a data set's folders speak of.

    Attributes:
        pairs: those of which every file is there.
        missing: the files that the others lack.
    """

    pairs: tuple[FlowPair, ...]
    missing: tuple[Path, ...]


def open_dataset(
    name: str,
    root: PathLike | None = None,
    *,
    split: str | None = None,
    passes: str | Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
    directions: Sequence[str] | None = None,
) -> FlowDataset:
    """List the pairs of a data set; no image is read yet.

    Pairs of which a file is missing are left out, and a warning says so.

    Args:
        name: sintel, things, kitti-2015 ...; `gmaflow data list` tells all.
        root: its folder; by default what the environment or the config file says.
        split: training, validation, test ...; by default the first of the data set, which is
            training where it has one.
        passes: clean, final, albedo; for KITTI occ or noc; several are joined in order. By default
            the first.
        cameras: left, right; by default what was published for training.
        directions: forward, backward; by default both.

    Raises:
        DatasetError: the folder is missing or holds nothing of it, or it has no such split or pass.
    """
    info = dataset_info(name)
    split = _choose(info, "split", split, info.splits)
    if isinstance(passes, str) or passes is None:
        passes = (_choose(info, "pass", passes, info.variants),)
    variants = [_choose(info, "pass", variant, info.variants) for variant in passes]
    folder = find_root(info, root)
    wanted_cameras = cameras or info.cameras

    def keep(pair: FlowPair) -> bool:
        from_camera = not wanted_cameras or pair.camera in wanted_cameras
        return from_camera and (not directions or pair.direction in directions)

    shelf = Shelf()
    sets = [_open_variant(info, shelf, folder, split, variant, keep) for variant in variants]
    joined = sets[0]
    for another in sets[1:]:
        joined += another
    return joined


def sort_out(shelf: Shelf, pairs: Sequence[FlowPair]) -> Listing:
    """Part the pairs whose files are all there from the others."""
    complete, missing = [], []
    for pair in pairs:
        absent = [path for path in pair.files if not shelf.has(path)]
        missing += absent
        if not absent:
            complete.append(pair)
    return Listing(tuple(complete), tuple(dict.fromkeys(missing)))


def _open_variant(
    info: DatasetInfo,
    shelf: Shelf,
    root: Path,
    split: str,
    variant: str,
    keep: Callable[[FlowPair], bool],
) -> FlowDataset:
    wanted = [pair for pair in info.list_pairs(shelf, root, split, variant) if keep(pair)]
    listing = sort_out(shelf, wanted)
    title = " ".join(word for word in (info.name, split, variant) if word)
    if not listing.pairs:
        lacking = f"; {listing.missing[0]} is missing" if listing.missing else ""
        looks_like = (info.test_looks_like if split == "test" else "") or info.looks_like
        raise DatasetError(
            f"{root} holds no complete pair of {title}{lacking}; {info.title} has {looks_like}"
            f"{info.had_from}{suggest_inside(root, info)}"
        )
    if listing.missing:
        log.warning(
            "%s: %d of %d pairs are left out, since %d files are missing (%s ...); "
            "`gmaflow data check %s %s` names them",
            title,
            len(wanted) - len(listing.pairs),
            len(wanted),
            len(listing.missing),
            listing.missing[0],
            info.name,
            root,
        )
    return FlowDataset(title, listing.pairs)


def _choose(info: DatasetInfo, what: str, wanted: str | None, choices: tuple[str, ...]) -> str:
    if wanted is None:
        return choices[0]
    if wanted not in choices:
        named = [choice for choice in choices if choice]
        there = f"there are {', '.join(named)}" if named else "it has but one"
        raise DatasetError(f"{info.title} has no {what} {wanted!r}; {there}")
    return wanted

"""Data sets as lists of pairs, opened by name."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data.catalog import DatasetInfo, dataset_info
from gmaflow.data.directory_cache import DirectoryCache
from gmaflow.data.pairs import FlowPair, FlowSample
from gmaflow.data.roots import find_root, suggest_subfolder
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowDataset:
    """An immutable list of pairs. `+` joins two data sets, `*` repeats one.

    Attributes:
        name: a description.
        pairs: the pairs, in a fixed order.
    """

    name: str
    pairs: tuple[FlowPair, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> FlowPair:
        return self.pairs[index]

    def __iter__(self) -> Iterator[FlowPair]:
        return iter(self.pairs)

    def __add__(self, other: "FlowDataset") -> "FlowDataset":
        return FlowDataset(f"{self.name} + {other.name}", self.pairs + other.pairs)

    def __mul__(self, times: int) -> "FlowDataset":
        if times < 1:
            raise DatasetError(f"{self.name} cannot be repeated {times} times; give 1 or more")
        return FlowDataset(f"{times} * ({self.name})", self.pairs * times)

    def __rmul__(self, times: int) -> "FlowDataset":
        return self * times

    def where(self, keep: Callable[[FlowPair], bool]) -> "FlowDataset":
        """Return the pairs for which `keep` is true."""
        return FlowDataset(self.name, tuple(pair for pair in self.pairs if keep(pair)))

    def load(self, index: int) -> FlowSample:
        """Read the files of one pair."""
        return self.pairs[index].load()


def open_dataset(
    name: str,
    root: PathLike | None = None,
    *,
    split: str | None = None,
    passes: str | Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
    directions: Sequence[str] | None = None,
) -> FlowDataset:
    """List the pairs of a data set without reading images.

    Pairs with missing files are skipped with a warning.

    Args:
        name: sintel, things, kitti-2015 ...; `gmaflow data list` prints all names.
        root: its folder; by default from the environment or the config file.
        split: training, validation, test ...; by default the first one, which is training where
            it exists.
        passes: clean, final, albedo; for KITTI occ or noc; several are joined in order. By default
            the first.
        cameras: left, right; by default those published for training.
        directions: forward, backward; by default both.

    Raises:
        DatasetError: the folder is missing or has no complete pair, or the split or pass is
            unknown.
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

    cache = DirectoryCache()
    sets = [_open_variant(info, cache, folder, split, variant, keep) for variant in variants]
    joined = sets[0]
    for another in sets[1:]:
        joined += another
    return joined


def find_missing(
    cache: DirectoryCache, pairs: Sequence[FlowPair]
) -> tuple[tuple[FlowPair, ...], tuple[Path, ...]]:
    """Return the complete pairs, and the missing files of the others."""
    complete, missing = [], []
    for pair in pairs:
        absent = [path for path in pair.files if not cache.has(path)]
        missing += absent
        if not absent:
            complete.append(pair)
    return tuple(complete), tuple(dict.fromkeys(missing))


def _open_variant(
    info: DatasetInfo,
    cache: DirectoryCache,
    root: Path,
    split: str,
    variant: str,
    keep: Callable[[FlowPair], bool],
) -> FlowDataset:
    wanted = [pair for pair in info.list_pairs(cache, root, split, variant) if keep(pair)]
    pairs, missing = find_missing(cache, wanted)
    title = " ".join(word for word in (info.name, split, variant) if word)
    if not pairs:
        lacking = f"; {missing[0]} is missing" if missing else ""
        example = (info.test_example if split == "test" else "") or info.example
        raise DatasetError(
            f"{root} has no complete pair of {title}{lacking}; {info.title} contains {example}"
            f"{info.download_hint}{suggest_subfolder(root, info)}"
        )
    if missing:
        log.warning(
            "%s: skipping %d of %d pairs because %d files are missing (%s ...); "
            "run `gmaflow data check %s %s` to list them",
            title,
            len(wanted) - len(pairs),
            len(wanted),
            len(missing),
            missing[0],
            info.name,
            root,
        )
    return FlowDataset(title, pairs)


def _choose(info: DatasetInfo, what: str, wanted: str | None, choices: tuple[str, ...]) -> str:
    if wanted is None:
        return choices[0]
    if wanted not in choices:
        named = [choice for choice in choices if choice]
        known = f"choose from {', '.join(named)}" if named else "it has only one"
        raise DatasetError(f"{info.title} has no {what} {wanted!r}; {known}")
    return wanted

"""Is a data set all there, and sound?"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gmaflow.data.catalog import DatasetInfo, Part, dataset_info
from gmaflow.data.headers import measure
from gmaflow.data.opening import sort_out
from gmaflow.data.pairs import FlowPair
from gmaflow.data.roots import find_root, suggest_inside
from gmaflow.data.shelf import Shelf
from gmaflow.errors import DatasetError, FlowError
from gmaflow.io.paths import PathLike
from gmaflow.scenes.scene_dataset import FILES, rendered_scenes, scene_files

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Is told how many steps are done, and of how many."""

# Rendered scenes are written in this set's layout.
_RENDERED_LIKE = "sintel"
# Reading waits for the disk most of the time, more so on a network.
_READERS = 8


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """What was found of a part.

    Attributes:
        part: the part, with its published number of pairs.
        found: the pairs of which all files are there.
    """

    part: Part
    found: int

    @property
    def complete(self) -> bool:
        """Whether all pairs are there, or none of a part that may be absent."""
        if self.found == 0:
            return not self.part.required
        return self.part.count in (None, self.found)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check found.

    Attributes:
        info: the data set.
        root: its folder.
        parts: what there is of each part.
        missing: files that the others lack.
        problems: a sentence for each file, or pair of files, that is broken.
        num_files: how many files were looked at.
        deep: whether they were read from end to end.
    """

    info: DatasetInfo
    root: Path
    parts: tuple[PartReport, ...]
    missing: tuple[Path, ...]
    problems: tuple[str, ...]
    num_files: int
    deep: bool

    @property
    def complete(self) -> bool:
        """Whether nothing is amiss."""
        return not self.missing and not self.problems and all(part.complete for part in self.parts)


def check_dataset(
    name: str,
    root: PathLike | None = None,
    *,
    deep: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> CheckReport:
    """Count the pairs against the published numbers, and look at every file.

    A set that `gmaflow scenes render` wrote is held against what was asked of it instead.

    Args:
        name: the data set.
        root: its folder; by default what the environment or the config file says.
        deep: read every file from end to end, not its header alone.
        progress: is told how far it is.

    Raises:
        DatasetError: there is no such data set or folder, or the folder holds nothing of it.
    """
    info = dataset_info(name)
    folder = find_root(info, root)
    scenes = rendered_scenes(folder) if info.name == _RENDERED_LIKE else None
    if scenes is not None:
        info = _as_rendered(info, len(scenes))
    shelf = Shelf()
    pairs, problems, parts = [], [], []
    for split, variant in dict.fromkeys((part.split, part.variant) for part in info.parts):
        listed: list[FlowPair] = []
        try:
            listed = list(info.list_pairs(shelf, folder, split, variant))
        except DatasetError as err:
            problems.append(str(err))
        for part in info.parts:
            if (part.split, part.variant) == (split, variant):
                of_part = [pair for pair in listed if part.holds(pair)]
                pairs += of_part
                found = len(sort_out(shelf, of_part).pairs)
                parts.append(PartReport(part=part, found=found))
    if not pairs:
        raise DatasetError(
            f"{folder} holds nothing of {info.title}; {info.looks_like} is looked for"
            f"{info.had_from}{suggest_inside(folder, info)}"
        )
    listing = sort_out(shelf, list(dict.fromkeys(pairs)))
    # Of a rendered set the card tells what there should be, masks and whole scenes included.
    rendered = [path for scene in scenes or () for path in scene_files(folder, scene)]
    absent = [path for path in rendered if not shelf.has(path)]
    broken = _read_all(listing.pairs, progress) if deep else _measure_all(listing.pairs, progress)
    return CheckReport(
        info=info,
        root=folder,
        parts=tuple(parts),
        missing=tuple(dict.fromkeys([*listing.missing, *absent])),
        problems=tuple(dict.fromkeys([*problems, *broken])),
        num_files=len(_files(listing.pairs)),
        deep=deep,
    )


def _as_rendered(info: DatasetInfo, count: int) -> DatasetInfo:
    """Return what is to be found of a set in this layout that was rendered."""
    return replace(
        info,
        title="a set of rendered scenes",
        source="`gmaflow scenes render --resume`",
        parts=tuple(
            replace(part, count=count)
            for part in info.parts
            if part.split == "training" and part.variant in FILES
        ),
    )


def _at_once(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    pool = ThreadPoolExecutor(_READERS)
    try:
        yield from pool.map(work, items)
    finally:
        # An interrupt must not wait for the hundred thousand files that are still to come.
        pool.shutdown(cancel_futures=True)


def _files(pairs: Iterable[FlowPair]) -> list[Path]:
    return list(dict.fromkeys(path for pair in pairs for path in pair.files))


def _measure_all(pairs: tuple[FlowPair, ...], progress: Progress) -> list[str]:
    """Compare the sizes that the headers claim."""
    files = _files(pairs)
    sizes: dict[Path, tuple[int, int]] = {}
    problems = []
    for done, (path, result) in enumerate(zip(files, _at_once(_measure, files), strict=True)):
        progress(done + 1, len(files))
        if isinstance(result, str):
            problems.append(result)
        else:
            sizes[path] = result
    return problems + [problem for pair in pairs for problem in _compare(pair, sizes)]


def _measure(path: Path) -> tuple[int, int] | str:
    try:
        return measure(path)
    except FlowError as err:
        return str(err)


def _compare(pair: FlowPair, sizes: dict[Path, tuple[int, int]]) -> Iterable[str]:
    if pair.image1 not in sizes:
        return
    height, width = sizes[pair.image1]
    for path in pair.files[1:]:
        step = pair.flow_stride if path in (pair.flow, pair.visible_flow) else 1
        wanted = (height * step, width * step)
        if sizes.get(path, wanted) != wanted:
            yield (
                f"{path} is {sizes[path][0]} x {sizes[path][1]}, "
                f"but {wanted[0]} x {wanted[1]} is wanted to go with {pair.image1}"
            )


def _read_all(pairs: tuple[FlowPair, ...], progress: Progress) -> list[str]:
    """Read every pair from end to end."""
    problems = []
    for done, problem in enumerate(_at_once(_read, pairs)):
        progress(done + 1, len(pairs))
        if problem:
            problems.append(problem)
    return problems


def _read(pair: FlowPair) -> str:
    try:
        pair.load()
    except FlowError as err:
        return str(err)
    return ""

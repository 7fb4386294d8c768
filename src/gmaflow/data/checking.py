"""Check that a data set is complete and its files are intact."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gmaflow.data.catalog import DatasetInfo, Part, dataset_info
from gmaflow.data.dataset import find_missing, find_root, suggest_subfolder
from gmaflow.data.headers import measure
from gmaflow.data.layouts import DirectoryCache
from gmaflow.data.pairs import FlowPair
from gmaflow.errors import DatasetError, FlowError
from gmaflow.io.paths import PathLike
from gmaflow.scenes.scene_dataset import FILES, expected_scenes, scene_files

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number of finished steps and the total."""

# Rendered scenes use this layout.
_RENDERED_LIKE = "sintel"
# Most of the time is spent waiting for the disk.
_READERS = 8


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """The result for one part."""

    part: Part
    found: int
    """The number of complete pairs."""

    @property
    def complete(self) -> bool:
        """Whether all pairs exist, or none of an optional part."""
        if self.found == 0:
            return not self.part.required
        return self.part.count in (None, self.found)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The result of a check."""

    info: DatasetInfo
    root: Path
    parts: tuple[PartReport, ...]
    missing: tuple[Path, ...]
    problems: tuple[str, ...]
    """A message for each broken file or mismatched pair."""
    num_files: int
    deep: bool
    """Whether files were decoded completely."""

    @property
    def complete(self) -> bool:
        """Whether the data set is complete and no file is broken."""
        return not self.missing and not self.problems and all(part.complete for part in self.parts)


def check_dataset(
    name: str,
    root: PathLike | None = None,
    *,
    deep: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> CheckReport:
    """Compare the number of pairs with the published one, and check every file.

    A data set written by `gmaflow scenes render` is compared with its own record instead. With
    `deep`, every file is decoded, not only its header.
    """
    info = dataset_info(name)
    folder = find_root(info, root)
    expected = expected_scenes(folder) if info.name == _RENDERED_LIKE else None
    if expected is not None:
        info = _as_rendered(info, len(expected.scenes) * (expected.frames - 1))
    cache = DirectoryCache()
    pairs, problems, parts = [], [], []
    for split, pass_name in dict.fromkeys((part.split, part.pass_name) for part in info.parts):
        listed: list[FlowPair] = []
        try:
            listed = list(info.list_pairs(cache, folder, split, pass_name))
        except DatasetError as err:
            problems.append(str(err))
        for part in info.parts:
            if (part.split, part.pass_name) == (split, pass_name):
                part_pairs = [pair for pair in listed if part.holds(pair)]
                pairs += part_pairs
                count = len(find_missing(cache, part_pairs)[0])
                parts.append(PartReport(part=part, found=count))
    if not pairs:
        raise DatasetError(
            f"{folder} has no files of {info.title}; expected {info.example}"
            f"{info.download_hint}{suggest_subfolder(folder, info)}"
        )
    complete, missing = find_missing(cache, list(dict.fromkeys(pairs)))
    # The record of a rendered data set lists every file, including masks.
    absent = []
    if expected is not None:
        files = (scene_files(folder, scene, expected.frames) for scene in expected.scenes)
        absent = [path for paths in files for path in paths if not cache.has(path)]
    broken = _read_all(complete, progress) if deep else _measure_all(complete, progress)
    return CheckReport(
        info=info,
        root=folder,
        parts=tuple(parts),
        missing=tuple(dict.fromkeys([*missing, *absent])),
        problems=tuple(dict.fromkeys([*problems, *broken])),
        num_files=len(_files(complete)),
        deep=deep,
    )


def _as_rendered(info: DatasetInfo, count: int) -> DatasetInfo:
    """Return the expected parts of a rendered data set in this layout."""
    return replace(
        info,
        title="a data set of rendered scenes",
        source="`gmaflow scenes render --resume`",
        parts=tuple(
            replace(part, count=count)
            for part in info.parts
            if part.split == "training" and part.pass_name in FILES
        ),
    )


def _files(pairs: Iterable[FlowPair]) -> list[Path]:
    return list(dict.fromkeys(path for pair in pairs for path in pair.files))


def _in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], progress: Progress
) -> Iterator[Result | str]:
    """Yield the result of each item, or the message of its error."""

    def attempt(item: Item) -> Result | str:
        try:
            return work(item)
        except FlowError as err:
            return str(err)

    pool = ThreadPoolExecutor(_READERS)
    try:
        for done, result in enumerate(pool.map(attempt, items), 1):
            progress(done, len(items))
            yield result
    finally:
        # An interrupt must not wait for the remaining files.
        pool.shutdown(cancel_futures=True)


def _measure_all(pairs: tuple[FlowPair, ...], progress: Progress) -> list[str]:
    """Compare the sizes in the file headers."""
    files = _files(pairs)
    results = dict(zip(files, _in_threads(measure, files, progress), strict=True))
    sizes = {path: size for path, size in results.items() if not isinstance(size, str)}
    problems = [problem for problem in results.values() if isinstance(problem, str)]
    return problems + [problem for pair in pairs for problem in _compare(pair, sizes)]


def _compare(pair: FlowPair, sizes: dict[Path, tuple[int, int]]) -> Iterable[str]:
    if pair.image1 not in sizes:
        return
    height, width = sizes[pair.image1]
    for path in pair.files[1:]:
        step = pair.flow_stride if path in (pair.flow, pair.visible_flow) else 1
        expected = (height * step, width * step)
        if sizes.get(path, expected) != expected:
            yield (
                f"{path} is {sizes[path][0]}x{sizes[path][1]}, "
                f"expected {expected[0]}x{expected[1]} to match {pair.image1}"
            )


def _read_all(pairs: tuple[FlowPair, ...], progress: Progress) -> list[str]:
    """Decode every pair."""
    results = _in_threads(FlowPair.load, pairs, progress)
    return [problem for problem in results if isinstance(problem, str)]

"""The pipeline of `flow FOLDER` and `video`: frames are read, estimated and written in turn.

A `FrameSource` gives the frames: `ImageFiles` or a `VideoReader`. An `Output` takes each pair with
its flow: `PairFolder`, `ClipFile`, or the video that `gmaflow video` draws.
"""

from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Collection,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gmaflow.cli.options import progress_bar
from gmaflow.cli.outputs import (
    HEADROOM,
    MOST_PAIRS,
    QUANTILE,
    SHORTEST,
    OutputKind,
    folder_paths,
    is_about_second,
    stretch_starts,
)
from gmaflow.errors import ImageError, OutputError, print_stderr
from gmaflow.io import (
    ClipWriter,
    VideoReader,
    files_of,
    find_breaks,
    list_images,
    read_ahead,
    scale_image,
    stem_in,
    write_behind,
)
from gmaflow.io.overlap import WRITERS
from gmaflow.io.resumable import Record, ResultRecord, is_finished

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, PairEstimate, SequenceFrame

Pair: TypeAlias = "PairEstimate[Any]"
"""Two frames of a `FrameSource`, and their flow."""
Source = Path | Sequence[Path]
"""A video, a folder of frames, or the frames."""
WriteFiles: TypeAlias = "Callable[[Pair, Mapping[OutputKind, Path], float | None], None]"
"""Writes the files of a pair, given their paths and the length at full colour."""

RECORD, LAST_FLOWS = "flow.json", ".warm-start.safetensors"
FEWEST_PAIRS = 3
LARGE = 256
"""Frames with longer sides are sampled at half size; the scale is only approximate."""
SCALE, SOURCE, FILES = "max_length", "source", "files"
"""Entries of the record: the length at full colour, what identifies the frames, and how the names
of the files end."""


class ImageFiles:
    """Images as frames; one that cannot be read is yielded as its error."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.num_frames = len(paths)

    def passing_over(self, numbers: Container[int], /) -> "Generator[SequenceFrame | None]":
        from gmaflow.inference import SequenceFrame, load_image

        for number, path in enumerate(self.paths):
            if number in numbers:
                yield None
                continue
            try:
                yield SequenceFrame(number, load_image(path), path.name)
            except ImageError as err:
                yield SequenceFrame(number, err, path.name)

    def glimpses(self, count: int) -> "list[ImageFiles]":
        """Split the pairs into at most `count` stretches."""
        pairs = self.num_frames - 1
        bounds = [*stretch_starts(pairs, min(count, pairs)), pairs]
        return [ImageFiles(self.paths[begin : end + 1]) for begin, end in pairwise(bounds)]


FrameSource = ImageFiles | VideoReader
"""Consecutive frames."""


class Output(ABC):
    """Where pairs with their flow go.

    Attributes:
        done: Pairs that an earlier run finished, by number, with their flow if it is known.
        scale: The length at full colour; None if not chosen yet, or if nothing is drawn.
        threads: How many pairs may be written at the same time.
    """

    def __init__(self) -> None:
        self.done: dict[int, Flow | None] = {}
        self.scale: float | None = None
        self.threads = WRITERS

    @abstractmethod
    def write(self, pair: Pair) -> Callable[[], None] | None:
        """Write a pair; before a cut it has no flow. Returns what must be done in order."""


class ClipFile(Output):
    """A clip that gets the flow of each pair; it cannot be resumed."""

    def __init__(self, clip: ClipWriter) -> None:
        super().__init__()
        self._clip = clip

    def write(self, pair: Pair) -> Callable[[], None] | None:
        return None if pair.flow is None else partial(self._clip.add, pair.number, pair.flow.array)


@dataclass
class Tally:
    """Counts of what was written, skipped and cut."""

    written: int = 0
    already_there: int = 0
    """How many pairs an earlier run finished."""
    skipped: list[str] = field(default_factory=list)
    """Pairs that cannot be used, and why."""
    cuts: list[float] = field(default_factory=list)
    """When other shots begin, in seconds."""
    interrupted: bool = False

    @property
    def finished(self) -> int:
        """How many pairs are complete, by this run or an earlier one."""
        return self.written + self.already_there

    def add(self, pair: Pair) -> None:
        """Count a pair that was written."""
        self.written += 1
        if pair.cut:
            self.cuts.append(round(float(pair.second.time), 3))

    def skip(self, name: str, error: ImageError) -> None:
        """Report a pair that cannot be used."""
        self.skipped.append(f"{name}: {error}")
        print_stderr(f"gmaflow: skipped {self.skipped[-1]}")


def estimate_frames(
    estimator: "FlowEstimator",
    source: FrameSource,
    output: Output,
    *,
    quiet: bool,
    **options: Any,  # noqa: ANN401
) -> Tally:
    """Read, estimate and write at the same time; an interrupt ends it early and keeps the results.

    `options` are those of `gmaflow.inference.estimate_pairs`.
    """
    from gmaflow.inference import estimate_pairs

    tally = Tally()
    total = None if source.num_frames is None else source.num_frames - 1

    def read() -> Iterator[Any]:
        for number, frame in enumerate(frames):
            show_progress(number, total)
            tally.already_there += number - 1 in output.done
            if frame is not None:  # not passed over
                yield frame

    try:
        with (
            progress_bar("frames", quiet=quiet) as show_progress,
            write_behind(threads=output.threads) as submit,
            closing(read_ahead(source.passing_over(inner_frames(output.done)))) as frames,
        ):
            for pair in estimate_pairs(estimator, read(), done=output.done, **options):
                if pair.error is None:
                    submit(partial(write_and_count, output, pair, tally))
                else:
                    tally.skip(f"{pair.first.name} -> {pair.second.name}", pair.error)
    except KeyboardInterrupt:
        if not tally.finished:
            raise
        tally.interrupted = True
    return tally


def write_and_count(output: Output, pair: Pair, tally: Tally) -> Callable[[], None]:
    """Write a pair; returns what must be done in order, which also counts it."""
    finish = output.write(pair)

    def count() -> None:
        if finish is not None:
            finish()
        tally.add(pair)

    return count


def inner_frames(done: Iterable[int]) -> set[int]:
    """Return the frames that only finished pairs need."""
    finished = set(done)
    return {number for number in finished if number == 0 or number - 1 in finished}


def choose_scale(
    estimator: "FlowEstimator",
    source: FrameSource,
    *,
    cut_threshold: float | None = None,
    residual: bool = False,
    quiet: bool = False,
) -> float:
    """Return a length in pixels that nearly all motions stay below.

    It is a little more than the largest 99th percentile over a few pairs spread over the frames.
    Pairs that differ by more than `cut_threshold` are ignored. With `residual` it is for the
    motions that are not the camera's.
    """
    from gmaflow.inference import is_cut

    longest = SHORTEST
    glimpses = spread_glimpses(source)
    with progress_bar("colour scale", quiet=quiet) as show_progress:
        for number, glimpse in enumerate(glimpses):
            show_progress(number, len(glimpses))
            images = first_usable(glimpse)
            if len(images) < 2 or is_cut(images[0], images[1], cut_threshold):
                continue
            with suppress(ImageError):  # reported when this pair is estimated
                motion = long_motion(estimator, *images, residual=residual)
                longest = max(longest, HEADROOM * motion)
    return longest


def spread_glimpses(source: FrameSource) -> Sequence[FrameSource]:
    """Return sources that begin at places spread evenly over the frames."""
    return source.glimpses(max(FEWEST_PAIRS, min((source.num_frames or 0) // 8, MOST_PAIRS)))


def first_usable(source: FrameSource) -> "Sequence[np.ndarray]":
    """Read the first two consecutive frames that have one size; none if they cannot be read."""
    last: Any = None
    with closing(source.passing_over(())) as frames, suppress(ImageError):
        for frame in frames:
            image: Any = None if frame is None else frame.image
            both_read = isinstance(image, np.ndarray) and isinstance(last, np.ndarray)
            if both_read and image.shape == last.shape:
                return last, image
            last = image
    return ()


def long_motion(
    estimator: "FlowEstimator",
    image1: "np.ndarray",
    image2: "np.ndarray",
    *,
    residual: bool = False,
) -> float:
    """Return the 99th percentile of the lengths of a pair's motions."""
    shrink = 0.5 if min(image1.shape[:2]) >= LARGE else 1.0
    flow = estimator(scale_image(image1, shrink), scale_image(image2, shrink))
    vectors = flow.camera().residual if residual else flow.array
    return float(np.quantile(np.hypot(vectors[..., 0], vectors[..., 1]), QUANTILE)) / shrink


def warn_about_breaks(frames: Sequence[Path]) -> None:
    """Warn if the names of frames do not look like one shot without gaps."""
    if breaks := find_breaks(frames):
        first, second = breaks[0]
        print_stderr(
            f"gmaflow: {len(breaks)} of {len(frames) - 1} pairs are not consecutive by name, the "
            f"first {first.name} -> {second.name}; if that is a mistake, give one shot without gaps"
        )


# --- Folders that can be resumed ------------------------------------------------------------------


def record_of(folder: Path) -> ResultRecord:
    return ResultRecord(folder, RECORD, what="flow", required="verb")


def make_settings(
    estimator: "FlowEstimator",
    *,
    verb: str,
    source: Source,
    endings: Iterable[str],
    warm_start: bool,
    **more: object,
) -> Record:
    """Return everything that the files of a folder depend on, except the scale of their colours.

    `endings` are how the names of the files end, `more` are other options of the verb.
    """
    from gmaflow.weights import fingerprint

    settings = estimator.settings.as_json()
    # A run may be resumed on another device, as long as its precision is the same, and with less
    # memory, in case it ran out.
    settings.pop("device")
    settings.pop("max_memory", None)
    return {
        "verb": verb,
        "frames": str((source if isinstance(source, Path) else source[0].parent).resolve()),
        SOURCE: describe_source(source),
        **settings,
        "weights": fingerprint(estimator.network),
        "warm_start": warm_start,
        FILES: list(endings),
        **more,
    }


def describe_source(source: Source, *, first: int | None = None) -> Record:
    """Return what identifies a video, or the first frames."""
    if not isinstance(source, Path) or source.is_dir():
        frames = (list_images(source) if isinstance(source, Path) else source)[:first]
        listed = "\n".join(f"{path.name} {path.stat().st_size}" for path in frames)
        names = sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()
        return {"frames": len(frames), "names": names[:16]}
    state = source.stat()
    return {"bytes": state.st_size, "modified": state.st_mtime_ns}


def read_before(folder: Path, now: Record, source: Source, *, scale: float | None) -> Record:
    """Return the record of the run to resume, which must have had the settings `now`.

    Only new frames after the last one are accepted. If `scale` is None, the earlier one is kept.
    """
    expected, ignore = {**now, SCALE: scale}, {SOURCE}
    if scale is None:
        ignore.add(SCALE)
    before = record_of(folder).read_matching(expected, ignore=ignore)
    stored = before.get(SOURCE)
    if isinstance(stored, dict) and describe_source(source, first=stored.get("frames")) != stored:
        raise OutputError(
            f"{now['frames']} has changed since {folder} was started; add --overwrite to start "
            "over, or choose another folder"
        )
    return before


def endings_before(folder: Path, verb: str) -> list[str]:
    """Return how the names of the files end that a verb wrote into a folder, if known."""
    try:
        record = record_of(folder).read()
    except OutputError:
        return []
    endings = record.get(FILES) if record["verb"] == verb else None
    return list(endings) if isinstance(endings, list) else []


class FrameNames:
    """Names of the files in a folder: like the frames they are about, or six digits."""

    def __init__(self, stems: Sequence[str] | None = None) -> None:
        """Use the names of all frames; None numbers the frames."""
        self._stems = stems
        self._numbers = {stem: number for number, stem in enumerate(stems or ())}

    def stem(self, frame: int) -> str:
        """Return the name of a frame's files, without their ending."""
        return f"{frame:06d}" if self._stems is None else self._stems[frame]

    def pair_of(self, stem: str, ending: str) -> int | None:
        """Return the number of the pair that a file belongs to, or None for any other file.

        Backward flow is about the second frame of its pair.
        """
        if self._stems is not None:
            frame = self._numbers.get(stem, -1)
        else:
            is_number = stem.isascii() and stem.isdecimal() and f"{int(stem):06d}" == stem
            frame = int(stem) if is_number else -1
        pair = frame - is_about_second(ending)
        exists = pair >= 0 and (self._stems is None or pair + 1 < len(self._stems))
        return pair if exists else None


def numbered_files(folder: Path, ending: str) -> Iterator[Path]:
    """Find files named by the number of a frame; an ending may be in a subfolder: images/*.png."""
    subfolder, _, ending = ending.rpartition("/")
    for path in sorted((folder / subfolder).glob("*")):
        stem = stem_in(path.name, ending)
        if stem is not None and FrameNames().pair_of(stem, ending) is not None:
            yield path


def refuse_other_verb(folder: Path, *, verb: str) -> None:
    """Refuse to start over in a folder of another verb, whose record would be lost."""
    try:
        earlier = record_of(folder).read()["verb"]
    except OutputError:  # there is none, or a damaged one
        return
    if earlier != verb:
        raise OutputError(
            f"{folder} holds the results of gmaflow {earlier}; choose another folder, or remove "
            "this one"
        )


def refuse_foreign_files(folder: Path, endings: Iterable[str], *, verb: str) -> None:
    """Refuse to replace numbered files that the verb did not write, such as frames of a video."""
    refuse_other_verb(folder, verb=verb)
    before = endings_before(folder, verb)
    has_record = record_of(folder).exists()
    reason = f" according to {RECORD}" if has_record else f": there is no {RECORD}"
    for ending in (ending for ending in endings if ending not in before):
        for path in numbered_files(folder, ending):
            raise OutputError(
                f"{folder} holds {path.relative_to(folder)}, which gmaflow {verb} did not "
                f"write{reason}; remove such files, or choose another folder"
            )


def start_over(folder: Path, endings: Collection[str], *, verb: str, source: Path) -> None:
    """Remove the numbered files of an earlier run, then record what this one writes.

    The earlier record does not say which: endings in it could lead out of the folder.
    """
    record = record_of(folder)
    record.lock()  # before files of another process could be removed
    for ending in endings:
        for path in numbered_files(folder, ending):
            path.unlink(missing_ok=True)
    record.write({"verb": verb, "frames": str(source.resolve()), FILES: list(endings)})


class PairFolder(Output):
    """A folder with files for each pair, which can be resumed.

    Files of an earlier run are kept or removed when the first pair is written; nothing is changed
    before that, and other files are never touched. A pair is finished when all its files are there.

    Args:
        folder: The folder; it need not exist.
        now: The settings of this run; see `make_settings`.
        source: What the pairs are from.
        endings: The files of a pair, and how their names end; the last one is written last.
        names: How their names begin.
        write_files: Writes the files of a pair.
        resume: Continue an earlier run of the same settings, if there is one.
        scale: The length at full colour that was asked for, if any.
    """

    def __init__(
        self,
        folder: Path,
        now: Record,
        *,
        source: Source,
        endings: Mapping[OutputKind, str],
        names: FrameNames,
        write_files: WriteFiles,
        resume: bool,
        scale: float | None,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.scale = scale
        self._now = now
        self._endings = endings
        self._names = names
        self._write_files = write_files
        self._is_new = not record_of(folder).exists()
        self._resumes = resume and not self._is_new
        self._started = False
        self._starting = Lock()
        finished: set[int] = set()
        if self._resumes:
            self.scale = read_before(folder, now, source, scale=scale).get(SCALE)
            finished = self._find_finished()
        self._last_flows = None
        self.done = dict.fromkeys(finished)
        if now["warm_start"]:
            from gmaflow.inference import LastFlows

            self._last_flows = LastFlows(folder / LAST_FLOWS)
            self.threads = 1  # they are the flows of the last pairs
            self.done = {pair: self._last_flows.load(names.stem(pair)) for pair in finished}

    def write(self, pair: Pair) -> None:
        """Write the files of a pair; without flow there is no flow file.

        The flow is kept for the warm start of the next pair.
        """
        if pair.flow is None and OutputKind.FLOW in self._endings:
            return
        with self._starting:
            if not self._started:
                self._start()
                self._started = True
        stem, next_stem = map(self._names.stem, (pair.number, pair.number + 1))
        if self._last_flows is not None and pair.flow is not None:
            self._last_flows.save(stem, pair.flow)
        paths = folder_paths(self.folder, (stem, next_stem), self._endings)
        self._write_files(pair, paths, self.scale)

    def _start(self) -> None:
        """Remove the files to be replaced, then write the record."""
        record = record_of(self.folder)
        record.lock()  # before files of another process could be removed
        if self._is_new and record.exists():
            raise OutputError(
                f"another process has written to {self.folder}; choose another folder"
            )
        # In this order, an interrupted run leaves no files under a record that is not theirs.
        if not self._resumes:
            earlier = endings_before(self.folder, str(self._now["verb"]))
            for ending in dict.fromkeys([*self._endings.values(), *earlier]):
                for _, path in self._files(ending):
                    for file in files_of(path):
                        file.unlink(missing_ok=True)
        record.write({**self._now, SCALE: self.scale})

    def _find_finished(self) -> set[int]:
        written = (
            {pair for pair, path in self._files(ending) if is_finished([path])}
            for ending in self._endings.values()
        )
        return set.intersection(*written)

    def _files(self, ending: str) -> Iterator[tuple[int, Path]]:
        """Find the files with an ending, with the numbers of their pairs."""
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            stem = stem_in(path.name, ending)
            pair = None if stem is None else self._names.pair_of(stem, ending)
            if pair is not None and path.is_file():
                yield pair, path

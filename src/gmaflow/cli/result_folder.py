"""A folder with files for each pair of a folder of frames or a video, which can be resumed."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.errors import OutputError, say
from gmaflow.io import files_of, find_breaks, list_images, stem_in
from gmaflow.io.resumable import Record, ResultRecord, is_finished

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator

Source = Path | Sequence[Path]
"""A video, a folder of frames, or the frames."""

RECORD, LAST_FLOWS = "flow.json", ".warm-start.safetensors"
SCALE, SOURCE, FILES = "max_length", "source", "files"
"""Entries of the record: the length at full colour, what identifies the frames, and how the names
of the files end."""


def record_of(folder: Path) -> ResultRecord:
    return ResultRecord(folder, RECORD, what="flow", required="verb")


def make_settings(
    estimator: "FlowEstimator",
    *,
    verb: str,
    source: Source,
    endings: Sequence[str],
    warm_start: bool,
    **more: object,
) -> Record:
    """Return everything that the files of a folder depend on, except the scale of their colours.

    `endings` are how the names of the files end, `more` are other options of the verb.
    """
    from gmaflow.weights import fingerprint

    how = estimator.settings.as_json()
    # A run may be resumed on another device, as long as its precision is the same, and with less
    # memory, in case it ran out.
    how.pop("device")
    how.pop("max_memory", None)
    return {
        "verb": verb,
        "frames": str((source if isinstance(source, Path) else source[0].parent).resolve()),
        SOURCE: describe_source(source),
        **how,
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
    wanted, ignore = {**now, SCALE: scale}, {SOURCE}
    if scale is None:
        ignore.add(SCALE)
    before = record_of(folder).read_matching(wanted, ignore=ignore)
    known = before.get(SOURCE)
    if isinstance(known, dict) and describe_source(source, first=known.get("frames")) != known:
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


class ResultFolder:
    """The results of an earlier run in a folder, and how new ones are added.

    A pair has a name, and a file for each of the endings. Nothing is changed before the first pair
    is added.

    Args:
        folder: The folder; it need not exist.
        now: The settings of this run; see `make_settings`.
        source: What the pairs are from.
        pair_of: Returns the name of the pair that a file belongs to, from the start of its name and
            its ending; None for other files, which are never touched.
        resume: Continue an earlier run of the same settings, if there is one.
        scale: The length at full colour that was asked for, if any.

    Attributes:
        finished: Names of pairs whose files are complete.
        flows: Flows by name, if known, from which a warm start continues.
        scale: The length at full colour; None if not chosen yet, or if nothing is drawn.
    """

    def __init__(
        self,
        folder: Path,
        now: Record,
        *,
        source: Source,
        pair_of: Callable[[str, str], str | None],
        resume: bool,
        scale: float | None,
    ) -> None:
        self.folder = folder
        self.endings: list[str] = now[FILES]
        self._now = now
        self._pair_of = pair_of
        self._resumes = resume and record_of(folder).exists()
        self._started = False
        self.scale = scale
        self.finished: set[str] = set()
        if self._resumes:
            before = read_before(folder, now, source, scale=scale)
            self.scale = before.get(SCALE)
            self.finished = self._find_finished()
        self._last_flows = None
        self.flows: dict[str, Flow | None] = dict.fromkeys(self.finished)
        if now["warm_start"]:
            from gmaflow.inference import LastFlows

            self._last_flows = LastFlows(folder / LAST_FLOWS)
            self.flows = {name: self._last_flows.load(name) for name in self.finished}

    def add(self, name: str, flow: "Flow | None", write: Callable[[], None]) -> None:
        """Add the files of a pair, which `write` writes; the last file makes it finished.

        The flow, if there is one, is kept for the warm start of the next pair.
        """
        if not self._started:
            self._start()
            self._started = True
        if self._last_flows is not None and flow is not None:
            self._last_flows.save(name, flow)
        write()

    def _start(self) -> None:
        """Remove the files to be replaced, then write the record."""
        # In this order, an interrupted run leaves no files under a record that is not theirs.
        if not self._resumes:
            earlier = endings_before(self.folder, str(self._now["verb"]))
            for ending in dict.fromkeys([*self.endings, *earlier]):
                for _, path in self._files(ending):
                    for file in files_of(path):
                        file.unlink(missing_ok=True)
        record_of(self.folder).write({**self._now, SCALE: self.scale})

    def _find_finished(self) -> set[str]:
        written = (
            {name for name, path in self._files(ending) if is_finished([path])}
            for ending in self.endings
        )
        return set.intersection(*written)

    def _files(self, ending: str) -> Iterator[tuple[str, Path]]:
        """Find the files with an ending, with the names of their pairs."""
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            stem = stem_in(path.name, ending)
            name = None if stem is None else self._pair_of(stem, ending)
            if name is not None and path.is_file():
                yield name, path


def warn_about_breaks(frames: Sequence[Path]) -> None:
    """Warn if the names of frames do not look like one shot without gaps."""
    if breaks := find_breaks(frames):
        first, second = breaks[0]
        say(
            f"gmaflow: {len(breaks)} of {len(frames) - 1} pairs are not neighbours by name, the "
            f"first {first.name} -> {second.name}; give one shot without gaps, unless this is meant"
        )

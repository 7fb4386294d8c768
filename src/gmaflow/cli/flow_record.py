"""How the flow in a folder was estimated, kept beside it, so that no two ways are ever mixed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.pairs import settings
from gmaflow.errors import OutputError
from gmaflow.io import atomic_write, list_images

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator

RECORD = "flow.json"
SCALE, SOURCE, FILES = "max_length", "source", "files"
"""Entries of a record: the length at full colour, by what the frames are known again, and how the
names of the files end."""

Record = dict[str, object]


def make_record(
    estimator: "FlowEstimator",
    *,
    verb: str,
    source: Path,
    endings: Sequence[str],
    warm_start: bool,
    **more: object,
) -> Record:
    """Return all that the files of a folder depend on, but the scale of their colours.

    Args:
        estimator: What estimates.
        verb: Which verb wrote them.
        source: Where the frames are.
        endings: How the names of the files end.
        warm_start: Whether each pair begins with the flow of the one before.
        more: The verb's own options that the files depend on.
    """
    from gmaflow.weights import fingerprint

    how = settings(estimator)
    # The device is left out: a run may go on elsewhere, as long as its precision stays.
    del how["device"]
    return {
        "verb": verb,
        "frames": str(source.resolve()),
        SOURCE: describe_source(source),
        **how,
        "weights": fingerprint(estimator.network),
        "warm_start": warm_start,
        FILES: list(endings),
        **more,
    }


def describe_source(source: Path, *, first: int | None = None) -> Record:
    """Return by what a video, or the first frames of a folder, are known again."""
    if source.is_dir():
        frames = list_images(source)[:first]
        told = "\n".join(f"{path.name} {path.stat().st_size}" for path in frames)
        names = sha256(told.encode("utf-8", "surrogateescape")).hexdigest()
        return {"frames": len(frames), "names": names[:16]}
    state = source.stat()
    return {"bytes": state.st_size, "modified": state.st_mtime_ns}


@dataclass
class FolderRecord:
    """The record of one folder: of the run that began it, and of the one that goes on with it."""

    folder: Path
    now: Record
    """How this run estimates."""
    before: Record = field(default_factory=dict)
    """How the folder was begun; empty if this run begins it."""

    @classmethod
    def open(
        cls, folder: Path, now: Record, *, resume: bool, scale: float | None
    ) -> "FolderRecord":
        """Go on with a folder if that was asked for, else begin it; see `resume`."""
        return cls.resume(folder, now, scale=scale) if resume else cls(folder, now)

    @classmethod
    def resume(cls, folder: Path, now: Record, *, scale: float | None) -> "FolderRecord":
        """Go on with a folder, or begin it if nothing was.

        Args:
            folder: Where the files are; there may be none.
            now: How this run estimates.
            scale: The length at full colour that was asked for, if any was.

        Raises:
            OutputError: It was begun in another way, or the record is broken.
        """
        if not has_record(folder):
            return cls(folder, now)
        before = read_record(folder)
        same_scale = scale is None or before.get(SCALE) is None
        wanted = {**now, SCALE: before.get(SCALE) if same_scale else scale}
        for key in dict.fromkeys((*before, *wanted)):
            if key != SOURCE and wanted.get(key) != before.get(key):
                raise OutputError(
                    f"{folder} was begun with {key} {before.get(key)}, not {wanted.get(key)}; "
                    "resume it with the same options, or choose another folder"
                )
        refuse_other_frames(folder, now, before)
        return cls(folder, now, before)

    @property
    def goes_on(self) -> bool:
        """Whether files that are there were written by a run of the same settings."""
        return bool(self.before)

    @property
    def scale(self) -> float | None:
        """The length at full colour that the folder was begun with; None if nothing was drawn."""
        scale = self.before.get(SCALE)
        return scale if isinstance(scale, float) else None

    def write(self, *, scale: float | None) -> None:
        """Write down how the flow in the folder is estimated.

        Args:
            scale: The length at full colour, if anything is drawn.
        """
        record = {**self.now, SCALE: self.scale if scale is None else scale}
        with atomic_write(self.folder / RECORD) as temporary:
            temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def has_record(folder: Path) -> bool:
    """Tell whether something was begun in a folder."""
    return (folder / RECORD).is_file()


def read_record(folder: Path) -> Record:
    """Read how the files of a folder were made.

    Raises:
        OutputError: The record is broken.
    """
    path = folder / RECORD
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or "verb" not in record:
        raise OutputError(f"{path} is broken; add --overwrite to begin anew")
    return record


def endings_before(folder: Path, verb: str) -> list[str]:
    """Return how the names of the files end that a verb wrote into a folder, if told."""
    try:
        record = read_record(folder)
    except (OSError, OutputError):
        return []
    endings = record.get(FILES) if record["verb"] == verb else None
    return list(endings) if isinstance(endings, list) else []


def refuse_other_frames(folder: Path, now: Record, before: Record) -> None:
    """Refuse to go on where frames were replaced, removed or put in between; more may have come.

    Raises:
        OutputError: They were.
    """
    was = before.get(SOURCE)
    if not isinstance(was, dict) or SOURCE not in now:
        return
    source = Path(str(now["frames"]))
    if describe_source(source, first=was.get("frames")) != was:
        raise OutputError(
            f"{source} has changed since {folder} was begun; add --overwrite to begin anew, or "
            "choose another folder"
        )


def refuse_to_begin(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to begin anew where something was begun, unless it was asked for.

    Raises:
        OutputError: The folder has a record, or both was asked for.
    """
    if resume and overwrite:
        raise OutputError("--resume keeps what is there and --overwrite does not; give one of them")
    if not (resume or overwrite) and has_record(folder):
        raise OutputError(
            f"{folder} holds flow already; add --resume to go on with it, --overwrite to begin "
            "anew, or choose another folder"
        )

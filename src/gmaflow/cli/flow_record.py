"""How the flow in a folder was estimated, kept beside it, so that no two ways are ever mixed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.pairs import settings
from gmaflow.errors import OutputError, say
from gmaflow.io import atomic_write

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator

RECORD = "flow.json"
SCALE, ENDINGS = "max_length", "files"
"""What a run may add to the record of the run before it: its scale, and endings of names."""

Record = dict[str, object]


def make_record(
    estimator: "FlowEstimator", *, verb: str, source: Path, warm_start: bool, **more: object
) -> Record:
    """Return all that the files of a folder depend on, but the scale of their colours.

    Args:
        estimator: What estimates.
        verb: Which verb wrote them.
        source: Where the frames are.
        warm_start: Whether each pair begins with the flow of the one before.
        more: The verb's own options that the files depend on.
    """
    from gmaflow.evaluation.judging import fingerprint

    how = settings(estimator)
    # The device is left out: a run may go on elsewhere, as long as its precision stays.
    del how["device"]
    return {
        "verb": verb,
        "frames": str(source.resolve()),
        **how,
        "weights": fingerprint(estimator.network),
        "warm_start": warm_start,
        **more,
    }


@dataclass
class FolderRecord:
    """The record of one folder: of the run that began it, and of the one that goes on with it."""

    folder: Path
    now: Record
    """How this run estimates."""
    before: Record = field(default_factory=dict)
    """How the folder was begun; empty if this run begins it."""
    trusted: bool = False
    """Whether what is there is to be kept, though no record tells of it."""

    @classmethod
    def resume(cls, folder: Path, now: Record, *, scale: float | None) -> "FolderRecord":
        """Go on with a folder.

        Args:
            folder: Where the files are; there may be none.
            now: How this run estimates.
            scale: The length at full colour that was asked for, if any was.

        Raises:
            OutputError: It was begun in another way, or the record is broken.
        """
        path = folder / RECORD
        if not path.is_file():
            return cls(folder, now, trusted=True)
        try:
            before = dict(json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError) as err:
            raise OutputError(f"{path} is broken; add --overwrite to begin anew") from err
        same_scale = scale is None or before.get(SCALE) is None
        wanted = {**now, SCALE: before.get(SCALE) if same_scale else scale}
        for key, was in before.items():
            if key != ENDINGS and wanted.get(key) != was:
                raise OutputError(
                    f"{folder} was begun with {key} {was}, not {wanted.get(key)}; resume it with "
                    "the same options, or choose another folder"
                )
        return cls(folder, now, before)

    @property
    def scale(self) -> float | None:
        """The length at full colour that the folder was begun with; None if nothing was drawn."""
        scale = self.before.get(SCALE)
        return scale if isinstance(scale, float) else None

    @property
    def _endings(self) -> list[str]:
        endings = self.before.get(ENDINGS)
        return endings if isinstance(endings, list) else []

    def covers(self, ending: str) -> bool:
        """Tell whether files of this ending were written as this record tells."""
        return self.trusted or ending in self._endings

    def tell_of_trust(self) -> None:
        """Say that nothing tells how the files that are there came about."""
        if self.trusted:
            say(
                f"gmaflow: {self.folder} has no {RECORD}; what is there is taken to be of the same "
                "settings"
            )

    def write(self, endings: Iterable[str], *, scale: float | None) -> None:
        """Write down how the flow in the folder is estimated.

        Args:
            endings: How the names of the files end that this run writes.
            scale: The length at full colour, if anything is drawn.
        """
        record = {
            **self.before,
            **self.now,
            SCALE: self.scale if scale is None else scale,
            ENDINGS: list(dict.fromkeys([*self._endings, *endings])),
        }
        with atomic_write(self.folder / RECORD) as temporary:
            temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def refuse_to_begin(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to begin anew where something was begun, unless it was asked for.

    Raises:
        OutputError: The folder has a record, or both was asked for.
    """
    if resume and overwrite:
        raise OutputError("--resume keeps what is there and --overwrite does not; give one of them")
    if not (resume or overwrite) and (folder / RECORD).is_file():
        raise OutputError(
            f"{folder} holds flow already; add --resume to go on with it, --overwrite to begin "
            "anew, or choose another folder"
        )

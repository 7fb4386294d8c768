"""Where pairs come from, in a few letters: scenes:mix, stage:chairs, set:sintel:final, folder:X."""

from dataclasses import dataclass

from gmaflow.errors import TrainingError, suggest
from gmaflow.scenes import PRESETS as SCENE_PRESETS

KINDS = ("scenes", "stage", "set", "folder")
STAGES = ("chairs", "things", "sintel", "kitti")


@dataclass(frozen=True)
class Place:
    """A source of pairs, by kind and name."""

    kind: str
    """scenes: rendered; stage: a mixture of the paper; set: one data set; folder: one's own."""
    name: str
    """The scenes' preset, the stage, the data set, or the folder's path."""
    variant: str = ""
    """A data set's pass: clean, final ..."""

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Read a place as it is written in a config.

        Raises:
            TrainingError: There is no such kind of place, or no such name.
        """
        kind, _, name = text.partition(":")
        if kind not in KINDS or not name:
            raise TrainingError(
                f"{text!r} says not where data comes from; give scenes:mix, stage:chairs, "
                "set:NAME, set:NAME:PASS or folder:PATH"
            )
        if kind == "set":
            name, _, variant = name.partition(":")
            return cls(kind, name, variant)
        known = {"scenes": SCENE_PRESETS, "stage": STAGES}.get(kind)
        if known is not None and name not in known:
            raise TrainingError(f"{kind} has no {name!r}; {suggest(name, known)}")
        return cls(kind, name)

    def __str__(self) -> str:
        return ":".join(part for part in (self.kind, self.name, self.variant) if part)

"""What many judged pairs come to; it stays small however many there are."""

import heapq
import math
from dataclasses import dataclass, field

from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.judging import Judged, Start
from gmaflow.evaluation.metrics import ErrorSums
from gmaflow.evaluation.regions import NEED_FOREGROUND, NEED_OCCLUSION

_NAMED = 5
MOST_SCENES = 500
"""Of more sequences than this none is summed up; a set of single pairs would grow without end."""


@dataclass(frozen=True)
class Ranked:
    """A pair that is among the best or the worst."""

    epe: float
    key: str
    example: Example


class Extremes:
    """The pairs with the smallest errors, or with the largest."""

    def __init__(self, count: int, *, largest: bool) -> None:
        self.count = count
        self._sign = 1 if largest else -1
        self._heap: list[tuple[float, str, Ranked]] = []

    def offer(self, ranked: Ranked) -> bool:
        """Take a pair in if it belongs here; tells whether it did."""
        entry = (self._sign * ranked.epe, ranked.key, ranked)
        if len(self._heap) < self.count:
            heapq.heappush(self._heap, entry)
            return True
        return heapq.heappushpop(self._heap, entry)[1] != ranked.key

    def ranked(self) -> list[Ranked]:
        """Return the pairs, the most extreme first."""
        return [ranked for *_, ranked in sorted(self._heap, reverse=True)]


@dataclass(eq=False)
class Summary:
    """Sums by pass and start, and by sequence; the best and the worst pairs.

    Attributes:
        totals: errors of each pass, for a cold and a warm start.
        scenes: the same for each sequence; empty if there are too many.
        worst: pairs with the largest errors, from a cold start.
        best: those with the smallest.
        without_pixels: the first few pairs of whose truth no pixel is known.
        num_without_pixels: how many there are.
        seconds: how long the estimates took, together.
        num_pairs: how many pairs there are.
        too_many_scenes: whether there are more sequences than are summed up.
    """

    shown: int = 3
    totals: dict[tuple[str, Start], ErrorSums] = field(default_factory=dict)
    scenes: dict[tuple[str, Start], dict[str, ErrorSums]] = field(default_factory=dict)
    without_pixels: list[str] = field(default_factory=list)
    num_without_pixels: int = 0
    seconds: float = 0.0
    num_pairs: int = 0
    too_many_scenes: bool = False

    def __post_init__(self) -> None:
        self.worst = Extremes(self.shown, largest=True)
        self.best = Extremes(self.shown, largest=False)

    def add(self, judged: Judged) -> bool:
        """Count a pair in; tells whether it is among the best or worst so far."""
        kind = (judged.example.group, judged.start)
        sums = judged.result.sums
        self.totals[kind] = self.totals.get(kind, ErrorSums.none()) + sums
        self._add_to_scene(kind, judged.example.scene, sums)
        if judged.start == "warm":
            return False
        self.num_pairs += 1
        self.seconds += judged.result.seconds
        if math.isnan(judged.epe):
            self.num_without_pixels += 1
            if len(self.without_pixels) < _NAMED:
                self.without_pixels.append(judged.example.title)
            return False
        ranked = Ranked(judged.epe, judged.key, judged.example)
        # Both are asked: a pair may be among the best and the worst of a few.
        return any([self.worst.offer(ranked), self.best.offer(ranked)])

    def _add_to_scene(self, kind: tuple[str, Start], scene: str, sums: ErrorSums) -> None:
        scenes = self.scenes.setdefault(kind, {})
        if self.too_many_scenes:
            return
        scenes[scene] = scenes.get(scene, ErrorSums.none()) + sums
        if len(scenes) > MOST_SCENES:
            self.too_many_scenes = True
            for some in self.scenes.values():
                some.clear()

    def with_together(self) -> dict[tuple[str, Start], ErrorSums]:
        """Return the totals and, of several passes, those of all together."""
        groups = list(dict.fromkeys(group for group, _ in self.totals))
        if len(groups) == 1:
            return self.totals
        together: dict[tuple[str, Start], ErrorSums] = {}
        for (_, start), sums in self.totals.items():
            kind = (" + ".join(groups), start)
            together[kind] = together.get(kind, ErrorSums.none()) + sums
        return self.totals | together

    def notes(self) -> list[str]:
        """Say what could not be told, and why."""
        notes = []
        if self.num_without_pixels:
            more = ", ..." if self.num_without_pixels > len(self.without_pixels) else ""
            notes.append(
                f"{self.num_without_pixels} of {self.num_pairs} pairs have no pixel with a known "
                f"truth and count for nothing: {', '.join(self.without_pixels)}{more}"
            )
        if self.too_many_scenes:
            notes.append(
                f"there are more than {MOST_SCENES} sequences; results.csv has each of their pairs"
            )
        for regions, lacking in (
            (NEED_OCCLUSION, "an occlusion mask"),
            (NEED_FOREGROUND, "a mask of moving objects"),
        ):
            told = self._told(regions[0])
            names = ", ".join(regions)
            if 0 < told < self.num_pairs:
                notes.append(f"{names} are over the {told} pairs that have {lacking}")
            elif told == 0 and regions == NEED_OCCLUSION:
                notes.append(f"no pair has {lacking}, so {names} cannot be told")
        return notes

    def _told(self, region: str) -> int:
        return sum(sums.told(region) for (_, start), sums in self.totals.items() if start == "cold")

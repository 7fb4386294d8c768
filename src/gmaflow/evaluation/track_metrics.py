"""Scores of tracks against known ones, as TAP-Vid (Doersch et al., 2022) defines them.

Legend: n frames, k points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float

THRESHOLDS = (1, 2, 4, 8, 16)
"""Distances in pixels over which accuracies are averaged."""


@dataclass(frozen=True)
class TrackScores:
    """Scores of one clip, or their mean over clips; shares between 0 and 1."""

    average_jaccard: float
    """True positives over true positives, false negatives and false positives, averaged over the
    thresholds. A true positive is visible, predicted visible, and near enough."""
    position_accuracy: float
    """Visible points whose position is near enough, averaged over the thresholds."""
    occlusion_accuracy: float
    """Share of points and frames whose visibility is predicted correctly."""

    @classmethod
    def mean(cls, clips: Sequence["TrackScores"]) -> "TrackScores":
        """The mean over clips, in which every clip counts the same."""
        return cls(*(float(np.mean([getattr(c, f.name) for c in clips])) for f in fields(cls)))


def score_tracks(
    positions: Float[np.ndarray, "n k 2"],
    visible: Bool[np.ndarray, "n k"],
    true_positions: Float[np.ndarray, "n k 2"],
    truly_visible: Bool[np.ndarray, "n k"],
    *,
    reference: int = 0,
) -> TrackScores:
    """Score the tracks of points of the frame `reference`, which itself does not count."""
    counted = np.arange(len(positions)) != reference
    predicted, truth = visible[counted], truly_visible[counted]
    distance = np.linalg.norm(positions[counted] - true_positions[counted], axis=-1)
    accuracies, jaccards = [], []
    for threshold in THRESHOLDS:
        near = distance < threshold  # false where the position is not a number
        true_positives = truth & predicted & near
        false_positives = predicted & ~(truth & near)
        accuracies.append((near & truth).sum() / max(1, truth.sum()))
        jaccards.append(true_positives.sum() / max(1, truth.sum() + false_positives.sum()))
    agreement = float((predicted == truth).mean())
    return TrackScores(float(np.mean(jaccards)), float(np.mean(accuracies)), agreement)

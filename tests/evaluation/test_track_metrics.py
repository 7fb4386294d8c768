import numpy as np
import pytest

from gmaflow.evaluation.track_metrics import TrackScores, score_tracks


def test_scores_of_a_case_counted_by_hand() -> None:
    truth = np.zeros((3, 2, 2))
    visible = np.array([[True, True], [True, True], [True, False]])
    found = truth.copy()
    found[1, 0, 0] = 3.0  # within 4, 8 and 16 px
    seen = np.array([[True, True], [True, False], [True, True]])
    scores = score_tracks(found, seen, truth, visible)
    # Frames 1 and 2 count: three visible ones, of which one is 3 px away.
    assert scores.position_accuracy == pytest.approx((2 * 2 / 3 + 3 * 1) / 5)
    assert scores.occlusion_accuracy == pytest.approx(2 / 4)
    # Found: one, or two from 4 px on. Wrong: the hidden one, and below 4 px the far one.
    assert scores.average_jaccard == pytest.approx((2 * 1 / (3 + 2) + 3 * 2 / (3 + 1)) / 5)


def test_perfect_tracks_and_lost_ones() -> None:
    truth = np.random.default_rng(0).normal(size=(4, 5, 2))
    visible = np.ones((4, 5), bool)
    perfect = score_tracks(truth, visible, truth, visible)
    assert perfect == TrackScores(1.0, 1.0, 1.0)
    nowhere = score_tracks(np.full_like(truth, np.nan), ~visible, truth, visible)
    assert nowhere == TrackScores(0.0, 0.0, 0.0)
    assert TrackScores.mean([perfect, nowhere]) == TrackScores(0.5, 0.5, 0.5)


def test_the_reference_does_not_count() -> None:
    truth = np.zeros((3, 1, 2))
    visible = np.ones((3, 1), bool)
    found = truth.copy()
    found[1] = 99
    assert score_tracks(found, visible, truth, visible, reference=1) == TrackScores(1.0, 1.0, 1.0)

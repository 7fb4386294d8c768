"""A clip's score is that of all its pixels together, computed pair by pair."""

import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.inference import Flow, MotionScorer, score_motion
from gmaflow.inference.camera import MOVING_RESIDUAL

SIZE = (40, 60)


def random_flows(count: int = 4) -> list[Flow]:
    rng = np.random.default_rng(0)
    return [Flow(rng.normal(0, 1 + n, (*SIZE, 2)).astype(np.float32)) for n in range(count)]


def test_lengths_are_those_of_all_pixels_together() -> None:
    flows = random_flows()
    score = score_motion([flows[0], None, *flows[1:], None])
    lengths = np.concatenate([flow.length.ravel() for flow in flows])
    assert (score.pairs, score.cuts, score.height, score.width) == (4, 2, *SIZE)
    assert score.mean == pytest.approx(lengths.mean(), rel=1e-5)
    assert score.median == pytest.approx(np.median(lengths), rel=0.008)
    assert score.p95 == pytest.approx(np.quantile(lengths, 0.95), rel=0.008)
    assert score.still == pytest.approx((lengths < 0.5).mean())


def test_camera_and_object_motion_are_separated() -> None:
    flow = np.full((*SIZE, 2), [3, 4], np.float32)
    flow[10:20, 10:40] += [0, 6]
    share = 300 / 2400
    score = score_motion([Flow(flow)] * 2)
    assert score.camera == pytest.approx(5, abs=0.01)
    assert score.residual == pytest.approx(6 * share, abs=0.01)
    certainty = 6**2 / (6**2 + MOVING_RESIDUAL**2)
    assert score.moving == pytest.approx(certainty * share, abs=0.001)
    assert score.still == 0


def test_nothing_moves_in_a_still_clip() -> None:
    score = score_motion([Flow(np.zeros((*SIZE, 2), np.float32))])
    assert (score.mean, score.camera, score.residual, score.moving) == (0, 0, 0, 0)
    assert [score.median, score.p95, score.still] == pytest.approx([0, 0, 1])


def test_ignored_pixels_do_not_count() -> None:
    flow = np.full((*SIZE, 2), [3, 4], np.float32)
    flow[:20] = 50
    ignore = np.zeros(SIZE, bool)
    ignore[:20] = True
    scorer = MotionScorer()
    scorer.add(Flow(flow), ignore=ignore)
    assert scorer.result().mean == pytest.approx(5)
    assert scorer.result().p95 == pytest.approx(5, rel=0.008)


@pytest.mark.parametrize("flows", [[], [None, None]])
def test_a_clip_without_flow_has_no_score(flows: list[None]) -> None:
    with pytest.raises(FlowError, match="needs at least two frames of a shot"):
        score_motion(flows)

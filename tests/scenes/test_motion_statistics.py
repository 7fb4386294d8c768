"""Statistics are those of arrays whose numbers are known."""

from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import DatasetError, FlowError
from gmaflow.io import write_flow, write_image
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.motion_statistics import (
    MotionStatistics,
    MotionTally,
    find_truths,
    real_statistics,
    rendered_statistics,
)

KNOWN = np.ones((20, 30), bool)


def flow_of(lengths: np.ndarray) -> np.ndarray:
    """A flow with these lengths, in directions that vary."""
    angle = np.linspace(0, 6, lengths.size).reshape(lengths.shape)
    return np.stack([lengths * np.cos(angle), lengths * np.sin(angle)], axis=2).astype(np.float32)


def test_percentiles_and_mean_are_those_of_the_pixels() -> None:
    lengths = np.exp(np.random.default_rng(1).normal(1, 1.5, (200, 300)))
    tally = MotionTally()
    for part in (lengths[:80], lengths[80:]):
        tally.add(flow_of(part), np.ones(part.shape, bool))
    found = tally.statistics("made")
    assert found.pairs == 2
    assert found.mean == pytest.approx(lengths.mean(), rel=1e-4)
    assert found.largest == pytest.approx(lengths.max(), rel=1e-4)
    for share, value in ((50, found.median), (90, found.p90), (99, found.p99), (99.9, found.p999)):
        assert value == pytest.approx(np.percentile(lengths, share), rel=0.02)
    assert found.curve.sum() + found.still == pytest.approx(1)
    peak = MotionStatistics.curve_places()[found.curve.argmax()]
    assert 1.5 < peak < 5


def test_motion_is_counted_in_its_half_octave() -> None:
    tally = MotionTally()
    tally.add(flow_of(np.full((20, 30), 3.0)), KNOWN)
    found = tally.statistics("three")
    place = MotionStatistics.curve_places()[found.curve.argmax()]
    assert found.curve.max() == 1
    assert place / 2**0.25 <= 3 <= place * 2**0.25
    assert found.median == pytest.approx(3, rel=0.02)


def test_a_scale_multiplies_motion_and_leaves_occlusion() -> None:
    flow = np.zeros((20, 30, 2), np.float32)
    flow[..., 0] = 4
    hidden = np.zeros((20, 30), bool)
    hidden[:, :3] = True
    tally = MotionTally()
    tally.add(flow, KNOWN, hidden, scale=2.5)
    found = tally.statistics("shift")
    assert found.mean == pytest.approx(10)
    assert found.occluded_in == pytest.approx(3 / 30)
    assert found.occluded_out == pytest.approx(3 / 30)


def test_only_known_pixels_count() -> None:
    flow = flow_of(np.full((20, 30), 8.0))
    flow[:10] = 0
    valid = np.zeros((20, 30), bool)
    valid[10:] = True
    tally = MotionTally()
    tally.add(flow, valid)
    found = tally.statistics("half")
    assert found.mean == pytest.approx(8)
    assert found.still == 0
    assert found.occluded_in is None


def test_holes_are_as_deep_as_their_pixels_are_far_from_visible_ones() -> None:
    hidden = np.zeros((80, 120), bool)
    hidden[20:60, 30:70] = True  # 40 x 40 pixels
    depth = np.minimum(*np.meshgrid(np.r_[1:21, 20:0:-1], np.r_[1:21, 20:0:-1])) / 8
    tally = MotionTally()
    tally.add(np.zeros((80, 120, 2), np.float32), np.ones_like(hidden), hidden)
    found = tally.statistics("square")
    assert found.hole_depth == pytest.approx(depth.mean())
    assert found.hole_depth_p90 == pytest.approx(np.quantile(depth, 0.9), abs=1 / 8)
    assert found.holes_over_1 == pytest.approx((depth > 1).mean())
    assert found.holes_over_3 == 0
    twice = MotionTally()
    twice.add(np.zeros((80, 120, 2), np.float32), np.ones_like(hidden), hidden, scale=2.0)
    found = twice.statistics("twice the size")
    assert found.hole_depth == pytest.approx(2 * depth.mean())
    assert found.holes_over_3 == pytest.approx((2 * depth > 3).mean())


def test_pixels_that_leave_the_frame_are_neither_hole_nor_visible() -> None:
    flow = np.zeros((40, 60, 2), np.float32)
    flow[:, :16, 0] = -100
    hidden = np.zeros((40, 60), bool)
    hidden[:, :24] = True
    tally = MotionTally()
    tally.add(flow, np.ones_like(hidden), hidden)
    found = tally.statistics("edge")
    assert found.occluded_in == pytest.approx(8 / 60)
    assert found.hole_depth == pytest.approx(np.arange(1, 9).mean() / 8)


def test_nothing_and_stillness() -> None:
    tally = MotionTally()
    with pytest.raises(FlowError, match="empty: no pixel has a known flow"):
        tally.statistics("empty")
    tally.add(np.zeros((20, 30, 2), np.float32), KNOWN, ~KNOWN)
    found = tally.statistics("still")
    assert (found.mean, found.median, found.p999, found.still, found.largest) == (0, 0, 0, 1, 0)
    assert (found.occluded_in, found.occluded_out) == (0, 0)
    assert (found.hole_depth, found.hole_depth_p90, found.holes_over_3) == (None, None, None)


def test_rendered_pairs_are_counted_with_the_renderer_s_own_occlusion(bank: TextureBank) -> None:
    renderer = SceneRenderer("things", (40, 56), 3, bank)
    batch = renderer.render(2, 10)
    steps: list[tuple[int, int]] = []
    found = rendered_statistics(
        renderer, start=2, count=10, scale=2.0, progress=lambda *step: steps.append(step)
    )
    assert steps == [(8, 10), (10, 10)]
    known = batch.valid
    assert found.mean == pytest.approx(float(2 * batch.flow.norm(dim=1)[known].mean()), rel=1e-4)
    assert found.occluded_in == pytest.approx(float(batch.occluded_in[known].float().mean()))
    assert found.occluded_out == pytest.approx(float(batch.occluded_out[known].float().mean()))


def test_real_truth_is_found_in_every_layout(tmp_path: Path) -> None:
    flow = flow_of(np.full((20, 30), 2.0))
    names = (
        "sintel/training/flow/alley_1/frame_0001.flo",
        "chairs/data/00001_flow.flo",
        "kitti/training/flow_occ/000000_10.png",
        "kitti/training/flow_noc/000000_10.png",
        "kitti/training/flow_noc/000001_10.png",
        "things/optical_flow/TRAIN/A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm",
        "spring/train/0001/flow_FW_left/flow_FW_left_0001.flo5",
    )
    for name in names:
        write_flow(tmp_path / name, flow)
    for name in ("training/occlusions/alley_1/frame_0001.png", "training/clean/alley_1/f.png"):
        write_image(tmp_path / "sintel" / name, KNOWN.astype(np.uint8) * 255)
    found = {str(t.flow.relative_to(tmp_path)): t for t in find_truths(tmp_path)}
    assert set(found) == set(names) - {"kitti/training/flow_noc/000000_10.png"}
    assert found[names[0]].occlusion is not None
    assert found[names[2]].visible_flow is not None
    assert real_statistics(tmp_path / "spring").mean == pytest.approx(2, rel=1e-4)
    sintel = real_statistics(tmp_path / "sintel")
    assert sintel.occluded_in is not None
    assert sintel.occluded_in + sintel.occluded_out == pytest.approx(1)
    assert real_statistics(tmp_path / "kitti").occluded_in == 0


def test_broken_truth_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_flow(tmp_path / "a.flo", flow_of(np.full((20, 30), 2.0)))
    (tmp_path / "b.flo").write_bytes(b"PIEH")
    assert real_statistics(tmp_path).pairs == 1
    assert "b.flo: not a Middlebury .flo file" in caplog.text
    (tmp_path / "a.flo").unlink()
    with pytest.raises(DatasetError, match="none of 1 flow files can be read"):
        real_statistics(tmp_path)


def test_a_root_without_truth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a folder"):
        find_truths(tmp_path / "none")
    write_image(tmp_path / "flow.png", np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(DatasetError, match="holds no true flow"):
        find_truths(tmp_path)

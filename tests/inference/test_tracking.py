"""Points tracked through a shot."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import (
    FlowEstimator,
    Frame,
    Tracks,
    default_spacing,
    grid_points,
    read_tracks,
    st_map,
)
from gmaflow.inference.engine import BatchEstimate, Refinement, Watcher
from gmaflow.inference.fast import FastNetwork, RecordedNetwork
from gmaflow.inference.tracking import LARGE_CYCLE_ERROR, MAX_AGE, Points, Tracker, find_points
from gmaflow.io import write_image
from tests.inference.fast.test_recorded_network import Tape
from tests.inference.test_estimator import checkpoint
from tests.io.frames import moving

SIZE = (48, 64)


@pytest.fixture(scope="module")
def estimator() -> FlowEstimator:
    return FlowEstimator(checkpoint(), iters=1, device="cpu")


class World(FlowEstimator):
    """An estimator with known flow: a backdrop that drifts, and a bar in front of it.

    Flow is exact where a pixel is visible in both frames; a hidden pixel gets the bar's motion, as
    an honest estimator would do at best.
    """

    def __init__(self, hidden_from: int, hidden_until: int, *, reach: int = 100) -> None:
        super().__init__(checkpoint(), device="cpu")
        self.hidden = range(hidden_from, hidden_until)
        self.reach = reach
        self.matched: list[tuple[int, int]] = []
        self.encoded = 0
        self.flows = 0

    def encode(self, image: np.ndarray) -> Frame:  # type: ignore[override]
        self.encoded += 1
        return Frame(image, torch.zeros(1, 3, *SIZE), None, self.network)

    def match(
        self,
        first: Frame,
        second: Frame,
        *,
        both_ways: bool = True,
        watch: Watcher | None = None,
    ) -> BatchEstimate:
        a, b = (int(frame.image[0, 0, 0]) for frame in (first, second))
        self.matched.append((a, b))
        self.flows += 1 + both_ways
        flow = torch.zeros(2, 2, *SIZE)
        flow[0, 0], flow[1, 0] = float(b - a), float(a - b)
        # The bar covers columns 20 to 29 while it is there.
        if b in self.hidden:
            flow[1, :, :, 20:30] = 9.0
        if abs(a - b) > self.reach:
            flow[1] = 9.0
        if a in self.hidden:
            flow[0, :, :, 20:30] = -9.0
        flow = flow[: 1 + both_ways]
        return BatchEstimate(flow, flow[:, :, ::8, ::8])


def numbered(count: int) -> list[np.ndarray]:
    return [np.full((*SIZE, 3), number, np.uint8) for number in range(count)]


def follow(world: World, count: int, points: np.ndarray) -> tuple[Tracker, list[Points]]:
    frames = [world.encode(image) for image in numbered(count)]
    tracker = Tracker(world, frames[0], points)
    return tracker, [tracker.advance(frame) for frame in frames[1:]]


def test_a_point_is_found_again_after_occlusion() -> None:
    point = np.array([[20.0, 24.0]], np.float32)
    tracker, found = follow(World(2, 6), 10, point)
    assert [bool(p.visible[0]) for p in found] == [True] + 4 * [False] + 4 * [True]
    for number, points in enumerate(found, 1):
        if points.visible[0]:
            assert points.position[0].tolist() == pytest.approx([20 + number, 24], abs=1e-4)
            assert points.confidence[0] > 0.7
    assert tracker.flows <= 2.5 * 9


def test_points_that_leave_the_frame_are_not_visible() -> None:
    edge = np.array([[60.0, 5.0]], np.float32)
    _, found = follow(World(0, 0), 8, edge)
    assert [bool(p.visible[0]) for p in found] == 3 * [True] + 4 * [False]


def test_few_frames_are_kept_and_few_flows_estimated() -> None:
    # The bar hides the point half of the time, so steps are needed, and limited.
    world = World(2, 40)
    tracker, _ = follow(world, 80, np.array([[3.0, 3.0], [24.0, 9.0]], np.float32))
    assert len(tracker._keyframes) <= MAX_AGE.bit_length() + 2
    assert world.encoded == 80
    assert 2 * 79 < tracker.flows == world.flows <= 2.5 * 79


def test_another_keyframe_is_used_if_the_reference_cannot_be_matched() -> None:
    # The gap to the reference is too long; the one to a frame shortly before is not.
    world = World(20, 24, reach=12)
    _, found = follow(world, 30, np.array([[4.0, 24.0]], np.float32))
    assert bool(found[17].visible[0])
    assert any(a > 0 and 1 < b - a <= 12 for a, b in world.matched)


def test_points_are_checked_by_the_backward_flow_and_by_a_step() -> None:
    positions = torch.tensor([[3.0, 4.0], [8.0, 4.0]])
    points = Points(positions, torch.ones(2) > 0, torch.ones(2))
    forward, backward = torch.full((1, 2, 8, 16), 1.0), torch.full((1, 2, 8, 16), -1.0)
    backward[..., 8:] = 3.0
    found = find_points(points, points, forward, backward)
    assert found.visible.tolist() == [True, False]
    assert found.position[0].tolist() == [4.0, 5.0]
    assert found.confidence[0] == 1
    assert found.confidence[1] < 0.5
    # A prior lets a doubtful point pass, and never makes a consistent one fail.
    assert find_points(points, points, forward, backward, prior=0.2).visible.all()
    # A step to a cycle-consistent position is better.
    backward[..., 8:] = -2.0
    step = torch.full((1, 2, 8, 16), 2.0)
    found = find_points(points, points, forward, backward, step)
    assert found.position.tolist() == [[4.0, 5.0], [10.0, 6.0]]
    # Points occluded in the source are tracked by steps, with decreasing confidence.
    hidden = points._replace(visible=torch.zeros(2) > 0)
    found = find_points(hidden, points, forward, backward, step)
    assert found.position.tolist() == [[5.0, 6.0], [10.0, 6.0]]
    assert found.visible.all()
    assert (found.confidence < 1).all()
    # Without a step they are lost.
    assert not find_points(hidden, points, forward, backward).visible.any()


def test_a_point_is_halfway_between_both_directions_unless_they_disagree() -> None:
    points = Points(torch.tensor([[8.0, 4.0]]), torch.ones(1) > 0, torch.ones(1))
    zeros = torch.zeros(1, 2, 8, 16)

    def moved(forward: float, backward: float) -> float:
        found = find_points(points, points, zeros + forward, zeros + backward)
        return float(found.position[0, 0]) - 8

    assert moved(2.0, -2.0) == 2
    # One direction goes too far, the other not far enough: the truth is between them.
    assert moved(2.2, -1.8) == pytest.approx(2, abs=0.01)
    assert moved(1.8, -2.2) == pytest.approx(2, abs=0.01)
    # A backward flow that follows something else hardly moves the point.
    for wrong in (3.0, 5.0, 40.0):
        assert abs(moved(2.0, wrong) - 2) <= LARGE_CYCLE_ERROR / 4
    assert moved(2.0, 40.0) == pytest.approx(2, abs=0.1)


def test_a_step_must_lead_where_the_gap_leads_back_from() -> None:
    zeros, seen = torch.zeros(1, 2, 32, 64), torch.ones(1) > 0
    source = Points(torch.tensor([[10.0, 10.0]]), seen, torch.ones(1))
    last = Points(torch.tensor([[20.0, 10.0]]), seen, torch.ones(1))
    backward, step = (torch.tensor([x, 0.0]).view(1, 2, 1, 1) + zeros for x in (-15, 5))
    found = find_points(source, last, zeros, backward, step)  # the flow over the gap is wrong
    assert found.position.tolist() == [[25.0, 10.0]]
    # The gap misses the source by 15 px, the step hits it, and they differ by 15 px.
    assert found.confidence[0] ** 2 == pytest.approx(0.5 / 16 + 0.25 + 0.25 / 16)


def test_a_point_is_as_sure_as_its_weakest_link() -> None:
    seen = torch.ones(2) > 0
    source = Points(torch.tensor([[4.0, 4.0], [9.0, 4.0]]), seen, torch.tensor([0.6, 1.0]))
    still = torch.zeros(1, 2, 8, 16)
    assert find_points(source, source, still, still).confidence.equal(source.confidence)


def test_other_keyframes_are_used_only_if_the_reference_finds_too_little() -> None:
    points = np.array([[3.0, 3.0], [24.0, 9.0]], np.float32)
    # Within 12 frames less than a fifth of the backdrop drifts out.
    world = World(0, 0)
    frames = [world.encode(image) for image in numbered(13)]
    tracker = Tracker(world, frames[0], points, steps=0.0)
    for frame in frames[1:]:
        tracker.advance(frame)
    assert {a for a, _ in world.matched} == {0}
    # Beyond its reach the reference finds nothing, but is still tried again from time to time.
    world = World(0, 0, reach=12)
    follow(world, 60, points)
    late = [a for a, b in world.matched if b > 20]
    assert 0 < late.count(0) < len(late) / 4


def test_a_step_in_tiles_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def match(world: World, *frames: Frame, both_ways: bool = True, **_: object) -> BatchEstimate:
        estimate = real_match(world, *frames, both_ways=both_ways)
        return estimate._replace(in_tiles=not both_ways)

    real_match = World.match
    monkeypatch.setattr(World, "match", match)
    point = np.array([[24.0, 9.0]], np.float32)
    assert follow(World(2, 40), 30, point)[0].in_tiles
    assert not follow(World(0, 0), 5, point)[0].in_tiles


def test_every_frame_is_tracked_once_from_any_reference(estimator: FlowEstimator) -> None:
    images = moving(5)
    height, width = images[0].shape[:2]
    points = grid_points(height, width, 16)
    from_middle = list(estimator.track(iter(images), points, reference=2))
    assert [frame.number for frame in from_middle] == [2, 1, 0, 3, 4]
    np.testing.assert_array_equal(from_middle[0].positions, points)
    assert from_middle[0].visible.all()
    # Tracking backward equals tracking forward through the reversed film.
    reversed_film = Tracks.collect(estimator.track(images[::-1], points, reference=2))
    together = Tracks.collect(from_middle)
    assert together.reference == 2
    np.testing.assert_allclose(reversed_film.positions[::-1], together.positions, atol=1e-3)


def test_a_folder_gives_the_same_as_its_images(estimator: FlowEstimator, tmp_path: Path) -> None:
    images = moving(3)
    for number, image in enumerate(images):
        write_image(tmp_path / f"{number}.png", image)
    ours = [Tracks.collect(estimator.track(f, reference=1)) for f in (tmp_path, iter(images))]
    np.testing.assert_array_equal(ours[0].positions, ours[1].positions)


def test_only_frames_that_cannot_be_read_again_are_stored(
    estimator: FlowEstimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = moving(4)
    for number, image in enumerate(images):
        write_image(tmp_path / "frames" / f"{number}.png", image)
    stored = tmp_path / "stored"
    stored.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(stored))
    for frames, count in ((images, 0), (str(tmp_path / "frames"), 0), (iter(images), 2)):
        tracked = estimator.track(frames, [(9, 9)], reference=2)
        next(tracked)
        assert len(list(stored.rglob("*.npy"))) == count
        assert [frame.number for frame in tracked] == [1, 0, 3]
        assert not any(stored.iterdir())


def test_a_watcher_sees_every_refinement_and_ends_the_tracking(estimator: FlowEstimator) -> None:
    seen: list[Refinement] = []
    tracked = estimator.with_iters(3).track(moving(3), [(9, 9)], watch=seen.append)
    assert [frame.number for frame in tracked] == [0, 1, 2]
    assert [step.number for step in seen[:6]] == [1, 2, 3, 1, 2, 3]

    def stop(refinement: Refinement) -> None:
        raise InterruptedError

    tracked = estimator.track(moving(3), [(9, 9)], watch=stop)
    next(tracked)
    with pytest.raises(InterruptedError):
        next(tracked)


def test_flow_is_recorded_even_with_a_watcher() -> None:
    """A recording cannot report its refinements: a watcher is called once for each flow."""
    images, points = moving(6), [(9, 9), (30, 20)]
    made = FlowEstimator(checkpoint(), iters=2, device="cpu")
    plain = Tracks.collect(made.track(images, points))
    tape = Tape()
    made._engine = replace(
        made._engine, runner=RecordedNetwork(FastNetwork(made.network), tape.record)
    )
    seen: list[Refinement] = []
    watched = Tracks.collect(made.track(images, points, watch=seen.append))
    np.testing.assert_array_equal(watched.positions, plain.positions)
    # Each frame is encoded, each flow estimated; only the first of both is not from a recording.
    assert (tape.tried, tape.replayed) == (2, len(images) - 1 + len(seen) - 1)
    assert all((step.number, step.total, step.flow()) == (2, 2, None) for step in seen)


def test_dense_tracks_are_tracks_of_all_pixels(estimator: FlowEstimator) -> None:
    images = moving(3)
    height, width = images[0].shape[:2]
    dense = list(estimator.track(images))
    points = np.array([(5, 7), (30, 20)], np.float32)
    sparse = list(estimator.track(images, points))
    for whole, part in zip(dense, sparse, strict=True):
        assert whole.positions.shape == (height, width, 2)
        for k, (x, y) in enumerate(points.astype(int)):
            np.testing.assert_allclose(whole.positions[y, x], part.positions[k], atol=1e-4)
    unmoved = st_map(dense[0])
    np.testing.assert_allclose(unmoved[0, 0], [0.5 / width, 1 - 0.5 / height, 1], atol=1e-6)


def test_a_cut_ends_the_tracks(estimator: FlowEstimator) -> None:
    shots = [*moving(3, seed=1), *moving(2, seed=2)]
    found = Tracks.collect(estimator.track(shots, [(9, 9)]))
    assert np.isfinite(found.positions[:3]).all()
    assert np.isnan(found.positions[3:]).all()
    assert not found.visible[3:].any()
    assert not found.confidence[3:].any()
    buffer = np.empty_like(shots[0])
    reused = (np.multiply(shot, 1, out=buffer) for shot in shots)
    again = Tracks.collect(estimator.track(reused, [(9, 9)]))
    np.testing.assert_array_equal(again.positions, found.positions)
    across = Tracks.collect(estimator.track(shots, [(9, 9)], cut_threshold=None))
    assert np.isfinite(across.positions).all()


def test_saved_tracks_are_read_back(estimator: FlowEstimator, tmp_path: Path) -> None:
    tracks = Tracks.collect(estimator.track(moving(3), [(9, 9), (20.5, 11)]))
    tracks.save(tmp_path / "t.npz")
    again = read_tracks(tmp_path / "t.npz")
    for name in ("points", "reference", "positions", "visible", "confidence"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tracks, name))
    tracks.save(tmp_path / "t.csv")
    rows = (tmp_path / "t.csv").read_text().splitlines()
    assert rows[:2] == ["frame,point,x,y,visible,confidence", "0,0,9.000,9.000,1,1.000"]
    assert len(rows) == 1 + 3 * 2
    with pytest.raises(FlowError, match=r"\.npz or \.csv"):
        tracks.save(tmp_path / "t.txt")
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    with pytest.raises(FlowError, match="not a valid"):
        read_tracks(tmp_path / "bad.npz")


def test_invalid_track_files_are_refused(tmp_path: Path) -> None:
    """numpy would take the memory that a header claims."""
    arrays: dict[str, Any] = {
        "points": np.zeros((2, 2), np.float32),
        "reference": np.array(0),
        "positions": np.zeros((3, 2, 2), np.float32),
        "visible": np.ones((3, 2), bool),
        "confidence": np.ones((3, 2), np.float32),
    }
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    assert read_tracks(path).reference == 0
    claim = b"(2, 9999999999999), }"
    path.write_bytes(path.read_bytes().replace(b"(2, 2), }".ljust(len(claim)), claim))
    with pytest.raises(FlowError, match=r"a\.npz"):
        read_tracks(path)
    for name, wrong in (("visible", np.ones((2, 3), bool)), ("reference", np.array(3))):
        np.savez(path, **(arrays | {name: wrong}))
        with pytest.raises(FlowError, match="not those of tracks"):
            read_tracks(path)


def test_bad_input_is_refused_with_one_sentence(estimator: FlowEstimator) -> None:
    images = moving(3)

    def track(frames: list[np.ndarray], points: object, **options: int) -> Iterator[object]:
        return iter(list(estimator.track(frames, points, **options)))  # type: ignore[arg-type]

    with pytest.raises(FlowError, match="every pixel of the reference frame is ignored"):
        track(images, None, ignore=np.ones(SIZE, bool))  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="point 64,3 lies outside the frame of 48x64; x runs from"):
        track(images, [(64, 3)])
    with pytest.raises(FlowError, match="no points"):
        track(images, [])
    with pytest.raises(FlowError, match="shape"):
        track(images, [(1, 2, 3)])
    with pytest.raises(ImageError, match="one frame; tracks need at least two"):
        track(images[:1], [(1, 1)])
    with pytest.raises(ImageError, match="no frame 7: the shot has 3 frames"):
        track(images, [(1, 1)], reference=7)
    with pytest.raises(FlowError, match="no frame -1"):
        track(images, [(1, 1)], reference=-1)
    with pytest.raises(ImageError, match=r"differ in size.*tracks need frames of one size"):
        track([*images[:2], images[2][:40]], [(1, 1)])


def test_names_that_colmap_cannot_use_are_refused(estimator: FlowEstimator, tmp_path: Path) -> None:
    tracks = Tracks.collect(estimator.track(moving(2), [(9, 9)]))
    for names, complaint in (
        ([tmp_path / "a.png", tmp_path / "b.png"], "a.png' is outside the folder; give names"),
        (["a.png", "../b.png"], "'../b.png' is outside the folder"),
        (["a.png", "a.png"], "two frames have the same name"),
        (["a.png", "b b.png"], "cannot match 'b b.png'"),
        (["a.png"], "1 name for 2 frames"),
    ):
        with pytest.raises(FlowError, match=complaint):
            tracks.save_colmap(tmp_path / "colmap", names)
    assert not list(tmp_path.iterdir())
    tracks.save_colmap(tmp_path / "colmap", [Path("left/a.png"), Path("left/b.png")])
    assert (tmp_path / "colmap" / "features" / "left" / "b.png.txt").is_file()


@pytest.mark.parametrize(
    ("size", "spacing"), [((1080, 1920), 45), ((480, 360), 15), ((96, 128), 8)]
)
def test_points_of_small_frames_do_not_crowd(size: tuple[int, int], spacing: int) -> None:
    assert default_spacing(*size) == spacing


def test_tracks_are_not_collected_with_frames_missing(estimator: FlowEstimator) -> None:
    frames = list(estimator.track(moving(4, size=SIZE), [(9, 9)], reference=1))
    for some in (frames[:1], frames[2:], [*frames, frames[0]], []):
        with pytest.raises(FlowError, match="every frame"):
            Tracks.collect(some)

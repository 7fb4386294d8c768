"""The flow of a video, step by step."""

import gc
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.errors import ImageError
from gmaflow.inference import CUT_THRESHOLD, FlowEstimator, Frame, cut_score, estimate_video, is_cut
from gmaflow.inference.sequence import estimate_pairs, estimate_pairs_in_batches
from gmaflow.io import TimedFrame, VideoReader
from tests.inference.test_estimator import checkpoint
from tests.io.frames import moving

TIMES = [Fraction(n, 10) for n in (0, 1, 3, 4, 8, 9)]


@pytest.fixture(scope="module")
def estimator() -> FlowEstimator:
    return FlowEstimator(checkpoint(), iters=2, device="cpu")


def timed(images: list[np.ndarray]) -> list[TimedFrame]:
    pairs = zip(images, TIMES, strict=False)
    return [TimedFrame(number, image, time) for number, (image, time) in enumerate(pairs)]


def test_there_is_a_step_for_every_frame_but_the_last(estimator: FlowEstimator) -> None:
    images = moving(5)
    steps = list(estimate_video(estimator, timed(images)))
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert [step.time for step in steps] == TIMES[:4]
    assert [step.seconds for step in steps] == [Fraction(n, 10) for n in (1, 2, 1, 4)]
    for step in steps:
        assert step.flow is not None
        assert step.both is None
        assert np.array_equal(step.image, images[step.number])
        by_hand = estimator(images[step.number], images[step.number + 1])
        np.testing.assert_allclose(step.flow.array, by_hand.array, atol=1e-4)


def test_occlusion_takes_account_of_the_scale_of_the_frames(estimator: FlowEstimator) -> None:
    first, second = moving(2)
    half = [TimedFrame(n, image, TIMES[n], 0.5) for n, image in enumerate((first, second))]
    (step,) = estimate_video(estimator, half, backward=True)
    assert step.both is not None
    expected = estimator.bidirectional(first, second, scale=0.5).confidence
    np.testing.assert_allclose(step.both.confidence, expected, atol=1e-4)
    assert (expected > estimator.bidirectional(first, second).confidence).any()


def test_neither_flow_nor_warm_start_crosses_a_cut(estimator: FlowEstimator) -> None:
    shots = [*moving(3, seed=1), *moving(3, seed=2)]
    steps = list(estimate_video(estimator, timed(shots), warm_start=True))
    assert [step.flow is None for step in steps] == [False, False, True, False, False]
    assert steps[3].flow is not None
    cold = estimator(shots[3], shots[4])
    np.testing.assert_allclose(steps[3].flow.array, cold.array, atol=1e-4)
    warm = estimator(shots[4], shots[5], previous=steps[3].flow)
    assert steps[4].flow is not None
    np.testing.assert_allclose(steps[4].flow.array, warm.array, atol=1e-4)
    across = list(estimate_video(estimator, timed(shots), cut_threshold=None))
    assert all(step.flow is not None for step in across)


@pytest.mark.parametrize("done", [{0}, {0, 1}, {1}, {0, 2}, {3, 4}, {0, 1, 2, 3, 4}])
@pytest.mark.parametrize("gaps", [False, True])
def test_finished_pairs_are_skipped_and_their_frames_may_be_missing(
    estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch, done: set[int], gaps: bool
) -> None:
    images = [*moving(4, seed=1), *moving(2, seed=2)]
    whole = list(estimate_video(estimator, timed(images), warm_start=True))
    encode, encoded = FlowEstimator.encode, []

    def counted(self: FlowEstimator, image: np.ndarray) -> Frame:
        encoded.append(encode(self, image))
        return encoded[-1]

    monkeypatch.setattr(FlowEstimator, "encode", counted)
    known = {number: whole[number].flow for number in done}
    frames = [
        frame
        for frame in timed(images)
        if not gaps or frame.number not in done or frame.number - 1 not in {-1, *done}
    ]
    steps = list(estimate_video(estimator, frames, warm_start=True, done=known))
    left = [step for step in whole if step.number not in done]
    for step, expected in zip(steps, left, strict=True):
        assert (step.number, step.cut) == (expected.number, expected.cut)
        assert (step.time, step.seconds) == (expected.time, expected.seconds)
        assert (step.flow is None) == (expected.flow is None)
        if step.flow is not None and expected.flow is not None:
            np.testing.assert_array_equal(step.flow.array, expected.flow.array)
    pairs = {step.number for step in whole if not step.cut} - done
    assert len(encoded) == len(pairs | {number + 1 for number in pairs})


def test_both_directions_if_requested(estimator: FlowEstimator) -> None:
    images = moving(3)
    for step in estimate_video(estimator, timed(images), backward=True):
        by_hand = estimator.bidirectional(images[step.number], images[step.number + 1])
        assert step.both is not None
        assert step.flow is step.both.forward
        np.testing.assert_allclose(step.both.backward.array, by_hand.backward.array, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_pairs_in_batches_are_the_same_pairs(
    estimator: FlowEstimator, count: int, batch: int
) -> None:
    images = [*moving(3, seed=1), *moving(3, seed=2)][:count]
    one_by_one = list(estimate_pairs(estimator, timed(images), cut_threshold=CUT_THRESHOLD))
    sizes: list[tuple[int, int]] = []

    def choose(height: int, width: int) -> int:
        sizes.append((height, width))
        return batch

    at_once = list(
        estimate_pairs_in_batches(
            estimator, timed(images), batch=choose, cut_threshold=CUT_THRESHOLD
        )
    )
    assert set(sizes) == {images[0].shape[:2]}
    assert [(p.first.number, p.cut) for p in at_once] == [
        (p.first.number, p.cut) for p in one_by_one
    ]
    for actual, expected in zip(at_once, one_by_one, strict=True):
        assert (actual.flow is None) == (expected.flow is None)
        if actual.flow is not None and expected.flow is not None:
            np.testing.assert_allclose(actual.flow.array, expected.flow.array, atol=1e-4)


def test_a_batch_of_images_needs_one_size(estimator: FlowEstimator) -> None:
    with pytest.raises(ImageError, match="differ in size"):
        estimator.consecutive([moving(1)[0], moving(1, size=(64, 64))[0]])
    floats = [image.astype(np.float32) / 255 for image in moving(3)]
    for found, expected in zip(
        estimator.consecutive(floats), estimator.consecutive(moving(3)), strict=True
    ):
        np.testing.assert_allclose(found.array, expected.array, atol=1e-4)


def test_with_less_memory_halves_the_limit(estimator: FlowEstimator) -> None:
    less = estimator.with_less_memory()
    assert less.max_memory is not None
    assert less.with_less_memory().max_memory == less.max_memory / 2
    assert estimator.max_memory is None


def test_a_cut_is_a_score_above_the_threshold() -> None:
    frames = [*moving(3, seed=1), *moving(3, seed=2), moving(1, seed=1)[0] // 2]
    for first in frames:
        for second in frames:
            expected = cut_score(first, second) > CUT_THRESHOLD
            assert is_cut(first, second, CUT_THRESHOLD) == expected


def test_less_than_two_frames_have_no_steps(estimator: FlowEstimator) -> None:
    assert list(estimate_video(estimator, timed(moving(1)))) == []
    assert list(estimate_video(estimator, [])) == []


def test_no_more_than_two_frames_are_held(estimator: FlowEstimator) -> None:
    def endless() -> Iterator[TimedFrame]:
        for number, image in enumerate(moving(5)):
            yield TimedFrame(number, image, Fraction(number))

    gc.collect()  # what other tests held, in circles
    for _ in estimate_video(estimator, endless()):
        held = sum(type(thing) is Frame for thing in gc.get_objects())
        assert held <= 2


def test_a_frame_is_like_itself_and_unlike_another() -> None:
    first, other = moving(1, seed=1)[0], moving(1, seed=2)[0]
    assert cut_score(first, first) == pytest.approx(0, abs=1e-5)
    assert cut_score(first, other) > CUT_THRESHOLD


@pytest.mark.parametrize("step", [1, 4])
def test_motion_is_not_a_cut(step: int) -> None:
    frames = moving(12)
    assert max(cut_score(*pair) for pair in pairwise(frames[::step])) < CUT_THRESHOLD


def test_a_change_of_light_is_not_a_cut() -> None:
    first, second = moving(2)
    for light in (second // 2, second // 2 + 127):
        assert cut_score(first, light) < CUT_THRESHOLD


def test_flat_frames_are_alike_and_unlike_pictures() -> None:
    black, grey = (np.full((48, 64, 3), level, np.uint8) for level in (0, 90))
    assert cut_score(black, black) < 0.01
    assert cut_score(black, grey) < 0.01
    assert cut_score(black, moving(1)[0]) > CUT_THRESHOLD


def test_cuts_are_found_between_real_shots_and_not_within(material: Path) -> None:
    clips = sorted((material / "realflow/nogt/videos").glob("*.mp4"))
    shots = [
        [
            np.asarray(Image.fromarray(frame.image).resize((160, 120)))
            for frame in islice(VideoReader(clip), 0, None, 8)
        ]
        for clip in clips
    ]
    for shot in shots:
        assert max(cut_score(*pair) for pair in pairwise(shot)) < CUT_THRESHOLD
    for before, after in pairwise([*shots, shots[0]]):
        assert cut_score(before[-1], after[0]) > CUT_THRESHOLD

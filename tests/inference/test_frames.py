"""Frames that are encoded once give the flow of their images."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import Flow, FlowEstimator, SequenceFrame, Tracks, estimate_pairs
from gmaflow.inference.fast import FastNetwork
from gmaflow.io import VideoReader, write_image
from gmaflow.model import EncodedFrame
from tests.inference.test_estimator import arrays, checkpoint
from tests.io.clips import write_clip
from tests.io.frames import moving


@contextmanager
def counting(*modules: nn.Module) -> Iterator[list[int]]:
    """Count how many images each module sees."""
    counts = [0] * len(modules)

    def count(number: int, images: torch.Tensor) -> None:
        counts[number] += len(images)

    handles = [
        module.register_forward_pre_hook(lambda _, args, n=number: count(n, args[0]))
        for number, module in enumerate(modules)
    ]
    yield counts
    for handle in handles:
        handle.remove()


def test_every_frame_of_a_sequence_is_encoded_once() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", backend="reference")
    frames = [arrays(32, 40, seed=seed)[0] for seed in range(4)]
    with counting(estimator.network.features, estimator.network.context) as counts:
        assert len(list(estimator.sequence(frames))) == 3
    assert counts == [4, 4]


def test_a_folder_is_a_sequence_in_natural_order(tmp_path: Path) -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    frames = [arrays(32, 40, seed=seed)[0] for seed in range(3)]
    for number, image in zip((1, 2, 10), frames, strict=True):
        write_image(tmp_path / f"f{number}.png", image)
    (tmp_path / "notes.txt").write_text("no frame")
    expected = list(estimator.sequence(frames))
    for actual, expected_flow in zip(estimator.sequence(tmp_path), expected, strict=True):
        np.testing.assert_array_equal(actual.array, expected_flow.array)
    with pytest.raises(ImageError, match=r"is not a sequence of images; .*VideoReader\(path\)"):
        list(estimator.sequence(str(tmp_path / "clip.mp4")))


def test_the_frames_of_a_video_are_a_sequence(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mp4", moving(3))
    images = [frame.image for frame in VideoReader(clip)]
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    (first, *_) = estimator.track(images)
    assert repr(first) == "<Frame 0 with 3072 points of frame 0, 100.0% visible>"
    point, expected = [(20.0, 20.0)], list(estimator.sequence(images))
    for actual, expected_flow in zip(estimator.sequence(VideoReader(clip)), expected, strict=True):
        np.testing.assert_array_equal(actual.array, expected_flow.array)
    wanted_tracks = Tracks.collect(estimator.track(images, point, reference=1))
    for frames in (VideoReader(clip), list(VideoReader(clip))):
        tracks = Tracks.collect(estimator.track(frames, point, reference=1))
        np.testing.assert_array_equal(tracks.positions, wanted_tracks.positions)


def test_loaded_frames_give_the_flow_of_their_images_bit_for_bit() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu", backend="reference")
    images = [arrays(35, 43, seed=seed)[0] for seed in range(3)]
    frames = [SequenceFrame(n, estimator.load_frame(image)) for n, image in enumerate(images)]
    with counting(estimator.network.features) as counts:
        found = [pair.flow for pair in estimate_pairs(estimator, frames, warm_start=True)]
    assert counts == [4]  # both images of each pair
    flow = None
    for pair, step in zip(itertools.pairwise(images), found, strict=True):
        flow = estimator(*pair, previous=flow)
        assert step is not None
        np.testing.assert_array_equal(step.array, flow.array)


@pytest.mark.parametrize("model", ["raft-small", "gma"])
def test_frames_give_the_flow_of_their_images(model: str) -> None:
    estimator = FlowEstimator(checkpoint(model), iters=2, device="cpu")
    first, second = arrays(45, 52)
    frame1, frame2 = estimator.encode(first), estimator.encode(second)
    flow = estimator(first, second)
    np.testing.assert_allclose(estimator(frame1, frame2).array, flow.array, atol=1e-4)
    np.testing.assert_allclose(estimator(first, frame2).array, flow.array, atol=1e-4)
    warm = estimator(frame1, frame2, previous=flow).array
    np.testing.assert_allclose(warm, estimator(first, second, previous=flow).array, atol=1e-4)
    both = estimator.bidirectional(frame1, frame2, previous=flow)
    expected = estimator.bidirectional(first, second, previous=flow)
    np.testing.assert_allclose(both.forward.array, expected.forward.array, atol=1e-4)
    np.testing.assert_allclose(both.backward.array, expected.backward.array, atol=1e-4)


def test_the_fast_back_end_encodes_every_frame_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def encode_frame(self: FastNetwork, image: torch.Tensor) -> EncodedFrame:
        seen.append(len(image))
        return plain(self, image)

    plain = FastNetwork.encode_frame
    monkeypatch.setattr(FastNetwork, "encode_frame", encode_frame)
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", backend="fast")
    frames = [arrays(32, 40, seed=seed)[0] for seed in range(4)]
    pairs = [estimator(*pair).array for pair in itertools.pairwise(frames)]
    assert not seen
    for actual, expected in zip(estimator.sequence(frames), pairs, strict=True):
        np.testing.assert_allclose(actual.array, expected, atol=1e-4)
    assert seen == [1, 1, 1, 1]


def test_frames_too_large_for_the_memory_are_estimated_in_tiles() -> None:
    frames = arrays(480, 400)
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", max_memory="56MB")
    frame1, frame2 = (estimator.encode(image) for image in frames)
    assert frame1.encoded is None
    np.testing.assert_array_equal(estimator(frame1, frame2).array, estimator(*frames).array)


def test_both_directions_do_not_encode_frames_again() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", backend="reference")
    frame1, frame2 = (estimator.encode(image) for image in arrays(32, 40))
    with counting(estimator.network.features, estimator.network.context) as counts:
        estimator.bidirectional(frame1, frame2)
    assert counts == [0, 0]


def test_attention_of_a_frame_is_that_of_its_image() -> None:
    estimator = FlowEstimator(checkpoint("gma"), device="cpu")
    image = arrays(32, 40)[0]
    frame = estimator.encode(image)
    with counting(estimator.network.context) as counts:
        of_frame = estimator.attention(frame, [(5.0, 6.0)])
    assert counts == [0]
    np.testing.assert_allclose(of_frame, estimator.attention(image, [(5.0, 6.0)]), atol=1e-6)


def test_frames_that_do_not_fit_are_refused() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    other = FlowEstimator(checkpoint(), iters=1, device="cpu")
    first, second = arrays(32, 40)
    with pytest.raises(FlowError, match="encoded by another estimator"):
        estimator(estimator.encode(first), other.encode(second))
    with pytest.raises(ImageError, match="differ in size"):
        estimator(estimator.encode(first), second[:24])


def test_a_warm_start_of_another_shape_is_refused_for_frames_too() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    images = arrays(32, 40)
    wrong_shape = Flow(np.zeros((32, 40, 2), np.float32), coarse=np.zeros((3, 3, 2), np.float32))
    for pair in (images, [estimator.encode(image) for image in images]):
        with pytest.raises(FlowError, match="the initial flow has shape"):
            estimator(*pair, previous=wrong_shape)

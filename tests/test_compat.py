"""Programs written for torchvision or OpenCV run with one import changed."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from gmaflow import FlowError, FlowEstimator, FlowNetwork
from gmaflow.compat import (
    DenseOpticalFlow,
    Gma_Weights,
    Raft_Large_Weights,
    bgr_to_rgb,
    check_initial_flow,
    check_normalised,
    gma,
    make,
    raft_large,
)
from gmaflow.compat import raft_small as small
from gmaflow.errors import ImageError, WeightsError
from gmaflow.example import load_example
from gmaflow.io import read_image, write_image
from gmaflow.model import MODELS
from gmaflow.weights import Checkpoint
from tests.conftest import random_images


def textured(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Two RGB frames; the picture moves by 3 px to the right."""
    image = load_example().image1
    return (
        np.ascontiguousarray(image[80 : 80 + height, 100 : 100 + width]),
        np.ascontiguousarray(image[80 : 80 + height, 97 : 97 + width]),
    )


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of docs/migrating.md, in a folder with their frames.

    torchvision and OpenCV are replaced by the functions that read images; what the programs take
    from them beyond that is not there.
    """
    for number, frame in enumerate(textured(64, 96), start=1):
        write_image(tmp_path / f"frame{number}.png", frame)
    monkeypatch.chdir(tmp_path)
    functional = ModuleType("torchvision.transforms.functional")
    functional.__dict__["pil_to_tensor"] = lambda image: torch.tensor(
        np.asarray(image).transpose(2, 0, 1)
    )
    cv2 = ModuleType("cv2")
    cv2.__dict__["imread"] = lambda name: read_image(name)[..., ::-1]
    for module in (ModuleType("torchvision"), ModuleType("torchvision.transforms")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, functional.__name__, functional)
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    text = (Path(__file__).parent.parent / "docs" / "migrating.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_page_shows_programs_before_and_after(page: list[str]) -> None:
    before, after, _, _, _ = page
    was = "from torchvision.models.optical_flow import"
    assert before.replace(was, "from gmaflow.compat import") == after
    sizes = []
    for program in page:
        if "gmaflow" in program:
            names: dict[str, Any] = {}
            exec(compile(program, "migrating.md", "exec"), names)  # noqa: S102  (our own page)
            sizes.append(tuple(names["flow"].shape) if "flow" in names else None)
    assert sizes == [(1, 2, 64, 96), None, (64, 96, 2)]


def program_for_torchvision(
    make: Callable[..., torch.nn.Module], weights: Raft_Large_Weights | Gma_Weights
) -> list[torch.Tensor]:
    """The example of torchvision's documentation, with our import."""
    image1, image2 = (torch.from_numpy(x).permute(2, 0, 1)[None] for x in textured(96, 128))
    image1, image2 = weights.transforms()(image1, image2)
    model = make(weights=weights, progress=False).eval()
    with torch.no_grad():
        flows: list[torch.Tensor] = model(image1, image2)
    return flows


@pytest.mark.parametrize(
    ("make", "weights"), [(raft_large, Raft_Large_Weights.DEFAULT), (gma, Gma_Weights.DEFAULT)]
)
def test_a_program_for_torchvision_runs(
    make: Callable[..., torch.nn.Module], weights: Raft_Large_Weights | Gma_Weights
) -> None:
    flows = program_for_torchvision(make, weights)
    assert len(flows) == 12
    assert {tuple(flow.shape) for flow in flows} == {(1, 2, 96, 128)}
    inside = flows[-1][0, :, 16:-16, 16:-16]
    assert inside.mean(dim=(1, 2)).sub(torch.tensor([3.0, 0.0])).abs().max() < 0.3


def test_the_last_flow_is_what_the_estimator_finds() -> None:
    image1, image2 = random_images(1, 50, 70)
    model = raft_large(weights="DEFAULT").eval()
    with torch.no_grad():
        flows = model(2 * image1 - 1, 2 * image2 - 1, num_flow_updates=3)
    estimator = FlowEstimator("raft", iters=3, device="cpu", backend="reference")
    assert len(flows) == 3
    expected = estimator.batch(image1, image2).flow
    torch.testing.assert_close(flows[-1], expected, atol=1e-3, rtol=1e-4)


def test_gradients_reach_images_and_parameters() -> None:
    image1, image2 = (image.requires_grad_() for image in random_images(1, 50, 70))
    model = small()
    assert model.training
    flows = model(2 * image1 - 1, 2 * image2 - 1, num_flow_updates=2)
    sum(flow.abs().mean() for flow in flows).backward()
    for tensor in (image1, image2, *model.parameters()):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
    assert image1.grad.abs().sum() > 0  # type: ignore[union-attr]
    assert image2.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_weights_come_from_shipped_files_or_nowhere() -> None:
    torch.manual_seed(0)
    tensors = FlowNetwork(MODELS["raft-small"]).state_dict()
    given = small(weights=Checkpoint(config=MODELS["raft-small"], tensors=tensors))
    assert all(parameter.requires_grad for parameter in given.parameters())
    with pytest.raises(WeightsError, match="no trained weights for raft-small: there are gma"):
        small(weights="DEFAULT")
    with pytest.raises(WeightsError, match="'C_T_V2'"):
        raft_large(weights="C_T_V2")
    with pytest.raises(WeightsError, match="gma"):
        raft_large(weights=Gma_Weights.DEFAULT)
    with pytest.raises(FlowError, match="weights fit only torchvision's network"):
        make.__wrapped__("raft", 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x * 255, r"the images hold values from .*; scale them to -1\.\.1"),
        (lambda x: x * float("nan"), "the images contain NaN"),
        (lambda x: x[0], "a batch of images is a tensor"),
        (lambda x: x[:0], "the batches are empty"),
        (lambda x: x[..., :8, :], "at least 16 pixels"),
        (lambda x: (x * 255).byte(), "float"),
    ],
)
def test_bad_batches_are_one_sentence(
    change: Callable[[torch.Tensor], torch.Tensor], sentence: str
) -> None:
    # Without the shape annotations, which are enforced only in tests.
    check = check_normalised.__wrapped__  # type: ignore[attr-defined]
    with pytest.raises(ImageError, match=sentence):
        check(*(change(image) for image in random_images(1, 32, 32)))


def test_a_number_of_updates_is_checked() -> None:
    image1, image2 = random_images(1, 32, 32)
    with pytest.raises(FlowError, match="num_flow_updates is 0; give a whole number from 1"):
        small()(image1, image2, num_flow_updates=0)


@pytest.fixture(scope="module")
def dense() -> DenseOpticalFlow:
    return DenseOpticalFlow.create(device="cpu", iters=6)


def test_a_program_for_opencv_runs(dense: DenseOpticalFlow) -> None:
    """The frames that `cv2.imread` and `cv2.cvtColor` return: BGR, and grey."""
    first, second = (frame[..., ::-1] for frame in textured(96, 128))
    flow = dense.calc(first, second, None)
    assert flow.shape == (96, 128, 2)
    assert flow.dtype == np.float32
    assert np.abs(flow[16:-16, 16:-16].mean(axis=(0, 1)) - [3, 0]).max() < 0.3
    # The same numbers as from RGB, so the channels are in order.
    expected = dense.estimator(first[..., ::-1], second[..., ::-1]).array
    np.testing.assert_array_equal(flow, expected)

    grey = [frame.mean(axis=2).astype(np.uint8) for frame in (first, second)]
    flow = dense.calc(grey[0], grey[1], None)
    assert np.abs(flow[16:-16, 16:-16].mean(axis=(0, 1)) - [3, 0]).max() < 0.3
    np.testing.assert_array_equal(dense.calc(grey[0][..., None], grey[1][..., None]), flow)
    dense.collectGarbage()


def test_a_flow_is_an_initial_flow_and_takes_the_result(dense: DenseOpticalFlow) -> None:
    first, second = (frame[..., ::-1] for frame in textured(90, 124))
    once = DenseOpticalFlow(dense.estimator.with_iters(1))
    truth = np.full((90, 124, 2), (3, 0), np.float32)
    guess = truth.copy()
    result = once.calc(first, second, guess)
    assert result is guess
    error, cold = (np.abs(x - truth).mean() for x in (result, once.calc(first, second, None)))
    assert error < 0.5 * cold


def test_bad_frames_are_one_sentence(dense: DenseOpticalFlow) -> None:
    frame = np.zeros((32, 40, 3), np.uint8)
    flow = np.zeros((32, 40, 2), np.float32)
    for first, second, guess, sentence in (
        (frame, frame.astype(np.float32), None, "the second frame is float32; give a uint8"),
        (frame[..., :2], frame, None, "the first frame has shape .*; give height x width"),
        (frame, frame[:20], None, "differ"),
        (frame, frame[:20], flow, "the frames differ in shape"),
        (frame, frame, flow[:20], r"float32 array of shape \(32, 40, 2\)"),
    ):
        with pytest.raises(FlowError, match=sentence):
            dense.calc(first, second, guess)
    with pytest.raises(FlowError, match="it is NoneType; give a uint8 array, as cv2"):
        bgr_to_rgb.__wrapped__(None, "it")  # type: ignore[attr-defined]
    with pytest.raises(FlowError, match="the flow is float64"):
        check_initial_flow(flow.astype(np.float64), frame.shape)

"""The fast back end on real pairs, against the reference back end in float32."""

from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays, read_image
from tests.inference.real_pairs import OTHERS, SINTEL, Pair

MOST_ERROR = 3.0
"""Beyond it, float32 is lost as well, and where it ends up is chance."""
MOST_AWAY = 0.02
MOST_WORSE = 0.005
PAIRS = (*SINTEL, *OTHERS)


@cache
def estimators(weights: Path | None) -> tuple[FlowEstimator, FlowEstimator]:
    half = FlowEstimator(weights, device="cuda", precision="fp16", backend="fast")
    whole = FlowEstimator(weights, device="cuda", precision="fp32", backend="reference")
    return whole, half


@pytest.mark.parametrize(
    "pair",
    [pair for pair in OTHERS if "RubberWhale" in pair.image1 or "00001_img1" in pair.image1],
    ids=lambda pair: pair.image1,
)
def test_on_a_cpu_it_is_the_same_flow(pair: Pair, material: Path) -> None:
    folder = material / "realflow"
    # The middle of the pictures: a quarter of them takes a quarter of the time.
    images = [read_image(folder / path)[96:288, 128:384] for path in (pair.image1, pair.image2)]
    fast, reference = (
        FlowEstimator(device="cpu", backend=backend)(*images) for backend in ("fast", "reference")
    )
    assert np.linalg.norm(reference.array, axis=2).max() > 2
    assert np.linalg.norm(fast.array - reference.array, axis=2).max() < 1e-3


class Judged(NamedTuple):
    """Errors of a pair in both precisions, and how far they are apart, in pixels on average."""

    whole: float
    half: float
    away: float


@cache
def judge(model: str, pair: Pair, material: Path) -> Judged:
    folder = material / "realflow"
    weights = None if model == "gma" else material / "checkpoints" / f"{model}.pth"
    whole, half = (
        estimator(folder / pair.image1, folder / pair.image2).array
        for estimator in estimators(weights)
    )
    truth, valid, _ = read_flow_arrays(folder / pair.truth)
    return Judged(
        whole=np.linalg.norm(whole - truth, axis=2)[valid].mean(),
        half=np.linalg.norm(half - truth, axis=2)[valid].mean(),
        away=np.linalg.norm(half - whole, axis=2).mean(),
    )


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.gpu
@pytest.mark.slow
@needs_a_gpu
@pytest.mark.parametrize("model", ["gma", "raft-small"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.truth + pair.image1)
def test_half_precision_changes_little(model: str, pair: Pair, material: Path) -> None:
    judged = judge(model, pair, material)
    if judged.whole < MOST_ERROR:
        assert judged.away < MOST_AWAY


@pytest.mark.gpu
@pytest.mark.slow
@needs_a_gpu
@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_half_precision_is_as_accurate(model: str, material: Path) -> None:
    judged = [judge(model, pair, material) for pair in PAIRS]
    ratio = geometric_mean(pair.half / pair.whole for pair in judged)
    assert abs(ratio - 1) < MOST_WORSE

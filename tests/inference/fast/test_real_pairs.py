"""The fast back end on real pairs, against the reference back end in float32."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow
from tests.inference.test_real_pairs import OTHERS, SINTEL, Pair

MOST_ERROR = 3.0
"""Beyond it, float32 is lost as well, and where it ends up is chance."""
MOST_AWAY = 0.02


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
    fast, reference = (
        FlowEstimator(device="cpu", backend=backend)(folder / pair.image1, folder / pair.image2)
        for backend in ("fast", "reference")
    )
    assert np.linalg.norm(fast.array - reference.array, axis=2).max() < 1e-3


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("model", ["gma", "raft-small"])
@pytest.mark.parametrize("pair", [*SINTEL, *OTHERS], ids=lambda pair: pair.truth + pair.image1)
def test_half_precision_changes_little(
    model: str, pair: Pair, material: Path, raft_small_file: Path
) -> None:
    folder = material / "realflow"
    weights = raft_small_file if model == "raft-small" else None
    whole, half = (
        estimator(folder / pair.image1, folder / pair.image2).array
        for estimator in estimators(weights)
    )
    truth, valid = read_flow(folder / pair.truth)
    error = np.linalg.norm(whole - truth, axis=2)[valid].mean()
    if error < MOST_ERROR:
        assert np.linalg.norm(half - whole, axis=2).mean() < MOST_AWAY

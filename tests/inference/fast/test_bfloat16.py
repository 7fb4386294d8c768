"""bfloat16 on a CPU: almost the flow of float32, for every model and plan."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.inference.fast import FastNetwork
from gmaflow.io import read_flow_arrays
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan, NetworkConfig
from gmaflow.runtime.device import has_bfloat16
from tests.conftest import random_images
from tests.inference.real_pairs import OTHERS

Make = Callable[[str | NetworkConfig], FlowNetwork]
STREAMED = MemoryPlan(store_correlation=False, store_attention=False)
MOST_AWAY = 0.03
"""Pixels on average, on real pairs."""

pytestmark = pytest.mark.skipif(not has_bfloat16(), reason="needs AVX512-BF16 or AMX")


@torch.inference_mode()
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("plan", [MemoryPlan(), STREAMED], ids=["stored", "streamed"])
def test_bfloat16_is_close_to_the_network(model: str, plan: MemoryPlan, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(2, 56, 72)
    expected = network(*images, iters=4).flow
    actual = FastNetwork(network, dtype=torch.bfloat16)(*images, iters=4, plan=plan).flow
    assert actual.dtype == torch.float32
    assert (actual - expected).norm(dim=1).mean() < 0.02 * expected.norm(dim=1).mean() + 0.02
    assert not torch.equal(actual, expected)


def test_a_real_pair(material: Path) -> None:
    (pair,) = (pair for pair in OTHERS if "00001_img1" in pair.image1)
    folder = material / "realflow"
    whole, half = (
        FlowEstimator(device="cpu", precision=precision)(folder / pair.image1, folder / pair.image2)
        for precision in ("fp32", "bf16")
    )
    assert 0 < np.linalg.norm(half.array - whole.array, axis=2).mean() < MOST_AWAY
    truth, valid, _ = read_flow_arrays(folder / pair.truth)
    errors = [np.linalg.norm(x.array - truth, axis=2)[valid].mean() for x in (whole, half)]
    assert errors[1] == pytest.approx(errors[0], rel=0.01)

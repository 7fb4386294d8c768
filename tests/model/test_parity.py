"""Ours is the published network: the same weights and images give the same flow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gmaflow.model import FlowNetwork, MemoryPlan, model_config
from gmaflow.weights.published import from_published, infer_config
from tests.model.parity import VARIANTS, published_weights

TOLERANCE = 1e-3  # px; rounding alone moves the published code's answer by 1.5e-4


class Fixture:
    """One variant: the network and what the published code answered."""

    def __init__(self, folder: Path, variant: str) -> None:
        name = variant.removesuffix("-2heads")
        theirs = published_weights(folder, variant)
        self.config = infer_config(theirs, model_config(name))
        assert self.config == replace(model_config(name), num_heads=1 + (name != variant))
        self.network = FlowNetwork(self.config).requires_grad_(False)
        self.network.load_state_dict(from_published(theirs, self.config))
        self.network.eval()
        with np.load(folder / f"{variant}.npz") as arrays:
            self.arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}

    def images(self, prefix: str = "") -> tuple[Tensor, Tensor]:
        first, second = self.arrays[f"{prefix}image1"], self.arrays[f"{prefix}image2"]
        if first.ndim == 3:
            first, second = first[None], second[None]
        return first.float() / 255, second.float() / 255

    def check(self, flow: Tensor, name: str) -> None:
        expected = self.arrays[name].reshape(flow.shape)
        assert (flow - expected).abs().max() < TOLERANCE


@pytest.fixture(scope="module", params=VARIANTS)
def fixture(request: pytest.FixtureRequest, material: Path) -> Fixture:
    return Fixture(material / "parity", request.param)


def test_every_iteration_agrees(fixture: Fixture) -> None:
    prediction = fixture.network(*fixture.images(), iters=12, all_iterations=True)
    for iteration in (1, 6, 12):
        fixture.check(prediction.flows[iteration - 1], f"flow_iter{iteration}")
    fixture.check(prediction.low, "flow_low_iter12")


def test_a_warm_start_agrees(fixture: Fixture) -> None:
    flow_init = fixture.arrays["flow_init"].reshape(1, 2, 16, 24)
    prediction = fixture.network(*fixture.images(), iters=4, flow_init=flow_init)
    fixture.check(prediction.flow, "warm_flow_iter4")
    fixture.check(prediction.low, "warm_flow_low_iter4")


@pytest.mark.parametrize("stored", [True, False])
def test_an_uneven_grid_and_a_batch_agree(fixture: Fixture, stored: bool) -> None:
    plan = MemoryPlan(store_correlation=stored, store_attention=stored)
    prediction = fixture.network(*fixture.images("odd_"), iters=4, plan=plan)
    fixture.check(prediction.flow, "odd_flow_iter4")


def test_training_mode_agrees(fixture: Fixture) -> None:
    before = {name: value.clone() for name, value in fixture.network.state_dict().items()}
    fixture.network.train()
    try:
        prediction = fixture.network(*fixture.images(), iters=2, all_iterations=True)
    finally:
        fixture.network.load_state_dict(before)  # batch norm moved its running statistics
        fixture.network.eval()
    fixture.check(prediction.flows[1], "train_flow_iter2")

"""What the tests of training share: configs so small that a step takes a blink."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gmaflow.io import write_flow, write_image
from gmaflow.model import FlowNetwork
from gmaflow.scenes import TextureBank
from gmaflow.training import Batch, TrainConfig, TrainStep
from gmaflow.training.setup import make_network
from tests.conftest import random_images


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors are fastest on one thread, and far slower on two where others compute too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package", autouse=True)
def small_textures(small_bank: TextureBank) -> Iterator[None]:
    """Render with small textures, which are drawn in less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextureBank, "procedural", lambda: small_bank)
        yield


def tiny_config(**changes: Any) -> TrainConfig:  # noqa: ANN401
    """A run of a few seconds."""
    config = TrainConfig(
        model="raft-small",
        data="scenes:chairs",
        crop=(32, 40),
        batch=2,
        steps=6,
        iters=2,
        log_every=2,
        save_every=2,
    )
    return replace(config, **changes)


def tiny_network(**changes: Any) -> FlowNetwork:  # noqa: ANN401
    return make_network(tiny_config(**changes))


def tiny_step(**changes: Any) -> TrainStep:  # noqa: ANN401
    config = tiny_config(**changes)
    return TrainStep(make_network(config), config)


def tiny_batch(pairs: int = 2, *, seed: int = 0, size: tuple[int, int] = (32, 40)) -> Batch:
    """Shifted smooth noise with a made-up truth."""
    image1, image2 = random_images(pairs, *size, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    flow = 3 * torch.randn(pairs, 2, *size, generator=generator)
    valid = torch.rand(pairs, *size, generator=generator) > 0.1
    occluded = torch.rand(pairs, *size, generator=generator) > 0.7
    return Batch(image1, image2, flow, valid, occluded)


def write_pairs(folder: Path) -> Path:
    """Write five frames, four of them with flow, as a folder to train on."""
    folder.mkdir(exist_ok=True)
    for number in range(5):
        batch = tiny_batch(1, seed=number, size=(48, 64))
        image = (255 * batch.image1[0].permute(1, 2, 0)).byte().numpy()
        write_image(folder / f"frame{number}.png", image)
        if number < 4:
            flow = batch.flow[0].permute(1, 2, 0).contiguous().numpy()
            write_flow(folder / f"frame{number}.flo", flow, batch.valid[0].numpy())
    return folder


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Tell whether two sets of tensors agree bit for bit."""
    equal = (torch.equal(first[name], second[name]) for name in first)
    return first.keys() == second.keys() and all(equal)


def assert_same_training(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    """Check that two trainings did the same but for rounding.

    Adam divides by the size of the gradient, so that where it is nothing but rounding (biases
    before a normalisation, above all) weights differ by as much as they move. The mean gradient
    that Adam remembers has no such trouble; nor have most weights.
    """
    assert first.keys() == second.keys()
    for name, value in first.items():
        if name.startswith("adam.exp_avg.") and not name.endswith(".bias"):
            distance = (value - second[name]).norm() / value.norm()
            assert distance < 0.01, name
    weights = [name for name in first if name.startswith("network.")]
    apart = torch.cat([(first[name] - second[name]).abs().flatten() for name in weights])
    assert apart.max() < 1e-5
    assert apart.quantile(0.99) < 1e-7


def farthest(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest difference between two sets of tensors."""
    assert first.keys() == second.keys()
    return max(float((first[n].float() - second[n].float()).abs().max()) for n in first)

"""Recorded calls on a GPU: the same flow, whatever is recorded in between and whoever asks."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from gmaflow.inference.backend import make_runner
from gmaflow.inference.fast.recording import MOST_RECORDINGS, RecordedNetwork
from gmaflow.model import FlowNetwork, MemoryPlan, NetworkConfig
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]
SIZES = [(48, 64), (64, 48), (40, 40), (16, 96), (56, 56)]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def run(runner: RecordedNetwork, size: tuple[int, int], *, seed: int = 0) -> Tensor:
    images = [image.cuda() for image in random_images(1, *size, seed=seed)]
    return runner(*images, iters=3, plan=MemoryPlan()).flow


@pytest.fixture
def runner(make_network: Make) -> RecordedNetwork:
    made = make_runner(make_network("gma").cuda(), torch.float32, "fast")
    assert isinstance(made, RecordedNetwork)
    return made


def test_recordings_do_not_spoil_each_other(runner: RecordedNetwork) -> None:
    expected = {size: run(runner, size) for size in SIZES}
    for _ in range(3):
        for size in SIZES[:MOST_RECORDINGS]:
            torch.testing.assert_close(run(runner, size), expected[size], atol=1e-3, rtol=1e-3)


def test_a_result_stays_when_the_next_is_computed(runner: RecordedNetwork) -> None:
    for _ in range(2):
        run(runner, SIZES[0])
    first = run(runner, SIZES[0], seed=1)
    kept = first.clone()
    run(runner, SIZES[0], seed=2)
    assert torch.equal(first, kept)


def test_threads_and_streams_may_share_it(runner: RecordedNetwork) -> None:
    expected = [run(runner, SIZES[0], seed=seed) for seed in range(8)]

    def on_own_stream(seed: int) -> Tensor:
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
            found = run(runner, SIZES[0], seed=seed)
            torch.cuda.current_stream().synchronize()
            return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(on_own_stream, range(8)))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("model", ["gma", "gma-p", "raft-small"])
@pytest.mark.parametrize("stored", [True, False])
def test_half_precision_is_close(model: str, stored: bool, make_network: Make) -> None:
    network = make_network(model).cuda()
    images = [image.cuda() for image in random_images(2, 128, 160)]
    plan = MemoryPlan(store_correlation=stored, store_attention=stored)
    expected = network(*images, iters=4).flow
    half = make_runner(network, torch.float16, "fast")
    for _ in range(3):
        found = half(*images, iters=4, flow_init=None, plan=plan).flow
        assert (found - expected).norm(dim=1).mean() < 0.02 * expected.norm(dim=1).mean() + 0.02

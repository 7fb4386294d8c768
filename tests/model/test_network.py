"""Laws of the whole network, for every model."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan, NetworkConfig
from gmaflow.model.network import check_batches, check_images
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]
STREAMED = MemoryPlan(store_correlation=False, store_attention=False)

ABLATIONS = (
    replace(MODELS["gma"], learned_alpha=False),
    replace(MODELS["gma"], combination="replace"),
    replace(MODELS["gma"], residual=False),
    replace(MODELS["gma-p"], num_heads=4, residual=False, combination="replace"),
)


@pytest.mark.parametrize("model", [*MODELS, *ABLATIONS], ids=str)
def test_every_model_and_ablation_runs_and_learns(
    model: str | NetworkConfig, make_network: Make
) -> None:
    network = make_network(model).train().requires_grad_(True)
    image1, image2 = random_images(1, 64, 72)
    iters = 3 if network.config.continues else 2
    prediction = network(image1, image2, iters=iters, all_iterations=True)
    assert [flow.shape for flow in prediction.flows] == [(1, 2, 64, 72)] * iters
    assert prediction.low.shape == (1, 2, 8, 9)
    sum(flow.abs().mean() for flow in prediction.flows).backward()
    unused = {name for name, p in network.named_parameters() if p.grad is None}
    expected = set()
    if network.config.aggregates and not network.config.uses_position:
        expected = {"attention.row_offsets.weight", "attention.column_offsets.weight"}
    assert unused == expected


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_two_is_two_singles(model: str, make_network: Make) -> None:
    network = make_network(model)
    image1, image2 = random_images(2, 48, 64)
    both = network(image1, image2, iters=3).flow
    singles = [network(image1[i : i + 1], image2[i : i + 1], iters=3).flow for i in range(2)]
    torch.testing.assert_close(both, torch.cat(singles), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_inference_gives_the_last_of_all_iterations(model: str, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(1, 48, 64)
    every = network(*images, iters=3, all_iterations=True)
    last = network(*images, iters=3)
    assert len(last.flows) == 1
    assert len(every.flows) == 3
    assert torch.equal(last.flow, every.flow)


@pytest.mark.parametrize("model", ["raft-small", "gma"])
def test_frames_encoded_one_by_one_are_matched_alike(model: str, make_network: Make) -> None:
    network = make_network(model)
    image1, image2 = random_images(2, 48, 64)
    first, second = network.encode_frame(image1), network.encode_frame(image2)
    separate = network.match(first, second.features, iters=3)
    together = network(image1, image2, iters=3)
    torch.testing.assert_close(separate.flow, together.flow, atol=1e-4, rtol=0)
    torch.testing.assert_close(separate.low, together.low, atol=1e-4, rtol=0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("height", "width"), [(16, 16), (16, 200), (64, 24), (120, 160)])
def test_small_images_give_finite_flow(
    model: str, height: int, width: int, make_network: Make
) -> None:
    """The published code gives NaN below 128 px."""
    prediction = make_network(model)(*random_images(1, height, width), iters=2)
    assert prediction.flow.isfinite().all()
    assert prediction.flow.abs().max() > 0


@pytest.mark.parametrize("model", ["gma-p", "gma-p-only"])
def test_position_works_beyond_its_table(model: str, make_network: Make) -> None:
    """The published code fails beyond 1280 px."""
    prediction = make_network(model)(*random_images(1, 16, 1344), iters=1)
    assert prediction.flow.isfinite().all()


@pytest.mark.parametrize("model", ["gma", "gma-p", "raft-small"])
def test_streaming_changes_only_memory(model: str, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(2, 64, 80)
    stored = network(*images, iters=3).flow
    streamed = network(*images, iters=3, plan=STREAMED).flow
    torch.testing.assert_close(streamed, stored, atol=1e-4, rtol=1e-4)


def test_nothing_of_a_pair_stays_on_the_network(make_network: Make) -> None:
    network = make_network("gma")
    before = {name: set(vars(module)) for name, module in network.named_modules()}
    state = {name: value.clone() for name, value in network.state_dict().items()}
    network(*random_images(1, 48, 64), iters=2)
    assert {name: set(vars(module)) for name, module in network.named_modules()} == before
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name])


def test_threads_may_share_a_network(make_network: Make) -> None:
    network = make_network("gma")
    pairs = [random_images(1, 48, 64, seed=seed) for seed in range(4)]
    sequential = [network(*pair, iters=2).flow for pair in pairs]
    with ThreadPoolExecutor(4) as threads:
        parallel = list(threads.map(lambda pair: network(*pair, iters=2).flow, pairs))
    for one, other in zip(sequential, parallel, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_warm_start_begins_at_flow_init(make_network: Make) -> None:
    network = make_network("raft-small")
    images = random_images(1, 48, 64)
    start = torch.full((1, 2, 6, 8), 2.5)
    moved = network(*images, iters=1, flow_init=start).low - start
    still = network(*images, iters=1).low
    assert not torch.allclose(moved, still)
    for parameter in network.update.flow_head.parameters():
        torch.nn.init.zeros_(parameter)  # a network that changes nothing
    assert network(*images, iters=3, flow_init=start).low.equal(start)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_flow_init_keeps_its_digits_whatever_the_images_are(
    dtype: torch.dtype, make_network: Make
) -> None:
    network = make_network("raft-small")
    # Not even half precision rounds these images, nor what the encoders see.
    images = [(image > 0.5).float() for image in random_images(1, 48, 64)]
    start = torch.full((1, 2, 6, 8), 20.006)
    expected = network(*images, iters=1, flow_init=start)
    found = network(*(image.to(dtype) for image in images), iters=1, flow_init=start)
    assert found.low.equal(expected.low)
    assert found.flow.equal(expected.flow)


def test_invalid_images_are_refused(make_network: Make) -> None:
    network = make_network("raft-small")
    with pytest.raises(FlowError, match=r"\[b, 3, height, width\], not \(1, 2, 64, 64\)"):
        check_images(torch.zeros(1, 2, 64, 64), torch.zeros(1, 2, 64, 64))
    with pytest.raises(FlowError, match=r"\[b, 3, height, width\], not of type ndarray"):
        check_batches.__wrapped__(*(np.zeros((1, 3, 64, 64)),) * 2)  # type: ignore[attr-defined]
    with pytest.raises(FlowError, match="the two batches differ in shape"):
        check_images(torch.zeros(1, 3, 64, 64), torch.zeros(1, 3, 64, 32))
    with pytest.raises(FlowError, match="8x64; the network takes multiples of 8, at least 16"):
        network(torch.zeros(1, 3, 8, 64), torch.zeros(1, 3, 8, 64))
    with pytest.raises(FlowError, match="multiples of 8"):
        network(torch.zeros(1, 3, 20, 64), torch.zeros(1, 3, 20, 64))


def test_the_network_can_be_exported(make_network: Make) -> None:
    """torch.export traces it: stateless, no hidden control flow."""
    network = make_network("gma")
    images = random_images(1, 48, 64)
    exported = torch.export.export(network, images, {"iters": 2}, strict=False)
    actual = exported.module()(*images, iters=2)
    expected = network(*images, iters=2)
    torch.testing.assert_close(actual.flows[-1], expected.flow)


def test_gma_starts_out_as_raft_with_more_inputs() -> None:
    torch.manual_seed(3)
    network = FlowNetwork(MODELS["gma"]).eval().requires_grad_(False)
    images = random_images(1, 48, 64)
    before = network(*images, iters=2).flow
    assert network.attention is not None
    torch.nn.init.normal_(network.attention.to_query_key.weight)
    after = network(*images, iters=2).flow
    assert torch.equal(before, after)  # alpha is 0: nothing is aggregated yet


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"flow_init": [0.0]}, "the initial flow is a list; give a tensor"),
        ({"flow_init": torch.zeros(1, 2, 8, 8)}, r"these images need \[1, 2, 8, 9\]"),
        ({"plan": "small"}, "plan is 'small'; use a MemoryPlan"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, object], sentence: str, make_network: Make
) -> None:
    with pytest.raises(FlowError, match=sentence):
        make_network("raft-small")(*random_images(1, 64, 72), **options)

from collections.abc import Callable

import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference.backend import ReferenceRunner, as_backend, make_runner
from gmaflow.inference.fast import FastNetwork
from gmaflow.model import FlowNetwork, MemoryPlan, NetworkConfig
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]


def test_a_cpu_is_fast_in_float32(make_network: Make) -> None:
    network = make_network("raft-small")
    assert isinstance(make_runner(network, torch.float32, "auto"), FastNetwork)
    assert isinstance(make_runner(network, torch.bfloat16, "auto"), ReferenceRunner)
    assert isinstance(make_runner(network, torch.float32, "reference"), ReferenceRunner)


def test_the_fast_way_is_refused_where_it_cannot_go(make_network: Make) -> None:
    with pytest.raises(FlowError, match="on cpu in fp32, not on cpu in float16"):
        make_runner(make_network("raft-small"), torch.float16, "fast")
    with pytest.raises(FlowError, match="'slow' is not known; give one of auto, reference, fast"):
        as_backend("slow")


@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_both_ways_mean_the_same(model: str, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(1, 48, 64)
    with torch.inference_mode():
        reference, fast = (
            make_runner(network, torch.float32, way)(
                *images, iters=3, flow_init=None, plan=MemoryPlan()
            ).flow
            for way in ("reference", "fast")
        )
    torch.testing.assert_close(fast, reference, atol=1e-4, rtol=1e-4)

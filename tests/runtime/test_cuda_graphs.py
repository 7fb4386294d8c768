"""Recorded calls give what the function gives; recording needs a GPU."""

import pytest
import torch
from torch import Tensor

from gmaflow.runtime.cuda_graphs import GraphPool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def make_pool() -> GraphPool:
    return GraphPool(torch.device("cuda"))


def product(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a @ b, (a @ b).relu().sum(dim=1)]


def pair(seed: int, size: int = 64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, size, size, generator=random).cuda()
    return a, b


def test_replays_read_new_inputs_from_the_device_or_the_cpu() -> None:
    call = make_pool().record(product, pair(0), warm_ups=2)
    for seed in (1, 2):
        inputs = pair(seed)
        for given in (inputs, [x.cpu() for x in inputs]):
            for actual, expected in zip(call(*given), product(*inputs), strict=True):
                torch.testing.assert_close(actual, expected)


def test_outputs_are_copies_by_default() -> None:
    call = make_pool().record(product, pair(0), warm_ups=1)
    first = call(*pair(1))[0]
    kept = first.clone()
    call(*pair(2))
    assert torch.equal(first, kept)
    call = make_pool().record(product, pair(0), warm_ups=1, copy_outputs=False)
    assert call(*pair(1))[0].data_ptr() == call(*pair(2))[0].data_ptr()


def test_recordings_of_one_pool_do_not_overwrite_each_other() -> None:
    pool = make_pool()
    calls = {size: pool.record(product, pair(0, size), warm_ups=1) for size in (64, 96, 32)}
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for seed in range(6):
        for (size, call), stream in zip(calls.items(), streams, strict=True):
            inputs = pair(seed, size)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = call(*inputs)
            stream.synchronize()
            torch.testing.assert_close(found[0], product(*inputs)[0])


def test_a_failed_recording_leaves_the_stream_and_the_pool_usable() -> None:
    pool, before = make_pool(), torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        pool.record(lambda a, b: [a * float(b.sum().item())], pair(0))
    assert torch.cuda.current_stream() == before
    call = pool.record(product, pair(0), warm_ups=1)
    torch.testing.assert_close(call(*pair(1))[0], product(*pair(1))[0])

import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference.memory import free_memory, out_of_memory_as_sentence, plan_memory
from gmaflow.model import MODELS, MemoryPlan

GB = 1e9


def test_everything_is_kept_where_it_fits() -> None:
    plan = plan_memory(MODELS["gma"], batch=1, height=440, width=1024, budget=1 * GB)
    assert plan == MemoryPlan(store_correlation=True, store_attention=True)


def test_4k_is_streamed_on_a_small_device() -> None:
    plan = plan_memory(MODELS["gma"], batch=1, height=2160, width=3840, budget=24 * GB)
    assert plan == MemoryPlan(store_correlation=False, store_attention=False)


def test_attention_is_kept_before_correlation() -> None:
    matrix = 4 * (55 * 128) ** 2
    plan = plan_memory(MODELS["gma"], batch=1, height=440, width=1024, budget=2.5 * matrix)
    assert plan == MemoryPlan(store_correlation=False, store_attention=True)
    raft = plan_memory(MODELS["raft"], batch=1, height=440, width=1024, budget=2.5 * matrix)
    assert raft.store_correlation


def test_some_memory_is_free_here() -> None:
    assert 1e8 < free_memory(torch.device("cpu")) < 1e14


def test_running_out_of_memory_is_a_sentence() -> None:
    with (
        pytest.raises(FlowError, match=r"not enough memory for 1 pair\(s\) of 4000x4000"),
        out_of_memory_as_sentence((1, 3, 4000, 4000)),
    ):
        torch.empty(2**56)
    with pytest.raises(RuntimeError, match="something else"), out_of_memory_as_sentence((1,)):
        raise RuntimeError("something else")

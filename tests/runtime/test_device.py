import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.runtime.device import cudnn_flag, pick_device, pick_dtype


def test_auto_is_always_something() -> None:
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    assert pick_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "cpu:x", ""])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(FlowError, match="device"):
        pick_device(device)


def test_half_precision_by_itself_on_cuda_only() -> None:
    assert pick_dtype("auto", torch.device("cpu")) == torch.float32
    assert pick_dtype("auto", torch.device("mps")) == torch.float32
    assert pick_dtype("auto", torch.device("cuda")) == torch.float16
    assert pick_dtype("bf16", torch.device("cpu")) == torch.bfloat16


def test_whoever_leaves_last_puts_a_flag_back() -> None:
    before = torch.backends.cudnn.benchmark
    first, second = cudnn_flag("benchmark"), cudnn_flag("benchmark")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.backends.cudnn.benchmark
    second.__exit__(None, None, None)
    assert torch.backends.cudnn.benchmark == before

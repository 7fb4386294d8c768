"""The kernels against plain convex upsampling."""

import pytest
import torch
from torch import Tensor

from gmaflow.model.update import convex_upsample
from tests.model.kernels import DEVICE, load_kernels

pytest.importorskip("triton")

SIZE = (2, 46, 62) if DEVICE.type == "cuda" else (2, 2, 3)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels("upsample_kernels", monkeypatch)


def make(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(5)
    batch, height, width = SIZE
    flow = 3 * torch.randn(batch, 2, height, width, generator=random)
    logits = 8 * torch.randn(batch, 576, height, width, generator=random)
    logits = logits.to(memory_format=torch.channels_last)
    return flow.to(DEVICE).requires_grad_(), logits.to(DEVICE, dtype).requires_grad_()


def test_flow_and_gradients_agree_with_plain_upsampling() -> None:
    from gmaflow.model.upsample_kernels import fused_upsample

    actual = []
    for upsample in (convex_upsample, fused_upsample):
        flow, logits = make()
        fine = upsample(flow, logits)
        (fine.square().sum() + (2 * fine).sin().sum()).backward()
        actual.append((fine.detach(), flow.grad, logits.grad))
    for plain, fused in zip(*actual, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-3, rtol=1e-4)


def test_half_precision_logits_give_float32_flow() -> None:
    from gmaflow.model.upsample_kernels import fused_upsample

    flow, logits = make(torch.float16)
    fine = fused_upsample(flow, logits)
    fine.sum().backward()
    assert fine.dtype == torch.float32
    assert logits.grad is not None
    assert logits.grad.dtype == torch.float16
    torch.testing.assert_close(fine, convex_upsample(flow, logits), atol=1e-3, rtol=1e-3)


def test_any_memory_format_of_the_logits_works() -> None:
    from gmaflow.model.upsample_kernels import fused_upsample

    flow, logits = make()
    torch.testing.assert_close(
        fused_upsample(flow, logits.contiguous()), fused_upsample(flow, logits)
    )

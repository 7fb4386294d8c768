"""The recorded step against the plain one; recording needs a GPU."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from gmaflow.data import Batch
from gmaflow.model import FlowNetwork
from gmaflow.runtime import device as device_module
from gmaflow.training.config import StepPlan, TrainConfig
from gmaflow.training.recorded import CompiledParts, RecordedStep, instance_norm
from gmaflow.training.setup import RunOptions, is_recorded
from gmaflow.training.step import TrainStep

# Torch's compiler warns about itself when it is loaded, and about gradients that it looks at.
pytestmark = pytest.mark.filterwarnings("ignore")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CROP = (128, 160) if DEVICE.type == "cuda" else (64, 72)


def make_step(precision: str, *, both_ways: bool = False, model: str = "gma") -> TrainStep:
    torch.manual_seed(0)
    config = replace(TrainConfig(), model=model, batch=2, crop=CROP, precision=precision)
    config = replace(config, both_ways=both_ways)
    network = FlowNetwork(config.network)
    assert network.aggregate is not None
    assert network.aggregate.alpha is not None
    torch.nn.init.constant_(network.aggregate.alpha, 0.5)
    if network.continuation is not None:
        torch.nn.init.constant_(network.continuation.alpha, 0.5)
    return TrainStep(network.to(DEVICE), config)


def make_batch(seed: int) -> Batch:
    random = torch.Generator(DEVICE).manual_seed(seed)
    images = torch.rand(2, 2, 3, *CROP, device=DEVICE, generator=random)
    flow = 3 * torch.randn(2, 2, *CROP, device=DEVICE, generator=random)
    known = torch.ones(2, *CROP, dtype=torch.bool, device=DEVICE)
    return Batch(images[0], images[1], flow, known, ~known)


@pytest.mark.parametrize("triton", [True, False])
def test_without_triton_no_step_is_compiled(monkeypatch: pytest.MonkeyPatch, triton: bool) -> None:
    """As on Windows, where torch for CUDA comes without it."""
    monkeypatch.setattr(device_module, "has_triton", lambda: triton)
    monkeypatch.setattr(device_module, "capability", lambda _: (9, 0))
    gpu = torch.device("cuda")
    assert is_recorded(RunOptions(), gpu) == triton
    assert not is_recorded(RunOptions(eager=True), gpu)
    assert not is_recorded(RunOptions(), torch.device("cpu"))


def test_compiled_parts_compute_the_same_and_leave_no_trace() -> None:
    # In a process of its own: the compiler cannot see through the tests' type checker.
    checks = "check(False); check(True, 'gma-affine')"
    script = f"from {__name__} import check_compiled_parts as check; {checks}"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_compiled_parts(both_ways: bool, model: str = "gma") -> None:
    plain, compiled = (make_step("fp32", both_ways=both_ways, model=model) for _ in range(2))
    iters = 4 if compiled.network.config.continues else 2
    # The compiler itself is torch's; what is ours is how the network is taken apart for it.
    with CompiledParts(compiled.forward_network, backend="aot_eager").used():
        found = compiled.run(make_batch(0), iters)
    expected = plain.run(make_batch(0), iters)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.gradient_norm, expected.gradient_norm, rtol=1e-4, atol=0)
    assert "encode" not in vars(compiled.forward_network)
    once_more = compiled.run(make_batch(1), iters).loss
    torch.testing.assert_close(once_more, plain.run(make_batch(1), iters).loss, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_instance_norm_in_steps_is_torchs_own(dtype: torch.dtype) -> None:
    x = (5 + 3 * torch.randn(2, 4, 6, 7)).to(dtype)
    within = 1e-5 if dtype == torch.float32 else 0.02
    expected = torch.nn.InstanceNorm2d(4)(x)
    torch.testing.assert_close(instance_norm(x, eps=1e-5), expected, atol=within, rtol=within)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-3), ("fp16", 2e-2)])
@pytest.mark.parametrize("both_ways", [False, True])
def test_recorded_steps_learn_the_same(precision: str, within: float, both_ways: bool) -> None:
    plain, recorded = (make_step(precision, both_ways=both_ways) for _ in range(2))
    learn = RecordedStep(recorded)
    for number in range(4):
        plan = StepPlan(lr=1e-4, iters=3 + number % 2, occluded=True)
        expected = plain(make_batch(number), plan).loss
        found = learn(make_batch(number), plan).loss
        torch.testing.assert_close(found, expected, rtol=within, atol=within)
    assert int(recorded.skipped) == int(plain.skipped)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
def test_recorded_steps_of_gma_affine_learn_the_same() -> None:
    plain, recorded = (make_step("fp16", both_ways=True, model="gma-affine") for _ in range(2))
    learn = RecordedStep(recorded)
    for number in range(4):
        plan = StepPlan(lr=1e-4, iters=4, occluded=True, ahead=4 * (number % 2))
        expected = plain(make_batch(number), plan).loss
        found = learn(make_batch(number), plan).loss
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
def test_recording_itself_changes_nothing() -> None:
    step = make_step("fp16")
    before = {name: value.clone() for name, value in step.state().items()}
    learn = RecordedStep(step)
    learn(make_batch(0), StepPlan(lr=0.0, iters=2, occluded=True))
    after = step.state()
    assert all(torch.equal(after[f"network.{n}"], before[f"network.{n}"]) for n in step.trainable)

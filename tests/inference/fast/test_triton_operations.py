"""Each step by kernels against the plain step, and the whole network by kernels."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from gmaflow.inference import planning
from gmaflow.inference.fast import FastNetwork
from gmaflow.inference.fast.convolution import ComputeSpec, Convolution
from gmaflow.inference.fast.operations import Operations
from gmaflow.model import FlowNetwork, NetworkConfig
from gmaflow.model.aggregation import StreamedAttention
from tests.conftest import random_images
from tests.model.kernels import DEVICE, load_kernels

if TYPE_CHECKING:
    from gmaflow.inference.fast.triton_operations import TritonOperations

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("no_gradients")

PLAIN = Operations()


@pytest.fixture(autouse=True)
def all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cuDNN multiply float32 as such."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> "TritonOperations":
    for name in ("correlation_kernels", "upsample_kernels"):
        load_kernels(name, monkeypatch)
    for name in ("map_kernels", "convolution_kernels", "triton_operations"):
        module = load_kernels(name, monkeypatch, package="gmaflow.inference.fast")
    operations: TritonOperations = module.TritonOperations()
    return operations


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def layer(inputs: int, outputs: int, *, side: int = 3) -> Convolution:
    weight = randn(outputs, inputs, side, side, seed=7) / (inputs * side**2) ** 0.5
    return Convolution(weight, randn(outputs, seed=8), (1, 1), (side // 2, side // 2))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def test_convolution_with_relu(kernels: "TritonOperations") -> None:
    x, conv = randn(2, 5, 7, 6), layer(6, 70)
    close(kernels.convolve(x, conv, relu=True), PLAIN.convolve(x, conv, relu=True))


def test_convolution_into_slices(kernels: "TritonOperations") -> None:
    x, conv = randn(2, 5, 7, 6), layer(6, 12)
    for keep in (0, 2):
        maps = randn(1, 2, 5, 7, 30).repeat(4, 1, 1, 1, 1)
        before = maps.clone()
        for operations, (first, second) in ((kernels, maps[:2]), (PLAIN, maps[2:])):
            operations.convolve_into(x, conv, (first[..., 3:13], second[..., 3:13]), keep=keep)
        close(maps[:2, ..., 3 : 13 - keep], maps[2:, ..., 3 : 13 - keep])
        assert not torch.equal(maps[..., 3 : 13 - keep], before[..., 3 : 13 - keep])
        for untouched in (slice(0, 3), slice(13 - keep, 30)):
            assert torch.equal(maps[..., untouched], before[..., untouched])


def test_a_target_wider_than_the_convolution_keeps_the_rest(kernels: "TritonOperations") -> None:
    x, conv, target = randn(1, 3, 4, 6), layer(6, 12), randn(1, 3, 4, 14, seed=3)
    expected = torch.cat([PLAIN.convolve(x, conv, relu=True), target[..., 12:]], dim=-1)
    kernels.convolve_into(x, conv, (target, target), keep=2)
    close(target, expected)


def test_preparing_images(kernels: "TritonOperations") -> None:
    images = randn(2, 2, 3, 9, 31).unbind()
    for batches in (images, images[:1]):
        for dtype in (torch.float32, torch.float16):
            spec = ComputeSpec(DEVICE, dtype)
            assert torch.equal(
                kernels.prepare_images(batches, spec), PLAIN.prepare_images(batches, spec)
            )


@pytest.mark.parametrize("stride", [1, 2])
def test_the_first_convolution_of_an_encoder(kernels: "TritonOperations", stride: int) -> None:
    x, conv = randn(2, 11, 14, 8), replace(layer(8, 70, side=7), stride=(stride, stride))
    actual = convolve_image(x, conv)
    close(actual, PLAIN.convolve(x, conv))
    close(kernels.convolve(x, conv, relu=True), PLAIN.convolve(x, conv, relu=True))
    expected = PLAIN.convolve_norm(x, conv, relu=True)
    close(kernels.convolve_norm(x, conv, relu=True), expected)


def convolve_image(x: Tensor, conv: Convolution) -> Tensor:
    from gmaflow.inference.fast import convolution_kernels

    assert conv.rows is not None
    found: Tensor = convolution_kernels.convolve_image(
        x, conv.rows, conv.bias, kernel=conv.kernel, stride=conv.stride[0], relu=False
    )
    return found


def test_the_flow_of_a_few_steps(kernels: "TritonOperations") -> None:
    """The convolution of the flow, and the flow head."""
    results = []
    for operations in (kernels, PLAIN):
        flow_input, hidden = randn(2, 5, 7, 2), randn(2, 5, 7, 20, seed=1)
        features = operations.convolve_flow(flow_input, layer(2, 130, side=7))
        flow, coords = randn(2, 5, 7, 2, seed=2), torch.zeros(2, 2, 5, 7, device=DEVICE)
        maps = randn(2, 2, 5, 7, 9, seed=4)
        targets = (maps[0, ..., 5:7], maps[1, ..., 5:7])
        layers = (layer(20, 130), layer(130, 2))
        operations.convolve_advance(hidden, layers, flow, coords, flow_input, targets)
        results.append((features, flow, coords, flow_input, maps))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_adding_a_shortcut(kernels: "TritonOperations") -> None:
    x, conv, shortcut = randn(1, 5, 7, 6), layer(6, 12), randn(1, 5, 7, 12, seed=2)
    close(kernels.convolve_residual(x, conv, shortcut), PLAIN.convolve_residual(x, conv, shortcut))


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("height", "width"), [(2, 3), (9, 70)])
def test_instance_norm(
    kernels: "TritonOperations", relu: bool, joined: bool, height: int, width: int
) -> None:
    x, conv = 5 + 3 * randn(2, height, width, 6), layer(6, 12, side=1)
    shortcut = randn(2, height, width, 12, seed=2) if joined else None
    found = kernels.convolve_norm(x, conv, relu=relu, shortcut=shortcut)
    close(found, PLAIN.convolve_norm(x, conv, relu=relu, shortcut=shortcut))


@pytest.mark.parametrize("pixels", [13, 64, 65, 3 * 128 + 2, 4 * 128])
def test_instance_norm_of_many_rows(
    kernels: "TritonOperations", monkeypatch: pytest.MonkeyPatch, pixels: int
) -> None:
    """Four pieces, of more rows than are read at once; the last may have few."""
    from gmaflow.inference.fast import map_kernels

    monkeypatch.setattr(map_kernels, "PIECES", 4)
    x = 5 + 3 * randn(2, 1, pixels, 40)
    actual = x.clone()
    map_kernels.instance_norm(actual, relu=False, shortcut=None, epsilon=1e-5)
    exact = torch.nn.functional.instance_norm(x.permute(0, 3, 1, 2), eps=1e-5)
    close(actual, exact.permute(0, 2, 3, 1))


def test_instance_norm_of_values_far_from_zero(kernels: "TritonOperations") -> None:
    """The naive formula, mean of squares minus square of mean, would lose every digit here."""
    x = 1000 + randn(1, 8, 40, 4)
    unit = Convolution(torch.eye(4, device=DEVICE)[..., None, None], None, (1, 1), (0, 0))
    actual = kernels.convolve_norm(x, unit, relu=False)
    exact = x.double()
    exact = (exact - exact.mean(dim=(1, 2))) / (exact.var(dim=(1, 2), correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(actual.double(), exact, atol=1e-3, rtol=1e-3)


def test_the_recurrent_pass(kernels: "TritonOperations") -> None:
    results = []
    for operations in (kernels, PLAIN):
        gates, candidate = randn(2, 3, 5, 20), randn(2, 3, 5, 10, seed=1)
        context_terms, gate_inputs = randn(2, 3, 5, 30, seed=2), randn(2, 2, 3, 5, 16, seed=3)
        hidden, reset_hidden = gate_inputs[0, ..., :10], gate_inputs[1, ..., :10]
        dense = torch.empty_like(candidate)
        operations.gate(gates, context_terms, hidden, reset_hidden)
        operations.update_state(candidate, context_terms, gates, hidden, dense)
        results.append((gates[..., :10], gate_inputs, dense))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_advancing_and_adding(kernels: "TritonOperations") -> None:
    results = []
    for operations in (kernels, PLAIN):
        flow, change, bias = randn(2, 3, 5, 2), randn(2, 3, 5, 8, seed=1), randn(8, seed=2)
        coords, flow_input = torch.zeros(2, 2, 3, 5, device=DEVICE), randn(2, 3, 5, 8, seed=3)
        maps = randn(2, 2, 3, 5, 9, seed=4)
        targets = (maps[0, ..., 5:7], maps[1, ..., 5:7])
        operations.advance(change, bias, flow, coords, flow_input, targets)
        operations.add_into(change[..., :4], flow_input[..., 4:], (maps[0, ..., :4],) * 2)
        results.append((flow, coords, flow_input, maps))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_convolutions_in_half_precision(kernels: "TritonOperations") -> None:
    """On a GPU, kernels are used only for these."""
    results = []
    for operations, dtype in ((kernels, torch.float16), (PLAIN, torch.float32)):
        image, flow_layer, head, change = (
            replace(conv, weight=conv.weight.to(dtype), bias=conv.bias.to(dtype))  # type: ignore[union-attr]
            for conv in (layer(8, 64, side=7), layer(8, 128, side=7), layer(64, 160), layer(160, 8))
        )
        flow_layer.weight[:, 2:] = 0
        x, hidden = randn(1, 12, 10, 8).to(dtype), randn(1, 12, 10, 64, seed=1).to(dtype)
        flow, coords = randn(1, 12, 10, 2, seed=2), torch.zeros(1, 2, 12, 10, device=DEVICE)
        maps = torch.zeros(2, 1, 12, 10, 10, device=DEVICE, dtype=dtype)
        targets = (maps[0, ..., 8:], maps[1, ..., 8:])
        first = operations.convolve(x, replace(image, stride=(2, 2)), relu=True)
        second = operations.convolve_flow(x, flow_layer)
        operations.convolve_advance(hidden, (head, change), flow, coords, x, targets)
        results.append((first, second, flow, coords, maps))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual.float(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("store", "batch", "height", "width"), [(True, 2, 2, 3), (False, 1, 2, 3), (False, 2, 2, 2)]
)
def test_correlation(
    kernels: "TritonOperations", store: bool, batch: int, height: int, width: int
) -> None:
    first, second = randn(2, batch, height, width, 6)
    coords = 1 + 2 * randn(batch, 2, height, width, seed=1)
    coords[0, :, 0, 0] = 1e9
    options = {"num_levels": 2, "radius": 2, "store": store}
    actual = kernels.correlate(first, second, **options)(coords)  # type: ignore[arg-type]
    expected = PLAIN.correlate(first, second, **options)(coords)  # type: ignore[arg-type]
    close(actual[..., : expected.shape[-1]], expected)


@pytest.mark.parametrize("pixels", [5, 20])
def test_attention(kernels: "TritonOperations", pixels: int) -> None:
    queries, keys, values = 3 * randn(3, 2, 2, pixels, 8)
    expected = (queries @ keys.mT).softmax(dim=-1) @ values
    for store in (True, False):
        close(kernels.attend(queries, keys, store=store).aggregate(values), expected)
    flash = kernels.attend(queries.half(), keys.half(), store=False).aggregate(values.half())
    torch.testing.assert_close(flash.float(), expected, atol=0.05, rtol=0.05)


@pytest.fixture
def right_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix Triton's interpreter, which rounds 1.95 to 1 in float8: it drops the carry."""
    from triton.runtime import interpreter

    theirs = interpreter._convert_float

    def convert(data: np.ndarray, source: object, target: object, mode: object) -> np.ndarray:
        if data.dtype == np.float32 and target == interpreter.tl.float8e4nv:
            short = torch.from_numpy(data).to(torch.float8_e4m3fn)
            return short.view(torch.uint8).numpy()
        found: np.ndarray = theirs(data, source, target, mode)
        return found

    monkeypatch.setattr(interpreter, "_convert_float", convert)


@pytest.mark.usefixtures("right_rounding")
@pytest.mark.parametrize(("pixels", "channels"), [(5, 8), (40, 24), (64, 16)])
def test_attention_in_float8(
    kernels: "TritonOperations", monkeypatch: pytest.MonkeyPatch, pixels: int, channels: int
) -> None:
    """Each weight and each value is rounded by at most a sixteenth."""
    from gmaflow.inference.fast import map_kernels

    module = importlib.import_module(type(kernels).__module__)
    monkeypatch.setattr(module, "SCORE_BYTES", 3 * 2 * pixels)  # three rows at a time
    monkeypatch.setattr(map_kernels, "WIDE_LANES", 16)
    queries, keys = randn(2, 2, 2, pixels, 8).half()
    values = randn(2, 2, pixels, channels, seed=1).half()
    values[..., 0], values[..., 1] = 0, 1
    values[..., 2] *= 1000
    weights = (queries.float() @ keys.float().mT).softmax(dim=-1)
    actual = module.Float8Attention.of(queries, keys)
    rows = actual.rows(torch.arange(0, pixels, 2, device=DEVICE))
    torch.testing.assert_close(rows, weights[:, :, ::2], atol=2e-3, rtol=1 / 16)
    torch.testing.assert_close(rows.sum(dim=-1), torch.ones_like(rows[..., 0]))
    mixed = actual.aggregate(values)
    assert mixed.dtype == torch.float16
    largest = values.float().abs().amax(dim=2, keepdim=True)
    expected = weights @ values.float()
    assert ((mixed.float() - expected).abs() <= 0.07 * largest).all()
    assert (mixed[..., 0] == 0).all()
    # The weights sum to 1, but Hopper's tensor cores round partial sums of 8-bit products to about
    # 14 bits: 0.002 here.
    ones = torch.ones_like(mixed[..., 1])
    torch.testing.assert_close(mixed[..., 1], ones, atol=4e-3, rtol=0.0)
    # On average the rounding of many terms cancels.
    error = (mixed.float() - expected)[..., 2:] / largest[..., 2:]
    assert error.square().mean().sqrt() < 0.015
    values[0, 0, 3, 4] = torch.nan
    mixed = actual.aggregate(values)
    assert mixed[0, 0, :, 4].isnan().all(), "NaN reveals overflow"
    assert mixed.isnan().sum() == pixels


@pytest.mark.parametrize("pixels", [32, 48])
def test_large_attention_is_in_8_bits_as_planned(
    kernels: "TritonOperations", monkeypatch: pytest.MonkeyPatch, pixels: int
) -> None:
    module = importlib.import_module(type(kernels).__module__)
    monkeypatch.setattr(module, "has_float8", lambda _: True)
    for place in (module, planning):
        monkeypatch.setattr(place, "FLOAT8_MIN_CELLS", 40)
    queries, keys = randn(2, 1, 1, pixels, 8)
    for dtype in (torch.float32, torch.float16):
        half = dtype == torch.float16
        stored = kernels.attend(queries.to(dtype), keys.to(dtype), store=True)
        computation = planning.Computation(NetworkConfig(), half=half, fast=True, float8=True)
        assert stored.weights.nbytes == computation.attention_bytes(float(pixels))  # type: ignore[attr-defined]
        streamed = kernels.attend(queries.to(dtype), keys.to(dtype), store=False)
        assert isinstance(streamed, StreamedAttention)


def test_softmax_of_long_rows(kernels: "TritonOperations", monkeypatch: pytest.MonkeyPatch) -> None:
    from gmaflow.inference.fast import map_kernels

    for longest in (64, 16):  # read once, and twice
        monkeypatch.setattr(map_kernels, "MAX_SINGLE_PASS", longest)
        monkeypatch.setattr(map_kernels, "WIDE_LANES", 16)
        scores = 10 * randn(3, 50)
        expected = scores.softmax(dim=-1)
        map_kernels.softmax(scores)
        close(scores, expected)


def test_upsampling(kernels: "TritonOperations") -> None:
    flow, logits = randn(2, 2, 2, 3), 8 * randn(2, 2, 3, 576, seed=1)
    close(kernels.upsample(flow, logits), PLAIN.upsample(flow, logits))


def test_overflow_is_not_hidden(kernels: "TritonOperations") -> None:
    """Overflow in half precision is detected by NaN in the flow."""
    x, conv = torch.full((1, 2, 2, 4), float("nan"), device=DEVICE), layer(4, 4)
    target = torch.zeros(1, 2, 2, 4, device=DEVICE)
    kernels.convolve_into(x, conv, (target, target))
    assert target.isnan().all()
    assert kernels.convolve_residual(x, conv, target).isnan().all()
    assert kernels.convolve_norm(x, conv, relu=True).isnan().all()


def test_a_whole_network(
    kernels: "TritonOperations", make_network: Callable[[str | NetworkConfig], FlowNetwork]
) -> None:
    """The interpreter takes long for wide networks; attention has a test of its own."""
    network = make_network("gma" if DEVICE.type == "cuda" else "raft-small").to(DEVICE)
    images = [image.to(DEVICE) for image in random_images(1, 16, 16)]
    expected = network(*images, iters=1).flow
    actual = FastNetwork(network, operations=kernels)(*images, iters=1).flow
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3)

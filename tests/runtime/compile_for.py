"""Compile the kernels with matrix products for a GPU that need not be here.

Usage: python -m tests.runtime.compile_for CAPABILITY   (75 for Turing, 86 or 89 for GeForce RTX)

Prints the shared memory of each in bytes, as JSON.
"""

import json
import sys
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from gmaflow.inference.fast import convolution_kernels
from gmaflow.inference.fast.convolution import Convolution
from gmaflow.model import correlation_kernels
from gmaflow.runtime.kernels import Kernel, compiling_ahead


class AbsentGpu:
    """What Triton asks a driver when it compiles."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


def layer(inputs: int, outputs: int, side: int, *, stride: int = 1) -> Convolution:
    weight = torch.zeros(outputs, inputs, side, side, dtype=torch.float16)
    bias = torch.zeros(outputs, dtype=torch.float16)
    return Convolution(weight, bias, (stride, stride), (side // 2, side // 2))


def call_kernels() -> None:
    """Call the kernels as `gma` and `raft-small` do in half precision, and in float32."""
    half = torch.float16
    coords = torch.zeros(1, 2, 16, 24)
    for channels, radius in ((256, 4), (128, 3)):
        for dtype in (half, torch.float32):
            out = torch.zeros(1, 16, 24, 4 * (2 * radius + 1) ** 2, dtype=dtype)
            rows1 = torch.zeros(1, 16 * 24, channels, dtype=dtype)
            rows2 = torch.zeros(1, 16 * 24 + 8 * 12 + 4 * 6 + 2 * 3, channels, dtype=dtype)
            correlation_kernels.stream_lookup(
                rows1, rows2, coords, radius=radius, num_levels=4, out=out
            )
    image = torch.zeros(1, 128, 192, 8, dtype=half)
    for outputs in (64, 32):
        first = layer(8, outputs, 7, stride=2)
        assert first.rows is not None
        convolution_kernels.convolve_image(
            image, first.rows, first.bias, kernel=(7, 7), stride=2, relu=True
        )
    for hidden, inner in ((128, 256), (96, 128)):
        state = torch.zeros(1, 16, 24, hidden, dtype=half)
        one, two = layer(hidden, inner, 3), layer(inner, 2, 3)
        assert one.bias is not None
        convolution_kernels.share(state, one.taps, one.bias, two.shares, kernel=(3, 3))
    for outputs in (128, 64):
        flow = layer(8, outputs, 7)
        assert flow.bias is not None
        flow_input = torch.zeros(1, 16, 24, 8, dtype=half)
        convolution_kernels.convolve_pairs(flow_input, flow.pairs, flow.bias, kernel=(7, 7))


def main() -> None:
    capability = int(sys.argv[1])
    driver.set_active(AbsentGpu(capability))
    taken: dict[str, int] = {}

    def compile_only(
        kernel: Kernel, grid: tuple[int, ...], args: tuple[object, ...], options: dict[str, Any]
    ) -> None:
        """Compile a kernel without loading it."""
        compiled = kernel.jit.warmup(*args, grid=grid, **options)
        name = kernel.jit.fn.__name__
        taken[name] = max(taken.get(name, 0), compiled.metadata.shared)

    with (
        mock.patch.object(Kernel, "_compile", compile_only),
        mock.patch.object(
            correlation_kernels, "has_little_shared_memory", return_value=capability < 80
        ),
        compiling_ahead(),
    ):
        call_kernels()
    sys.stdout.write(json.dumps(taken))


if __name__ == "__main__":
    main()

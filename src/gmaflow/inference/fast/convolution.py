"""Convolutions for inference: norms folded in, weights in the working type, Winograd on a CPU.

Winograd's algorithm needs fewer multiplications. A kernel of r taps gives m outputs from
n = m + r - 1 inputs, by m * r multiplications. Seen as polynomials, inputs and kernel can be
evaluated at n points, multiplied there (n multiplications), and the outputs interpolated:
`out @ ((kernel @ taps) * (input @ values))`. All channels share the evaluations; the
multiplications become n matrix products. In two dimensions this is done along both.

See A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, CVPR 2016.

Legend: b batch, h w rows and columns, i o channels in and out, ky kx the sides of the kernel.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor, nn

LANES = 8
"""Tensor cores want channels in multiples of this, in half precision."""

OUTPUTS = 4
"""Outputs of a tile along an axis: more need fewer multiplications, and lose more digits."""

TILES = 128
"""Tiles to work on at once: what the caches hold."""

POINTS = (*map(Fraction, (0, 1, -1, 2, -2)), Fraction(1, 2), Fraction(-1, 2))
"""Where polynomials are evaluated, besides infinity; small numbers round least."""

WORTH = {(3, 3): 128 * 128, (1, 5): 128 * 384, (5, 1): 128 * 384}
"""Kernels for which Winograd was measured to be faster, and from which product of channels on."""


@dataclass(frozen=True)
class Working:
    """The device and the type that a network computes in."""

    device: torch.device
    dtype: torch.dtype

    def channels(self, count: int) -> int:
        """Return how many channels to allocate for `count`: more, if that is faster."""
        padded = self.device.type == "cuda" and self.dtype != torch.float32
        return -(-count // LANES) * LANES if padded else count


PLAIN_CPU = Working(torch.device("cpu"), torch.float32)


def is_worth_it(weight: Float[Tensor, "o i ky kx"], stride: tuple[int, int]) -> bool:
    """Tell whether Winograd is faster for a convolution."""
    outputs, inputs, *kernel = weight.shape
    least = WORTH.get((kernel[0], kernel[1]))
    return stride == (1, 1) and least is not None and outputs * inputs >= least


@dataclass(frozen=True)
class Transforms:
    """The matrices for one axis."""

    out: Float64[Tensor, "m n"]
    kernel: Float64[Tensor, "n r"]
    input: Float64[Tensor, "n n"]


@cache
def transforms(taps: int) -> Transforms:
    """Return the matrices for a kernel of `taps` taps; for one tap they are the identity."""
    if taps == 1:
        one = torch.eye(1, dtype=torch.float64, device="cpu")
        return Transforms(one, one, one)
    points = POINTS[: OUTPUTS + taps - 2]
    out = [
        [point**power for point in points] + [Fraction(power == OUTPUTS - 1)]
        for power in range(OUTPUTS)
    ]
    kernel, values = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        kernel.append([point**power / scale for power in range(taps)])
        values.append([*polynomial(others), Fraction(0)])
    kernel.append([Fraction(power == taps - 1) for power in range(taps)])  # at infinity
    values.append(polynomial(points))
    return Transforms(_matrix(out), _matrix(kernel), _matrix(values))


def polynomial(roots: tuple[Fraction, ...] | list[Fraction]) -> list[Fraction]:
    """Return the coefficients, constant first, of the polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(root * c for c in coefficients), Fraction(0)]
        coefficients = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


class Winograd:
    """A convolution with stride 1 that keeps the size of channels-last maps.

    Args:
        weight: The kernel; it is transformed once, in float64.
    """

    def __init__(self, weight: Float[Tensor, "o i ky kx"]) -> None:
        self.outputs, _, *kernel = weight.shape
        self.padding = (kernel[0] // 2, kernel[1] // 2)
        down, across = (transforms(taps) for taps in kernel)
        self.tile = (len(down.out), len(across.out))
        self.seen = (len(down.input), len(across.input))
        # One matrix transforms a whole tile: first along columns, then along rows.
        self.input = torch.kron(down.input, across.input).float()
        self.out = torch.kron(down.out, across.out).float()
        kernels = torch.einsum(
            "ay,bx,oiyx->abio", down.kernel, across.kernel, weight.detach().double().cpu()
        )
        self.kernels = kernels.flatten(0, 1).float().contiguous()

    def __call__(self, x: Float[Tensor, "b h w i"], bias: Float[Tensor, " o"] | None) -> Tensor:
        """Return the convolution, `[b, h, w, o]`."""
        batch, height, width, _ = x.shape
        rows, columns = -(-height // self.tile[0]), -(-width // self.tile[1])
        out = x.new_empty(batch, height, width, self.outputs)
        step = min(rows, max(1, TILES // columns))
        strip = self._strip(x, step, columns)
        for image, target in zip(x, out, strict=True):
            for first in range(0, rows, step):
                last = min(first + step, rows)
                tiles = self._tiles(strip, image, first, columns)[:, :, : last - first]
                some = target[first * self.tile[0] : last * self.tile[0]]
                self._convolve(tiles, bias, some)
        return out

    def _convolve(
        self,
        tiles: Float[Tensor, "n k r c i"],
        bias: Float[Tensor, " o"] | None,
        out: Float[Tensor, "h w o"],
    ) -> None:
        """Convolve some rows of tiles; results beyond the map are dropped."""
        *_, rows, columns, channels = tiles.shape
        points = len(self.input)
        values = self.input @ tiles.reshape(points, -1)
        products = values.view(points, rows * columns, channels) @ self.kernels
        del values  # lowers the peak of memory
        found = (self.out @ products.view(points, -1)).view(*self.tile, rows, columns, -1)
        ordered = found.permute(2, 0, 3, 1, 4)
        height, width, _ = out.shape
        if (height, width) == (rows * self.tile[0], columns * self.tile[1]):
            out = out.view(ordered.shape)
        else:
            ordered = ordered.reshape(rows * self.tile[0], columns * self.tile[1], -1)
            ordered = ordered[:height, :width]
        if bias is None:
            out.copy_(ordered)
        else:
            torch.add(ordered, bias, out=out)

    def _strip(self, like: Float[Tensor, "b h w i"], rows: int, columns: int) -> Tensor:
        """Return zeros for the inputs of some rows of tiles."""
        height, width = (
            count * tile + seen - tile
            for count, tile, seen in zip((rows, columns), self.tile, self.seen, strict=True)
        )
        return like.new_zeros(height, width, like.shape[-1])

    def _tiles(
        self, strip: Float[Tensor, "r s i"], image: Float[Tensor, "h w i"], first: int, columns: int
    ) -> Tensor:
        """Fill the strip; return a view of its overlapping tiles, `[n, n, rows, columns, i]`."""
        top = first * self.tile[0] - self.padding[0]
        begin, end = max(top, 0), min(top + len(strip), len(image))
        left, width = self.padding[1], image.shape[1]
        strip[: begin - top].zero_()
        strip[end - top :].zero_()
        strip[begin - top : end - top, left : left + width] = image[begin:end]
        rows = (len(strip) - self.seen[0]) // self.tile[0] + 1
        row, column, channel = strip.stride()
        return strip.as_strided(
            (*self.seen, rows, columns, strip.shape[-1]),
            (row, column, row * self.tile[0], column * self.tile[1], channel),
        )


def _matrix(rows: list[list[Fraction]]) -> Float64[Tensor, "_ _"]:
    values = [[float(value) for value in row] for row in rows]
    return torch.tensor(values, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class Convolution:
    """A convolution of channels-last maps `[b, h, w, c]`."""

    weight: Float[Tensor, "o i ky kx"]
    bias: Float[Tensor, " o"] | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    winograd: Winograd | None = None
    """The same convolution by Winograd, if that is faster."""

    @classmethod
    def of(
        cls,
        layer: nn.Conv2d,
        working: Working,
        *,
        norm: nn.Module | None = None,
        pad_output: bool = False,
    ) -> "Convolution":
        """Convert a layer, and a batch norm after it.

        Args:
            layer: The layer; its input channels are padded with zeros to suit the working type.
            working: Where and in which type it will run.
            norm: The norm that follows; only a batch norm is folded in.
            pad_output: Pad the output channels too.
        """
        weight = layer.weight.detach().double()
        bias = torch.zeros(len(weight), dtype=torch.float64, device=weight.device)
        if layer.bias is not None:
            bias = layer.bias.detach().double()
        if isinstance(norm, nn.BatchNorm2d):
            weight, bias = fold(weight, bias, norm)
        outputs, inputs = weight.shape[:2]
        more_inputs = working.channels(inputs) - inputs
        more_outputs = working.channels(outputs) - outputs if pad_output else 0
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_inputs, 0, more_outputs))
        bias = F.pad(bias, (0, more_outputs))
        has_bias = layer.bias is not None or isinstance(norm, nn.BatchNorm2d)
        # An instance norm removes any constant that is added before it.
        wanted = has_bias and not isinstance(norm, nn.InstanceNorm2d)
        stride = _pair(layer.stride)
        other_way = working == PLAIN_CPU and is_worth_it(weight, stride)
        return cls(
            weight.to(working.device, working.dtype).contiguous(memory_format=torch.channels_last),
            bias.to(working.device, working.dtype) if wanted else None,
            stride,
            _pair(layer.padding),
            Winograd(weight) if other_way else None,
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a matrix product."""
        return self.weight.shape[2:] == (1, 1) and self.stride == (1, 1)


def fold(
    weight: Float[Tensor, "o i ky kx"], bias: Float[Tensor, " o"], norm: nn.BatchNorm2d
) -> tuple[Float[Tensor, "o i ky kx"], Float[Tensor, " o"]]:
    """Return one convolution equal to a convolution and its batch norm in evaluation mode."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    spread = (norm.running_var.double() + norm.eps).sqrt()
    gain = norm.weight.detach().double() / spread
    bias = (bias - norm.running_mean.double()) * gain + norm.bias.detach().double()
    return weight * gain[:, None, None, None], bias


def _pair(sides: object) -> tuple[int, int]:
    assert isinstance(sides, tuple)
    return int(sides[0]), int(sides[1])

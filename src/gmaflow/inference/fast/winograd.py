"""Convolutions with fewer multiplications, for CPUs: Winograd's way.

A kernel of r taps gives m outputs from n = m + r - 1 inputs, by m * r multiplications. Seen as
polynomials, inputs and kernel can be evaluated at n points, multiplied there (n multiplications),
and the outputs interpolated: `out @ ((kernel @ taps) * (input @ values))`. The evaluations are
shared by all channels; the multiplications become n products of matrices. In two dimensions this
is done along both.

See A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, CVPR 2016.

Legend: b batch, h w rows and columns, i o channels in and out, ky kx the kernel's sides.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

OUTPUTS = 4
"""Made at once along an axis: more need fewer multiplications, and lose more digits."""

TILES = 64
"""Worked on at once: what the caches hold."""

POINTS = (*map(Fraction, (0, 1, -1, 2, -2)), Fraction(1, 2), Fraction(-1, 2))
"""Where polynomials are evaluated, besides infinity; small numbers round least."""

WORTH = {(3, 3): 128 * 128, (1, 5): 128 * 384, (5, 1): 128 * 384}
"""For which kernels, and from which product of channels on, it was measured to be faster."""


def is_worth_it(weight: Float[Tensor, "o i ky kx"], stride: tuple[int, int]) -> bool:
    """Tell whether a convolution is faster this way."""
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
    """Return the matrices for a kernel of so many taps; one tap needs none."""
    if taps == 1:
        one = torch.eye(1, dtype=torch.float64)
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
    """A convolution with stride 1 that keeps the size, on channels-last maps.

    Args:
        weight: The kernel; it is transformed in float64, once.
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
        batch, height, width, channels = x.shape
        rows, columns = -(-height // self.tile[0]), -(-width // self.tile[1])
        tiles = self._tiles(x, rows, columns)
        out = x.new_empty(batch, rows, self.tile[0], columns, self.tile[1], self.outputs)
        points = len(self.input)
        step = max(1, TILES // columns)
        for item in range(batch):
            for first in range(0, rows, step):
                some = tiles[:, :, item, first : first + step]
                count = some.shape[2]
                values = self.input @ some.reshape(points, -1)
                products = values.view(points, count * columns, channels) @ self.kernels
                found = (self.out @ products.view(points, -1)).view(*self.tile, count, columns, -1)
                target = out[item, first : first + step]
                ordered = found.permute(2, 0, 3, 1, 4)
                if bias is None:
                    target.copy_(ordered)
                else:
                    torch.add(ordered, bias, out=target)
        whole = out.view(batch, rows * self.tile[0], columns * self.tile[1], self.outputs)
        return whole[:, :height, :width].contiguous()

    def _tiles(self, x: Float[Tensor, "b h w i"], rows: int, columns: int) -> Tensor:
        """Return overlapping tiles, `[n, n, b, rows, columns, i]`, a view of the padded map."""
        batch, height, width, channels = x.shape
        below = rows * self.tile[0] - height + self.padding[0]
        right = columns * self.tile[1] - width + self.padding[1]
        padded = F.pad(x, (0, 0, self.padding[1], right, self.padding[0], below))
        item, row, column, channel = padded.stride()
        return padded.as_strided(
            (*self.seen, batch, rows, columns, channels),
            (row, column, item, row * self.tile[0], column * self.tile[1], channel),
        )


def _matrix(rows: list[list[Fraction]]) -> Float64[Tensor, "_ _"]:
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)

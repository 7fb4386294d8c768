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
from jaxtyping import Float, Float64
from torch import Tensor

OUTPUTS = 4
"""Made at once along an axis: more need fewer multiplications, and lose more digits."""

TILES = 128
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
        """Convolve some rows of tiles; what they give beyond the map is left out."""
        *_, rows, columns, channels = tiles.shape
        points = len(self.input)
        values = self.input @ tiles.reshape(points, -1)
        products = values.view(points, rows * columns, channels) @ self.kernels
        del values  # before there is more
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
        """Return space for what some rows of tiles see, zeros."""
        height, width = (
            count * tile + seen - tile
            for count, tile, seen in zip((rows, columns), self.tile, self.seen, strict=True)
        )
        return like.new_zeros(height, width, like.shape[-1])

    def _tiles(
        self, strip: Float[Tensor, "r s i"], image: Float[Tensor, "h w i"], first: int, columns: int
    ) -> Tensor:
        """Fill the strip; return overlapping tiles, `[n, n, rows, columns, i]`, a view of it."""
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

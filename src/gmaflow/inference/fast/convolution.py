"""Convolutions for inference: folded norms, weights in the compute dtype, fast algorithms on a CPU.

Winograd's algorithm needs fewer multiplications. A kernel of r taps gives m outputs from
n = m + r - 1 inputs, by m * r multiplications. Seen as polynomials, inputs and kernel can be
evaluated at n points, multiplied there (n multiplications), and the outputs interpolated:
`out @ ((kernel @ taps) * (input @ values))`. All channels share the evaluations; the
multiplications become n matrix products. In two dimensions this is done along both.

Where available, oneDNN's operators are called directly, which torch does only in compiled programs:
for products, which torch leaves to MKL (down to half the speed on CPUs of other vendors), and for
packed weights, which are not reordered in each call.

See A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, CVPR 2016.

Legend: b batch, h w rows and columns, i o channels in and out, ky kx the sides of the kernel,
p q rows of matrices, n matrices.
"""

import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor, nn

LANES = 8
"""Tensor cores need channels in multiples of this, in half precision."""

OUTPUTS = 4
"""Outputs of a tile along an axis: more need fewer multiplications, and lose more digits."""

TILES = 64
"""Tiles that each thread processes at once, to fit in its caches."""

POINTS = (*map(Fraction, (0, 1, -1, 2, -2)), Fraction(1, 2), Fraction(-1, 2))
"""Where polynomials are evaluated, besides infinity; small numbers round least."""

NARROW_CHANNELS = 4
"""Up to this many output channels, a product and sums of neighbours are faster."""

WINOGRAD_MIN_CHANNELS = {(3, 3): 128 * 128, (1, 5): 128 * 384, (5, 1): 128 * 384}
"""Kernels for which Winograd was measured to be faster, and the fewest in * out channels."""
EIGHT = 8
"""Channels of images that kernels convolve, and the most taps of a row."""
TAP_CHANNELS = 64
"""Input channels that kernels multiply at a time."""
SHARES = 32
"""Columns of shares: two for each of nine taps, and some that stay 0."""
ONEDNN_MACHINES = ("x86_64", "amd64")
ONEDNN_TYPES = (torch.float32, torch.bfloat16)
TYPICAL_SIZE = (64, 128)
"""Height and width that weights are packed for. Other sizes work too, perhaps more slowly."""
GROUP_CHANNELS = 128
"""Output channels of a group. With more, a packed weight suits few sizes only."""


@dataclass(frozen=True)
class ComputeSpec:
    """The device and dtype that a network computes in."""

    device: torch.device
    dtype: torch.dtype

    def channels(self, count: int) -> int:
        """Return how many channels to allocate for `count`: more, if that is faster."""
        padded = self.device.type == "cuda" and self.dtype != torch.float32
        return -(-count // LANES) * LANES if padded else count

    @property
    def exact(self) -> "ComputeSpec":
        """The same, but float32 on a CPU: for layers that need more digits than bfloat16 has."""
        return PLAIN_CPU if self.device.type == "cpu" else self


PLAIN_CPU = ComputeSpec(torch.device("cpu"), torch.float32)


def winograd_is_faster(weight: Float[Tensor, "o i ky kx"], stride: tuple[int, int]) -> bool:
    """Return whether Winograd is faster for a convolution."""
    outputs, inputs, *kernel = weight.shape
    min_channels = WINOGRAD_MIN_CHANNELS.get((kernel[0], kernel[1]))
    return stride == (1, 1) and min_channels is not None and outputs * inputs >= min_channels


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

    The kernel is transformed once, in float64.
    """

    def __init__(self, weight: Float[Tensor, "o i ky kx"]) -> None:
        self.outputs, _, *kernel = weight.shape
        self.padding = (kernel[0] // 2, kernel[1] // 2)
        down, across = (transforms(taps) for taps in kernel)
        self.tile = (len(down.out), len(across.out))
        self.input_tile = (len(down.input), len(across.input))
        self.input = (down.input.float(), across.input.float())
        self.out = (down.out.float(), across.out.float())
        kernels = torch.einsum(
            "ay,bx,oiyx->abio", down.kernel, across.kernel, weight.detach().double().cpu()
        )
        self.products = GroupedProducts(kernels.flatten(0, 1).float().contiguous())

    def __call__(
        self,
        x: Float[Tensor, "b h w i"],
        bias: Float[Tensor, " o"] | None = None,
        *,
        relu: bool = False,
    ) -> Tensor:
        """Return the convolution, `[b, h, w, o]`."""
        batch, height, width, _ = x.shape
        rows, columns = -(-height // self.tile[0]), -(-width // self.tile[1])
        out = x.new_empty(batch, height, width, self.outputs)
        step = min(rows, max(1, TILES * torch.get_num_threads() // columns))
        strip = self._strip(x, step, columns)
        for image, target in zip(x, out, strict=True):
            for first in range(0, rows, step):
                last = min(first + step, rows)
                out_rows = target[first * self.tile[0] : last * self.tile[0]]
                self._fill(strip, image, first)
                self._convolve(strip, last - first, columns, out_rows)
                if bias is not None:
                    out_rows += bias
                if relu:
                    out_rows.relu_()
        return out

    def _convolve(
        self, strip: Float[Tensor, "r s i"], rows: int, columns: int, out: Float[Tensor, "h w o"]
    ) -> None:
        """Convolve some rows of tiles. Its tensors are freed before the next rows."""
        values = self._values(strip, rows, columns)
        begin = 0
        for products in self.products(values.flatten(0, 1).flatten(1, 2)):
            end = begin + products.shape[-1]
            tiles = self._outputs(products).unflatten(0, values.shape[:2])
            put_tiles(tiles[:, :columns], out[..., begin:end])
            begin = end

    def _strip(self, like: Float[Tensor, "b h w i"], rows: int, columns: int) -> Tensor:
        """Return zeros for the inputs of some rows of tiles.

        Each row has room for one tile more, so that all tiles of all rows are equally far apart,
        and because the last one reads that far: the input of a tile is at most twice its width.
        """
        (high, wide), (input_high, _) = self.tile, self.input_tile
        height, width = (rows - 1) * high + input_high, columns * wide
        if wide == 1:
            return like.new_zeros(height, width, like.shape[-1])
        padded = like.new_zeros(height + 1, width + wide, like.shape[-1])  # read by the last tile
        return padded[:height]

    def _fill(
        self, strip: Float[Tensor, "r s i"], image: Float[Tensor, "h w i"], first: int
    ) -> None:
        """Copy the inputs of the tiles from row `first` on; zero outside the map."""
        top = first * self.tile[0] - self.padding[0]
        begin, end = max(top, 0), min(top + len(strip), len(image))
        left, width = self.padding[1], image.shape[1]
        strip[: begin - top].zero_()
        strip[end - top :].zero_()
        strip[begin - top : end - top, left : left + width] = image[begin:end]

    def _values(
        self, strip: Float[Tensor, "r s i"], rows: int, columns: int
    ) -> Float[Tensor, "rows tiles n m i"]:
        """Evaluate the tiles: first along their columns, then along their rows.

        Without the second step, each row has one extra tile, which the caller drops.
        """
        (down, across), (high, wide) = self.input, self.input_tile
        if wide > 1:
            _, column, _ = strip.stride()
            height = (rows - 1) * self.tile[0] + high
            tiles = strip.as_strided(
                (height * (columns + 1), wide, strip.shape[-1]), (column * self.tile[1], column, 1)
            )
            evaluated = torch.bmm(across.expand(len(tiles), -1, -1), tiles)
            evaluated = evaluated.unflatten(0, (height, columns + 1))
            if high == 1:
                return evaluated[:, :, None]
            strip = evaluated.flatten(2)
        row, column, _ = strip.stride()
        values = strip.new_empty(rows, columns, high, strip.shape[-1])
        per_tile = down.expand(columns, -1, -1)
        shape, steps = values.shape[1:], (column, row, 1)
        for i in range(rows):
            tiles = strip.as_strided(shape, steps, i * self.tile[0] * row)
            torch.bmm(per_tile, tiles, out=values[i])
        return values.unflatten(3, (wide, -1))

    def _outputs(self, products: Float[Tensor, "t n o"]) -> Float[Tensor, "t y x o"]:
        """Interpolate the outputs of tiles."""
        (down, across), (high, wide) = self.out, self.input_tile
        if high > 1:
            products = products.unflatten(1, (high, wide)).flatten(2)
            products = torch.bmm(down.expand(len(products), -1, -1), products)
        if wide > 1:
            products = products.reshape(-1, wide, products.shape[-1] // (wide if high > 1 else 1))
            products = torch.bmm(across.expand(len(products), -1, -1), products)
        return products.reshape(-1, *self.tile, products.shape[-1])


def put_tiles(tiles: Float[Tensor, "r c y x o"], out: Float[Tensor, "h w o"]) -> None:
    """Write tiles side by side, cropped to the map."""
    rows, columns, high, wide, _ = tiles.shape
    ordered = tiles.permute(0, 2, 1, 3, 4)
    height, width, _ = out.shape
    if (height, width) == (rows * high, columns * wide):
        out.unflatten(0, (rows, high)).unflatten(2, (columns, wide)).copy_(ordered)
    else:
        out.copy_(ordered.reshape(rows * high, columns * wide, -1)[:height, :width])


class Narrow:
    """A convolution to a few channels that keeps the size of channels-last maps.

    A matrix product computes each pixel's contribution to each neighbour; then they are summed.
    """

    def __init__(self, weight: Float[Tensor, "o i ky kx"]) -> None:
        self.kernel = (weight.shape[2], weight.shape[3])
        # The pixel to the right contributes to the left, so the kernel is mirrored.
        self.matrix = weight.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2).contiguous()

    def __call__(
        self,
        x: Float[Tensor, "b h w i"],
        bias: Float[Tensor, " o"] | None = None,
        *,
        relu: bool = False,
    ) -> Tensor:
        """Return the convolution, `[b, h, w, o]`."""
        shares = F.linear(x, self.matrix).flatten(1, 2).transpose(1, 2)
        padding = (self.kernel[0] // 2, self.kernel[1] // 2)
        out = F.fold(shares, x.shape[1:3], self.kernel, padding=padding).permute(0, 2, 3, 1)
        out = out.contiguous() if bias is None else out + bias
        return out.relu_() if relu else out


@cache
def has_onednn() -> bool:
    """Return whether torch has oneDNN's operators: on x86, unless built without oneDNN."""
    if (
        platform.machine().lower() not in ONEDNN_MACHINES
        or not torch.backends.mkldnn.is_available()
    ):
        return False
    one = torch.ones(1, 1)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(one, 1)
        product = torch.ops.mkldnn._linear_pointwise(one, packed, None, "none", [], "")
        return bool(product.item() == 1)
    except (AttributeError, RuntimeError):  # private operators: another version may lack them
        return False


class PackedProduct:
    """Products of `rows` rows with a transposed matrix, by oneDNN if possible.

    oneDNN copies the matrix to the layout that suits it best.
    """

    def __init__(self, matrix: Float[Tensor, "q i"], *, rows: int) -> None:
        self.matrix = matrix
        self.packed: Tensor | None = None
        if matrix.device.type == "cpu" and matrix.dtype in ONEDNN_TYPES and has_onednn():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), rows)

    def __call__(self, rows: Float[Tensor, "p i"]) -> Float[Tensor, "p q"]:
        """Return `rows @ matrix.T`."""
        if self.packed is None:
            return rows @ self.matrix.mT
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, None, "none", [], "")
        return out


class PackedConvolution:
    """A convolution of channels-last maps, with a packed weight."""

    def __init__(
        self,
        weight: Float[Tensor, "o i ky kx"],
        *,
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
        groups: int = 1,
    ) -> None:
        self.layout = ([*padding], [*stride], [1, 1], groups)
        self.weight: Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            weight.contiguous(), *self.layout, [1, groups * weight.shape[1], *TYPICAL_SIZE]
        )

    def __call__(
        self, x: Float[Tensor, "b h w i"], bias: Tensor | None = None, *, relu: bool = False
    ) -> Tensor:
        """Return the convolution, `[b, h, w, o]`."""
        out: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x.permute(0, 3, 1, 2), self.weight, bias, *self.layout, "none", [], ""
        )
        out = out.permute(0, 2, 3, 1).contiguous()
        # Not oneDNN's ReLU, which turns NaN into 0 and would hide damaged weights.
        return out.relu_() if relu else out


class GroupedProducts:
    """Products with several matrices, each applied to its own part of every row."""

    def __init__(self, matrices: Float[Tensor, "n i o"]) -> None:
        self.matrices = matrices
        self.packed = []
        if has_onednn() and torch.backends.cpu.get_cpu_capability() == "AVX512":
            # As convolutions in groups: measured to be a fifth faster than products one by one.
            self.packed = [
                PackedConvolution(part.mT.flatten(0, 1)[..., None, None], groups=len(matrices))
                for part in matrices.split(GROUP_CHANNELS, dim=2)
            ]

    def __call__(self, rows: Float[Tensor, "p n i"]) -> Iterator[Float[Tensor, "p n _"]]:
        """Yield all products, a few columns at a time."""
        if not self.packed:
            yield (rows.transpose(0, 1) @ self.matrices).transpose(0, 1)
        for packed in self.packed:
            yield packed(rows.flatten(1)[None, None])[0, 0].unflatten(1, (len(self.matrices), -1))


def faster_convolution(
    weight: Float[Tensor, "o i ky kx"],
    stride: tuple[int, int],
    padding: tuple[int, int],
    spec: ComputeSpec,
) -> Winograd | Narrow | PackedConvolution | None:
    """Return a convolution that is faster than torch's on a CPU, if there is one."""
    if spec.device.type != "cpu":
        return None
    if spec == PLAIN_CPU and winograd_is_faster(weight, stride):
        return Winograd(weight)
    plain = stride == (1, 1) and weight.shape[2] * weight.shape[3] > 1
    if spec == PLAIN_CPU and plain and len(weight) <= NARROW_CHANNELS:
        return Narrow(weight.to(spec.dtype))
    if spec.dtype not in ONEDNN_TYPES or not has_onednn():
        return None
    return PackedConvolution(weight.to(spec.dtype), stride=stride, padding=padding)


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
    faster: Winograd | Narrow | PackedConvolution | None = None
    """A faster implementation on this device, if there is one."""

    @classmethod
    def of(
        cls,
        layer: nn.Conv2d,
        spec: ComputeSpec,
        *,
        norm: nn.Module | None = None,
        pad_output: bool = False,
    ) -> "Convolution":
        """Convert a layer, and a batch norm after it.

        Args:
            layer: The layer; its input channels are padded with zeros to suit the compute dtype.
            spec: The device and dtype that it will run in.
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
        extra_inputs = spec.channels(inputs) - inputs
        extra_outputs = spec.channels(outputs) - outputs if pad_output else 0
        weight = F.pad(weight, (0, 0, 0, 0, 0, extra_inputs, 0, extra_outputs))
        bias = F.pad(bias, (0, extra_outputs))
        has_bias = layer.bias is not None or isinstance(norm, nn.BatchNorm2d)
        # An instance norm removes any constant that is added before it.
        needs_bias = has_bias and not isinstance(norm, nn.InstanceNorm2d)
        stride, padding = _pair(layer.stride), _pair(layer.padding)
        return cls(
            weight.to(spec.device, spec.dtype).contiguous(memory_format=torch.channels_last),
            bias.to(spec.device, spec.dtype) if needs_bias else None,
            stride,
            padding,
            faster_convolution(weight, stride, padding, spec),
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a matrix product."""
        return self.weight.shape[2:] == (1, 1) and self.stride == (1, 1)

    @property
    def kernel(self) -> tuple[int, int]:
        """The height and width of the kernel."""
        return self.weight.shape[2], self.weight.shape[3]

    @cached_property
    def taps(self) -> Float[Tensor, "_ o"]:
        """The weights tap by tap and channel by channel, as `convolution_kernels` read them."""
        more = -self.weight.shape[1] % TAP_CHANNELS
        taps = F.pad(self.weight.permute(2, 3, 1, 0), (0, 0, 0, more))
        return taps.flatten(0, 2).contiguous()

    @cached_property
    def shares(self) -> Float[Tensor, "i _"]:
        """The weights of two outputs by input channel, as `convolution_kernels` read them."""
        shares = self.weight[:2].permute(1, 2, 3, 0).flatten(1)
        return F.pad(shares, (0, SHARES - shares.shape[1])).contiguous()

    @cached_property
    def rows(self) -> Float[Tensor, "_ o"] | None:
        """The weights row by row, eight taps of eight channels each; None if there are more."""
        outputs, inputs, height, width = self.weight.shape
        if inputs != EIGHT or width > EIGHT:
            return None
        taps = F.pad(self.weight.permute(2, 3, 1, 0), (0, 0, 0, 0, 0, EIGHT - width))
        return taps.reshape(height * EIGHT * EIGHT, outputs).contiguous()

    @cached_property
    def pairs(self) -> Float[Tensor, "_ o"]:
        """The weights of the first two input channels, tap by tap; rows up to a power of two."""
        pairs = self.weight[:, :2].permute(2, 3, 1, 0).flatten(0, 2)
        return F.pad(pairs, (0, 0, 0, 2 ** math.ceil(math.log2(len(pairs))) - len(pairs)))


def fold(
    weight: Float[Tensor, "o i ky kx"], bias: Float[Tensor, " o"], norm: nn.BatchNorm2d
) -> tuple[Float[Tensor, "o i ky kx"], Float[Tensor, " o"]]:
    """Return one convolution equal to a convolution and its batch norm in evaluation mode."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    std = (norm.running_var.double() + norm.eps).sqrt()
    scale = norm.weight.detach().double() / std
    bias = (bias - norm.running_mean.double()) * scale + norm.bias.detach().double()
    return weight * scale[:, None, None, None], bias


def _pair(sides: object) -> tuple[int, int]:
    assert isinstance(sides, tuple)
    return int(sides[0]), int(sides[1])

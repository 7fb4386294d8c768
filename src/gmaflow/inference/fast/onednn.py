"""Calls into oneDNN that torch makes only in compiled programs: products, and packed weights.

torch multiplies float32 matrices with MKL, which takes up to twice as long as oneDNN on CPUs of
other makers. A packed weight is not reordered in each call.

Legend: b batch, h w rows and columns, i o channels in and out, p q rows of matrices,
n matrices.
"""

import platform
from collections.abc import Iterator
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

MACHINES = ("x86_64", "amd64")
TYPICAL_SIZE = (64, 128)
"""Height and width that weights are packed for. Other sizes work as well, perhaps more slowly."""
GROUP_CHANNELS = 128
"""Output channels of a group. With more, a packed weight suits few sizes only."""


@cache
def is_available() -> bool:
    """Tell whether this torch has the operators: on x86, unless it was built without oneDNN."""
    if platform.machine().lower() not in MACHINES or not torch.backends.mkldnn.is_available():
        return False
    one = torch.ones(1, 1)
    try:
        return bool(times_transposed(one, one).item() == 1)
    except (AttributeError, RuntimeError):  # private operators: another version may lack them
        return False


def times_transposed(
    rows: Float[Tensor, "p i"], others: Float[Tensor, "q i"]
) -> Float[Tensor, "p q"]:
    """Return `rows @ others.T`."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, others, None, "none", [], "")
    return out


class PackedConvolution:
    """A convolution of channels-last maps, with a packed weight.

    Args:
        weight: The kernel.
        stride: Rows, columns.
        padding: Rows, columns.
        groups: Groups of channels.
    """

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
        # Not by oneDNN, whose ReLU turns NaN into 0 and would hide damaged weights.
        return out.relu_() if relu else out


class GroupedProducts:
    """Products with several matrices, each for its own part of every row.

    Args:
        matrices: One for each part.
    """

    def __init__(self, matrices: Float[Tensor, "n i o"]) -> None:
        self.matrices = matrices
        self.packed = []
        if is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512":
            # As convolutions in groups: measured to be a fifth faster than products one by one.
            self.packed = [
                PackedConvolution(part.mT.flatten(0, 1)[..., None, None], groups=len(matrices))
                for part in matrices.split(GROUP_CHANNELS, dim=2)
            ]

    def __call__(self, rows: Float[Tensor, "p n i"]) -> Iterator[Float[Tensor, "p n _"]]:
        """Yield some columns of all products at a time."""
        if not self.packed:
            yield (rows.transpose(0, 1) @ self.matrices).transpose(0, 1)
        for packed in self.packed:
            yield packed(rows.flatten(1)[None, None])[0, 0].unflatten(1, (len(self.matrices), -1))

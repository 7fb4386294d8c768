"""What to export: one frozen config that refuses nonsense.

The string under a field is its documentation, in `gmaflow export --help` too.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from gmaflow.errors import FlowError, check_known
from gmaflow.io.sizes import read_size

ExportPrecision = Literal["fp32", "fp16"]

DEFAULT_SIZE = "440x1024"


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """The program's images, and how it computes."""

    size: str = ""
    """Height x width of the images; 440x1024 by default."""
    dynamic: bool = False
    """Leave the size open: any height and width from 128 on, decided at each run."""
    batch: int | Literal["any"] = 1
    """Pairs at a time, or any: decided at each run."""
    iters: int = 12
    """Refinements: more are slower and better."""
    precision: ExportPrecision = "fp32"
    """fp16: weights and layers in half precision, flow and correlation in float32; .onnx only."""
    warm_start: bool = False
    """Take the flow of the pair before as a third input, to start from; zeros for none."""

    def __post_init__(self) -> None:
        check_known("precision", self.precision, get_args(ExportPrecision))
        if self.batch != "any" and self.batch < 1:
            raise FlowError(f"batch is {self.batch}; give at least 1, or any")
        if self.iters < 1:
            raise FlowError(f"iters is {self.iters}; give at least 1")
        if self.dynamic and self.size:
            raise FlowError(
                f"a size of {self.size} and an open one exclude each other; give --size or "
                "--dynamic"
            )
        read_size(self.size or DEFAULT_SIZE)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Height and width of the images, None if they are left open."""
        return None if self.dynamic else read_size(self.size or DEFAULT_SIZE)

    @property
    def fixed_batch(self) -> int | None:
        """Pairs at a time, None if their number is left open."""
        return None if self.batch == "any" else self.batch

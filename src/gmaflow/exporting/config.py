"""What to export: one frozen config that refuses nonsense.

The string under a field is its documentation, in `gmaflow export --help` too.
"""

from dataclasses import dataclass

from gmaflow.errors import FlowError
from gmaflow.inference.sizes import read_size

DEFAULT_SIZE = "440x1024"


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """The program's images, and how it computes."""

    size: str = ""
    """Height x width of the images; 440x1024 by default."""
    dynamic: bool = False
    """Leave the size open: any height and width from 128 on, decided at each run."""
    batch: int = 1
    """Pairs at a time."""
    iters: int = 12
    """Refinements: more are slower and better."""

    def __post_init__(self) -> None:
        for name in ("batch", "iters"):
            if getattr(self, name) < 1:
                raise FlowError(f"{name} is {getattr(self, name)}; give at least 1")
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

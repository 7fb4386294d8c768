"""A data set: an unchanging list of pairs, that can be added up and repeated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gmaflow.data.pairs import FlowPair, FlowSample
from gmaflow.errors import DatasetError


@dataclass(frozen=True)
class FlowDataset:
    """A list of pairs; `+` joins two, `*` repeats one, and neither changes what it was given.

    Attributes:
        name: what it is, for people.
        pairs: the pairs, in a fixed order.
    """

    name: str
    pairs: tuple[FlowPair, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> FlowPair:
        return self.pairs[index]

    def __iter__(self) -> Iterator[FlowPair]:
        return iter(self.pairs)

    def __add__(self, other: "FlowDataset") -> "FlowDataset":
        return FlowDataset(f"{self.name} + {other.name}", self.pairs + other.pairs)

    def __mul__(self, times: int) -> "FlowDataset":
        if times < 1:
            raise DatasetError(f"{self.name} cannot be repeated {times} times; give 1 or more")
        return FlowDataset(f"{times} * ({self.name})", self.pairs * times)

    def __rmul__(self, times: int) -> "FlowDataset":
        return self * times

    def where(self, keep: Callable[[FlowPair], bool]) -> "FlowDataset":
        """Keep the pairs for which `keep` holds."""
        return FlowDataset(self.name, tuple(pair for pair in self.pairs if keep(pair)))

    def load(self, index: int) -> FlowSample:
        """Read the files of one pair."""
        return self.pairs[index].load()

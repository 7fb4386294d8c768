"""Looking on while the network works: the flow after each refinement."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.padding import Padding
from gmaflow.model import FlowNetwork, OnIteration


@dataclass(frozen=True, eq=False)
class Refinement:
    """One refinement that was just made. Its flow costs time, so it is made when asked for."""

    number: int
    """Counted from 1."""
    total: int
    """How many there will be."""
    coarse: Float[Tensor, "b 2 h w"]
    """The flow on the padded 1/8 grid, in its pixels."""
    hidden: Float[Tensor, "b c h w"]
    network: FlowNetwork
    padding: Padding

    def flow(self) -> Float32[np.ndarray, "H W 2"]:
        """Return the flow of the batch's first pair, at the images' size."""
        padded = self.network.upsample(self.coarse[:1], self.hidden[:1])
        return self.padding.crop(padded)[0].permute(1, 2, 0).float().cpu().numpy()


Watcher = Callable[[Refinement], None]
"""Called after each refinement; what it raises stops the estimate."""


def telling(watch: Watcher, total: int, network: FlowNetwork, padding: Padding) -> OnIteration:
    """Return what the network is to call so that the watcher is told."""

    def tell(number: int, coarse: Tensor, hidden: Tensor) -> None:
        watch(Refinement(number, total, coarse, hidden, network, padding))

    return tell

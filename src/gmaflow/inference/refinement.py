"""Looking on while the network works: the flow after each refinement.

Legend: b batch, H W rows and columns of images, h w those of the padded ones at 1/8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.padding import Padding
from gmaflow.model import FlowNetwork, OnIteration
from gmaflow.runtime.device import computing


@dataclass(frozen=True, eq=False)
class Refinement:
    """One refinement that was just made. Its flow costs time, so it is made when asked for.

    Where memory is short, the work is done in parts: one direction after the other, or tile by
    tile. Then all refinements of all parts are counted, and there is no flow before the last.
    """

    number: int
    """Counted from 1."""
    total: int
    """How many there will be."""
    state: "tuple[Float[Tensor, 'b 2 h w'], Float[Tensor, 'b c h w']] | None"
    """The coarse flow and the hidden state; None for a part of the work."""
    network: FlowNetwork
    padding: Padding

    def flow(self) -> Float32[np.ndarray, "H W 2"] | None:
        """Return the flow of the batch's first pair at the images' size; None for a part of it."""
        if self.state is None:
            return None
        coarse, hidden = self.state
        with computing(coarse.device, coarse.shape):
            # The state may be in half precision, of an autocast that is over.
            padded = self.network.upsample(coarse[:1], hidden[:1].float())
        return self.padding.crop(padded)[0].permute(1, 2, 0).float().cpu().numpy()


Watcher = Callable[[Refinement], None]
"""Called after each refinement; what it raises stops the estimate."""


@dataclass(frozen=True)
class Watch:
    """A watcher, and all that it takes to show it the flow."""

    watcher: Watcher
    network: FlowNetwork
    padding: Padding

    def of_whole(self, total: int) -> OnIteration:
        """Return what the network is to call where it estimates everything at once."""

        def tell(number: int, coarse: Tensor, hidden: Tensor) -> None:
            state = coarse, hidden
            self.watcher(Refinement(number, total, state, self.network, self.padding))

        return tell

    def of_parts(self, total: int) -> OnIteration:
        """Return what the network is to call where it estimates one part after the other."""
        numbers = count(1)

        def tell(_number: int, _coarse: Tensor, _hidden: Tensor) -> None:
            self.watcher(Refinement(next(numbers), total, None, self.network, self.padding))

        return tell

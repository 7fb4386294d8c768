"""Learning every pair forward and backward at once, so that each frame is encoded once."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.model import FlowNetwork, Prediction
from gmaflow.training.batch import Batch


class BothWays(nn.Module):
    """A network for batches whose second half is the first half backward.

    Args:
        network: Which does all that is learned.
    """

    def __init__(self, network: FlowNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        iters: int,
        all_iterations: bool,
    ) -> Prediction:
        """Estimate the flow as the network does.

        Args:
            image1: First frames: of the pairs, then of the same pairs backward.
            image2: Second frames: the same images with their halves exchanged; not looked at.
            iters: Number of refinements.
            all_iterations: Return the flow of every one.
        """
        frames = self.network.encode_frame(image1)
        features2 = exchange_halves(frames.features)
        return self.network.match(frames, features2, iters=iters, all_iterations=all_iterations)


def exchange_halves(tensor: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
    """Put the second half of a batch before the first, in the layout that it has."""
    first, second = tensor.chunk(2)
    return torch.cat([second, first])


def both_ways(forward: Batch, backward: Batch, parts: int) -> Batch:
    """Join pairs and the same pairs backward, so that each of the batch's parts is such a batch."""
    turns = zip(forward.split(parts), backward.split(parts), strict=True)
    return Batch.join([batch for turn in turns for batch in turn])

"""The steps of a fast network in bfloat16 on a CPU, with float32 where digits matter.

bfloat16 has 8 bits: convolutions and the product with the attention matrix bear that. Correlation,
flow, the recurrent state, statistics of instance norm, softmax and upsampling are float32.

Legend: b batch, a heads, p pixels, e channels compared.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.operations import Lookup, Map, Operations, attention_matrix, stored
from gmaflow.model.aggregation import AttentionWeights, StreamedAttention


class ExactAttention(StreamedAttention):
    """Streamed attention in float32, for values in any type."""

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        """Return for each pixel the mean of all values, weighted by attention."""
        return super().aggregate(values.float()).to(values.dtype)


class MixedOperations(Operations):
    """The steps in bfloat16; `dense`, the recurrent state, is float32."""

    def renew(self, raw: Map, prepared: Map, gates: Map, hidden: Map, dense: Map) -> None:
        """Move the state towards the candidate, in `dense`, and round it to `hidden`."""
        channels = hidden.shape[-1]
        candidate = torch.add(raw, prepared[..., 2 * channels :]).tanh_().float()
        dense.lerp_(candidate, gates[..., :channels].float())
        hidden.copy_(dense)

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps in float32."""
        maps = features1.float(), features2.float()
        return super().correlate(*maps, num_levels=num_levels, radius=radius, store=store)

    def attend(
        self,
        queries: Float[Tensor, "b a p e"],
        keys: Float[Tensor, "b a p e"],
        *,
        store: bool,
    ) -> AttentionWeights:
        """Return the attention of scaled queries and keys; only its weights are bfloat16."""
        if not store:
            return ExactAttention(queries, keys)
        return stored(attention_matrix(queries, keys, torch.bfloat16))

"""Rendered pairs as arrays, to be written or looked at."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

from gmaflow.scenes.renderer import SceneBatch


@dataclass(frozen=True, eq=False)
class PairArrays:
    """One pair of a `SceneBatch`, forward in time; the attributes mean the same."""

    clean1: UInt8[np.ndarray, "h w 3"]
    clean2: UInt8[np.ndarray, "h w 3"]
    final1: UInt8[np.ndarray, "h w 3"]
    final2: UInt8[np.ndarray, "h w 3"]
    flow: Float32[np.ndarray, "h w 2"]
    valid: Bool[np.ndarray, "h w"]
    occluded_in: Bool[np.ndarray, "h w"]
    occluded_out: Bool[np.ndarray, "h w"]


def pair_arrays(batch: SceneBatch) -> list[PairArrays]:
    """Take a batch apart into its pairs."""
    flow = batch.flow.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    frames = (_bytes(f) for f in (batch.clean1, batch.clean2, batch.final1, batch.final2))
    masks = (m.cpu().numpy() for m in (batch.valid, batch.occluded_in, batch.occluded_out))
    return [PairArrays(*parts) for parts in zip(*frames, flow, *masks, strict=True)]


def _bytes(frames: Float[Tensor, "b 3 h w"]) -> UInt8[np.ndarray, "b h w 3"]:
    # The frames hold whole 255ths already; rounding undoes what division left of them.
    whole = (frames * 255).round().to(torch.uint8)
    return whole.permute(0, 2, 3, 1).contiguous().cpu().numpy()

"""The weights of the parity fixtures, drawn by their published rule."""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gmaflow.model import NetworkConfig
from gmaflow.weights import Checkpoint
from gmaflow.weights.checkpoint import blank_network
from gmaflow.weights.published import from_published, to_published

VARIANTS = ("gma", "gma-p", "gma-p-only", "gma-2heads", "raft", "raft-small")
INTEGER_ENDINGS = ("num_batches_tracked", "rel_ind")


def published_weights(folder: Path, variant: str) -> dict[str, Tensor]:
    """Draw the tensors of one variant under the authors' names."""
    shapes = json.loads((folder / "state_dict_shapes.json").read_text())[variant]
    tensors = {
        name: torch.from_numpy(draw(name, shape))
        for name, shape in shapes.items()
        if not name.endswith(INTEGER_ENDINGS)
    }
    # One tensor under two names: the later name holds.
    for name in list(tensors):
        for alias in ("norm3", "norm4"):
            if ".downsample.1." in name:
                other = name.replace("downsample.1", alias)
                if other in tensors:
                    tensors[other] = tensors[name]
    return tensors


def drawn_checkpoint(
    config: NetworkConfig, *, drawing: str = "", alpha: float = 0.7, sharpness: float = 1.0
) -> Checkpoint:
    """Draw a network by the same rule from other random numbers, with sharper attention."""
    theirs = {
        name: torch.from_numpy(draw(name, list(value.shape), drawing))
        for name, value in to_published(blank_network(config).state_dict(), config).items()
        if not name.endswith(INTEGER_ENDINGS)
    }
    for name, value in theirs.items():
        if name.endswith("gamma"):
            value.fill_(alpha)
        elif name.endswith("to_qk.weight"):
            value.mul_(sharpness)
    return Checkpoint(config=config, tensors=from_published(theirs, config))


def draw(name: str, shape: list[int], drawing: str = "") -> np.ndarray:
    """Follow the fixtures' rule for one tensor."""
    random = np.random.Generator(np.random.PCG64(zlib.crc32(f"{drawing}{name}".encode())))
    x = random.standard_normal(shape, dtype=np.float32)
    one, tenth = np.float32(1), np.float32(0.1)
    if name.endswith("gamma"):
        return np.full(shape, 0.7, np.float32)
    if "norm" in name or ".downsample.1." in name:
        around_one = {"running_var": one + tenth * np.abs(x), "weight": one + tenth * x}
        return around_one.get(name.rpartition(".")[2], tenth * x)
    if ".rel_height." in name or ".rel_width." in name:
        return np.float32(0.3) * x
    if name.endswith("bias"):
        return np.float32(0.005 if "flow_head.conv2" in name else 0.05) * x
    scale = math.sqrt(2 / math.prod(shape[1:])) * (0.1 if "flow_head.conv2" in name else 1)
    return (x.astype(np.float64) * scale).astype(np.float32)

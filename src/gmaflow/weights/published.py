"""The authors' checkpoints: conversion between their tensors and ours.

Most tensors only have another name. The recurrent unit is also divided differently: the authors
have three convolutions over (state, context, motion); here the gates are one convolution and the
context's share is a separate one (see `gmaflow.model.update`). The numbers are the same.
"""

import re
from dataclasses import replace

import torch
from torch import Tensor

from gmaflow.errors import WeightsError
from gmaflow.model import MAX_OFFSET, NetworkConfig
from gmaflow.model.config import MAX_HEADS
from gmaflow.weights.checkpoint import StateDict, blank_network, check_same_tensors

HEAD_CHANNELS = 128
MAX_WRAPPERS = 3
WRAPPERS = ("state_dict", "model", "model_state_dict", "net", "network", "weights")

# Ours -> theirs, tried in this order, each at the start of the name.
RENAMES = (
    (r"features\.", "fnet."),
    (r"context\.", "cnet."),
    (r"motion\.correlation\.0", "update_block.encoder.convc1"),
    (r"motion\.correlation\.2", "update_block.encoder.convc2"),
    (r"motion\.flow\.0", "update_block.encoder.convf1"),
    (r"motion\.flow\.2", "update_block.encoder.convf2"),
    (r"motion\.merge\.0", "update_block.encoder.conv"),
    (r"attention\.to_query_key", "att.to_qk"),
    (r"attention\.row_offsets", "att.pos_emb.rel_height"),
    (r"attention\.column_offsets", "att.pos_emb.rel_width"),
    (r"aggregate\.alpha", "update_block.aggregator.gamma"),
    (r"aggregate\.to_value", "update_block.aggregator.to_v"),
    (r"aggregate\.project", "update_block.aggregator.project"),
    (r"update\.flow_head\.0", "update_block.flow_head.conv1"),
    (r"update\.flow_head\.2", "update_block.flow_head.conv2"),
    (r"upsample\.weights\.", "update_block.mask."),
)
# Within an encoder, ours -> theirs.
ENCODER_RENAMES = (
    (r"conv_in\.", "conv1."),
    (r"norm_in\.", "norm1."),
    (r"conv_out\.", "conv2."),
    (r"stages\.0\.", "layer1."),
    (r"stages\.1\.", "layer2."),
    (r"stages\.2\.", "layer3."),
    (r"shortcut\.", "downsample."),
)
RECURRENT = "update.passes."


def from_published(theirs: StateDict, config: NetworkConfig) -> dict[str, Tensor]:
    """Rename and rearrange the authors' tensors into ours."""
    skeleton = blank_network(config).state_dict()
    expected = to_published(skeleton, config)
    required = {name: value for name, value in theirs.items() if not is_optional(name)}
    expected_required = {name: value for name, value in expected.items() if not is_optional(name)}
    check_same_tensors(required, expected_required)

    ours = {}
    for name, value in skeleton.items():
        if name.startswith(RECURRENT):
            continue
        # Missing counters (see `is_optional`) start at zero.
        ours[name] = theirs.get(published_name(name), torch.zeros_like(value))
    for number, suffix in enumerate(pass_suffixes(config)):
        ours |= join_pass(theirs, config, number=number, suffix=suffix)
    return ours


def to_published(ours: StateDict, config: NetworkConfig) -> dict[str, Tensor]:
    """Return our tensors as the authors name and arrange them."""
    if config.continues:
        raise WeightsError(
            "the authors' network does not continue motion, so gma-affine has no .pth format; "
            "write a .safetensors file"
        )
    theirs = {}
    for name, value in ours.items():
        if name.startswith(RECURRENT):
            continue
        their_name = published_name(name)
        theirs[their_name] = value
        # The authors save the norm of the shortcut under two names.
        norm = "norm4" if config.small else "norm3"
        alias = their_name.replace(".downsample.1.", f".{norm}.")
        theirs[alias] = value
    for number, suffix in enumerate(pass_suffixes(config)):
        theirs |= split_pass(ours, config, number=number, suffix=suffix)
    if config.aggregates:
        # The authors' code expects a table of the offset of each pair of positions.
        position = torch.arange(MAX_OFFSET, device="cpu")
        offset = position[None, :] - position[:, None]
        theirs["att.pos_emb.rel_ind"] = offset + MAX_OFFSET - 1
    return theirs


def infer_config(theirs: StateDict, model: NetworkConfig | None = None) -> NetworkConfig:
    """Infer the network from the names and shapes of the authors' tensors.

    Networks that compare appearance, offset or both hold the same tensors; `model` says which one
    it is, appearance by default.
    """
    if "fnet.conv1.weight" not in theirs or "cnet.conv1.weight" not in theirs:
        examples = ", ".join(sorted(theirs)[:3]) or "none"
        raise WeightsError(
            f"these are not the tensors of a RAFT or GMA network (they begin with: {examples}); "
            "use a checkpoint of raft, raft-small or gma"
        )
    # By any of these tensors, so that the error names the one that a file lacks.
    if not any(name.startswith(("att.", "update_block.aggregator.")) for name in theirs):
        small = "fnet.layer1.0.conv3.weight" in theirs
        config = NetworkConfig(small=small, attention="none")
    else:
        gate = theirs.get("update_block.gru.convz1.weight")
        both = gate is None or gate.shape[1:2] == (512,)
        # Any shapes give some network; the check that follows names those that differ.
        to_query_key = theirs.get("att.to_qk.weight", torch.empty(0))
        heads = to_query_key.shape[:1].numel() // (2 * HEAD_CHANNELS)
        config = NetworkConfig(
            num_heads=min(max(heads, 1), MAX_HEADS),
            learned_alpha="update_block.aggregator.gamma" in theirs,
            combination="concatenate" if both else "replace",
        )
    if model is None:
        return config
    if (model.small, model.aggregates) != (config.small, config.aggregates):
        raise WeightsError(
            f"this is a checkpoint of {family(config)}, not of {family(model)}; omit the model, or "
            "specify the one that fits"
        )
    return replace(config, attention=model.attention, residual=model.residual)


def unwrap(content: object) -> dict[str, Tensor]:
    """Return the tensors of the authors' file: bare or in a dict, with or without `module.`."""
    for _ in range(MAX_WRAPPERS):  # a file may contain itself
        inner = [content[k] for k in WRAPPERS if isinstance(content, dict) and k in content]
        content = next((each for each in inner if isinstance(each, dict)), content)
    if not isinstance(content, dict):
        raise WeightsError(f"it holds a {type(content).__name__}, not named tensors")
    tensors = {
        str(name).removeprefix("module."): value
        for name, value in content.items()
        if isinstance(value, Tensor)
    }
    if not content:
        raise WeightsError("it holds no tensors")
    others = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise WeightsError(
            f"it holds more than named tensors: {', '.join(others[:3])}; give a file of weights "
            "only, such as weights.safetensors in the folder of a run"
        )
    return tensors


def family(config: NetworkConfig) -> str:
    """Return which of the authors' three networks it is."""
    if config.aggregates:
        return "gma"
    return "raft-small" if config.small else "raft"


def is_optional(their_name: str) -> bool:
    """Return whether a tensor is a counter or an index table, which a file may lack."""
    return their_name.endswith(("num_batches_tracked", "rel_ind"))


def published_name(name: str) -> str:
    """Return the authors' name of a tensor (outside of the recurrent unit)."""
    for pattern, theirs in RENAMES:
        name, changed = re.subn(rf"^{pattern}", theirs, name)
        if changed:
            break
    if name.startswith(("fnet.", "cnet.")):
        for pattern, theirs in ENCODER_RENAMES:
            name = re.sub(rf"\.{pattern}", f".{theirs}", name)
    return name


def pass_suffixes(config: NetworkConfig) -> tuple[str, ...]:
    """Return the authors' suffix for the convolutions of each recurrent pass."""
    return ("",) if config.small else ("1", "2")


def join_pass(
    theirs: StateDict, config: NetworkConfig, *, number: int, suffix: str
) -> dict[str, Tensor]:
    """Convert the authors' three convolutions into one recurrent pass."""
    hidden, context = config.hidden_channels, config.context_channels
    recurrent, context_weight, bias = {}, {}, {}
    for gate in "zrq":
        weight = theirs[f"update_block.gru.conv{gate}{suffix}.weight"]
        # Their input channels are (state, context, motion).
        state, context_weight[gate], motion = weight.split(
            [hidden, context, weight.shape[1] - hidden - context], dim=1
        )
        recurrent[gate] = torch.cat([state, motion], dim=1)
        bias[gate] = theirs[f"update_block.gru.conv{gate}{suffix}.bias"]
    return {
        f"{RECURRENT}{number}.gates.weight": torch.cat([recurrent["z"], recurrent["r"]]),
        f"{RECURRENT}{number}.candidate.weight": recurrent["q"],
        f"{RECURRENT}{number}.context.weight": torch.cat([context_weight[gate] for gate in "zrq"]),
        f"{RECURRENT}{number}.context.bias": torch.cat([bias[gate] for gate in "zrq"]),
    }


def split_pass(
    ours: StateDict, config: NetworkConfig, *, number: int, suffix: str
) -> dict[str, Tensor]:
    """Undo `join_pass`."""
    hidden = config.hidden_channels
    theirs = {}
    gates = ours[f"{RECURRENT}{number}.gates.weight"].chunk(2)
    recurrent = (*gates, ours[f"{RECURRENT}{number}.candidate.weight"])
    context_weight = ours[f"{RECURRENT}{number}.context.weight"].chunk(3)
    bias = ours[f"{RECURRENT}{number}.context.bias"].chunk(3)
    for index, gate in enumerate("zrq"):
        state, motion = recurrent[index][:, :hidden], recurrent[index][:, hidden:]
        weight = torch.cat([state, context_weight[index], motion], dim=1)
        theirs[f"update_block.gru.conv{gate}{suffix}.weight"] = weight
        theirs[f"update_block.gru.conv{gate}{suffix}.bias"] = bias[index]
    return theirs

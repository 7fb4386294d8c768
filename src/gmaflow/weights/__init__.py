"""Weights on disk, and the networks they make."""

from gmaflow.weights.checkpoint import (
    Checkpoint,
    ModelCard,
    describe,
    fingerprint,
    load_checkpoint,
    save_checkpoint,
)
from gmaflow.weights.shipped import DEFAULT_MODEL, find_checkpoint, find_config, shipped_weights

__all__ = [
    "DEFAULT_MODEL",
    "Checkpoint",
    "ModelCard",
    "describe",
    "find_checkpoint",
    "find_config",
    "fingerprint",
    "load_checkpoint",
    "save_checkpoint",
    "shipped_weights",
]

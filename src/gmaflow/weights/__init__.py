"""Weights on disk, and the networks they belong to.

- `checkpoint`: reading and writing checkpoints, and the weights that ship with the package.
- `published`: the authors' format.
- `hub`: folders and repositories in the layout of the Hugging Face Hub.
"""

from gmaflow.weights.checkpoint import (
    DEFAULT_MODEL,
    Checkpoint,
    ModelCard,
    average,
    describe,
    find_checkpoint,
    find_config,
    fingerprint,
    load_checkpoint,
    name_weights,
    save_checkpoint,
    shipped_weights,
)

__all__ = [
    "DEFAULT_MODEL",
    "Checkpoint",
    "ModelCard",
    "average",
    "describe",
    "find_checkpoint",
    "find_config",
    "fingerprint",
    "load_checkpoint",
    "name_weights",
    "save_checkpoint",
    "shipped_weights",
]

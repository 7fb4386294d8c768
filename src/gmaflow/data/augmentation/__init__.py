"""Augmentation of pairs together with their truth."""

from gmaflow.data.augmentation.color import ColorJitter
from gmaflow.data.augmentation.pipeline import (
    Augmentation,
    AugmentedSample,
    augment,
    dense_augmentation,
    sparse_augmentation,
)

__all__ = [
    "Augmentation",
    "AugmentedSample",
    "ColorJitter",
    "augment",
    "dense_augmentation",
    "sparse_augmentation",
]

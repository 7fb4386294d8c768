"""Augmentation of pairs together with their truth."""

from gmaflow.data.augment.augmentation import (
    Augmentation,
    AugmentedSample,
    augment,
    dense_augmentation,
    sparse_augmentation,
)
from gmaflow.data.augment.color import ColorJitter

__all__ = [
    "Augmentation",
    "AugmentedSample",
    "ColorJitter",
    "augment",
    "dense_augmentation",
    "sparse_augmentation",
]

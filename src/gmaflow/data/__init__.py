"""Data sets: files on disk to training batches.

`open_dataset` (`dataset`) lists the pairs of a known data set (`catalog`, `layouts`),
`FlowPair.load` (`pairs`) reads one, `AugmentedDataset` turns pairs into random crops in a
reproducible order (`augmentation`, `training_set`), and `MIXTURES` are the paper's training stages.
`check_dataset` finds missing and broken files. `Batch` is what training learns from. `ClipDataset`
and `ShardDataset` read stored flow back.
"""

from gmaflow.data.augmentation import (
    Augmentation,
    ColorJitter,
    augment,
    dense_augmentation,
    sparse_augmentation,
)
from gmaflow.data.catalog import DATASETS, DatasetInfo, Part, dataset_info
from gmaflow.data.checking import CheckReport, PartReport, check_dataset
from gmaflow.data.clip_dataset import ClipDataset, ClipSample, ShardDataset
from gmaflow.data.dataset import (
    FlowDataset,
    find_root,
    look_up_root,
    open_dataset,
    root_variable,
)
from gmaflow.data.mixtures import MIXTURES, Ingredient, Mixture, open_mixture
from gmaflow.data.pairs import Batch, FlowPair, FlowSample
from gmaflow.data.training_set import AugmentedDataset, SampleKey, ShuffledEpochs

__all__ = [
    "DATASETS",
    "MIXTURES",
    "Augmentation",
    "AugmentedDataset",
    "Batch",
    "CheckReport",
    "ClipDataset",
    "ClipSample",
    "ColorJitter",
    "DatasetInfo",
    "FlowDataset",
    "FlowPair",
    "FlowSample",
    "Ingredient",
    "Mixture",
    "Part",
    "PartReport",
    "SampleKey",
    "ShardDataset",
    "ShuffledEpochs",
    "augment",
    "check_dataset",
    "dataset_info",
    "dense_augmentation",
    "find_root",
    "look_up_root",
    "open_dataset",
    "open_mixture",
    "root_variable",
    "sparse_augmentation",
]

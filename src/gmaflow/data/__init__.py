"""Files to samples: the published data sets, augmentation, and the stages' mixtures."""

from gmaflow.data.augmentation import (
    Augmentation,
    AugmentedSample,
    ColorJitter,
    augment,
    dense_augmentation,
    sparse_augmentation,
)
from gmaflow.data.catalog import DATASETS, DatasetInfo, Part, dataset_info
from gmaflow.data.checking import CheckReport, PartReport, check_dataset
from gmaflow.data.dataset import FlowDataset
from gmaflow.data.mixtures import MIXTURES, Ingredient, Mixture, open_mixture
from gmaflow.data.opening import open_dataset
from gmaflow.data.ordering import SampleKey, ShuffledEpochs
from gmaflow.data.pairs import FlowPair, FlowSample
from gmaflow.data.roots import find_root, look_up_root, root_variable
from gmaflow.data.training_set import AugmentedDataset, TrainingSample

__all__ = [
    "DATASETS",
    "MIXTURES",
    "Augmentation",
    "AugmentedDataset",
    "AugmentedSample",
    "CheckReport",
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
    "ShuffledEpochs",
    "TrainingSample",
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

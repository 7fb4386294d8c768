"""Files to samples: the published data sets, augmentation, and the stages' mixtures."""

from gmaflow.data.catalog import DATASETS, DatasetInfo, Part, dataset_info
from gmaflow.data.checking import CheckReport, PartReport, check_dataset
from gmaflow.data.dataset import FlowDataset
from gmaflow.data.occlusion import leaves_frame
from gmaflow.data.opening import open_dataset
from gmaflow.data.pairs import FlowPair, FlowSample
from gmaflow.data.roots import find_root, look_up_root, root_variable

__all__ = [
    "DATASETS",
    "CheckReport",
    "DatasetInfo",
    "FlowDataset",
    "FlowPair",
    "FlowSample",
    "Part",
    "PartReport",
    "check_dataset",
    "dataset_info",
    "find_root",
    "leaves_frame",
    "look_up_root",
    "open_dataset",
    "root_variable",
]

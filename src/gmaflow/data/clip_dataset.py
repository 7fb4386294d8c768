"""Stored flow for training other networks: by clip and frame, or shard by shard.

ClipDataset("flow/")[0]["flow"]              # [2, h, w]
ClipDataset("flow/").sample("bear", 12)
for sample in ShardDataset("shards/"): ...   # as WebDataset iterates
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Bool, Float32
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from gmaflow.errors import DatasetError, FlowFileError, suggest
from gmaflow.io import FlowArrays, is_clip, list_flows, open_clip
from gmaflow.io.clips import read_xy_members
from gmaflow.io.flow_files import known_part
from gmaflow.io.paths import PARTIAL, PathLike
from gmaflow.io.tar_shard import ShardSample, list_samples, read_member


class ClipSample(TypedDict):
    """One flow of a clip; samples of clips of one size can be collated."""

    flow: Float32[Tensor, "2 h w"]
    valid: Bool[Tensor, "h w"]
    clip: str
    frame: int


class ClipDataset(Dataset[ClipSample]):
    """The flows of many clips, clip after clip.

    Clips are .h5 and .tar files and folders of flow files; see `gmaflow.io.clips`. Their indices
    are read at once, their flow on access. It can be used by the workers of a
    `DataLoader`, by fork or spawn.

    Args:
        clips: A folder, searched for clips at any depth, or the clips. A clip is named by its path
            without suffix, relative to the folder if one is given.

    Attributes:
        clips: Readers of the clips by name, in order.

    Raises:
        DatasetError: There are no clips, or two have the same name.
        FlowFileError: A clip is damaged.
    """

    def __init__(self, clips: PathLike | Iterable[PathLike]) -> None:
        if isinstance(clips, str | os.PathLike):
            root = Path(clips)
            paths_by_name = {_name_below(path, root): path for path in find_clips(root)}
        else:
            paths = [Path(path) for path in clips]
            paths_by_name = {str(_without_suffix(path)): path for path in paths}
            if len(paths_by_name) < len(paths):
                raise DatasetError("two clips have one name; give each clip once, in one format")
        if not paths_by_name:
            raise DatasetError(f"{clips} holds no clips; they are .h5, .tar or folders of flow")
        self.clips = {name: open_clip(path) for name, path in paths_by_name.items()}
        self._names = list(self.clips)
        self._ends = list(accumulate(len(clip) for clip in self.clips.values()))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> ClipSample:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} flows, not one of index {index}")
        number = bisect_right(self._ends, place)
        name = self._names[number]
        clip = self.clips[name]
        offset = place - (self._ends[number] - len(clip))
        return _sample(clip[offset], name, clip.frames[offset])

    def sample(self, clip: str, frame: int) -> ClipSample:
        """Return the flow of a clip that begins at a frame.

        Raises:
            DatasetError: There is no clip of this name.
            FlowFileError: It has no flow of this frame.
        """
        if clip not in self.clips:
            raise DatasetError(f"there is no clip {clip!r}; {suggest(clip, self._names[:100])}")
        return _sample(self.clips[clip].at_frame(frame), clip, frame)


class ShardDataset(IterableDataset[dict[str, Any]]):
    """The samples of .tar files, one after another, as WebDataset has them.

    A sample is a dict with its `__key__`, the other files of the sample as bytes by their suffix
    (`cls`, `json`), and, if it holds flow_x.jpg and flow_y.jpg, `flow` [2, h, w] instead of them.
    Shards are divided among the workers of a `DataLoader` and the processes of `torch.distributed`;
    have at least as many shards as workers in all.

    Args:
        shards: The .tar files, or a folder, searched for .tar files at any depth.
        seed: Shuffle the shards and the samples of each shard, in another order each epoch; None
            keeps their order.

    Raises:
        DatasetError: There are no shards.
    """

    def __init__(self, shards: PathLike | Sequence[PathLike], *, seed: int | None = None) -> None:
        if isinstance(shards, str | os.PathLike):
            root = Path(shards)
            tar_files = (
                path
                for path in sorted(root.rglob("*.tar"))
                if PARTIAL not in path.relative_to(root).parts
            )
            paths = [root] if root.is_file() else list(tar_files)
        else:
            paths = [Path(path) for path in shards]
        if not paths:
            raise DatasetError(f"{shards} holds no .tar files; give a folder of shards")
        self.shards = paths
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; without it, all epochs have one order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        shards: Sequence[Path] = self.shards
        order = None if self.seed is None else np.random.default_rng([self.seed, self.epoch])
        if order is not None:
            shards = [shards[number] for number in order.permutation(len(shards))]
        part, parts = _part_of_this_worker()
        for path in shards[part::parts]:
            samples = list_samples(path)
            if order is not None:
                samples = [samples[number] for number in order.permutation(len(samples))]
            for sample in samples:
                yield _decode(path, sample)


def find_clips(root: Path) -> list[Path]:
    """Find the clips below a folder, in order.

    Hidden files, and what a batch job has not finished, are left out. A folder next to a clip of
    the same name holds its pictures.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder; give a folder of clips")
    paths: list[Path] = []
    names: set[Path] = set()
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name for name in subfolders if name != PARTIAL and not name.startswith(".")
        )
        clips = [Path(folder, name) for name in sorted(files) if is_clip(name)]
        paths += [path for path in clips if not path.name.startswith(".")]
        names.update(_without_suffix(path) for path in clips)
        if not clips and files and Path(folder) not in names and _holds_flow(Path(folder)):
            paths.append(Path(folder))
    return paths


def _holds_flow(folder: Path) -> bool:
    try:
        return bool(list_flows(folder))
    except FlowFileError:
        return False


def _without_suffix(path: Path) -> Path:
    return path.with_suffix("") if is_clip(path) else path


def _name_below(path: Path, root: Path) -> str:
    return root.name if path == root else _without_suffix(path).relative_to(root).as_posix()


def _sample(flow: FlowArrays, clip: str, frame: int) -> ClipSample:
    array = torch.from_numpy(flow.array).permute(2, 0, 1).contiguous()
    return ClipSample(flow=array, valid=torch.from_numpy(flow.valid), clip=clip, frame=frame)


def _decode(path: Path, sample: ShardSample) -> dict[str, Any]:
    files = dict(sample.files)
    decoded: dict[str, Any] = {"__key__": sample.key}
    if "flow_x.jpg" in files and "flow_y.jpg" in files:
        flow = read_xy_members(path, files.pop("flow_x.jpg"), files.pop("flow_y.jpg"))
        decoded["flow"] = torch.from_numpy(known_part(flow).array).permute(2, 0, 1).contiguous()
    return decoded | {suffix: read_member(path, member) for suffix, member in files.items()}


def _part_of_this_worker() -> tuple[int, int]:
    """Return the number of this worker among those of all processes, and how many there are."""
    worker = get_worker_info()
    number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() * workers + number, dist.get_world_size() * workers
    return number, workers

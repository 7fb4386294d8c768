"""The options of a batch job."""

import re
from dataclasses import dataclass, fields

from gmaflow.batch.manifest import Columns
from gmaflow.errors import FlowError, check_known
from gmaflow.io import USUAL_BOUND, check_bound
from gmaflow.io.images import check_positive
from gmaflow.runtime.device_options import DeviceOptions

ENGINES = ("local", "ray")
TABLES = ("csv", "parquet")
NETWORK = {"weights", "model", "iters"}
"""Options that `gmaflow.batch.job` records as what they select."""
CHANGEABLE = {"table", "engine", "address", "device", "workers", "num_gpus", "shard"}
CHANGEABLE |= {"retry_failed", "path_column", "second_column", "id_column"}
# A worker plans with less by itself if memory runs out.
CHANGEABLE |= {"max_memory"}
"""What another run over the same destination may change: where and how the work is done."""


@dataclass(frozen=True, kw_only=True)
class BatchConfig(DeviceOptions):
    """What is estimated and written for every clip, and where the work is done."""

    write: str = "flow"
    """What to write for each clip, with commas between: flow, pictures, occlusion (and confidence),
    statistics, score."""
    format: str = "flo"
    """The format of the flow: h5 or tar for one file a clip, otherwise flo, npz, npz16, xy, kitti,
    pfm, npy, flo5 or exr for a file for each pair."""
    bound: float = USUAL_BOUND
    """8-bit flow (tar, xy): the longest motion in x and in y; longer ones are clipped."""
    table: str = "csv"
    """The format of the table with a row for each clip: csv or parquet."""
    max_length: float | None = None
    """The length in pixels at full colour in pictures; by default the longest of each pair."""

    weights: str | None = None
    """A .safetensors file, a published .pth file, the folder of a training run, or the name of
    shipped weights."""
    model: str | None = None
    """gma, gma-affine, gma-p, gma-p-only, raft or raft-small; by default that of the weights."""
    iters: int | None = None
    """Refinement steps; by default what suits the weights, 12 for the shipped ones."""

    every: int = 1
    """1 for every frame, 2 for every other one."""
    scale: float = 1.0
    """Factor by which frames are resized first; below 1 makes them smaller."""
    side: int | None = None
    """Shrink frames first so that their shorter side has this many pixels; smaller frames stay as
    they are."""
    warm_start: bool = False
    """Start each pair from the flow of the previous pair."""
    no_cuts: bool = False
    """Also estimate flow across cuts."""

    engine: str = "local"
    """local (all GPUs or CPU cores of this machine) or ray (a Ray cluster)."""
    address: str | None = None
    """Address of the Ray cluster, or auto; by default one that runs here, or a new one."""
    workers: int | None = None
    """How many workers, each within --max-memory; by default two for each GPU (one for each small
    GPU), or one for each CPU core. --device auto uses all GPUs, or else all CPU cores."""
    num_gpus: float = 1.0
    """GPUs for each Ray worker; 0.5 puts two on each GPU."""
    shard: str | None = None
    """Do only part I of N, written I/N: the same command runs N times with I from 1 to N."""
    retry_failed: bool = False
    """Try clips again that failed before."""

    path_column: str = "path"
    """The manifest's column of videos, folders, or first images."""
    second_column: str = "second"
    """The manifest's column of second images, for pairs."""
    id_column: str = "id"
    """The manifest's column of identifiers, which name the results."""

    def __post_init__(self) -> None:
        self._check_estimator()
        self._check_outputs()
        check_known("engine", self.engine, ENGINES)
        if self.workers is not None and self.workers < 1:
            raise FlowError(f"workers is {self.workers}; give at least 1")
        if self.every < 1:
            raise FlowError(f"every is {self.every}; give at least 1")
        if not 0 < self.scale <= 8:
            raise FlowError(f"a scale of {self.scale:g} is out of range; give 0.5 for half size")
        if self.side is not None and not 16 <= self.side <= 8192:
            raise FlowError(f"a side of {self.side} is out of range; give 16 to 8192")
        if self.side is not None and self.scale != 1:
            raise FlowError("give a scale or a side, not both")
        if not 0 < self.num_gpus <= 64:
            raise FlowError(f"{self.num_gpus:g} GPUs for a worker are out of range; give 1 or 0.5")
        if self.engine == "ray" and self.num_gpus > 1 and self.num_gpus % 1:
            raise FlowError(f"Ray cannot give a worker {self.num_gpus:g} GPUs; give a whole number")
        self.shard_numbers  # noqa: B018  (raises for an invalid shard)

    def _check_estimator(self) -> None:
        """Refuse what workers would refuse, before it is recorded as a new job's settings."""
        from gmaflow.inference import device_arguments
        from gmaflow.inference.engine import check_iters

        device_arguments(self)
        if self.iters is not None:
            check_iters(self.iters)

    def _check_outputs(self) -> None:
        from gmaflow.batch.clip_outputs import FLOW_FORMATS, KINDS, ROWS

        for kind in sorted(self.kinds):
            check_known("output", kind, KINDS)
        check_known("flow format", self.format, FLOW_FORMATS)
        check_known("table format", self.table, TABLES)
        if self.table != TABLES[0] and not self.kinds & ROWS.keys():
            raise FlowError(
                f"there is no {self.table} table without statistics or score; add one, such as "
                "--write flow,statistics"
            )
        check_positive("max_length", self.max_length)
        check_bound(self.bound)

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """The part to do and the number of parts, from 1; 1, 1 for everything."""
        if self.shard is None:
            return 1, 1
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", self.shard)
        part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= part <= parts:
            raise FlowError(
                f"{self.shard!r} is not a shard; give I/N with I from 1 to N, such as 1/8 to 8/8"
            )
        return part, parts

    @property
    def columns(self) -> Columns:
        return Columns(self.path_column, self.second_column, self.id_column)

    @property
    def kinds(self) -> set[str]:
        """What is written for each clip."""
        return {kind.strip() for kind in self.write.split(",")}

    @property
    def both_ways(self) -> bool:
        """Whether flow is needed in both directions."""
        return "occlusion" in self.kinds

    def settings(self) -> dict[str, object]:
        """Return the options that results depend on, by name, except those of the network."""
        names = (field.name for field in fields(self) if field.name not in CHANGEABLE | NETWORK)
        return {name: getattr(self, name) for name in names} | {"write": sorted(self.kinds)}

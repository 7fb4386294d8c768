"""Where batches come from: scenes rendered on the spot, or files.

Batch number k is the same whenever and wherever it is asked for, so that the position in the data
is the number of the step and nothing else.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from gmaflow.errors import DatasetError, FlowError
from gmaflow.scenes import SceneBatch, SceneRenderer, TextureBank
from gmaflow.training.batch import Batch
from gmaflow.training.both_ways import both_ways
from gmaflow.training.child import usable_cores
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import ALONE, World
from gmaflow.training.places import Place
from gmaflow.training.side_stream import SideStream
from gmaflow.training.textures_apart import load_apart

if TYPE_CHECKING:
    from gmaflow.data import Augmentation, AugmentedDataset, FlowDataset

SCALES = (-0.2, 0.6)
"""Powers of two by which pairs of a data set or folder of its own are resized, as for Sintel."""


@runtime_checkable
class Source(Protocol):
    """Batches by number."""

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield this process's share of the batches of the steps from `start` on."""
        ...

    def make_ready(self) -> None:
        """Do ahead what only the first batch takes."""
        ...


def open_source(
    config: TrainConfig, device: torch.device, world: World = ALONE, *, compiled: bool = False
) -> Source:
    """Open what a config names; `compiled` scenes are rendered faster on a GPU.

    Raises:
        FlowError: A data set, a folder or textures are not there.
    """
    place = Place.parse(config.data)
    if place.kind != "scenes":
        return FileSource(config, open_files(config, place), device, world)
    renderer = open_renderer(place, config, device, seed=config.seed, compiled=compiled)
    return SceneSource(config, renderer, world)


def open_renderer(
    place: Place,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    compiled: bool = False,
) -> SceneRenderer:
    """Set up the rendering of scenes."""
    textures = load_textures(config.textures, device) if config.textures else None
    return SceneRenderer(place.name, config.crop, seed, textures, device, compiled)


@lru_cache(maxsize=1)
def load_textures(folder: str, device: torch.device) -> TextureBank:
    """Read a folder of textures once for training and validation; photos take gigabytes."""
    if device.type == "cuda":  # where steps are compiled meanwhile
        return load_apart(folder, device)
    return TextureBank.load(folder).to(device)


class SceneSource:
    """Scenes, rendered as they are needed; batch k is the pairs from k times its size on.

    Both ways, it is half as many pairs, and the same backward.
    """

    def __init__(self, config: TrainConfig, renderer: SceneRenderer, world: World = ALONE) -> None:
        self.renderer = renderer
        self.config = config
        share = world.share(config.batch, parts=config.accumulate * config.ways) // config.ways
        self.own = world.rank * share + np.arange(share)
        self.beside = SideStream(renderer.device)

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield this process's share of the batches of the steps from `start` on."""
        for step in count(start):
            yield self.beside.make(partial(self.make, step))

    def make_ready(self) -> None:
        """Render a batch, which on a GPU compiles and records how."""
        self.beside.make(partial(self.make, 0))

    def make(self, step: int) -> Batch:
        """Return this process's share of a step's batch."""
        config = self.config
        numbers = step * (config.batch // config.ways) + self.own
        scenes = self.renderer.render_pairs(numbers % config.pairs if config.pairs else numbers)
        batch = from_scenes(scenes)
        if not config.both_ways:
            return batch
        return both_ways(batch, from_scenes(scenes.reversed()), config.accumulate)


def from_scenes(scenes: SceneBatch) -> Batch:
    """Return rendered scenes as a batch."""
    return Batch(scenes.final1, scenes.final2, scenes.flow, scenes.valid, scenes.occluded)


class FileSource:
    """Augmented pairs from files, shuffled anew in each epoch and read ahead by workers."""

    def __init__(
        self,
        config: TrainConfig,
        dataset: "AugmentedDataset",
        device: torch.device,
        world: World = ALONE,
    ) -> None:
        self.config, self.dataset, self.device, self.world = config, dataset, device, world
        self.share = world.share(config.batch, parts=config.accumulate)

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield this process's share of the batches of the steps from `start` on."""
        from torch.utils.data import DataLoader

        from gmaflow.data import ShuffledEpochs

        order = ShuffledEpochs(
            len(self.dataset),
            seed=self.config.seed,
            start=start * self.config.batch,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        loader = DataLoader(
            self.dataset,
            batch_size=self.share,
            sampler=order,
            num_workers=min(self.config.workers, usable_cores()),
            pin_memory=self.device.type == "cuda",
        )
        try:
            for sample in loader:
                yield Batch(*sample).to(self.device)
        except FlowError as err:
            raise without_traceback(err) from None

    def make_ready(self) -> None:
        """Do nothing: workers begin to read when the first batch is asked for."""


def without_traceback(error: FlowError) -> FlowError:
    """Return what a worker refused in its own words; torch puts its traceback before them."""
    last = str(error).strip().splitlines()[-1]
    return type(error)(last.partition(f"{type(error).__name__}: ")[2] or last)


def open_files(config: TrainConfig, place: Place) -> "AugmentedDataset":
    """Open a stage's mixture, a data set or a folder, with augmentation.

    Raises:
        DatasetError: It is not there, or has no truth.
    """
    from gmaflow.data import MIXTURES, AugmentedDataset, open_mixture

    if place.kind == "stage":
        mixture = MIXTURES[place.name].with_crop(config.crop)
        names = [part.dataset for part in mixture.ingredients]
        roots = {name: root for name in names if (root := find_below(config.root, name))}
        parts = open_mixture(mixture, roots)
    else:
        pairs = open_pairs(config, place)
        if not len(pairs):
            raise DatasetError(
                f"{place.name} has frames, but no flow of them to learn from; put a flow file of "
                "the same stem (.flo, .pfm, .npy ...) beside each frame, or into a folder flow"
            )
        parts = with_augmentation(pairs, config.crop)
    return AugmentedDataset(parts, seed=config.seed)


def open_pairs(config: TrainConfig, place: Place) -> "FlowDataset":
    """List the pairs of a data set or a folder."""
    from gmaflow.data import open_dataset

    if place.kind == "folder":
        pairs = open_dataset("folder", Path(place.name).expanduser())
        return pairs.where(lambda pair: pair.flow is not None)
    root = find_below(config.root, place.name)
    return open_dataset(place.name, root, passes=place.variant or None)


def find_below(root: str, dataset: str) -> Path | None:
    """Return a data set's folder: the one in `root` that bears its name, or `root` itself."""
    from gmaflow.data import dataset_info
    from gmaflow.data.roots import find_inside

    if not root:
        return None
    parent = Path(root).expanduser()
    return find_inside(parent, dataset_info(dataset)) or parent


def with_augmentation(
    dataset: "FlowDataset", crop: tuple[int, int]
) -> tuple[tuple["FlowDataset", "Augmentation"], ...]:
    """Pair dense and sparse truth each with the augmentation that suits it."""
    from gmaflow.data import dense_augmentation, sparse_augmentation

    dense = dataset.where(lambda pair: not pair.sparse)
    sparse = dataset.where(lambda pair: pair.sparse)
    parts = ((dense, dense_augmentation(crop, SCALES)), (sparse, sparse_augmentation(crop, SCALES)))
    return tuple(part for part in parts if len(part[0]))

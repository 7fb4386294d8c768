"""Batches from rendered scenes or from files.

Batch k is always the same, so the position in the data is just the number of the step.
"""

import logging
import signal
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from gmaflow.data import (
    MIXTURES,
    Augmentation,
    AugmentedDataset,
    Batch,
    FlowDataset,
    ShuffledEpochs,
    dataset_info,
    dense_augmentation,
    open_dataset,
    open_mixture,
    sparse_augmentation,
)
from gmaflow.data.dataset import find_subfolder
from gmaflow.data.layouts import no_flow_files
from gmaflow.errors import FlowError
from gmaflow.io.paths import expand_home
from gmaflow.runtime.device import usable_cores
from gmaflow.scenes import SceneBatch, SceneRenderer, TextureBank
from gmaflow.scenes.render_steps import quantise
from gmaflow.scenes.renderer import rendering_device
from gmaflow.scenes.stateless_random import Array, StatelessRandom
from gmaflow.scenes.texture_bank import TexturesSplit, list_pictures
from gmaflow.training.config import DataSource, TrainConfig
from gmaflow.training.distributed import ALONE, World

log = logging.getLogger(__name__)

SCALES = (-0.2, 0.6)
"""Range of scales, as powers of two, for a single data set or your own folder; as for Sintel."""
OTHER_SPLIT: dict[TexturesSplit, TexturesSplit] = {"held-out": "train", "train": "all"}
"""The textures to use when a split is empty."""

GAMMAS = (0.4, 2.5)
"""The range of `exposure`; films have darker shots than rendered scenes."""
EXPOSURE_BRANCH = 2
"""Its random numbers, apart from those of the scenes."""

AHEAD = 2
"""How many batches the CPU may be ahead of the GPU: enough that the GPU never waits."""


class SceneSource:
    """Scenes rendered on demand; batch k has the pairs from k times the batch size on.

    With `both_ways` it has half as many pairs, forward and backward.
    """

    def __init__(
        self,
        config: TrainConfig,
        renderer: SceneRenderer,
        device: torch.device,
        world: World = ALONE,
    ) -> None:
        self.config, self.renderer, self.device = config, renderer, device
        share = world.share(config.batch, parts=config.parts * config.ways) // config.ways
        self.own = world.rank * share + np.arange(share)
        self.stream = SideStream(renderer.device)

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield this process's share of the batches, beginning with step `start`."""
        for step in count(start):
            yield self.stream.make(partial(self.make, step)).to(self.device)

    def make(self, step: int) -> Batch:
        """Render this process's share of a batch."""
        config = self.config
        numbers = step * (config.batch // config.ways) + self.own
        numbers = numbers % config.pairs if config.pairs else numbers
        scenes = self.renderer.render_pairs(numbers)
        if config.exposure:
            scenes = change_exposure(scenes, draw_gammas(config, numbers))
        batch = from_scenes(scenes)
        if not config.both_ways:
            return batch
        return join_directions(batch, from_scenes(scenes.reversed()), config.parts)


class SideStream:
    """A second CUDA stream, which renders the next batch while the last step still computes.

    On other devices the batch is made synchronously.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._handed_over: deque[torch.cuda.Event] = deque()
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def make(self, batch: Callable[[], Batch]) -> Batch:
        """Return a new batch; only the caller's stream waits for it."""
        if self._stream is None:
            return batch()
        while len(self._handed_over) >= AHEAD:
            self._handed_over.popleft().synchronize()
        with torch.cuda.stream(self._stream):
            result = batch()
        steps = torch.cuda.current_stream(self._stream.device)
        steps.wait_stream(self._stream)
        for tensor in result:
            # The side stream owns the memory and must not reuse it before the step has read it.
            tensor.record_stream(steps)
        self._handed_over.append(steps.record_event())
        return result


class FileSource:
    """Augmented pairs from files, shuffled in each epoch and read ahead by workers."""

    def __init__(
        self,
        config: TrainConfig,
        dataset: AugmentedDataset,
        device: torch.device,
        world: World = ALONE,
    ) -> None:
        self.config, self.dataset, self.device, self.world = config, dataset, device, world
        self.share = world.share(config.batch, parts=config.parts)

    def batches(self, start: int) -> Iterator[Batch]:
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
            worker_init_fn=ignore_interrupts,
        )
        try:
            for batch in loader:
                yield batch.to(self.device)
        except FlowError as err:
            error = without_traceback(err)
            err.__traceback__ = None  # it would keep the loader and its workers alive
        raise error


Source = SceneSource | FileSource


def open_source(
    config: TrainConfig, device: torch.device, world: World = ALONE, *, compiled: bool = False
) -> Source:
    """Open the training data; a compiled renderer is faster on a GPU."""
    source = DataSource.parse(config.data)
    if source.kind != "scenes":
        return FileSource(config, open_files(config, source), device, world)
    renderer = open_renderer(source, config, device, seed=config.seed, compiled=compiled)
    return SceneSource(config, renderer, device, world)


def open_renderer(
    source: DataSource,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    split: TexturesSplit = "train",
    compiled: bool = False,
) -> SceneRenderer:
    """Create a renderer of scenes with a split of the textures."""
    textures, device = None, rendering_device(device)
    if config.textures:
        split = split if config.textures_split == "train" else "all"
        textures = load_textures(config.textures, split, device)
    return SceneRenderer(source.name, config.crop, seed, textures, device, compiled)


@cache
def load_textures(folder: str, split: TexturesSplit, device: torch.device) -> TextureBank:
    """Read textures once for training and validation; they can take gigabytes.

    In a small folder, one of the splits may be empty.
    """
    other = OTHER_SPLIT.get(split)
    if other and not list_pictures(Path(folder), split):
        log.warning("%s: the split %s has no textures; using %s instead", folder, split, other)
        return load_textures(folder, other, device)
    return TextureBank.load(folder, split=split).to(device)


def from_scenes(scenes: SceneBatch) -> Batch:
    return Batch(scenes.final1, scenes.final2, scenes.flow, scenes.valid, scenes.occluded)


def draw_gammas(config: TrainConfig, numbers: Array) -> Array:
    """Draw the gamma of each pair, 1 for most; the same for a pair's number in every run."""
    rng = StatelessRandom(config.seed, numbers).branch(EXPOSURE_BRANCH)
    return np.where(rng.chance(config.exposure), rng.log_between(*GAMMAS), 1.0)


def change_exposure(scenes: SceneBatch, gammas: Array) -> SceneBatch:
    """Make both frames of each pair darker or brighter, as a camera with 8 bits would."""
    powers = torch.from_numpy(gammas).float().to(scenes.flow.device)[:, None, None, None]
    first, second = (quantise(image**powers) for image in (scenes.final1, scenes.final2))
    return scenes._replace(final1=first, final2=second)


def join_directions(forward: Batch, backward: Batch, parts: int) -> Batch:
    """Join pairs and their reverse, so that each part contains both directions of its pairs."""
    pairs = zip(forward.split(parts), backward.split(parts), strict=True)
    return Batch.join([batch for pair in pairs for batch in pair])


def ignore_interrupts(_worker: int) -> None:
    """Leave Ctrl-C to the main process, whose handlers a forked worker inherits."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def without_traceback(error: FlowError) -> FlowError:
    """Return a worker's error without the traceback that torch adds to its message."""
    last = str(error).strip().splitlines()[-1]
    return type(error)(last.partition(f"{type(error).__name__}: ")[2] or last)


def open_files(config: TrainConfig, source: DataSource) -> AugmentedDataset:
    """Open a stage's mixture, a data set or a folder, with augmentation."""
    if source.kind == "stage":
        mixture = MIXTURES[source.name].without(*config.without).with_crop(config.crop)
        names = [part.dataset for part in mixture.ingredients]
        roots = {name: root for name in names if (root := find_below(config.root, name))}
        parts = open_mixture(mixture, roots)
    else:
        pairs = open_pairs(config, source)
        if not len(pairs):
            raise no_flow_files(source.name)
        parts = with_augmentation(pairs, config.crop)
    return AugmentedDataset(parts, seed=config.seed)


def open_pairs(config: TrainConfig, source: DataSource, *, held_out: bool = False) -> FlowDataset:
    """List the pairs of a data set or a folder; with `held_out` its validation split, if any."""
    if source.kind == "folder":
        pairs = open_dataset("folder", expand_home(source.name))
        return pairs.where(lambda pair: pair.flow is not None)
    root = find_below(config.root, source.name)
    has_validation = "validation" in dataset_info(source.name).splits
    split = "validation" if held_out and has_validation else None
    return open_dataset(source.name, root, split=split, passes=source.variant or None)


def find_below(root: str, dataset: str) -> Path | None:
    """Return a data set's folder: the subfolder of `root` with its name, or `root` itself."""
    if not root:
        return None
    parent = expand_home(root)
    return find_subfolder(parent, dataset_info(dataset)) or parent


def with_augmentation(
    dataset: FlowDataset, crop: tuple[int, int]
) -> tuple[tuple[FlowDataset, Augmentation], ...]:
    """Split a data set into dense and sparse ground truth, with the augmentation of each."""
    dense = dataset.where(lambda pair: not pair.sparse)
    sparse = dataset.where(lambda pair: pair.sparse)
    parts = ((dense, dense_augmentation(crop, SCALES)), (sparse, sparse_augmentation(crop, SCALES)))
    return tuple(part for part in parts if len(part[0]))

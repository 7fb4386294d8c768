"""What is evaluated: pairs with truth, from files or rendered, each with an identity."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from gmaflow.data import FlowPair, FlowSample, dataset_info, open_dataset
from gmaflow.errors import DatasetError, counted
from gmaflow.inference import PaddingKind
from gmaflow.io.paths import PathLike
from gmaflow.scenes import SceneRenderer
from gmaflow.scenes.renderer import pair_arrays
from gmaflow.scenes.scene_presets import check_preset
from gmaflow.version import __version__

SCENES = "scenes"
SCENE_PASSES = ("final", "clean")


@runtime_checkable
class Source(Protocol):
    """Where a pair comes from."""

    def load(self) -> FlowSample:
        """Read or render it."""

    def identity(self) -> str:
        """Return what changes whenever the pair does."""


@dataclass(frozen=True)
class FileSource:
    """A pair on disk; it is the same as long as its files keep path, size and time of change."""

    pair: FlowPair

    def load(self) -> FlowSample:
        """Read the files."""
        return self.pair.load()

    def identity(self) -> str:
        """Name the files, with their sizes and times."""
        return identify_files(self.pair.files)


def identify_files(paths: Iterable[Path]) -> str:
    """Return what changes whenever one of the files is written again."""
    files = []
    for path in paths:
        try:
            about = path.stat()
        except OSError as err:
            raise DatasetError(f"{path} cannot be read: {err.strerror}") from err
        files.append((str(path.absolute()), about.st_size, about.st_mtime_ns))
    return json.dumps(files)


@dataclass(frozen=True)
class SceneSource:
    """A rendered pair; in one version it is the same for one preset, seed, size and number."""

    preset: str
    seed: int
    size: tuple[int, int]
    number: int
    final: bool

    def load(self) -> FlowSample:
        """Render it."""
        batch = _renderer(self.preset, self.seed, self.size).render(start=self.number, count=1)
        (pair,) = pair_arrays(batch)
        return FlowSample(
            image1=pair.final1 if self.final else pair.clean1,
            image2=pair.final2 if self.final else pair.clean2,
            flow=pair.flow,
            valid=pair.valid,
            occluded_in=pair.occluded_in,
            occluded_out=pair.occluded_out,
        )

    def identity(self) -> str:
        """Name what the renderer was told."""
        told = (self.preset, self.seed, self.size, self.number, self.final)
        return json.dumps([SCENES, __version__, *told])


@dataclass(frozen=True, kw_only=True)
class Example:
    """One pair to be judged.

    Attributes:
        group: the pass, which is reported by itself; the data set's name where it has but one.
        scene: the sequence.
        frame: the pair within it.
        source: where it comes from.
        follows: whether its first frame is the second of the example before, for a warm start.
    """

    group: str
    scene: str
    frame: str
    source: Source
    follows: bool = False

    @property
    def title(self) -> str:
        """A name for people."""
        words = (self.group, self.scene, "" if self.frame == self.scene else self.frame)
        return " ".join(word for word in words if word)


@dataclass(frozen=True, kw_only=True)
class ExampleSet:
    """Pairs to be judged, of one data set.

    Attributes:
        name: the data set's name.
        title: what it is, for people.
        examples: the pairs; sequences in their order.
        notes: what a reader of the results should know.
    """

    name: str
    title: str
    examples: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_sequences(self) -> bool:
        """Whether a warm start can change anything."""
        return any(example.follows for example in self.examples)


def published_padding(dataset: str) -> PaddingKind:
    """Return how images of a data set were padded for the published figures."""
    return "kitti" if dataset.startswith("kitti") else "sintel"


def thin(data: ExampleSet, count: int) -> ExampleSet:
    """Take at most so many pairs of each group, spread evenly over it."""
    kept: list[Example] = []
    for _, group in groupby(data.examples, lambda example: example.group):
        some = list(group)
        kept += [replace(some[place], follows=False) for place in spread(len(some), count)]
    if len(kept) == len(data.examples):
        return data
    note = f"{len(kept)} of {counted(len(data.examples), 'pair')}, spread over each pass"
    return replace(data, examples=tuple(kept), notes=(*data.notes, note))


def spread(total: int, count: int) -> list[int]:
    """Return at most so many places of `total`, spread evenly, the first and the last included.

    Raises:
        DatasetError: none is asked for.
    """
    if count < 1:
        raise DatasetError(f"{count} pairs were asked for; give at least 1")
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int)).tolist()


def open_examples(
    name: str,
    root: PathLike | None = None,
    *,
    split: str | None = None,
    passes: Sequence[str] = (),
) -> ExampleSet:
    """List the pairs of a data set that have a truth, each pass as a group.

    Raises:
        DatasetError: there is no such data set, or it has no truth to judge by.
    """
    info = dataset_info(name)
    examples: list[Example] = []
    without = 0
    for variant in passes or info.variants[:1]:
        dataset = open_dataset(name, root, split=split, passes=variant)
        judged = [pair for pair in dataset if pair.flow is not None]
        without += len(dataset) - len(judged)
        examples += as_examples(judged, group=variant or name)
    if not examples:
        raise DatasetError(
            f"{info.title} has no truth in {split or info.splits[0]}, so nothing can be judged by "
            "it; `gmaflow submit` writes what the benchmarks' servers judge, and `gmaflow evaluate "
            "--unsupervised` judges by the frames alone"
        )
    notes = (f"left out for want of a truth: {counted(without, 'pair')}",) if without else ()
    chosen = " ".join([info.title, split or info.splits[0]])
    return ExampleSet(name=name, title=chosen, examples=tuple(examples), notes=notes)


def render_examples(
    preset: str, *, seed: int, count: int, size: tuple[int, int], passes: Sequence[str] = ()
) -> ExampleSet:
    """List rendered pairs; they are rendered when they are loaded.

    Raises:
        FlowError: there is no such preset or pass, or no pair was asked for.
    """
    check_preset(preset)
    if count < 1:
        raise DatasetError(f"{count} scenes were asked for; give at least 1")
    wrong = [name for name in passes if name not in SCENE_PASSES]
    if wrong:
        raise DatasetError(f"scenes have no pass {wrong[0]!r}; there are final and clean")
    examples = tuple(
        Example(
            group=variant,
            scene=preset,
            frame=str(number),
            source=SceneSource(preset, seed, size, number, variant == "final"),
        )
        for variant in passes or SCENE_PASSES[:1]
        for number in range(count)
    )
    title = f"rendered scenes: {preset}, seed {seed}, {size[0]} x {size[1]}"
    return ExampleSet(name=SCENES, title=title, examples=examples)


@lru_cache(maxsize=1)
def _renderer(preset: str, seed: int, size: tuple[int, int]) -> SceneRenderer:
    # Made when the first pair is rendered: its textures take seconds, and a run whose results are
    # all there needs none.
    return SceneRenderer(preset, size=size, seed=seed)


def as_examples(pairs: Sequence[FlowPair], *, group: str) -> list[Example]:
    """Give pairs on disk the names of their pass and sequences."""
    examples = []
    previous: FlowPair | None = None
    several = len({(pair.camera, pair.direction) for pair in pairs}) > 1
    for pair in pairs:
        scene = f"{pair.scene} {pair.camera} {pair.direction}" if several else pair.scene
        examples.append(
            Example(
                group=group,
                scene=scene,
                frame=pair.frame,
                source=FileSource(pair),
                follows=previous is not None and pair.follows(previous),
            )
        )
        previous = pair
    return examples

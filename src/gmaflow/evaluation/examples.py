"""The pairs that are evaluated: files with ground truth, or rendered scenes."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from gmaflow.data import FlowPair, FlowSample, dataset_info, open_dataset
from gmaflow.data.layouts import no_flow_files
from gmaflow.errors import DatasetError, check_known, counted, os_reason
from gmaflow.inference import PaddingKind
from gmaflow.io import MaskReader, list_images
from gmaflow.io.images import check_smallest
from gmaflow.io.paths import PathLike
from gmaflow.runtime.device import pick_device
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.renderer import SMALLEST, PairArrays, pair_arrays, rendering_device
from gmaflow.scenes.scene_presets import check_preset
from gmaflow.scenes.texture_bank import list_pictures
from gmaflow.version import __version__

SCENES = "scenes"
PAPER_SPLITS = {
    "sintel": "training",
    "kitti-2015": "training",
    "chairs": "validation",
    "things": "validation",
}
"""The splits that the paper reports on."""
SCENE_PASSES = ("final", "clean")
HELD_OUT_SEEDS = 2**40
"""Added to the seed of scenes with held-out textures; no training run has such seeds."""
_PAIRS_AT_ONCE = {"cpu": 1, "cuda": 8}


class RenderedScenes:
    """An endless sequence of rendered pairs; each is rendered when it is loaded.

    Of a folder of textures, only the images held out from training are used, and the seeds differ
    from those of training too. On a GPU, several pairs are rendered at a time.
    """

    def __init__(
        self,
        preset: str,
        *,
        seed: int,
        size: tuple[int, int],
        textures: Path | None = None,
        device: str = "auto",
    ) -> None:
        check_preset(preset)
        check_smallest(size, SMALLEST)
        self.preset, self.seed, self.size = preset, seed, size
        self.textures, self.device = textures, device
        # Textures are identified by name and size, so the folder may move.
        pictures = [] if textures is None else self._held_out(textures)
        self._settings = [preset, seed, size, *((p.name, p.stat().st_size) for p in pictures)]
        self._renderer: SceneRenderer | None = None
        self._first = 0
        self._block: list[PairArrays] = []

    @staticmethod
    def _held_out(folder: Path) -> list[Path]:
        paths = list_pictures(folder, "held-out")
        if not paths:
            raise DatasetError(
                f"{folder}: none of its images is held out (about one in ten is); give a folder "
                "with more images"
            )
        return paths

    def load(self, number: int, *, final: bool) -> FlowSample:
        """Render a pair of the pass final or clean."""
        pair = self._render(number)
        return FlowSample(
            image1=pair.final1 if final else pair.clean1,
            image2=pair.final2 if final else pair.clean2,
            flow=pair.flow,
            valid=pair.valid,
            occluded_in=pair.occluded_in,
            occluded_out=pair.occluded_out,
        )

    def identify(self, number: int, *, final: bool) -> str:
        """Return a text that changes with the settings and the version of the renderer."""
        return json.dumps([SCENES, __version__, *self._settings, number, final])

    def _render(self, number: int) -> PairArrays:
        """Render a pair, or return it from the latest block of pairs."""
        renderer = self._renderer = self._renderer or self._open()
        # Blocks of one size, since a GPU records its work for each size.
        at_once = _PAIRS_AT_ONCE[renderer.device.type]
        if not 0 <= number - self._first < len(self._block):
            self._first = number - number % at_once
            self._block = pair_arrays(renderer.render(self._first, at_once))
        return self._block[number - self._first]

    def _open(self) -> SceneRenderer:
        # Only when a pair is rendered: textures take seconds, and a run whose results are all
        # stored needs none.
        device = rendering_device(pick_device(self.device))
        if self.textures is None:
            return SceneRenderer(self.preset, self.size, self.seed, device=device)
        bank = TextureBank.load(self.textures, split="held-out")
        return SceneRenderer(self.preset, self.size, self.seed + HELD_OUT_SEEDS, bank, device)


@dataclass(frozen=True, kw_only=True)
class Example:
    """One pair to evaluate: a frame of a scene."""

    group: str
    """The pass, which has its own figures; the data set's name if it has only one pass."""
    scene: str
    frame: str
    load: Callable[[], FlowSample]
    """Reads or renders the pair; its ground truth is not valid where it is ignored."""
    identity: Callable[[], str]
    """Returns a text that changes when the pair changes: files are identified by path, size and
    modification time, rendered pairs by their settings and the version of the renderer."""
    follows: bool = False
    """Whether its first frame is the previous example's second, so that it can start warm."""

    @property
    def title(self) -> str:
        """A readable name."""
        words = (self.group, self.scene, "" if self.frame == self.scene else self.frame)
        return " ".join(word for word in words if word)


@dataclass(frozen=True, kw_only=True)
class ExampleSet:
    """The pairs of one data set, sequences in order, and notes for the reader of the results."""

    name: str
    title: str
    examples: tuple[Example, ...]
    notes: tuple[str, ...] = ()
    masked: bool = False
    """Whether some pixels are ignored."""

    @property
    def has_sequences(self) -> bool:
        """Whether a warm start can make a difference."""
        return any(example.follows for example in self.examples)

    def find(self, names: Iterable[str]) -> list[tuple[int, Example]]:
        """Return pairs by name, SCENE/FRAME or PASS/SCENE/FRAME, each with its index."""
        index_of: dict[str, int] = {}
        for i, example in enumerate(self.examples):
            index_of.setdefault(f"{example.scene}/{example.frame}", i)
            index_of[f"{example.group}/{example.scene}/{example.frame}"] = i
        for name in names:
            if name not in index_of:
                raise DatasetError(f"no pair {name!r}; give names such as {next(iter(index_of))}")
        return [(index_of[name], self.examples[index_of[name]]) for name in names]


def identify_masks(masks: MaskReader) -> str:
    """Return a text that changes when one of the masks is rewritten."""
    path = masks.path
    return identify_files(list_images(path) if path.is_dir() else [path])


def identify_files(paths: Iterable[Path]) -> str:
    """Return a text that changes when one of the files is rewritten."""
    files = []
    for path in paths:
        try:
            about = path.stat()
        except OSError as err:
            raise DatasetError(f"{path} cannot be read: {os_reason(err)}") from err
        files.append((str(path.absolute()), about.st_size, about.st_mtime_ns))
    return json.dumps(files)


def published_padding(dataset: str) -> PaddingKind:
    """Return how images of a data set were padded for the published figures."""
    return "kitti" if dataset.startswith("kitti") else "sintel"


def incomplete(data: ExampleSet) -> str:
    """Report what the paper's figures include and these do not; empty if nothing, or other data."""
    if data.name not in PAPER_SPLITS:
        return ""
    if data.masked:
        return (
            f"{data.title}: without its ignored pixels, so its figures do not compare with the "
            "paper's"
        )
    groups = {example.group for example in data.examples}
    published = sum(
        part.count or 0
        for part in dataset_info(data.name).parts
        if part.split == PAPER_SPLITS[data.name] and (part.pass_name or data.name) in groups
    )
    if len(data.examples) == published:
        return ""
    return (
        f"{data.title}: {len(data.examples)} of the {published} published pairs, so its figures do "
        "not compare with the paper's"
    )


def thin(data: ExampleSet, count: int) -> ExampleSet:
    """Keep at most `count` pairs of each group, evenly spaced."""
    examples: list[Example] = []
    for _, group in groupby(data.examples, lambda example: example.group):
        members = list(group)
        examples += [
            replace(members[index], follows=False) for index in spread(len(members), count)
        ]
    if len(examples) == len(data.examples):
        return data
    note = f"{len(examples)} of {counted(len(data.examples), 'pair')}, evenly spaced in each pass"
    return replace(data, examples=tuple(examples), notes=(*data.notes, note))


def ignoring(data: ExampleSet, path: PathLike) -> ExampleSet:
    """Exclude masked pixels; `path` is one mask for all pairs, or one for each pair of a pass."""
    examples: list[Example] = []
    for _, group in groupby(data.examples, lambda example: example.group):
        members = list(group)
        masks = MaskReader(path, count=len(members))
        examples += [_with_mask(example, masks, number) for number, example in enumerate(members)]
    note = f"ignored: the white pixels of {Path(path).name}"
    return replace(data, examples=tuple(examples), notes=(*data.notes, note), masked=True)


def _with_mask(example: Example, masks: MaskReader, number: int) -> Example:
    def load() -> FlowSample:
        sample = example.load()
        if sample.valid is None:
            return sample
        return replace(sample, valid=sample.valid & ~masks.mask(number, sample.valid.shape))

    def identity() -> str:
        return json.dumps([example.identity(), identify_masks(masks), number])

    return replace(example, load=load, identity=identity)


def spread(total: int, count: int) -> list[int]:
    """Return at most `count` evenly spaced indices below `total`, including the first and last."""
    if count < 1:
        raise DatasetError(f"{count} pairs were requested; give at least 1")
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int)).tolist()


def open_examples(
    name: str,
    root: PathLike | None = None,
    *,
    split: str | None = None,
    passes: Sequence[str] = (),
) -> ExampleSet:
    """List the pairs of a data set that have ground truth; each pass is a group."""
    info = dataset_info(name)
    examples: list[Example] = []
    skipped = 0
    for pass_name in passes or info.passes[:1]:
        dataset = open_dataset(name, root, split=split, passes=pass_name)
        with_flow = [pair for pair in dataset if pair.flow is not None]
        skipped += len(dataset) - len(with_flow)
        examples += as_examples(with_flow, group=pass_name or name)
    chosen = split or info.splits[0]
    if not examples and name == "folder":
        missing = no_flow_files(dataset[0].image1.parent)
        raise DatasetError(f"{missing}; or judge the flow without truth, with --unsupervised")
    if not examples:
        raise DatasetError(
            f"{info.title} {chosen} has no ground truth, so it cannot be evaluated; use `gmaflow "
            "submit` for the benchmarks' servers, or `gmaflow evaluate --unsupervised`"
        )
    notes = (f"left out, without ground truth: {counted(skipped, 'pair')}",) if skipped else ()
    return ExampleSet(
        name=name, title=f"{info.title} {chosen}", examples=tuple(examples), notes=notes
    )


def render_examples(
    preset: str,
    *,
    seed: int,
    count: int,
    size: tuple[int, int],
    passes: Sequence[str] = (),
    textures: Path | None = None,
    device: str = "auto",
) -> ExampleSet:
    """List rendered pairs; see `RenderedScenes`."""
    scenes = RenderedScenes(preset, seed=seed, size=size, textures=textures, device=device)
    if count < 1:
        raise DatasetError(f"{count} scenes were requested; give at least 1")
    for name in passes:
        check_known("pass", name, SCENE_PASSES, DatasetError)
    examples = tuple(
        Example(
            group=pass_name,
            scene=preset,
            frame=str(number),
            load=partial(scenes.load, number, final=pass_name == "final"),
            identity=partial(scenes.identify, number, final=pass_name == "final"),
        )
        for pass_name in passes or SCENE_PASSES[:1]
        for number in range(count)
    )
    held_out = "" if textures is None else ", held-out textures"
    title = f"rendered scenes: {preset}, seed {seed}, {size[0]} x {size[1]}{held_out}"
    return ExampleSet(name=SCENES, title=title, examples=examples)


def as_examples(pairs: Sequence[FlowPair], *, group: str) -> list[Example]:
    """Turn pairs of files into examples of one group."""
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
                load=pair.load,
                identity=partial(identify_files, pair.files),
                follows=previous is not None and pair.follows(previous),
            )
        )
        previous = pair
    return examples

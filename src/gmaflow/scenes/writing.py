"""Rendered pairs as a data set in Sintel's layout, each pair a scene of two frames.

    scenes.json                                     what was asked for, and whether all is there
    training/clean/mix_000012/frame_0001.png        before photometric effects; also frame_0002.png
    training/final/mix_000012/frame_0001.png        with them; also frame_0002.png
    training/occlusions/mix_000012/frame_0001.png   255 where not visible in the second frame
    training/invalid/mix_000012/frame_0001.png      255 where the flow is not known
    training/flow/mix_000012/frame_0001.flo

The flow is written last: where it is, the pair is whole.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gmaflow.errors import OutputError
from gmaflow.io import atomic_write, write_flow, write_image
from gmaflow.scenes.arrays import PairArrays, pair_arrays
from gmaflow.scenes.output_folder import CARD, FILES, check_folder, scene_files, scene_name
from gmaflow.scenes.presets import PRESETS
from gmaflow.scenes.renderer import SceneRenderer
from gmaflow.scenes.textures import TextureBank
from gmaflow.version import __version__

_OURS = re.compile(rf"({'|'.join(PRESETS)})_\d{{6,}}")
_PIXELS_AT_ONCE = 1_000_000
_MOST_AT_ONCE = 32
_WRITERS = 4


@dataclass(frozen=True, kw_only=True)
class SetCard:
    """What `scenes.json` says of a data set.

    Attributes:
        preset: the preset.
        seed: the seed.
        size: height and width of the frames.
        start: the number of the first pair.
        count: how many pairs were asked for.
        textures: a digest of the textures, since other ones give other pictures.
        version: of gmaflow.
        complete: whether all pairs are there.
    """

    preset: str
    seed: int
    size: tuple[int, int]
    start: int
    count: int
    textures: str
    version: str = __version__
    complete: bool = False

    def write(self, folder: Path) -> None:
        """Write the card into a data set's folder."""
        with atomic_write(folder / CARD) as path:
            path.write_text(json.dumps(asdict(self), indent=2) + "\n")


@dataclass(frozen=True)
class Written:
    """What a run did: how many pairs it rendered, and how many were there before."""

    rendered: int
    kept: int


def write_dataset(
    renderer: SceneRenderer,
    folder: Path,
    *,
    start: int = 0,
    count: int,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Written:
    """Render the pairs `start` to `start + count - 1` into a folder.

    Args:
        renderer: renders them.
        folder: made if it is not there.
        start: number of the first pair.
        count: how many pairs.
        resume: go on with a data set of the same preset, seed, size, start and textures; pairs that
            are whole stay as they are.
        overwrite: replace a data set that this function wrote.
        progress: called with the number of pairs that are done, those that were there included.

    Raises:
        OutputError: the folder holds something that must stay, or cannot be written to.
    """
    card = SetCard(
        preset=renderer.preset,
        seed=renderer.seed,
        size=renderer.size,
        start=start,
        count=count,
        textures=digest(renderer.bank),
    )
    before = check_folder(folder, resume=resume, overwrite=overwrite)
    if before is not None and resume:
        _check_same(folder, before, card)
    elif before is not None:
        _remove_all(folder)
    card.write(folder)
    names = {number: scene_name(card.preset, number) for number in range(start, start + count)}
    wanted = [n for n, name in names.items() if not (resume and is_whole(folder, name))]
    done = count - len(wanted)
    progress(done)
    with ThreadPoolExecutor(_WRITERS) as writers:
        for numbers in _chunks(wanted, renderer.size):
            pairs = pair_arrays(renderer.render_pairs(np.array(numbers)))
            scenes = [names[number] for number in numbers]
            # As a list: an error of any of them is raised here.
            list(writers.map(write_pair, [folder] * len(pairs), scenes, pairs))
            done += len(pairs)
            progress(done)
    replace(card, complete=True).write(folder)
    return Written(rendered=len(wanted), kept=count - len(wanted))


def write_pair(folder: Path, scene: str, pair: PairArrays) -> None:
    """Write all files of a pair, or none."""
    _remove(folder, scene)
    try:
        for part, first, second in (
            ("clean", pair.clean1, pair.clean2),
            ("final", pair.final1, pair.final2),
        ):
            write_image(folder / "training" / part / scene / "frame_0001.png", first)
            write_image(folder / "training" / part / scene / "frame_0002.png", second)
        for part, mask in (
            ("occlusions", pair.occluded_in | pair.occluded_out),
            ("invalid", ~pair.valid),
        ):
            white = mask.astype(np.uint8) * 255
            write_image(folder / "training" / part / scene / "frame_0001.png", white)
        write_flow(folder / "training" / "flow" / scene / "frame_0001.flo", pair.flow, pair.valid)
    except BaseException:
        _remove(folder, scene)
        raise


def is_whole(folder: Path, scene: str) -> bool:
    """Whether every file of a pair is there."""
    return all(path.is_file() for path in scene_files(folder, scene))


def digest(bank: TextureBank) -> str:
    """A number for the contents of a texture bank."""
    whole = hashlib.sha256()
    for tensor in (bank.texels, bank.outlines):
        whole.update(tensor.cpu().contiguous().numpy().data)
    return whole.hexdigest()[:16]


def _check_same(folder: Path, before: dict[str, object], card: SetCard) -> None:
    """Refuse to mix two data sets in one folder."""
    asked = asdict(card) | {"size": list(card.size)}
    for key in ("preset", "seed", "size", "start", "textures", "version"):
        if before.get(key) != asked[key]:
            raise OutputError(
                f"{folder} was begun with {key} {before.get(key)}, not {asked[key]}; "
                "resume it with the same options, or choose another folder"
            )
    count = before.get("count")
    if isinstance(count, int) and count > card.count:
        raise OutputError(
            f"{folder} was begun with count {count}; resume it with at least as many, "
            "or choose another folder"
        )


def _chunks(numbers: list[int], size: tuple[int, int]) -> Iterator[list[int]]:
    step = min(max(1, _PIXELS_AT_ONCE // (size[0] * size[1])), _MOST_AT_ONCE)
    for begin in range(0, len(numbers), step):
        yield numbers[begin : begin + step]


def _remove(folder: Path, scene: str) -> None:
    # The flow first: without it nothing takes the rest for a pair.
    for part in reversed(FILES):
        shutil.rmtree(folder / "training" / part / scene, ignore_errors=True)


def _remove_all(folder: Path) -> None:
    """Remove the scenes that were written before; whatever else lies there stays."""
    scenes = {
        path.name
        for part in FILES
        for path in (folder / "training" / part).glob("*")
        if _OURS.fullmatch(path.name)
    }
    for scene in sorted(scenes):
        _remove(folder, scene)

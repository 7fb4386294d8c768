"""Rendered pairs as a data set in Sintel's layout; each pair is a scene of two frames.

    scenes.json                                     settings, and whether all pairs are written
    training/clean/mix_000012/frame_0001.png        before photometric effects; also frame_0002.png
    training/final/mix_000012/frame_0001.png        with them; also frame_0002.png
    training/occlusions/mix_000012/frame_0001.png   255 where not visible in the second frame
    training/invalid/mix_000012/frame_0001.png      255 where the flow is unknown
    training/flow/mix_000012/frame_0001.flo

The flow is written last: a pair with a flow file is complete.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmaflow.errors import DatasetError, OutputError
from gmaflow.io import write_flow, write_image
from gmaflow.io.resumable import ResultRecord, is_finished
from gmaflow.scenes.renderer import PairArrays, SceneRenderer, pair_arrays
from gmaflow.scenes.scene_presets import PRESETS
from gmaflow.scenes.texture_bank import TextureBank
from gmaflow.version import __version__

FILES = {
    "clean": ("frame_0001.png", "frame_0002.png"),
    "final": ("frame_0001.png", "frame_0002.png"),
    "occlusions": ("frame_0001.png",),
    "invalid": ("frame_0001.png",),
    "flow": ("frame_0001.flo",),
}
"""The files of a pair, by part of the data set."""

_SCENE_NAME = re.compile(rf"({'|'.join(PRESETS)})_\d{{6,}}")
_PIXELS_AT_ONCE = 1_000_000
_MOST_AT_ONCE = 32
_WRITERS = 4


@dataclass(frozen=True)
class Written:
    """How many pairs a run rendered, and how many existed before."""

    rendered: int
    kept: int


def dataset_record(folder: Path) -> ResultRecord:
    """The record of a rendered data set: preset, seed, size and so on."""
    return ResultRecord(folder, "scenes.json", what="a data set", required="preset")


def scene_name(preset: str, number: int) -> str:
    """Name the scene that holds a pair."""
    return f"{preset}_{number:06d}"


def scene_files(folder: Path, scene: str) -> list[Path]:
    """List all files of a pair."""
    return [
        folder / "training" / part / scene / name for part, names in FILES.items() for name in names
    ]


def rendered_scenes(folder: Path) -> list[str] | None:
    """List the scenes that a rendered data set should hold; None for other folders."""
    record = dataset_record(folder)
    if not record.exists():
        return None
    try:
        settings = record.read()
        start, count = int(settings["start"]), int(settings["count"])
        return [scene_name(settings["preset"], number) for number in range(start, start + count)]
    except (OutputError, ValueError, KeyError, TypeError) as err:
        raise DatasetError(
            f"{record.path} is broken; start over with `gmaflow scenes render --overwrite`"
        ) from err


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

    `resume` continues a data set of the same preset, seed, size, start and textures, and keeps
    complete pairs; `overwrite` replaces one. `progress` is called with the number of pairs done,
    including those that existed before.
    """
    record = dataset_record(folder)
    record.check_start(resume=resume, overwrite=overwrite)
    settings: dict[str, object] = {
        "preset": renderer.preset,
        "seed": renderer.seed,
        "size": renderer.size,
        "start": start,
        "count": count,
        "textures": digest(renderer.bank),
        "version": __version__,
    }
    if resume and record.exists():
        before = record.read_matching(settings, ignore=("count", "complete"))
        if before["count"] > count:
            raise OutputError(
                f"{folder} was started with count {before['count']}; resume with at least as many "
                "pairs, or choose another folder"
            )
    elif record.exists():
        _remove_all(folder)
    record.write(settings | {"complete": False})
    names = {number: scene_name(renderer.preset, number) for number in range(start, start + count)}
    wanted = [
        number
        for number, name in names.items()
        if not (resume and is_finished(scene_files(folder, name)))
    ]
    done = count - len(wanted)
    progress(done)
    with ThreadPoolExecutor(_WRITERS) as writers:
        for numbers in _chunks(wanted, renderer.size):
            pairs = pair_arrays(renderer.render_pairs(np.array(numbers)))
            scenes = [names[number] for number in numbers]
            # A list, so that errors of the writers are raised here.
            list(writers.map(write_pair, [folder] * len(pairs), scenes, pairs))
            done += len(pairs)
            progress(done)
    record.write(settings | {"complete": True})
    return Written(rendered=len(wanted), kept=count - len(wanted))


def write_pair(folder: Path, scene: str, pair: PairArrays) -> None:
    """Write all files of a pair, or none."""
    _remove(folder, scene)
    images = {
        "clean": (pair.clean1, pair.clean2),
        "final": (pair.final1, pair.final2),
        "occlusions": (_white(pair.occluded_in | pair.occluded_out),),
        "invalid": (_white(~pair.valid),),
    }
    top = folder / "training"
    try:
        for part, frames in images.items():
            for name, frame in zip(FILES[part], frames, strict=True):
                write_image(top / part / scene / name, frame)
        write_flow(top / "flow" / scene / FILES["flow"][0], pair.flow, pair.valid)
    except BaseException:
        _remove(folder, scene)
        raise


def digest(bank: TextureBank) -> str:
    """A hash of the contents of a texture bank."""
    whole = hashlib.sha256()
    for tensor in (bank.texels, bank.outlines):
        whole.update(tensor.cpu().contiguous().numpy().data)
    return whole.hexdigest()[:16]


def _white(mask: np.ndarray) -> np.ndarray:
    return mask.astype(np.uint8) * 255


def _chunks(numbers: list[int], size: tuple[int, int]) -> Iterator[list[int]]:
    step = min(max(1, _PIXELS_AT_ONCE // (size[0] * size[1])), _MOST_AT_ONCE)
    for begin in range(0, len(numbers), step):
        yield numbers[begin : begin + step]


def _remove(folder: Path, scene: str) -> None:
    # The flow first: without it the rest does not count as a pair.
    for part in reversed(FILES):
        shutil.rmtree(folder / "training" / part / scene, ignore_errors=True)


def _remove_all(folder: Path) -> None:
    """Remove the scenes of an earlier run; other files stay."""
    scenes = {
        path.name
        for part in FILES
        for path in (folder / "training" / part).glob("*")
        if _SCENE_NAME.fullmatch(path.name)
    }
    for scene in sorted(scenes):
        _remove(folder, scene)

"""Rendered pairs and clips as a data set in Sintel's layout; each of them is a scene.

    scenes.json                                     settings, and whether all pairs are written
    training/clean/mix_000012/frame_0001.png        before photometric effects; also frame_0002.png
    training/final/mix_000012/frame_0001.png        with them; also frame_0002.png
    training/occlusions/mix_000012/frame_0001.png   255 where not visible in the second frame
    training/invalid/mix_000012/frame_0001.png      255 where the flow is unknown
    training/flow/mix_000012/frame_0001.flo
    training/tracks/mix_000012/frame_0001.npz       clips only: tracks of a grid of points

A clip has more frames, with flow and masks for each of them but the last. The flow is written last:
a scene with all its flow files is complete.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gmaflow.errors import DatasetError, OutputError
from gmaflow.inference import Tracks, grid_points
from gmaflow.io import write_flow, write_image
from gmaflow.io.resumable import ResultRecord, is_finished
from gmaflow.scenes.renderer import (
    PairArrays,
    SceneClip,
    SceneRenderer,
    clip_arrays,
    pair_arrays,
)
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
TRACKS = "tracks"
TRACK_SPACING = 8
"""Pixels between the points whose tracks are written with a clip."""

_SCENE_NAME = re.compile(rf"({'|'.join(PRESETS)})_\d{{6,}}")
_PIXELS_AT_ONCE = 1_000_000
_MOST_AT_ONCE = 32
_WRITERS = 4


def dataset_record(folder: Path) -> ResultRecord:
    """The record of a rendered data set: preset, seed, size and so on."""
    return ResultRecord(folder, "scenes.json", what="a data set", required="preset")


def scene_name(preset: str, number: int) -> str:
    """Name the scene that holds a pair."""
    return f"{preset}_{number:06d}"


def scene_files(folder: Path, scene: str, frames: int = 2) -> list[Path]:
    """List all files of a pair, or of a clip with more frames."""
    top = folder / "training"
    files = [
        top / part / scene / f"frame_{number + offset:04d}{Path(names[0]).suffix}"
        for part, names in FILES.items()
        for number in range(frames - 1)
        for offset in range(1, len(names) + 1)
    ]
    tracks = [top / TRACKS / scene / "frame_0001.npz"] if frames > 2 else []
    return list(dict.fromkeys([*tracks, *files]))


class ExpectedScenes(NamedTuple):
    """What a rendered data set should hold."""

    scenes: list[str]
    frames: int
    """Frames of each scene."""


def expected_scenes(folder: Path) -> ExpectedScenes | None:
    """Return what a rendered data set should hold; None for other folders."""
    record = dataset_record(folder)
    if not record.exists():
        return None
    try:
        settings = record.read()
        start, count = int(settings["start"]), int(settings["count"])
        scenes = [scene_name(settings["preset"], number) for number in range(start, start + count)]
        return ExpectedScenes(scenes, int(settings.get("frames", 2)))
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
    frames: int = 2,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Render the pairs `start` to `start + count - 1` into a folder; return how many were new.

    With more than two `frames` each pair continues as a clip. `resume` continues a data set of the
    same preset, seed, size, start, frames and textures, and keeps complete pairs; `overwrite`
    replaces one. `progress` is called with the number of finished pairs, including those that
    existed before, and their total.
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
    if frames > 2:
        settings["frames"] = frames
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
    missing = [
        number
        for number, name in names.items()
        if not (resume and is_finished(scene_files(folder, name, frames)))
    ]
    done = count - len(missing)
    progress(done, count)
    with ThreadPoolExecutor(_WRITERS) as writers:
        for numbers in _chunks(missing, renderer.size) if frames == 2 else [[n] for n in missing]:
            if frames == 2:
                pairs = pair_arrays(renderer.render_pairs(np.array(numbers)))
                scenes = [names[number] for number in numbers]
                # A list, so that errors of the writers are raised here.
                list(writers.map(write_pair, [folder] * len(pairs), scenes, pairs))
            else:
                clip = renderer.render_clip(numbers[0], frames)
                write_clip(folder, names[numbers[0]], clip, writers)
            done += len(numbers)
            progress(done, count)
    record.write(settings | {"complete": True})
    return len(missing)


def write_pair(folder: Path, scene: str, pair: PairArrays) -> None:
    """Write all files of a pair, or none."""
    _remove(folder, scene)
    try:
        _write_step(folder, scene, 0, pair)
    except BaseException:
        _remove(folder, scene)
        raise


def write_clip(folder: Path, scene: str, clip: SceneClip, writers: ThreadPoolExecutor) -> None:
    """Write all files of a clip, or none."""
    _remove(folder, scene)
    steps = clip_arrays(clip)
    try:
        clip_tracks(clip).save(folder / "training" / TRACKS / scene / "frame_0001.npz")
        list(writers.map(lambda i: _write_step(folder, scene, i, steps[i]), range(len(steps))))
    except BaseException:
        _remove(folder, scene)
        raise


def clip_tracks(clip: SceneClip) -> Tracks:
    """The tracks of a grid of points; unknown positions are NaN and not visible."""
    height, width = clip.visible.shape[1:]
    points = grid_points(height, width, TRACK_SPACING)
    x, y = points.astype(int).T
    moved = clip.tracks[:, :, y, x].permute(0, 2, 1).cpu().numpy()
    visible, known = (mask[:, y, x].cpu().numpy() for mask in (clip.visible, clip.known))
    positions = np.where(known[..., None], points + moved, np.float32(np.nan))
    return Tracks(points, clip.reference, positions, visible, known.astype(np.float32))


def _write_step(folder: Path, scene: str, number: int, pair: PairArrays) -> None:
    """Write two consecutive frames; after the first step, the first of them already exists."""
    images = {
        "clean": (pair.clean1, pair.clean2),
        "final": (pair.final1, pair.final2),
        "occlusions": (_white(pair.occluded_in | pair.occluded_out),),
        "invalid": (_white(~pair.valid),),
    }
    top = folder / "training"
    for part, frames in images.items():
        for offset, frame in enumerate(frames, 1):
            if number and offset == 1 and len(frames) == 2:
                continue
            write_image(top / part / scene / f"frame_{number + offset:04d}.png", frame)
    write_flow(top / "flow" / scene / f"frame_{number + 1:04d}.flo", pair.flow, pair.valid)


def digest(bank: TextureBank) -> str:
    """A hash of the contents of a texture bank."""
    hasher = hashlib.sha256()
    for tensor in (bank.texels, bank.outlines):
        hasher.update(tensor.cpu().contiguous().numpy().data)
    return hasher.hexdigest()[:16]


def _white(mask: np.ndarray) -> np.ndarray:
    return mask.astype(np.uint8) * 255


def _chunks(numbers: list[int], size: tuple[int, int]) -> Iterator[list[int]]:
    step = min(max(1, _PIXELS_AT_ONCE // (size[0] * size[1])), _MOST_AT_ONCE)
    for begin in range(0, len(numbers), step):
        yield numbers[begin : begin + step]


def _remove(folder: Path, scene: str) -> None:
    # The flow first: without it the rest does not count as a pair.
    for part in (*reversed(FILES), TRACKS):
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

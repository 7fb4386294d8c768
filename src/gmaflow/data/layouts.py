"""The folder layouts of the published data sets, and of your own folder.

Each `list_...` function lists the pairs of one data set. A pair is listed if any of its files
exists, so that the missing ones can be reported.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.errors import DatasetError, os_reason
from gmaflow.io import FLOW_SUFFIXES, IMAGE_SUFFIXES
from gmaflow.io.folders import natural_key
from gmaflow.io.paths import PathLike


class DirectoryCache:
    """File and folder names, read once for each folder.

    A data set has up to a hundred thousand files. On a network disk, checking each file takes
    minutes; listing the folders takes seconds.
    """

    def __init__(self) -> None:
        self._files: dict[Path, frozenset[str]] = {}
        self._folders: dict[Path, tuple[str, ...]] = {}

    def files(self, folder: Path) -> frozenset[str]:
        """Return the names of the files in a folder; empty if the folder does not exist."""
        self._read(folder)
        return self._files[folder]

    def folders(self, folder: Path) -> tuple[str, ...]:
        """Return the sorted names of the subfolders; empty if the folder does not exist."""
        self._read(folder)
        return self._folders[folder]

    def has(self, path: Path) -> bool:
        return path.name in self.files(path.parent)

    def if_exists(self, path: Path) -> Path | None:
        return path if self.has(path) else None

    def numbers(self, folder: Path, pattern: str) -> set[str]:
        """Return the numbers in the file names of a folder, with their leading zeros.

        In the pattern, `#` stands for the number: "frame_#.png".
        """
        before, after = (re.escape(part) for part in pattern.split("#"))
        regex = re.compile(f"{before}([0-9]+){after}")
        return {match[1] for name in self.files(folder) if (match := regex.fullmatch(name))}

    def _read(self, folder: Path) -> None:
        if folder in self._files:
            return
        files, folders = set(), []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.name)
                    else:
                        files.add(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as err:
            raise DatasetError(f"cannot list {folder}: {os_reason(err)}") from err
        self._files[folder] = frozenset(files)
        self._folders[folder] = tuple(sorted(folders))


def consecutive(numbers: set[str]) -> list[tuple[str, str]]:
    """Return each number with the next one, where both are present."""
    by_value = {int(number): number for number in numbers}
    return [(by_value[n], by_value[n + 1]) for n in sorted(by_value) if n + 1 in by_value]


def successor(number: str) -> str:
    """Return the next number, with the same width."""
    return str(int(number) + 1).zfill(len(number))


def group_numbers(names: Iterable[str], pattern: str) -> dict[str, set[str]]:
    """Group file names by the pattern's first group; return the numbers of the second."""
    sequences: dict[str, set[str]] = defaultdict(set)
    for name in sorted(names):
        if match := re.fullmatch(pattern, name):
            sequences[match[1]].add(match[2])
    return sequences


# FlyingChairs: data/00001_img1.ppm, 00001_img2.ppm, 00001_flow.flo

CHAIRS_SPLIT = "FlyingChairs_train_val.txt"
CHAIRS_SPLIT_URL = (
    f"https://lmb.informatik.uni-freiburg.de/resources/datasets/FlyingChairs/{CHAIRS_SPLIT}"
)
_CHAIRS_FLAGS = {"training": "1", "validation": "2"}


def list_chairs(cache: DirectoryCache, root: Path, split: str, _pass: str) -> Iterator[FlowPair]:
    """List FlyingChairs; the split `all` needs no split file."""
    candidates = (root / "data", root / "FlyingChairs_release" / "data")
    folder = next((folder for folder in candidates if cache.files(folder)), root)
    numbers = (
        cache.numbers(folder, "#_img1.ppm")
        | cache.numbers(folder, "#_img2.ppm")
        | cache.numbers(folder, "#_flow.flo")
    )
    if numbers and split != "all":
        flags = _read_chairs_split(cache, (root, folder, folder.parent))
        numbers &= {f"{n:05d}" for n, flag in enumerate(flags, 1) if flag == _CHAIRS_FLAGS[split]}
    for number in sorted(numbers):
        yield FlowPair(
            dataset="chairs",
            scene=number,
            frame=number,
            image1=folder / f"{number}_img1.ppm",
            image2=folder / f"{number}_img2.ppm",
            flow=folder / f"{number}_flow.flo",
        )


def _read_chairs_split(cache: DirectoryCache, folders: tuple[Path, ...]) -> list[str]:
    for folder in folders:
        if cache.has(folder / CHAIRS_SPLIT):
            flags = (folder / CHAIRS_SPLIT).read_text(errors="replace").split()
            if not flags or set(flags) - set(_CHAIRS_FLAGS.values()):
                raise DatasetError(
                    f"{folder / CHAIRS_SPLIT} must contain only 1 (training) and 2 (validation); "
                    f"download it again from {CHAIRS_SPLIT_URL}"
                )
            return flags
    raise DatasetError(
        f"{folders[0]} has no {CHAIRS_SPLIT}, which separates training from validation; download "
        f"it from {CHAIRS_SPLIT_URL}, or use the split 'all'"
    )


# FlyingThings3D: ten frames a scene, two cameras, flow into the future and into the past.
# frames_cleanpass/TRAIN/A/0000/left/0006.png
# optical_flow/TRAIN/A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm

THINGS_TEST_PAIRS = 7866
"""Test pairs of the left camera: 437 scenes, 9 pairs each, both directions."""
_THINGS_SPLITS = {"training": "TRAIN", "test": "TEST"}
# GMA's authors validate on every tenth test pair of the left camera (all forward pairs, then all
# backward pairs), except for these tens. Their list follows no known rule.
_THINGS_FORWARD_SKIPPED = {4, 20, 54, 84, 96, 102, 113, 122, 137, 184, 199}
_THINGS_BACKWARD_SKIPPED = {400, 405, 406, 451, 478, 486, 496, 505, 506, 509, 564, 577}


def list_things(
    cache: DirectoryCache, root: Path, split: str, pass_name: str
) -> Iterator[FlowPair]:
    """List FlyingThings3D, both directions of both cameras; the pass is clean or final.

    The split `validation` is the subset of the left camera's test pairs that the paper reports on.
    """
    if split == "validation":
        return choose_things_validation(list(_list_things(cache, root, "test", pass_name)), root)
    return _list_things(cache, root, split, pass_name)


def choose_things_validation(pairs: list[FlowPair], root: Path) -> Iterator[FlowPair]:
    """Choose the paper's validation pairs from all test pairs, ordered by scene."""
    left = [pair for pair in pairs if pair.camera == "left"]
    if not left:
        return
    if len(left) != THINGS_TEST_PAIRS:
        raise DatasetError(
            f"{root} has {len(left)} of FlyingThings3D's {THINGS_TEST_PAIRS} left-camera test "
            "pairs, but the validation split needs all of them; complete the data set, or use "
            "the split 'test'"
        )
    ordered = sorted(left, key=lambda pair: pair.direction != "forward")
    skipped = _THINGS_FORWARD_SKIPPED | _THINGS_BACKWARD_SKIPPED
    for ten, pair in enumerate(ordered[::10]):
        if ten not in skipped:
            yield pair


def _list_things(
    cache: DirectoryCache, root: Path, split: str, pass_name: str
) -> Iterator[FlowPair]:
    frames, suffix = root / f"frames_{pass_name}pass", ".png"
    if not cache.folders(frames):  # the smaller download has the frames as WebP
        frames, suffix = root / f"frames_{pass_name}pass_webp", ".webp"
    if not cache.folders(frames):
        return
    name = _THINGS_SPLITS[split]
    scenes = {
        (part, scene)
        for top in (frames / name, root / "optical_flow" / name)
        for part in cache.folders(top)
        for scene in cache.folders(top / part)
    }
    for part, scene in sorted(scenes):
        flows = root / "optical_flow" / name / part / scene
        for camera in ("left", "right"):
            images = frames / name / part / scene / camera
            yield from _list_things_camera(
                cache, images, flows, suffix=suffix, scene=f"{part}/{scene}"
            )


def _list_things_camera(
    cache: DirectoryCache, images: Path, flows: Path, *, suffix: str, scene: str
) -> Iterator[FlowPair]:
    camera = images.name
    letter = camera[0].upper()
    future, past = flows / "into_future" / camera, flows / "into_past" / camera
    forward_numbers = cache.numbers(future, f"OpticalFlowIntoFuture_#_{letter}.pfm")
    backward_numbers = cache.numbers(past, f"OpticalFlowIntoPast_#_{letter}.pfm")
    # The first and last frames have flow to neighbours that were not published.
    steps = consecutive(cache.numbers(images, f"#{suffix}") | forward_numbers | backward_numbers)
    forward = (future, "OpticalFlowIntoFuture", "forward", steps)
    backward = (past, "OpticalFlowIntoPast", "backward", [(now, then) for then, now in steps])
    for folder, name, direction, frame_pairs in (forward, backward):
        for now, then in frame_pairs:
            yield FlowPair(
                dataset="things",
                scene=scene,
                frame=now,
                image1=images / f"{now}{suffix}",
                image2=images / f"{then}{suffix}",
                flow=folder / f"{name}_{now}_{letter}.pfm",
                camera=camera,
                direction=direction,
            )


# MPI Sintel: training/clean/alley_1/frame_0001.png, training/flow/alley_1/frame_0001.flo


def list_sintel(
    cache: DirectoryCache, root: Path, split: str, pass_name: str
) -> Iterator[FlowPair]:
    """List one pass of MPI Sintel: clean, final or albedo."""
    top, has_truth = root / split, split == "training"
    scenes = set(cache.folders(top / pass_name))
    if has_truth and scenes:
        scenes.update(cache.folders(top / "flow"))
    for scene in sorted(scenes):
        images, flows = top / pass_name / scene, top / "flow" / scene
        numbers = cache.numbers(images, "frame_#.png")
        flow_numbers = cache.numbers(flows, "frame_#.flo") if has_truth else set()
        # A flow file without its second frame still belongs to a pair.
        steps = dict(consecutive(numbers | flow_numbers)) | {
            now: successor(now) for now in flow_numbers
        }
        for now in sorted(steps):
            mask = f"frame_{now}.png"
            yield FlowPair(
                dataset="sintel",
                scene=scene,
                frame=now,
                image1=images / f"frame_{now}.png",
                image2=images / f"frame_{steps[now]}.png",
                flow=flows / f"frame_{now}.flo" if has_truth else None,
                occlusion=cache.if_exists(top / "occlusions" / scene / mask) if has_truth else None,
                invalid=cache.if_exists(top / "invalid" / scene / mask) if has_truth else None,
            )


# KITTI 2012 and 2015: training/image_2/000000_10.png, _11.png, training/flow_occ/000000_10.png

_KITTI_SPLITS = {"training": "training", "test": "testing"}


def list_kitti_2012(
    cache: DirectoryCache, root: Path, split: str, pass_name: str
) -> Iterator[FlowPair]:
    """List KITTI 2012, in colour if available; the pass is occ or noc."""
    top = root / _KITTI_SPLITS[split]
    folder = "colored_0" if cache.files(top / "colored_0") else "image_0"
    return _list_kitti(cache, top / folder, pass_name, "kitti-2012")


def list_kitti_2015(
    cache: DirectoryCache, root: Path, split: str, pass_name: str
) -> Iterator[FlowPair]:
    """List KITTI 2015; the pass is occ or noc."""
    return _list_kitti(cache, root / _KITTI_SPLITS[split] / "image_2", pass_name, "kitti-2015")


def _list_kitti(
    cache: DirectoryCache, images: Path, pass_name: str, dataset: str
) -> Iterator[FlowPair]:
    top = images.parent
    flows = top / f"flow_{pass_name}"
    has_truth = top.name == "training"
    if has_truth and not cache.files(flows):
        return
    # The multi-view extension adds frames 00 to 20; only 10 and 11 have ground truth.
    scenes = cache.numbers(images, "#_10.png") | cache.numbers(flows, "#_10.png")
    for scene in sorted(scenes):
        name = f"{scene}_10.png"
        yield FlowPair(
            dataset=dataset,
            scene=scene,
            frame="10",
            image1=images / name,
            image2=images / f"{scene}_11.png",
            flow=flows / name if has_truth else None,
            visible_flow=cache.if_exists(top / "flow_noc" / name) if pass_name == "occ" else None,
            foreground=cache.if_exists(top / "obj_map" / name) if has_truth else None,
            sparse=True,
        )


# HD1K: hd1k_input/image_2/000000_0001.png, hd1k_flow_gt/flow_occ/000000_0001.png


def list_hd1k(cache: DirectoryCache, root: Path, split: str, _pass: str) -> Iterator[FlowPair]:
    """List HD1K; the last flow file of each sequence has no second frame."""
    has_truth = split == "training"
    images = root / ("hd1k_input" if has_truth else "hd1k_challenge") / "image_2"
    flows = root / "hd1k_flow_gt" / "flow_occ"
    names = cache.files(images) | (cache.files(flows) if has_truth else frozenset())
    for scene, frames in group_numbers(names, r"([0-9]+)_([0-9]+)\.png").items():
        for now, then in consecutive(frames):
            yield FlowPair(
                dataset="hd1k",
                scene=scene,
                frame=now,
                image1=images / f"{scene}_{now}.png",
                image2=images / f"{scene}_{then}.png",
                flow=flows / f"{scene}_{now}.png" if has_truth else None,
                sparse=True,
            )


# Spring: train/0001/frame_left/frame_left_0001.png, flow_FW_left/flow_FW_left_0001.flo5
# The flow has twice the resolution of the images but is in pixels of the images; every second pixel
# of every second row belongs to an image pixel.

_SPRING_SPLITS = {"training": "train", "test": "test"}
_SPRING_DIRECTIONS = {"FW": "forward", "BW": "backward"}


def list_spring(cache: DirectoryCache, root: Path, split: str, _pass: str) -> Iterator[FlowPair]:
    """List Spring, both directions of both cameras."""
    top = root / _SPRING_SPLITS[split]
    if not cache.folders(top):  # the archives unpack into a folder of this name
        top = root / "spring" / _SPRING_SPLITS[split]
    for scene in cache.folders(top):
        for camera in ("left", "right"):
            for short in _SPRING_DIRECTIONS:
                yield from _list_spring_scene(
                    cache, top / scene, camera, short, has_truth=top.name == "train"
                )


def _list_spring_scene(
    cache: DirectoryCache, folder: Path, camera: str, short: str, *, has_truth: bool
) -> Iterator[FlowPair]:
    images, flows = folder / f"frame_{camera}", folder / f"flow_{short}_{camera}"
    numbers = cache.numbers(images, f"frame_{camera}_#.png")
    if has_truth:
        if not cache.files(flows):  # each direction and camera is a separate download
            return
        numbers |= cache.numbers(flows, f"flow_{short}_{camera}_#.flo5")
    for earlier, later in consecutive(numbers):
        now, then = (earlier, later) if short == "FW" else (later, earlier)
        yield FlowPair(
            dataset="spring",
            scene=folder.name,
            frame=now,
            image1=images / f"frame_{camera}_{now}.png",
            image2=images / f"frame_{camera}_{then}.png",
            flow=flows / f"flow_{short}_{camera}_{now}.flo5" if has_truth else None,
            flow_stride=2,
            camera=camera,
            direction=_SPRING_DIRECTIONS[short],
        )


# Middlebury: other-data/Venus/frame10.png, frame11.png, other-gt-flow/Venus/flow10.flo


def list_middlebury(
    cache: DirectoryCache, root: Path, split: str, _pass: str
) -> Iterator[FlowPair]:
    """List Middlebury: the scenes with public ground truth, or those of the evaluation."""
    has_truth = split == "training"
    images = root / ("other-data" if has_truth else "eval-data")
    flows = root / "other-gt-flow"
    # Four of the twelve scenes in other-data have no ground truth.
    for scene in cache.folders(flows if has_truth else images):
        yield FlowPair(
            dataset="middlebury",
            scene=scene,
            frame="10",
            image1=images / scene / "frame10.png",
            image2=images / scene / "frame11.png",
            flow=flows / scene / "flow10.flo" if has_truth else None,
        )


# Slow Flow: 100/sequence/Animals/seq1_0000000.png, seq1_0000001.png; images only.
# The first folder is the largest motion in pixels. The published flow was itself estimated (from a
# high-speed camera), so it is not used as ground truth.


def list_slowflow(
    cache: DirectoryCache, root: Path, _split: str, pass_name: str
) -> Iterator[FlowPair]:
    """List Slow Flow; the pass is the largest motion in pixels: 100, 200 or 300."""
    top = root / pass_name / "sequence"
    for scene in cache.folders(top):
        sequences = group_numbers(cache.files(top / scene), r"(.+_)([0-9]+)\.png")
        for prefix, numbers in sequences.items():
            for now, then in consecutive(numbers):
                yield FlowPair(
                    dataset="slowflow",
                    scene=scene,
                    frame=f"{prefix}{now}",
                    image1=top / scene / f"{prefix}{now}.png",
                    image2=top / scene / f"{prefix}{then}.png",
                )


# Your own folder: consecutive frames in the folder or its subfolders. The flow to the next frame is
# optional: a file with the frame's stem next to it (.flo, .pfm, .npy, .npz, .flo5), or in a
# subfolder `flow` (KITTI's .png and .exr too).


def list_folder(cache: DirectoryCache, root: Path, _split: str, _pass: str) -> Iterator[FlowPair]:
    """List the consecutive frames of a folder and of each of its subfolders."""
    yield from _list_frames(cache, root, scene=root.name)
    for name in cache.folders(root):
        if name != "flow" and not name.startswith("."):
            yield from _list_frames(cache, root / name, scene=name)


def no_flow_files(folder: PathLike) -> DatasetError:
    """Return the error for a folder of frames without flow."""
    return DatasetError(
        f"no flow files found in {folder}; put NAME.flo (.pfm, .npy ...) next to NAME.png, or "
        "flow/NAME.png in KITTI's format"
    )


def _list_frames(cache: DirectoryCache, folder: Path, *, scene: str) -> Iterator[FlowPair]:
    frames = [
        name
        for name in sorted(cache.files(folder), key=natural_key)
        if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
    ]
    for now, then in pairwise(frames):
        flow = _find_flow(cache, folder / now)
        yield FlowPair(
            dataset="folder",
            scene=scene,
            frame=Path(now).stem,
            image1=folder / now,
            image2=folder / then,
            flow=flow,
            sparse=flow is not None and flow.suffix.lower() == ".png",
        )


def _find_flow(cache: DirectoryCache, image: Path) -> Path | None:
    # In the same folder, a file with an image suffix would be the frame itself or another frame.
    beside = [image.with_suffix(suffix) for suffix in sorted(FLOW_SUFFIXES - IMAGE_SUFFIXES)]
    below = [image.parent / "flow" / f"{image.stem}{suffix}" for suffix in sorted(FLOW_SUFFIXES)]
    return next((path for path in (*beside, *below) if cache.has(path)), None)

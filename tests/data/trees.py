"""Small trees in the published layouts."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gmaflow.data import FlowPair
from gmaflow.data.catalog import dataset_info
from gmaflow.data.layouts import DirectoryCache
from gmaflow.io import write_flow, write_image

HEIGHT, WIDTH = 6, 8


def put_images(root: Path, *names: str, size: tuple[int, int] = (HEIGHT, WIDTH)) -> None:
    """Write images; each has its own grey, by the order in which they are named."""
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image = np.full((*size, 3), (10 * i + 5) % 256, np.uint8)
        if name.endswith((".ppm", ".png", ".webp")):
            write_image(root / name, image)


def put_flows(
    root: Path, *names: str, size: tuple[int, int] = (HEIGHT, WIDTH), flow: float = 1.0
) -> None:
    """Write flows that are `flow` everywhere, and unknown in the last column."""
    valid = np.ones(size, bool)
    valid[:, -1] = False
    for name in names:
        write_flow(root / name, np.full((*size, 2), flow, np.float32), valid)


def put_mask(root: Path, name: str, mask: np.ndarray) -> None:
    write_image(root / name, mask.astype(np.uint8) * 255)


def sintel(root: Path, *, frames: Iterable[int] = (1, 2, 3), scene: str = "alley_1") -> Path:
    """A scene of Sintel with masks, clean and final."""
    frames = tuple(frames)
    for pass_name in ("clean", "final"):
        put_images(root / "training" / pass_name / scene, *(f"frame_{n:04d}.png" for n in frames))
    for n in frames[:-1]:
        put_flows(root / "training/flow" / scene, f"frame_{n:04d}.flo")
        mask = np.zeros((HEIGHT, WIDTH), bool)
        mask[0] = True
        put_mask(root / "training/occlusions" / scene, f"frame_{n:04d}.png", mask)
        put_mask(root / "training/invalid" / scene, f"frame_{n:04d}.png", mask[::-1])
    return root


def chairs(root: Path, numbers: Iterable[int] = (1, 2, 3), flags: str = "1\n2\n1\n") -> Path:
    """FlyingChairs as its archive unpacks, with the split file if there are flags."""
    for n in numbers:
        put_images(root / "data", f"{n:05d}_img1.ppm", f"{n:05d}_img2.ppm")
        put_flows(root / "data", f"{n:05d}_flow.flo")
    if flags:
        (root / "FlyingChairs_train_val.txt").write_text(flags)
    return root


def things(root: Path, place: str = "TRAIN/A/0000", suffix: str = "png") -> Path:
    """A scene of FlyingThings3D, clean."""
    webp = "" if suffix == "png" else "_webp"
    for camera, letter in (("left", "L"), ("right", "R")):
        images = root / f"frames_cleanpass{webp}" / place / camera
        put_images(images, *(f"{n:04d}.{suffix}" for n in (6, 7, 8)))
        flows = root / "optical_flow" / place
        for n in (6, 7, 8):  # the outermost lead to frames that were not published
            put_flows(flows, f"into_future/{camera}/OpticalFlowIntoFuture_{n:04d}_{letter}.pfm")
            put_flows(flows, f"into_past/{camera}/OpticalFlowIntoPast_{n:04d}_{letter}.pfm")
    return root


def middlebury(root: Path) -> Path:
    """All training pairs of Middlebury."""
    for i in range(8):
        put_images(root / f"other-data/{i}", "frame10.png", "frame11.png")
        put_flows(root / f"other-gt-flow/{i}", "flow10.flo")
    return root


def listed(name: str, root: Path, split: str = "training", pass_name: str = "") -> list[FlowPair]:
    """All pairs of a folder, complete or not."""
    return list(dataset_info(name).list_pairs(DirectoryCache(), root, split, pass_name))


def names(pairs: Iterable[FlowPair]) -> list[tuple[str, str, str]]:
    """First image, second image and flow of each pair, by name."""
    return [(p.image1.name, p.image2.name, p.flow.name if p.flow else "") for p in pairs]

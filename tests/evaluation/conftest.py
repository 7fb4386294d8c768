"""What the tests of evaluation share: a small tree of Sintel and a small network."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.io import write_flow, write_image
from tests.conftest import random_checkpoint

SIZE = (40, 56)


def random_estimator(
    seed: int = 0, *, iters: int = 1, model: str = "raft-small", max_memory: str | None = None
) -> FlowEstimator:
    checkpoint = random_checkpoint(model, seed=seed)
    return FlowEstimator(
        checkpoint, iters=iters, device="cpu", precision="fp32", max_memory=max_memory
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Images this small are slower on several threads, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def estimator() -> FlowEstimator:
    return random_estimator()


def write_sintel(
    root: Path,
    *,
    scenes: tuple[str, ...] = ("alley_1",),
    frames: int = 3,
    split: str = "training",
    passes: tuple[str, ...] = ("clean", "final"),
    size: tuple[int, int] = SIZE,
) -> Path:
    """Sintel's layout, with noise for images and occlusion masks; test has no truth."""
    rng = np.random.default_rng(0)
    for scene in scenes:
        for n in range(1, frames + 1):
            for variant in passes:
                image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                path = root / split / variant / scene / f"frame_{n:04d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_image(path, image)
            if split == "test" or n == frames:
                continue
            flow = rng.normal(size=(*size, 2)).astype(np.float32)
            write_flow(root / "training/flow" / scene / f"frame_{n:04d}.flo", flow)
            mask = np.zeros((*size, 3), np.uint8)
            mask[:, :10] = 255
            path = root / "training/occlusions" / scene / f"frame_{n:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_image(path, mask)
    return root


@pytest.fixture
def sintel(tmp_path: Path) -> Path:
    return write_sintel(tmp_path / "sintel")

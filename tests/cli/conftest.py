"""What the tests of the command line share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.cli import main
from gmaflow.io import resumable
from gmaflow.weights import save_checkpoint
from tests.conftest import random_checkpoint, random_images


@dataclass(frozen=True)
class Outcome:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """What a run that refused its input printed."""
        assert self.code == 2, self
        return self.err


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def call(*args: str | Path) -> Outcome:
        code = 0
        try:
            main([str(arg) for arg in args])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        for folder in tuple(resumable._locked):  # as the end of the process does
            resumable.unlock_folder(folder)
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return call


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of random weights, ours and in the authors' format."""
    folder = tmp_path_factory.mktemp("weights")
    files = {}
    for model in ("raft-small", "gma"):
        files[model] = folder / f"{model}.safetensors"
        files[f"{model}.pth"] = folder / f"{model}.pth"
        for file in (files[model], files[f"{model}.pth"]):
            save_checkpoint(file, random_checkpoint(model))
    return files


@pytest.fixture
def fast(weights: dict[str, Path]) -> list[str]:
    """Options that make estimates cheap."""
    return ["--weights", str(weights["raft-small"]), "--iters", "1", "--device", "cpu"]


def write_frames(folder: Path, count: int, *, size: tuple[int, int] = (40, 56)) -> list[Path]:
    """Write random frames and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        frame = random_images(1, *size, seed=number)[0][0].permute(1, 2, 0)
        paths.append(folder / f"frame{number}.png")
        Image.fromarray((255 * frame).byte().numpy()).save(paths[-1])
    return paths


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two small images on disk."""
    first, second = write_frames(tmp_path / "pair", 2)
    return first, second


def is_picture(path: Path, size: tuple[int, int]) -> bool:
    """Tell whether a file is a picture of that height and width that shows something."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return pixels.shape[:2] == size and bool(pixels.std() > 0)

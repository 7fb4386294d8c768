"""What the tests of batches share: small clips, small weights, and a way to run the command."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from gmaflow.batch import BatchConfig
from gmaflow.batch.destination import Destination
from gmaflow.io import write_image
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.weights import Checkpoint, save_checkpoint
from tests.io.frames import moving

SIZE = (32, 40)


def contents(url: str) -> dict[str, bytes]:
    """All files at a destination."""
    destination = Destination(url)
    return {name: destination.read(name) or b"" for name in destination.names("")}


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of the smallest network."""
    torch.manual_seed(0)
    tensors = FlowNetwork(MODELS["raft-small"]).state_dict()
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_checkpoint(path, Checkpoint(config=MODELS["raft-small"], tensors=tensors))
    return path


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight folders of three frames, and one whose frames differ in size."""
    root = tmp_path_factory.mktemp("clips")
    for number in range(8):
        write_clip_frames(root / f"{number:02d}", 3, seed=number)
    write_clip_frames(root / "bad", 2, seed=0)
    write_image(root / "bad" / "frame2.png", moving(1, size=(48, 48))[0])
    return root


def write_clip_frames(folder: Path, count: int, *, seed: int, size: tuple[int, int] = SIZE) -> None:
    """Write the frames of a clip as images."""
    folder.mkdir(parents=True)
    for number, frame in enumerate(moving(count, seed=seed, size=size)):
        write_image(folder / f"frame{number}.png", frame)


@pytest.fixture
def config(small_weights: Path) -> BatchConfig:
    """The cheapest job there is."""
    return BatchConfig(weights=str(small_weights), iters=1)


def bytes_of(folder: Path) -> dict[str, str]:
    """Return a hash of every file of a destination."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    events: list[dict[str, Any]]
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The last line."""
        return self.events[-1]

    @property
    def clips(self) -> list[str]:
        """The clips that were done, in order."""
        return [e["id"] for e in self.events if e["event"] == "clip" and "error" not in e]


class Command:
    """`gmaflow batch --json` in a process of its own, which can be watched and killed."""

    def __init__(self, *args: str | Path, env: dict[str, str] | None = None) -> None:
        source = str(Path(__file__).parents[2] / "src")
        paths = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gmaflow", "batch", *map(str, args), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | (env or {}),
            start_new_session=True,
            # A shell's background jobs ignore Ctrl-C, and hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def read(self) -> dict[str, Any]:
        """Wait for the next event."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"event": "none"}

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=120)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return Ended(self.process.returncode, events, err)

    def kill(self, number: int = signal.SIGKILL) -> Ended:
        """Send a signal to the command and all its processes."""
        os.killpg(self.process.pid, number)
        return self.end()

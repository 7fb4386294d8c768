"""Real servers on free ports with small random networks, and clients for them."""

import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from gmaflow.example import load_example
from gmaflow.io import VideoWriter
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.serving import Limits
from gmaflow.serving.job_queue import JobQueue
from gmaflow.serving.models import ModelRegistry
from gmaflow.serving.server import FlowServer, bind
from gmaflow.weights import Checkpoint, save_checkpoint
from tests.conftest import random_images

BROWSER = {"X-Gmaflow": "1"}
PAN_SIZE = (64, 96)
SHIFT = 3
"""By how many pixels `pan_frames` move."""
PATIENCE = 60.0
"""Seconds after which a test gives up; a busy machine may need many."""


@dataclass
class Running:
    """A server that runs, and a client for it."""

    url: str
    server: FlowServer
    client: httpx.Client
    thread: Thread = field(repr=False)

    @property
    def queue(self) -> JobQueue:
        """The server's job queue, to look at only."""
        return self.server.queue

    @property
    def folder(self) -> Path:
        """Where results are kept."""
        return Path(self.queue._folder.name)

    def send(self, *, size: tuple[int, int] = (40, 56), **fields: str) -> httpx.Response:
        """Send a pair."""
        return self.client.post("/api/jobs", files=pair_files(size), data=fields)

    def start(self, *, size: tuple[int, int] = (40, 56), **fields: str) -> str:
        """Send a pair and return the job's address."""
        answer = self.send(size=size, **fields)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["url"])

    def wait(self, url: str) -> dict[str, Any]:
        """Wait until a job is over."""
        return self.until(url, lambda job: job["state"] in ("done", "failed", "cancelled"))

    def until(self, url: str, there: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a job is as it should be."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            job: dict[str, Any] = self.client.get(url).json()
            if there(job):
                return job
            time.sleep(0.02)
        raise AssertionError(f"it did not get there: {job}")


def eventually(there: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)


def png(image: np.ndarray) -> bytes:
    """A picture as the bytes of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def frames(size: tuple[int, int] = (40, 56)) -> tuple[np.ndarray, np.ndarray]:
    """Two random frames, the second a shift of the first."""
    first, second = (255 * image[0].permute(1, 2, 0) for image in random_images(1, *size))
    return first.byte().numpy(), second.byte().numpy()


def pair_files(size: tuple[int, int] = (40, 56)) -> dict[str, tuple[str, bytes]]:
    """A pair as the files of a form."""
    first, second = frames(size)
    return {"image1": ("a.png", png(first)), "image2": ("b.png", png(second))}


def texture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A part of the built-in example; each seed gives another."""
    image = load_example().image1
    top = (100 + 160 * seed) % (image.shape[0] - height)
    left = (100 + 200 * seed) % (image.shape[1] - width)
    return image[top : top + height, left : left + width].copy()


def write_clip(path: Path, frames: list[np.ndarray]) -> bytes:
    with VideoWriter(path, fps=10) as writer:
        for frame in frames:
            writer.write(frame)
    return path.read_bytes()


def pan_frames(size: tuple[int, int]) -> list[np.ndarray]:
    """Six frames of a camera that pans by three pixels in each."""
    height, width = size
    wide = texture(height, width + 6 * SHIFT)
    return [wide[:, SHIFT * n : SHIFT * n + width].copy() for n in range(6)]


@pytest.fixture(scope="session")
def pan(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A short clip of a camera that pans."""
    return write_clip(tmp_path_factory.mktemp("pan") / "pan.mp4", pan_frames(PAN_SIZE))


@pytest.fixture(scope="session")
def weight_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Random weights of a small model, and of one with attention."""
    folder = tmp_path_factory.mktemp("weights")
    for name, model in (("small", "raft-small"), ("attentive", "gma")):
        torch.manual_seed(0)
        checkpoint = Checkpoint(
            config=MODELS[model], tensors=FlowNetwork(MODELS[model]).state_dict()
        )
        save_checkpoint(folder / f"{name}.safetensors", checkpoint)
    return str(folder / "small.safetensors"), str(folder / "attentive.safetensors")


@pytest.fixture(scope="session")
def models(weight_files: tuple[str, str]) -> ModelRegistry:
    """A small model, one with attention, and the shipped one."""
    return ModelRegistry(weight_files, options=DeviceOptions(device="cpu"))


@contextmanager
def running(
    models: ModelRegistry, *, send_buffer: int | None = None, **limits: float
) -> Iterator[Running]:
    """Run a server in a thread, with other limits than the usual where they are given."""
    with bind("127.0.0.1", 0) as listener:
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        urls: list[str] = []
        allowed = Limits(**limits)  # type: ignore[arg-type]
        server = FlowServer(listener, models, allowed, ready=urls.append)
        thread = Thread(target=server.run, name="gmaflow-server")
        thread.start()
        eventually(lambda: bool(urls))
        try:
            with httpx.Client(base_url=urls[0], timeout=PATIENCE, headers=BROWSER) as client:
                yield Running(urls[0], server, client, thread)
        finally:
            server.stop()
            thread.join()


@pytest.fixture(scope="module")
def site(models: ModelRegistry) -> Iterator[Running]:
    """A server with the usual limits, gone when the file's tests are done."""
    with running(models) as server:
        yield server

"""How many of gmaflow's source files a verb goes through while it runs.

A file counts if one of its functions is entered, in any thread of the process. What runs while a
module is imported (its body, class bodies, decorators) does not count, nor do other processes.

PYTHONPATH=src python benchmarks/hops.py
PYTHONPATH=src python benchmarks/hops.py flow video --list
"""

import argparse
import contextlib
import inspect
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image

import gmaflow
from gmaflow.cli import main
from gmaflow.io import VideoWriter, write_flow, write_image
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.weights import Checkpoint, save_checkpoint

PACKAGE = f"{Path(gmaflow.__file__).resolve().parent}{os.sep}"
SIZE = (48, 64)
PATIENCE = 300.0


class Hops:
    """Records the files whose functions are entered while it is active."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.active = False
        self._seen: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """Take note of a call; this is what `sys.setprofile` calls."""
        code = frame.f_code
        if not self.active or event != "call" or code in self._seen:
            return
        # Only functions keep their variables in slots; bodies of modules and classes do not.
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        is_ours = code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(".py")
        if not is_function or not is_ours:
            self._seen.add(code)
        elif not is_importing(frame):
            self._seen.add(code)
            self.files.add(code.co_filename.removeprefix(PACKAGE))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block."""
        self.active = True
        try:
            yield
        finally:
            self.active = False


def is_importing(frame: FrameType | None) -> bool:
    """Whether a call comes from the body of one of gmaflow's modules."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def make_frames(count: int) -> list[np.ndarray]:
    """Return frames of a smooth texture that moves."""
    coarse = np.random.default_rng(0).integers(0, 256, (16, 20, 3)).astype(np.uint8)
    height, width = SIZE
    fine = np.asarray(Image.fromarray(coarse).resize((width + 32, height + 32)))
    return [fine[i : i + height, 2 * i : 2 * i + width].copy() for i in range(count)]


def make_material(folder: Path) -> None:
    """Write what the verbs work on: weights, frames, a video, and a data set like Sintel."""
    for name in ("gma", "raft-small"):
        torch.manual_seed(0)
        config = MODELS[name]
        tensors = FlowNetwork(config).state_dict()
        save_checkpoint(folder / f"{name}.safetensors", Checkpoint(config=config, tensors=tensors))
    frames = make_frames(3)
    with VideoWriter(folder / "in.mp4", fps=12) as video:
        for number, frame in enumerate(frames, 1):
            write_image(folder / f"frame_{number:04d}.png", frame)
            video.write(frame)
    training = folder / "sintel" / "training"
    dark = np.zeros(SIZE, np.uint8)
    for scene in ("alley_1", "ambush_2"):
        for number, frame in enumerate(frames, 1):
            name = f"{scene}/frame_{number:04d}"
            for part in ("clean", "final"):
                write_image(training / part / f"{name}.png", frame)
            if number < len(frames):
                write_flow(training / "flow" / f"{name}.flo", np.zeros((*SIZE, 2), np.float32))
                write_image(training / "occlusions" / f"{name}.png", dark)
                write_image(training / "invalid" / f"{name}.png", dark)


def call(hops: Hops, *args: str | Path) -> None:
    """Run a command line; what it prints is dropped, unless it fails."""
    said = io.StringIO()
    with hops.recording(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            if end.code:
                hops.active = False
                sys.__stderr__.write(said.getvalue())  # type: ignore[union-attr]
                raise


def run_flow(hops: Hops, folder: Path) -> None:
    """`gmaflow flow a b`."""
    pair = folder / "frame_0001.png", folder / "frame_0002.png"
    weights = folder / "gma.safetensors"
    call(hops, "flow", *pair, "-o", folder / "a.flo", "--iters", "2", "--weights", weights)


def run_video(hops: Hops, folder: Path) -> None:
    """`gmaflow video`."""
    weights = folder / "gma.safetensors"
    output = folder / "out.mp4"
    call(hops, "video", folder / "in.mp4", "-o", output, "--iters", "2", "--weights", weights)


def run_train(hops: Hops, folder: Path) -> None:
    """`gmaflow train` for two steps."""
    options = [
        "--model",
        "gma",
        "--crop",
        "48x64",
        "--batch",
        "1",
        "--iters",
        "1",
        "--steps",
        "2",
        "--validate-every",
        "0",
    ]
    options += ["--device", "cpu", "--log-every", "1"]
    call(hops, "train", "scenes-pretrain", *options, "-o", folder / "run")


def run_evaluate(hops: Hops, folder: Path) -> None:
    """`gmaflow evaluate` on a folder laid out as Sintel."""
    options = ["--data", "sintel", "--root", folder / "sintel", "--iters", "1"]
    weights = folder / "gma.safetensors"
    call(hops, "evaluate", *options, "--weights", weights, "-o", folder / "report")


Ask = Callable[[httpx.Client, Path], None]


def run_serve(hops: Hops, folder: Path, ask_for: Ask) -> None:
    """`gmaflow serve`, from the request to the result."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers={"X-Gmaflow": "1"}, timeout=PATIENCE
            ) as client:
                wait_for(lambda: is_up(client))
                with hops.recording():
                    ask_for(client, folder)
        except BaseException as err:  # noqa: BLE001 - it is raised in the main thread
            failed.append(err)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    client = threading.Thread(target=ask)
    client.start()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            weights = str(folder / "gma.safetensors")
            main(["serve", "--port", str(port), "--no-open", "--weights", weights])
        with contextlib.suppress(KeyboardInterrupt):
            client.join()
    if failed:
        raise SystemExit(f"{said.getvalue()}\nserve failed: {failed[0]!r}")
    hops.files = {file for file in hops.files if file.startswith("serving")}


def is_up(client: httpx.Client) -> bool:
    """Whether the server answers."""
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def ask_for_flow(client: httpx.Client, folder: Path) -> None:
    """Send a pair, wait for its flow, and fetch a picture and a file of it."""
    files = {
        f"image{number}": (f"{number}.png", (folder / f"frame_{number:04d}.png").read_bytes())
        for number in (1, 2)
    }
    url, job = submit(client, files, {"iters": "2"})
    for view in ("flow", "flow.flo"):
        client.get(f"{url}/pairs/0/{job['models'][0]}/{view}").raise_for_status()


def ask_for_tracks(client: httpx.Client, folder: Path) -> None:
    """Send a clip, wait for its tracks, and fetch a picture and a file of them."""
    files = {"clip": ("in.mp4", (folder / "in.mp4").read_bytes())}
    url, _ = submit(client, files, {"iters": "2", "reference": "0"})
    for address in ("frames/1/still", "tracks/values?points=5,5", "tracks/tracks.csv?points=5,5"):
        client.get(f"{url}/{address}").raise_for_status()


def submit(
    client: httpx.Client, files: dict[str, tuple[str, bytes]], fields: dict[str, str]
) -> tuple[str, dict[str, Any]]:
    """Submit a job and wait for it; returns its address and status."""
    answer = client.post("/api/jobs", files=files, data=fields)
    answer.raise_for_status()
    url = answer.json()["url"]
    wait_for(lambda: client.get(url).json()["state"] in ("done", "failed"))
    job = client.get(url).json()
    if job["state"] != "done":
        raise RuntimeError(job["error"])
    return url, job


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)


VERBS = {
    "flow": (run_flow, 25),
    "video": (run_video, 30),
    "train": (run_train, 45),
    "evaluate": (run_evaluate, 35),
    "serve": (partial(run_serve, ask_for=ask_for_flow), 14),
    "serve-tracks": (partial(run_serve, ask_for=ask_for_tracks), 14),
}
"""How each is run, and how many files it should stay within."""


def count(verb: str) -> set[str]:
    """Run a verb and return the files it went through."""
    hops = Hops()
    with tempfile.TemporaryDirectory() as name:
        make_material(Path(name))
        threading.setprofile(hops)
        sys.setprofile(hops)
        try:
            VERBS[verb][0](hops, Path(name))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return hops.files


def print_table() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verbs", nargs="*", metavar="VERB", help=f"of {', '.join(VERBS)}")
    parser.add_argument("--list", action="store_true", help="name the files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'verb':<14}{'files':>6}{'goal':>6}")
    for verb in options.verbs or VERBS:
        files = count(verb)
        what = " (in serving only)" if verb.startswith("serve") else ""
        print(f"{verb:<14}{len(files):>6}{VERBS[verb][1]:>6}{what}", flush=True)
        if options.list:
            print("".join(f"    {file}\n" for file in sorted(files)), end="")


if __name__ == "__main__":
    print_table()

"""Kill commands at random moments, resume them, and compare their files with an uninterrupted run.

PYTHONPATH=src python benchmarks/kills.py --kills 100

Every command runs once without interruption. Then it runs again, is killed (SIGKILL) a random time
after it has added a file or grown one, and is started again with `--resume`, until it ends by
itself; that is repeated until there were enough kills. All files must then be the same, byte for
byte, and no temporary file may be left.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

FRAMES = 24
LOGS = ("log.jsonl", "tensorboard", "curve.png")
"""They hold times, which differ from run to run."""


def make_frames(folder: Path) -> None:
    """Write a texture that moves."""
    folder.mkdir()
    rough = np.random.default_rng(0).integers(0, 255, (12, 40, 3))
    texture = np.kron(rough, np.ones((8, 8, 1))).astype(np.uint8)
    for number in range(FRAMES):
        image = texture[:80, 2 * number : 2 * number + 96]
        Image.fromarray(image).save(folder / f"{number:03d}.png")


def make_commands(frames: Path) -> dict[str, list[str]]:
    """Return the commands to kill, by name, without their output."""
    fast = ["--iters", "2", "--weights", "gma", "--device", "cpu", "--quiet"]
    small = ["--crop", "64x96", "--batch", "1", "--iters", "2", "--model", "raft-small"]
    small += ["--steps", "24", "--save-every", "3", "--log-every", "6", "--precision", "fp32"]
    small += ["--validate-every", "1000", "--workers", "0", "--device", "cpu", "--quiet"]
    return {
        "flow": ["flow", str(frames), "--warm-start", *fast],
        "flow both ways": ["flow", str(frames), "--backward", "--format", "npz", *fast],
        "video": ["video", str(frames), "--format", "flo", "--warm-start", *fast],
        "scenes": ["scenes", "render", "--count", "24", "--size", "64x96", "--quiet"],
        "train": ["train", "scenes-pretrain", "--pairs", "4", *small],
    }


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file that a command wrote."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not set(LOGS) & set(path.relative_to(folder).parts)
    }


def state(folder: Path) -> tuple[int, int]:
    """Return the number of files and of bytes in a folder, temporary ones included."""
    sizes = []
    for parent, _, names in os.walk(folder):  # passes over folders that are renamed meanwhile
        for name in names:
            try:
                sizes.append(Path(parent, name).stat().st_size)
            except FileNotFoundError:  # renamed meanwhile
                sizes.append(0)
    return len(sizes), sum(sizes)


def start(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start a command; the output is a folder."""
    whole = [sys.executable, "-m", "gmaflow", *command, "-o", f"{folder}/"]
    return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a command, which must succeed."""
    stderr = process.communicate()[1].decode()
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {stderr}")


def kill_once(process: "subprocess.Popen[bytes]", folder: Path, rng: random.Random) -> bool:
    """Kill a command after some progress; false if it ended before."""
    changes, before = rng.randrange(1, 12), state(folder)
    while changes and process.poll() is None:
        now = state(folder)
        changes, before = changes - (now != before), now
        time.sleep(0.001)
    time.sleep(rng.random() * 0.02)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return True


def kill_and_resume(command: list[str], folder: Path, target: int, rng: random.Random) -> int:
    """Kill a command up to `wanted` times, resume it each time, and let it end."""
    kills = 0
    process = start(command, folder)
    while kills < target and kill_once(process, folder, rng):
        kills += 1
        process = start([*command, *(["--resume"] if any(folder.iterdir()) else [])], folder)
    finish(process)
    return kills


def main() -> None:
    """Kill every command its share of times, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", help="the name of one command")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rng, failures, kills = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_frames(place / "frames")
        commands = make_commands(place / "frames")
        if options.only:
            commands = {options.only: commands[options.only]}
        share = -(-options.kills // len(commands))
        for title, command in commands.items():
            whole = place / "whole"
            finish(start(command, whole))
            expected, done, rounds = contents(whole), 0, 0
            while done < share:
                out = place / "out"
                out.mkdir()
                done += kill_and_resume(command, out, share - done, rng)
                rounds += 1
                actual = contents(out)
                differ = sorted(
                    path
                    for path in expected.keys() | actual.keys()
                    if expected.get(path) != actual.get(path)
                )
                if differ:
                    failures += 1
                    print(f"{title}: {len(differ)} files differ, such as {differ[0]}")
                shutil.rmtree(out)
            shutil.rmtree(whole)
            kills += done
            print(f"{title}: {done} kills in {rounds} runs, {len(expected)} files each", flush=True)
    print(f"{kills} kills, {failures} runs with other files than without interruption")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

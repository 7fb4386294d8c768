"""How fast pictures of flow are drawn and written, by the number of threads.

PYTHONPATH=src OMP_NUM_THREADS=1 python benchmarks/writing.py --sizes 440x1024,1080x1920

Pictures go into PNG files, by one thread at zlib's default level and by more at the level in use,
and into a video, which is encoded in order. Two cores write twice as much only if both are idle.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from gmaflow.io import VideoWriter, images, write_behind, write_image
from gmaflow.io.images import PNG_LEVEL, read_size
from gmaflow.viz import flow_to_image

COUNT = 24
MAX_LENGTH = 20.0
DEFAULT_LEVEL = 6


def make_flow(number: int, height: int, width: int) -> np.ndarray:
    """Return smooth motion with a little noise, as networks estimate it."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    flow = np.stack([10 * np.sin((y + 3 * number) / 90) + x / 100, 7 * np.cos(x / 70)], axis=-1)
    return flow + np.random.default_rng(number).normal(0, 0.03, flow.shape).astype(np.float32)


def per_second(
    write: Callable[[np.ndarray, int], Callable[[], None] | None],
    flows: list[np.ndarray],
    threads: int,
) -> float:
    """Return how many flows are written in a second."""
    begun = time.perf_counter()
    with write_behind(threads=threads) as submit:
        for number in range(COUNT):
            submit(partial(write, flows[number % len(flows)], number))
    return COUNT / (time.perf_counter() - begun)


def measure(height: int, width: int, folder: Path) -> None:
    """Print the rates for one size."""
    flows = [make_flow(number, height, width) for number in range(6)]
    size = f"{height}x{width}"
    cores = os.cpu_count() or 1

    def write_png(flow: np.ndarray, number: int) -> None:
        write_image(folder / f"{number}.png", flow_to_image(flow, max_length=MAX_LENGTH))

    for level, threads in ((DEFAULT_LEVEL, 1), *((PNG_LEVEL, n) for n in sorted({1, cores}))):
        with patch.dict(images._ENCODERS, {".png": ("PNG", {"compress_level": level})}):
            rate = per_second(write_png, flows, threads)
        kilobytes = sum(file.stat().st_size for file in folder.glob("*.png")) / COUNT / 1000
        print(
            f"{size} png, level {level}, threads {threads}: {rate:.1f}/s, {kilobytes:.0f} kB each"
        )
    for threads in sorted({1, cores}):
        with VideoWriter(folder / "a.mp4") as video:

            def draw(flow: np.ndarray, _: int, video: VideoWriter = video) -> Callable[[], None]:
                return partial(video.write, flow_to_image(flow, max_length=MAX_LENGTH))

            print(f"{size} mp4, threads {threads}: {per_second(draw, flows, threads):.1f}/s")


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="440x1024,1080x1920")
    for text in parser.parse_args().sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            measure(*read_size(text), Path(folder))


if __name__ == "__main__":
    main()

"""Size, error and speed of the formats that flow is stored in, on real pairs.

PYTHONPATH=src python benchmarks/storage.py --material FOLDER --keep FOLDER

The flow is that which the default network estimates, since that is what is stored; it is kept as
.flo in the folder of --keep. FOLDER of --material holds data sets in their own layout: middlebury,
sintel, kitti2015, kitti2012, flyingchairs. Speeds are by CPU time, on one core.
"""

import argparse
import shutil
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gmaflow import FlowEstimator
from gmaflow.data import FlowPair, open_dataset
from gmaflow.errors import DatasetError
from gmaflow.io import (
    CLIP_SUFFIXES,
    create_clip,
    files_of,
    open_clip,
    read_flow_arrays,
    read_image,
    write_flow,
)

DATASETS = (
    ("middlebury", "middlebury", None, None),
    ("sintel", "sintel", None, ("clean", "final")),
    ("kitti-2015", "kitti2015", None, None),
    ("kitti-2012", "kitti2012", None, "noc"),
    ("chairs", "flyingchairs", "all", None),
)
FORMATS = (
    "flow.flo",
    "flow.npz",
    "flow.flo5",
    "flow.f16.npz",
    "clip.h5",
    "flow.kitti.png",
    "flow_x.jpg",
    "clip.tar",
)
Pack = Callable[[np.ndarray], bytes]
Unpack = Callable[[bytes], object]
CLIP_LENGTH = 10
"""A clip holds the same flow so often; clips are compressed frame by frame."""


def find_pairs(material: Path) -> Iterator[tuple[str, FlowPair]]:
    """List the real pairs, with a name for each."""
    for name, folder, split, passes in DATASETS:
        try:
            pairs = open_dataset(name, material / folder, split=split, passes=passes)
        except DatasetError as err:
            print(f"left out: {err}")
            continue
        for number, pair in enumerate(pairs):
            yield f"{name}-{number:02d}", pair


def estimate(material: Path, keep: Path) -> list[np.ndarray]:
    """Return the estimated flow of all pairs, from the folder where it is kept if it is there."""
    flows, estimator = [], None
    for name, pair in find_pairs(material):
        path = keep / f"{name}.flo"
        if not path.exists():
            estimator = estimator or FlowEstimator()
            write_flow(path, estimator(read_image(pair.image1), read_image(pair.image2)).array)
        flows.append(read_flow_arrays(path).array)
    return flows


def timed(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of some work, in CPU time: others may use the machine."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def measure(name: str, flows: list[np.ndarray], repeats: int) -> dict[str, float]:
    """Write and read all flows in one format."""
    folder = Path(tempfile.mkdtemp())
    path = folder / name
    clip, count = path.suffix in CLIP_SUFFIXES, 1
    size = pixels = 0
    writing = reading = error = largest = beyond = 0.0

    def write_clip(flow: np.ndarray) -> None:
        with create_clip(path) as writer:
            for frame in range(CLIP_LENGTH):
                writer.add(frame, flow)

    for flow in flows:
        if clip:
            count = CLIP_LENGTH
            writing += timed(lambda flow=flow: write_clip(flow), repeats)
            reading += timed(lambda: list(open_clip(path)), repeats)
            stored = open_clip(path)[0].array
        else:
            writing += timed(lambda flow=flow: write_flow(path, flow), repeats)
            reading += timed(lambda: read_flow_arrays(path), repeats)
            stored = read_flow_arrays(path).array
        size += sum(file.stat().st_size for file in files_of(path))
        pixels += count * flow.shape[0] * flow.shape[1]
        outside = (np.abs(flow) > 20).any(axis=2) if name in ("flow_x.jpg", "clip.tar") else False
        distance = np.linalg.norm(stored - flow, axis=2)
        distance[outside] = 0
        error += count * float(distance.sum(dtype=np.float64))
        largest = max(largest, float(distance.max()))
        beyond += count * float(np.sum(outside))
    shutil.rmtree(folder)
    return {
        "bytes": size / pixels,
        "mean": error / (pixels - beyond),
        "largest": largest,
        "write": pixels / writing / 1e6,
        "read": pixels / reading / 1e6,
        "beyond": beyond / pixels,
    }


def packers() -> dict[str, tuple[Pack, Unpack]]:
    """Return ways to pack float16 without loss: functions of height x width x 2, and back."""

    def planes(flow: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(flow.transpose(2, 0, 1))

    def shuffled(flow: np.ndarray) -> bytes:
        return np.ascontiguousarray(planes(flow).view(np.uint8).reshape(-1, 2).T).tobytes()

    methods: dict[str, tuple[Pack, Unpack]] = {
        "deflate, as .npz": (lambda flow: zlib.compress(flow.tobytes(), 6), zlib.decompress),
        "x and y apart, deflate": (lambda flow: zlib.compress(planes(flow), 6), zlib.decompress),
        "the same, shuffled, level 1 (.h5)": (
            lambda flow: zlib.compress(shuffled(flow), 1),
            zlib.decompress,
        ),
        "the same, level 4": (lambda flow: zlib.compress(shuffled(flow), 4), zlib.decompress),
    }
    try:
        from numcodecs import Blosc
    except ModuleNotFoundError:
        print("left out: Zarr's codecs, which need numcodecs")
        return methods
    for codec in ("zstd", "lz4"):
        blosc = Blosc(codec, 5, Blosc.SHUFFLE)
        pack = lambda flow, blosc=blosc: blosc.encode(planes(flow))  # noqa: E731
        methods[f"the same, {codec} by Blosc (Zarr)"] = pack, blosc.decode
    return methods


def compare_packers(flows: list[np.ndarray]) -> None:
    """Print the size and speed of ways to pack float16 without loss, in memory."""
    halves = [flow.astype(np.float16) for flow in flows]
    pixels = sum(half.size // 2 for half in halves)
    print("| | bytes per pixel | pack | unpack |\n|---|---|---|---|")
    for name, (pack, unpack) in packers().items():
        begin = time.process_time()
        packed = [pack(half) for half in halves]
        middle = time.process_time()
        for data in packed:
            unpack(data)
        end = time.process_time()
        print(
            f"| {name} | {sum(map(len, packed)) / pixels:.2f} | "
            f"{pixels / (middle - begin) / 1e6:.0f} Mpx/s | "
            f"{pixels / (end - middle) / 1e6:.0f} Mpx/s |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--material", type=Path, required=True, help="folder of data sets")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the estimated flow")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--packers", action="store_true", help="compare ways to pack float16")
    options = parser.parse_args()
    flows = estimate(options.material, options.keep)
    print(f"{len(flows)} pairs, {sum(flow.size // 2 for flow in flows) / 1e6:.1f} Mpx")
    if options.packers:
        compare_packers(flows)
        return
    print("| format | bytes per pixel | of .flo | mean error | largest | write | read |")
    print("|---|---|---|---|---|---|---|")
    for name in FORMATS:
        costs = measure(name, flows, options.repeats)
        print(
            f"| `{name}` | {costs['bytes']:.3f} | 1/{8 / costs['bytes']:.1f} | "
            f"{costs['mean']:.4f} px | {costs['largest']:.3f} px | {costs['write']:.1f} Mpx/s | "
            f"{costs['read']:.1f} Mpx/s |"
        )
        if costs["beyond"]:
            print(f"  ({costs['beyond']:.1%} of the pixels move more than 20 px in x or y)")


if __name__ == "__main__":
    main()

"""What the benchmarks' servers want: which pairs, how estimated, under which names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data import FlowPair
from gmaflow.errors import FlowError, suggest
from gmaflow.inference import PaddingKind

# 16 bits in steps of 1/64 around zero, and the code 0 means unknown.
_KITTI_LARGEST = (2**15 - 1) / 64
_SHORT = {"forward": "FW", "backward": "BW"}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A server's wishes.

    Attributes:
        name: how it is called here.
        dataset: the data set whose test split it judges.
        passes: the passes it wants.
        iters: refinements, as the paper's submissions had.
        warm_start: whether sequences are estimated warm, as the paper's were.
        padding: how images are padded.
        largest: what the format can hold in either direction, in pixels.
        place: from a pass and a pair to the file's path in the submission.
        instructions: what to do with the folder, which is put in for `{folder}`.
    """

    name: str
    dataset: str
    passes: tuple[str, ...] = ("",)
    iters: int
    warm_start: bool = False
    padding: PaddingKind = "sintel"
    largest: float | None = None
    place: Callable[[str, FlowPair], Path]
    instructions: str


def _sintel_place(variant: str, pair: FlowPair) -> Path:
    return Path(variant, pair.scene, f"frame_{pair.frame}.flo")


def _kitti_place(_variant: str, pair: FlowPair) -> Path:
    return Path("flow", f"{pair.scene}_{pair.frame}.png")


def _spring_place(_variant: str, pair: FlowPair) -> Path:
    kind = f"flow_{_SHORT[pair.direction]}_{pair.camera}"
    return Path(pair.scene, kind, f"{kind}_{pair.frame}.flo5")


def _kitti(name: str, *, year: int, pack: str) -> Benchmark:
    return Benchmark(
        name=name,
        dataset=f"kitti-{year}",
        passes=("occ",),
        iters=24,
        padding="kitti",
        largest=_KITTI_LARGEST,
        place=_kitti_place,
        instructions=(
            f"{pack}2. Upload {name}.zip at https://www.cvlibs.net/datasets/kitti (an account is\n"
            f"   needed), under Flow {year}. The server takes few submissions; do not tune by it."
        ),
    )


_ALL = (
    Benchmark(
        name="sintel",
        dataset="sintel",
        passes=("clean", "final"),
        iters=32,
        warm_start=True,
        place=_sintel_place,
        instructions=(
            "1. Pack both passes with the bundler that comes with the data set (bundler/):\n"
            "     bundler {folder}/clean {folder}/final sintel.lzma\n"
            "2. Upload sintel.lzma at http://sintel.is.tue.mpg.de (an account is needed)."
        ),
    ),
    _kitti(
        "kitti",
        year=2015,
        pack="1. Pack the folder flow, with its name:\n     cd {folder} && zip -r kitti.zip flow\n",
    ),
    _kitti(
        "kitti-2012",
        year=2012,
        pack=(
            "1. Pack the files of the folder flow, without a folder around them:\n"
            "     cd {folder}/flow && zip ../kitti-2012.zip *.png\n"
        ),
    ),
    Benchmark(
        name="spring",
        dataset="spring",
        iters=32,
        place=_spring_place,
        instructions=(
            "1. Get the flow subsampling tool from https://spring-benchmark.org and run it on\n"
            "     {folder}\n"
            "2. Upload the file that it makes at https://spring-benchmark.org."
        ),
    ),
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
"""All benchmarks that take submissions, by name."""


def find_benchmark(name: str) -> Benchmark:
    """Find a benchmark by name.

    Raises:
        FlowError: there is none of this name.
    """
    if name not in BENCHMARKS:
        raise FlowError(f"there is no benchmark {name!r}; {suggest(name, BENCHMARKS)}")
    return BENCHMARKS[name]

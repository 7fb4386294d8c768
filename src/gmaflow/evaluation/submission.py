"""Submissions for the benchmarks' servers: what each server wants, writing it, and checking it."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from gmaflow.data import FlowPair, dataset_info, open_dataset
from gmaflow.data.headers import measure as measure_size
from gmaflow.errors import FlowError, OutputError, counted, look_up
from gmaflow.evaluation.evaluating import (
    LAST_FLOW,
    digest,
    estimate_sequence,
    find_done,
    identify,
    split_sequences,
)
from gmaflow.inference import FlowEstimator, LastFlows, PaddingKind
from gmaflow.io import read_flow_arrays, write_flow
from gmaflow.io.resumable import ResultRecord, lock_folder

MANIFEST = "submission.json"

# 16 bits in steps of 1/64 around zero; the code 0 means unknown.
_KITTI_LARGEST = (2**15 - 1) / 64
_SHORT = {"forward": "FW", "backward": "BW"}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What a server wants; refinements and warm start are those of the paper's submissions."""

    name: str
    dataset: str
    """The data set whose test split it evaluates."""
    passes: tuple[str, ...] = ("",)
    iters: int
    warm_start: bool = False
    padding: PaddingKind = "sintel"
    largest: float | None = None
    """The largest motion that the file format can hold in either direction, in pixels."""
    place: Callable[[str, FlowPair], Path]
    """From a pass and a pair to the file's path in the submission."""
    instructions: str
    """What to do with the folder, which replaces `{folder}`."""


def _sintel_place(pass_name: str, pair: FlowPair) -> Path:
    # As the bundler's README and the published code: without the underscore of the images.
    return Path(pass_name, pair.scene, f"frame{pair.frame}.flo")


def _kitti_place(_pass: str, pair: FlowPair) -> Path:
    return Path("flow", f"{pair.scene}_{pair.frame}.png")


def _spring_place(_pass: str, pair: FlowPair) -> Path:
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
            f"{pack}2. Upload {name}.zip at https://www.cvlibs.net/datasets/kitti (requires an\n"
            f"   account), under Flow {year}. The server limits submissions; do not tune on it."
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
            "2. Upload sintel.lzma at http://sintel.is.tue.mpg.de (requires an account)."
        ),
    ),
    _kitti(
        "kitti",
        year=2015,
        pack="1. Pack the folder flow, including its name:\n"
        "     cd {folder} && zip -r kitti.zip flow\n",
    ),
    _kitti(
        "kitti-2012",
        year=2012,
        pack="1. Pack the files of the folder flow, without the folder:\n"
        "     cd {folder}/flow && zip ../kitti-2012.zip *.png\n",
    ),
    Benchmark(
        name="spring",
        dataset="spring",
        iters=32,
        place=_spring_place,
        instructions=(
            "1. Get the flow subsampling tool from https://spring-benchmark.org and run it on\n"
            "     {folder}\n"
            "2. Upload the resulting file at https://spring-benchmark.org."
        ),
    ),
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
"""All benchmarks that accept submissions, by name."""


def find_benchmark(name: str) -> Benchmark:
    return look_up("benchmark", name, BENCHMARKS)


@dataclass(frozen=True)
class SubmissionFile:
    """One file of a submission."""

    pair: FlowPair
    path: Path
    follows: bool
    """Whether its pair starts where the previous one ends."""

    def problem(self) -> str | None:
        """Describe the problem of the file; None if it is complete and of the right size."""
        try:
            flow = read_flow_arrays(self.path)
            expected = measure_size(self.pair.image1)
        except FlowError as err:
            return str(err)
        if flow.valid.shape != expected:
            return (
                f"{self.path} is {flow.valid.shape[0]} x {flow.valid.shape[1]} but its image is "
                f"{expected[0]} x {expected[1]} (height x width)"
            )
        if not flow.valid.all():
            return f"{self.path} has {np.count_nonzero(~flow.valid)} pixels without flow"
        return None


@dataclass(frozen=True, kw_only=True)
class SubmissionReport:
    """The outcome of a submission."""

    written: int
    kept: int
    """Files that existed and were valid."""
    published: int
    """The number of files that the server wants."""
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether it can be uploaded."""
        return not self.problems


def list_files(benchmark: Benchmark, root: Path | None, folder: Path) -> list[SubmissionFile]:
    """List the files of a submission, sequences in order."""
    if root is not None and root.name in ("test", "testing"):
        root = root.parent
    files: list[SubmissionFile] = []
    for pass_name in benchmark.passes:
        pairs = open_dataset(benchmark.dataset, root, split="test", passes=pass_name).pairs
        follows = [False, *(pair.follows(before) for before, pair in pairwise(pairs))]
        files += [
            SubmissionFile(pair, folder / benchmark.place(pass_name, pair), after)
            for pair, after in zip(pairs, follows, strict=True)
        ]
    return files


def submit(
    benchmark: Benchmark,
    estimator: FlowEstimator,
    folder: Path,
    *,
    root: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> SubmissionReport:
    """Estimate the test pairs, write the files that the server wants, and check them.

    Existing files that are valid are kept, so that an interrupted run resumes. `progress` is called
    with the number of finished files and their total.
    """
    files = list_files(benchmark, root, folder)
    warm = uses_warm_start(benchmark, estimator)
    cold = () if warm == benchmark.warm_start else ("cold",)
    key = digest(benchmark.name, identify(estimator), *cold)
    _check_record(folder, benchmark, key)
    last, done, written = LastFlows(folder / LAST_FLOW), 0, 0
    for sequence in split_sequences(files, lambda file: warm and file.follows):
        keys = [digest(key, str(file.path)) for file in sequence]
        finished = {name for name, file in zip(keys, sequence, strict=True) if not file.problem()}
        loads = [file.pair.load for file in sequence]
        known = find_done(keys, finished, last)
        flows = estimate_sequence(estimator, loads, keys, done=known, last=last)
        for number, file in enumerate(sequence):
            if keys[number] not in finished:
                flow = next(flow for place, flow in flows if place == number).array
                limit = benchmark.largest
                write_flow(file.path, flow if limit is None else flow.clip(-limit, limit))
                written += 1
            done += 1
            progress(done, len(files))
    last.remove()
    return SubmissionReport(
        written=written,
        kept=len(files) - written,
        published=count_published(benchmark),
        problems=tuple(find_problems(benchmark, files, folder, root)),
    )


def uses_warm_start(benchmark: Benchmark, estimator: FlowEstimator) -> bool:
    """Return whether to use a warm start: as in the model card, otherwise as in the paper."""
    return benchmark.warm_start and estimator.card.warm_start is not False


def find_problems(
    benchmark: Benchmark, files: list[SubmissionFile], folder: Path, root: Path | None
) -> Iterator[str]:
    """Read every file back and report missing, broken and extra files."""
    yield from filter(None, (file.problem() for file in files))
    published = count_published(benchmark)
    if len(files) != published:
        title = dataset_info(benchmark.dataset).title
        command = shlex.join(
            ["gmaflow", "data", "check", benchmark.dataset, *([str(root)] if root else [])]
        )
        yield (
            f"the server wants {published} files but the test data has "
            f"{counted(len(files), 'pair')}; "
            f"`{command}` lists what {title} lacks"
        )
    expected = {file.path for file in files}
    tops = {folder / file.path.relative_to(folder).parts[0] for file in files}
    for top in sorted(tops):
        for path in sorted(top.rglob("*")):
            if path.is_file() and path not in expected:
                yield f"{path} does not belong to the submission; move it away"


def count_published(benchmark: Benchmark) -> int:
    """Return the number of files that the server wants."""
    parts = dataset_info(benchmark.dataset).parts
    return sum(
        part.count or 0
        for part in parts
        if part.split == "test" and part.pass_name in benchmark.passes
    )


def _check_record(folder: Path, benchmark: Benchmark, key: str) -> None:
    """Record the weights and settings; refuse a folder that was started with others."""
    record = ResultRecord(folder, MANIFEST, what="a submission", required="key")
    if not record.exists():
        record.write({"benchmark": benchmark.name, "key": key})
        return
    lock_folder(folder)
    with suppress(OutputError):  # a damaged record is refused like a different one
        if record.read()["key"] == key:
            return
    raise OutputError(
        f"{folder} holds a submission of other weights or settings; choose another folder, or "
        "delete it"
    )

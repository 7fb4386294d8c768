"""Writing what a benchmark's server wants, and checking it before it is called done."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from gmaflow.data import FlowPair, dataset_info, open_dataset
from gmaflow.data.headers import measure as measure_size
from gmaflow.errors import FlowError, OutputError
from gmaflow.evaluation.benchmarks import Benchmark
from gmaflow.evaluation.cache import LastFlow
from gmaflow.evaluation.judging import LAST_FLOW, digest, identify
from gmaflow.evaluation.warm_chain import WarmChain
from gmaflow.inference import Flow, FlowEstimator
from gmaflow.io import atomic_write, read_flow_arrays, write_flow

MANIFEST = "submission.json"
Progress = Callable[[int, int], None]
"""Is told how many files are done, and of how many."""


@dataclass(frozen=True)
class Job:
    """One file of a submission."""

    pair: FlowPair
    path: Path
    follows: bool
    """Whether the pair goes on where the one before ended."""


@dataclass(frozen=True, kw_only=True)
class SubmissionReport:
    """What a submission came to.

    Attributes:
        written: files that were estimated in this run.
        kept: files that were there already and are sound.
        published: how many files the server wants.
        problems: a sentence for everything that is not as it should be.
    """

    written: int
    kept: int
    published: int
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether it can be handed in."""
        return not self.problems


def list_jobs(benchmark: Benchmark, root: Path | None, folder: Path) -> list[Job]:
    """List the files of a submission, sequences in their order.

    Raises:
        DatasetError: the test data is not there.
    """
    if root is not None and root.name in ("test", "testing"):
        root = root.parent
    jobs: list[Job] = []
    for variant in benchmark.passes:
        pairs = open_dataset(benchmark.dataset, root, split="test", passes=variant).pairs
        follows = [False, *(pair.follows(before) for before, pair in pairwise(pairs))]
        jobs += [
            Job(pair, folder / benchmark.place(variant, pair), after)
            for pair, after in zip(pairs, follows, strict=True)
        ]
    return jobs


def submit(
    benchmark: Benchmark,
    estimator: FlowEstimator,
    folder: Path,
    *,
    root: Path | None = None,
    progress: Progress = lambda _done, _total: None,
) -> SubmissionReport:
    """Estimate the test pairs, write them as the server wants, and check all of it.

    Files that are there already and sound are kept.

    Raises:
        FlowError: the data cannot be read, or the folder holds a submission of other weights.
    """
    jobs = list_jobs(benchmark, root, folder)
    key = digest(benchmark.name, identify(estimator))
    _claim(folder, benchmark, key)
    last = LastFlow(folder / LAST_FLOW)
    chain, written = WarmChain(estimator, last), 0
    for done, job in enumerate(jobs, 1):
        if not job.follows:
            chain.restart()
        flow: Flow | None = None
        if fault(job) is not None:
            sample = job.pair.load()
            previous = chain.previous() if benchmark.warm_start else None
            flow = estimator(sample.image1, sample.image2, previous=previous)
            write_flow(job.path, _fit(flow, benchmark))
            written += 1
        if benchmark.warm_start:
            chain.advance(digest(key, str(job.path)), job.pair.load, flow)
        progress(done, len(jobs))
    last.remove()
    return SubmissionReport(
        written=written,
        kept=len(jobs) - written,
        published=count_published(benchmark),
        problems=tuple(find_problems(benchmark, jobs, folder)),
    )


def find_problems(benchmark: Benchmark, jobs: list[Job], folder: Path) -> Iterator[str]:
    """Read every file back, and say what is missing, broken or too much."""
    for job in jobs:
        wrong = fault(job)
        if wrong is not None:
            yield wrong
    published = count_published(benchmark)
    if len(jobs) != published:
        title = dataset_info(benchmark.dataset).title
        yield (
            f"the server wants {published} files but the test data has {len(jobs)} pairs; "
            f"`gmaflow data check {benchmark.dataset}` tells what {title} lacks"
        )
    expected = {job.path for job in jobs}
    tops = {folder / job.path.relative_to(folder).parts[0] for job in jobs}
    for top in sorted(tops):
        for path in sorted(top.rglob("*")):
            if path.is_file() and path not in expected:
                yield f"{path} does not belong to the submission; move it away"


def fault(job: Job) -> str | None:
    """Say what is wrong with a file, None if it is there and sound."""
    try:
        flow = read_flow_arrays(job.path)
        wanted = measure_size(job.pair.image1)
    except FlowError as err:
        return str(err)
    if flow.valid.shape != wanted:
        return (
            f"{job.path} is {flow.valid.shape[0]} x {flow.valid.shape[1]} but its image is "
            f"{wanted[0]} x {wanted[1]} (height x width)"
        )
    if not flow.valid.all():
        return f"{job.path} has {np.count_nonzero(~flow.valid)} pixels without flow"
    return None


def count_published(benchmark: Benchmark) -> int:
    """Return how many files the server wants."""
    parts = dataset_info(benchmark.dataset).parts
    return sum(
        part.count or 0
        for part in parts
        if part.split == "test" and part.variant in benchmark.passes
    )


def _fit(flow: Flow, benchmark: Benchmark) -> np.ndarray:
    if benchmark.largest is None:
        return flow.array
    limit = np.float32(benchmark.largest)
    return flow.array.clip(-limit, limit)


def _claim(folder: Path, benchmark: Benchmark, key: str) -> None:
    """Write down whose submission this is; refuse the folder if it is another's."""
    path = folder / MANIFEST
    if path.exists():
        try:
            found = json.loads(path.read_text())["key"]
        except (ValueError, KeyError, TypeError):
            found = None
        if found != key:
            raise OutputError(
                f"{folder} holds a submission of other weights or settings; choose another folder, "
                "or remove it"
            )
        return
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps({"benchmark": benchmark.name, "key": key}) + "\n")

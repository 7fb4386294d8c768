"""`gmaflow flow FOLDER`: the flow between consecutive frames."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_jobs import Job, Loaded, load_jobs, plan_jobs
from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.flow_record import FolderRecord, make_record
from gmaflow.cli.outputs import (
    PairResult,
    check_formats,
    folder_endings,
    tells_of_second,
    write_parts,
)
from gmaflow.cli.pairs import estimate_pair, settings, tell_of_breaks
from gmaflow.cli.progress import GOES_ON_IF_ASKED, progress_bar
from gmaflow.cli.result_folder import ResultFolder
from gmaflow.cli.scale import choose_scale, looks_at_frames
from gmaflow.errors import ImageError, say
from gmaflow.io import read_ahead, write_behind

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, Frame


def run_folder(options: FlowOptions) -> dict[str, object]:
    """Estimate and write the flow between consecutive frames of a folder."""
    jobs = plan_jobs(options)
    check_formats(jobs[0].paths)
    frames = [jobs[0].first, *(job.second for job in jobs)]
    tell_of_breaks(frames)
    estimator = options.estimator.make()
    output = open_folder(options, estimator, jobs)
    if not options.draws:
        output.scale = None
    elif options.max_length is not None:
        output.scale = options.max_length
    elif output.scale is None and len(output.finished) < len(jobs):
        output.scale = choose_scale(estimator, looks_at_frames(frames), quiet=options.json)
    done, skipped = run_jobs(jobs, FolderWork(estimator, options, output), output, options)
    if skipped and not done and not output.finished:
        raise ImageError(f"no pair of {options.inputs[0]} could be used; the first: {skipped[0]}")
    return {
        **settings(estimator),
        "inputs": [str(options.inputs[0])],
        "outputs": {"folder": str(options.output)},
        "pairs": len(jobs),
        "estimated": done,
        "already_there": len(output.finished),
        "skipped": skipped,
        "max_length": output.scale,
    }


def open_folder(options: FlowOptions, estimator: "FlowEstimator", jobs: list[Job]) -> ResultFolder:
    """Look at the folder that the flow goes to.

    Raises:
        OutputError: It is to be gone on with, but was begun in another way.
    """
    endings = list(folder_endings(options.extras, options.only).values())
    how = make_record(
        estimator,
        verb="flow",
        source=options.inputs[0],
        endings=endings,
        warm_start=options.warm_start,
        attention=list(options.attention),
    )
    firsts = {job.first.stem: job.name for job in jobs}
    seconds = {job.second.stem: job.name for job in jobs}
    record = FolderRecord.open(options.output, how, resume=options.resume, scale=options.max_length)
    return ResultFolder(
        record,
        endings,
        pair_of=lambda stem, ending: (seconds if tells_of_second(ending) else firsts).get(stem),
        warm_start=options.warm_start,
    )


def run_jobs(
    jobs: list[Job], work: "FolderWork", output: ResultFolder, options: FlowOptions
) -> tuple[int, list[str]]:
    """Work through a folder's pairs; returns how many were estimated, and what was wrong."""
    done, skipped = 0, []
    with (
        progress_bar("flow", quiet=options.json, kept=GOES_ON_IF_ASKED) as show_progress,
        closing(read_ahead(load_jobs(jobs, finished=output.finished))) as loaded,
        write_behind() as later,
    ):
        for number, pair in enumerate(loaded):
            show_progress(number, len(jobs))
            try:
                result = work.estimate(pair)
            except ImageError as err:  # other errors would come again with every pair
                skipped.append(f"{pair.job.first.name} -> {pair.job.second.name}: {err}")
                say(f"gmaflow: skipped {skipped[-1]}")
                continue
            if result is not None:
                write = partial(write_parts, result, pair.job.paths)
                later(partial(output.add, pair.job.name, result.flow, write))
                done += 1
    return done, skipped


class FolderWork:
    """Estimates the pairs of a folder in turn, and remembers what serves the next one."""

    def __init__(
        self, estimator: "FlowEstimator", options: FlowOptions, output: ResultFolder
    ) -> None:
        self.estimator = estimator
        self.options = options
        self.output = output
        self._previous: Flow | None = None
        self._encoded: dict[Path, Frame] = {}

    def estimate(self, pair: Loaded) -> PairResult | None:
        """Find out what is wanted of a pair; None if it is finished.

        Raises:
            ImageError: Its images cannot be used.
            FlowError: What is wanted cannot be had of any pair.
        """
        previous, self._previous = self._previous, None
        encoded, self._encoded = self._encoded, {}
        job, options = pair.job, self.options
        if pair.error is not None:
            raise pair.error
        if pair.images is None:
            self._previous = self.output.flows.get(job.name)
            return None
        first = encoded.get(job.first) or self.estimator.encode(pair.images[0])
        second = self.estimator.encode(pair.images[1])
        self._encoded = {job.second: second}
        result = estimate_pair(
            self.estimator,
            first,
            second,
            backward=options.backward,
            points=options.points,
            previous=previous if options.warm_start else None,
        )
        self._previous = result.flow
        return replace(result, max_length=self.output.scale)

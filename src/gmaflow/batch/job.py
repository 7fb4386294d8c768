"""A batch job: the remaining clips, their processing, failures, the table, and progress."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from gmaflow.batch.clip_lists import (
    CONTINUES,
    FailureLog,
    count_rows,
    explaining_write_errors,
    require_table,
    table_row,
    table_writer,
)
from gmaflow.batch.clip_outputs import ROWS, require_format
from gmaflow.batch.config import BatchConfig
from gmaflow.batch.destination import (
    SHARDS,
    Destination,
    FinishedClips,
    HashSet,
    hash_of,
    record_name,
)
from gmaflow.batch.manifest import Clip, ClipList, check_identifier
from gmaflow.batch.worker import ClipProgress, ClipResult
from gmaflow.errors import FlowError, OutputError
from gmaflow.io.resumable import find_difference, parse_record, record_text
from gmaflow.runtime.device import pick_device, pick_precision
from gmaflow.weights import Checkpoint, describe, find_checkpoint, fingerprint

RECORD = "batch.json"
ROWS_AT_ONCE = 500
"""Records to read at a time for the table."""

Watch = Callable[["BatchProgress"], None]


@dataclass
class NodeProgress:
    """What one machine has done in this run."""

    workers: set[str] = field(default_factory=set)
    clips: int = 0
    pairs: int = 0


@dataclass
class BatchProgress:
    """The progress of a job."""

    destination: str
    total: int = 0
    """Clips of this run's inputs and shard."""
    finished_before: int = 0
    failed_before: int = 0
    """Clips that failed in an earlier run and are not tried again."""
    done: int = 0
    """Clips that this run has finished."""
    failed: int = 0
    pairs: int = 0
    """Pairs of the clips that this run has finished."""
    under_way: dict[str, ClipProgress] = field(default_factory=dict)
    """Clips in progress, by key, if they take longer than a moment."""
    started: float = field(default_factory=time.monotonic)
    nodes: dict[str, NodeProgress] = field(default_factory=dict)
    last: ClipResult | None = None
    """The latest result; None if the latest message was the progress of a clip."""
    last_failure: ClipResult | None = None
    failures: str = ""
    """Where failures are listed."""

    @property
    def left(self) -> int:
        return self.total - self.finished_before - self.failed_before - self.done - self.failed

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.monotonic() - self.started

    @property
    def pairs_per_second(self) -> float:
        """The speed since the work began, clips under way included."""
        return (self.pairs + self.pairs_under_way) / max(self.seconds, 1e-9)

    @property
    def pairs_under_way(self) -> int:
        """Finished pairs of unfinished clips."""
        # A tuple, since the display reads it in another thread.
        return sum(clip.pairs for clip in tuple(self.under_way.values()))

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the clips so far, parts of clips included; None before any.

        At least what the clip under way that takes longest still needs.
        """
        under_way = tuple(self.under_way.values())
        parts = sum(min(1.0, clip.pairs / clip.expected) for clip in under_way if clip.expected)
        tried = self.done + self.failed + parts
        if not tried:
            return None
        longest = max((clip.seconds_left for clip in under_way), default=0.0)
        return max(self.seconds / tried * (self.left - parts), longest)

    def add(self, result: ClipResult) -> None:
        self.last = result
        self.under_way.pop(result.clip.key, None)
        node = self._node_of(result)
        if result.error is None:
            self.done += 1
            self.pairs += result.pairs
            node.clips += 1
            node.pairs += result.pairs
        else:
            self.failed += 1
            self.last_failure = result

    def update(self, progress: ClipProgress) -> None:
        self.last = None
        self.under_way[progress.clip.key] = progress
        self._node_of(progress)

    def _node_of(self, reply: ClipResult | ClipProgress) -> NodeProgress:
        node = self.nodes.setdefault(reply.node or "this machine", NodeProgress())
        node.workers.add(reply.worker)
        return node

    def report(self) -> dict[str, Any]:
        """Return the figures as plain values for JSON."""
        return {
            "clips": self.total,
            "finished_before": self.finished_before,
            "done": self.done,
            "failed": self.failed + self.failed_before,
            "left": self.left,
            "pairs": self.pairs,
            "seconds": round(self.seconds, 3),
            "pairs_per_second": round(self.pairs_per_second, 3),
            "nodes": {
                name: {"workers": len(node.workers), "clips": node.clips, "pairs": node.pairs}
                for name, node in self.nodes.items()
            },
        }


def run_batch(
    config: BatchConfig, inputs: list[str], output: str, *, watch: Watch = lambda progress: None
) -> BatchProgress:
    """Process all clips that are not finished at the destination.

    Args:
        config: The options.
        inputs: Videos, folders of frames, patterns, or manifests.
        output: A folder, or an address such as `s3://bucket/flow`.
        watch: Called when the work begins, after each clip, and every few seconds while a clip
            is under way.

    Raises:
        FlowError: The inputs or the destination cannot be used. What is finished stays.
    """
    destination = Destination(output)
    clips = ClipList(inputs, config.columns, leave_out=destination.url)
    destination.check()
    require_format(config.format)
    if config.kinds & ROWS.keys():
        require_table(config.table)
    if config.engine == "ray":
        from gmaflow.batch.ray_engine import require_cluster

        require_cluster(config, destination)
    job = BatchJob(config, clips, destination)
    job.run(watch)
    return job.progress


class BatchJob:
    """One run over the clips of some inputs, or over one shard of them."""

    def __init__(self, config: BatchConfig, clips: ClipList, destination: Destination) -> None:
        self.config, self.clips, self.destination = config, clips, destination
        self.progress = BatchProgress(destination.url)
        part, parts = config.shard_numbers
        self._table = f"clips.{config.table}"
        failures = "failures.jsonl"
        if parts > 1:
            self._table = f"{SHARDS}/clips-{part}-of-{parts}.{config.table}"
            failures = f"{SHARDS}/failures-{part}-of-{parts}.jsonl"
        self._failures = FailureLog(destination, failures)
        self._checked: set[str] = set()
        self.progress.failures = destination.path_of(failures)

    def run(self, watch: Watch) -> None:
        """Process the remaining clips."""
        check_identifiers(self.clips, self.config.id_column)
        checkpoint = find_checkpoint(self.config.weights, model=self.config.model)
        with self._engine() as device_type:
            claim(self.destination, self.config, checkpoint, device_type)
            self._run(checkpoint, watch)

    def _engine(self) -> AbstractContextManager[str]:
        """Return a context in which clips can be processed; it yields the type of device."""
        if self.config.engine == "ray":
            from gmaflow.batch.ray_engine import connected

            return connected(self.config)
        return nullcontext(pick_device(self.config.device).type)

    def _run(self, checkpoint: Checkpoint, watch: Watch) -> None:
        finished = FinishedClips(self.destination)
        failed = HashSet() if self.config.retry_failed else self._failures.read_earlier()
        self._count(finished, failed)
        progress = self.progress
        progress.started = time.monotonic()
        watch(progress)
        done_now = HashSet()
        todo = (c for c in self._own_clips() if c.key not in finished and c.key not in failed)
        try:
            if progress.left:
                with closing(self._results(todo, checkpoint)) as results:
                    for result in results:
                        self._take(result, done_now)
                        watch(progress)
        finally:
            self.destination.remove_unfinished()
            self._failures.close(lambda key: key in done_now or key in finished)
        if self.config.kinds & ROWS.keys() and not self._has_table():
            self._write_table()

    def _own_clips(self) -> Iterator[Clip]:
        part, parts = self.config.shard_numbers
        return islice(iter(self.clips), part - 1, None, parts)

    def _count(self, finished: FinishedClips, failed: HashSet) -> None:
        """Count the clips before the work.

        Raises:
            OutputError: The destination holds a clip of the same name from another source.
        """
        for clip in self._own_clips():
            self.progress.total += 1
            if clip.key in finished:
                self.progress.finished_before += 1
            elif finished.clashes(clip):
                raise OutputError(
                    f"{self.destination.url} holds another clip called {clip.identifier!r}, not "
                    f"made from {clip.source}; choose another destination, or other identifiers"
                )
            elif clip.key in failed:
                self.progress.failed_before += 1

    def _results(
        self, todo: Iterator[Clip], checkpoint: Checkpoint
    ) -> Generator[ClipResult | ClipProgress]:
        if self.config.engine == "ray":
            from gmaflow.batch.ray_engine import run_on_ray

            return run_on_ray(self.config, self.destination, todo, checkpoint)
        from gmaflow.batch.local_engine import run_in_process, run_local

        here = self.destination.in_this_process
        return (run_in_process if here else run_local)(self.config, self.destination, todo)

    def _take(self, result: ClipResult | ClipProgress, done: HashSet) -> None:
        if isinstance(result, ClipProgress):
            self.progress.update(result)
            return
        if result.fatal:
            raise OutputError(f"{result.error}; {CONTINUES}")
        self._check_visible(result)
        self.progress.add(result)
        if result.error is None:
            done.add(result.clip.key)
        else:
            self._failures.add(result)

    def _check_visible(self, result: ClipResult) -> None:
        """Refuse a machine whose folder is not the driver's, at its first result."""
        if result.error is not None or result.node in self._checked:
            return
        self._checked.add(result.node)
        if self.destination.read(record_name(result.clip)) is None:
            raise OutputError(
                f"{result.node} wrote {result.clip.identifier!r} to {self.destination.url}, where "
                "this machine does not see it; use a shared folder, or an address such as s3://"
            )

    def _has_table(self) -> bool:
        """Whether the table is there, with all clips that were finished by now.

        Shards may have finished some since, and an interrupted run writes no table.
        """
        table = None if self.progress.done else self.destination.read(self._table)
        if table is None:
            return False
        return count_rows(table, self.config.table) >= self.progress.finished_before

    def _write_table(self) -> None:
        """Write a row for each finished clip, in the order of the inputs."""
        finished = FinishedClips(self.destination)
        names = (record_name(clip) for clip in self._own_clips() if clip.key in finished)
        with self.destination.scratch() as scratch:
            path = scratch / Path(self._table).name
            kinds = [kind for kind in ROWS if kind in self.config.kinds]
            shown = path if self.destination.is_remote else self.destination.path_of(self._table)
            with (
                explaining_write_errors(shown),
                table_writer(path, [name for kind in kinds for name in ROWS[kind]]) as add,
            ):
                while chunk := list(islice(names, ROWS_AT_ONCE)):
                    add([table_row(data) for data in self.destination.read_many(chunk)])
            self.destination.put(path, self._table)
        self.destination.remove_unfinished()


def check_identifiers(clips: Iterable[Clip], column: str) -> None:
    """Check the identifiers of all clips before anything is written.

    `column` holds them in a manifest.

    Raises:
        FlowError: An identifier cannot be a name, or two clips have the same, and would be written
            to the same files.
    """
    identifiers = HashSet()
    for clip in clips:
        check_identifier(clip.identifier, clip.source)
        identifiers.add(clip.identifier)
    repeated = identifiers.repeated()
    earlier: dict[str, str] = {}
    for clip in clips if repeated else ():
        if hash_of(clip.identifier) in repeated:
            if clip.identifier in earlier:
                raise FlowError(
                    f"two clips have the identifier {clip.identifier!r}: "
                    f"{earlier[clip.identifier]} and {clip.source}; give each its own in the "
                    f"column {column!r} of a manifest"
                )
            earlier[clip.identifier] = clip.source


def settings_of(config: BatchConfig, checkpoint: Checkpoint, device_type: str) -> dict[str, object]:
    """Return everything that the results depend on, besides the clips."""
    from gmaflow.inference.estimator import DEFAULT_ITERS

    return {
        "batch": 1,
        "model": describe(checkpoint.config),
        "weights": fingerprint(checkpoint.build()),
        "iters": config.iters or checkpoint.card.iters or DEFAULT_ITERS,
        **config.settings(),
        # What `auto` selects: half precision on a GPU.
        "precision": pick_precision(config.precision, device_type),
    }


def claim(
    destination: Destination, config: BatchConfig, checkpoint: Checkpoint, device_type: str
) -> None:
    """Write the settings to a new destination, or compare them with those of an earlier run.

    Raises:
        OutputError: The destination belongs to another job, or holds other files.
    """
    settings = settings_of(config, checkpoint, device_type)
    text = destination.read(RECORD)
    if text is None and not destination.is_empty():
        text = destination.read(RECORD)  # another shard may have been faster
        if text is None:
            raise OutputError(
                f"{destination.url} has files that gmaflow batch did not write; choose another "
                "destination"
            )
    if text is None:
        destination.write(RECORD, record_text(settings).encode())
        return
    before = parse_record(text, required="batch")
    if before is None:
        raise OutputError(f"{destination.path_of(RECORD)} is damaged; choose another destination")
    earlier, precision = before.get("precision"), settings["precision"]
    if config.precision == "auto" and earlier != precision:
        raise OutputError(
            f"{destination.url} was started in {earlier}, and --precision auto means {precision} "
            f"on {device_type}; give --precision {earlier}, or choose another destination"
        )
    if difference := find_difference(before, settings):
        raise OutputError(
            f"{destination.url} belongs to another job, started {difference}; use the same "
            "options, or choose another destination"
        )

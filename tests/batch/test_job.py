"""A job does what is missing, once; failures are rows; other jobs' destinations are refused.

Destinations in memory keep the work in this process, which needs no worker processes.
"""

import csv
import io
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from gmaflow.batch import (
    BatchConfig,
    BatchProgress,
    Clip,
    ClipProgress,
    ClipResult,
    local_engine,
    run_batch,
)
from gmaflow.batch.clip_lists import FailureLog, count_rows
from gmaflow.batch.destination import RECORDS, SHARDS, Destination
from gmaflow.errors import FlowError, OutputError
from tests.batch.conftest import contents
from tests.full_disk import largest_file

pytest.importorskip("fsspec")


@pytest.fixture
def memory(tmp_path: Path) -> str:
    return f"memory://job-{tmp_path.name}"


def run(config: BatchConfig, inputs: Path | str, output: str) -> BatchProgress:
    return run_batch(config, [str(inputs)], output)


def failures(url: str, name: str = "failures.jsonl") -> list[dict[str, str]]:
    return [json.loads(line) for line in (Destination(url).read(name) or b"").splitlines()]


def test_a_second_run_computes_nothing(config: BatchConfig, clips: Path, memory: str) -> None:
    first = run(config, clips, memory)
    assert (first.total, first.done, first.failed, first.pairs) == (9, 8, 1, 16)
    stored = contents(memory)
    again = run(config, clips, memory)
    assert (again.finished_before, again.failed_before, again.done) == (8, 1, 0)
    assert contents(memory) == stored


def test_only_what_is_missing_is_computed(config: BatchConfig, clips: Path, memory: str) -> None:
    run(config, clips, memory)
    stored = contents(memory)
    store = Destination(memory)
    from gmaflow.io.remote import open_store

    files, _ = open_store(memory)
    # One clip loses its record: as if it had been killed before the last write.
    lost = next(name for name in store.names(RECORDS) if "/03." in name)
    files.rm(f"{memory}/{RECORDS}/{lost}")
    done: list[str] = []

    def watch(progress: BatchProgress) -> None:
        done.extend([progress.last.clip.identifier] if progress.last else [])

    run_batch(config, [str(clips)], memory, watch=watch)
    assert done == ["03"]
    assert contents(memory) == stored


def test_clips_under_way_are_watched(
    config: BatchConfig, clips: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_and_whole(_config: object, _destination: object, todo: Iterator[Clip]) -> Any:  # noqa: ANN401
        for clip in todo:
            yield ClipProgress(clip, 1, 2)
            yield ClipResult(clip, pairs=2, error="it failed")

    monkeypatch.setattr(local_engine, "run_in_process", half_and_whole)
    seen: list[tuple[bool, int, int]] = []

    def watch(progress: BatchProgress) -> None:
        seen.append((progress.last is not None, progress.pairs_under_way, progress.failed))

    run_batch(config, [str(clips / "00"), str(clips / "01")], memory, watch=watch)
    news = [(False, 1, 0), (True, 0, 1), (False, 1, 1), (True, 0, 2)]
    assert seen == [(False, 0, 0), *news]


def test_the_time_left_counts_parts_of_clips() -> None:
    progress = BatchProgress("/out", total=3)
    progress.started -= 100
    assert progress.seconds_left is None
    long, unknown = Clip("long", "/long.mp4"), Clip("unknown", "/unknown.mp4")
    progress.under_way = {"1": ClipProgress(long, 500, 1000), "2": ClipProgress(unknown, 250)}
    assert progress.pairs_per_second == pytest.approx(7.5, rel=1e-3)
    assert progress.seconds_left == pytest.approx(500, rel=1e-3)  # half a clip of three
    # What a file says about its length may be wrong.
    progress.under_way = {"1": ClipProgress(long, 3000, 1000)}
    assert progress.seconds_left == pytest.approx(200, rel=1e-3)


def test_the_time_left_is_at_least_that_of_the_longest_clip() -> None:
    progress = BatchProgress("/out", total=10)
    progress.started -= 90
    for number in range(9):
        progress.add(ClipResult(Clip(f"{number}", f"/{number}.mp4"), pairs=3))
    film = Clip("film", "/film.mp4")
    progress.update(ClipProgress(film, 100, 1000, seconds=80.0))
    assert progress.seconds_left == pytest.approx(720)
    # Of a clip that says nothing about its length, nothing is known.
    progress.update(ClipProgress(film, 100, None, seconds=80.0))
    assert progress.seconds_left == pytest.approx(10, rel=1e-3)


def test_shards_give_the_same_bytes_as_one_run(
    config: BatchConfig, clips: Path, memory: str
) -> None:
    config = replace(config, write="flow,statistics")
    whole = run(config, clips, memory)
    parts = [run(replace(config, shard=f"{n}/3"), clips, f"{memory}-s") for n in (1, 2, 3)]
    assert sum(part.total for part in parts) == whole.total
    assert sum(part.done for part in parts) == whole.done
    # A last run over everything computes nothing, and writes one table and one list of failures.
    last = run(config, clips, f"{memory}-s")
    assert (last.done, last.failed_before) == (0, 1)
    stored, sharded = contents(memory), contents(f"{memory}-s")
    own = {name for name in sharded if name.startswith(SHARDS)}
    assert len(own) == 4  # three tables, one list of failures
    assert sharded.keys() - own == stored.keys()
    assert all(sharded[name] == stored[name] for name in sharded.keys() - own)


@pytest.fixture
def source(clips: Path, tmp_path: Path) -> Path:
    """Two clips of which b fails, until its last frame is removed."""
    folder = tmp_path / "clips"
    shutil.copytree(clips / "00", folder / "a")
    shutil.copytree(clips / "bad", folder / "b")
    return folder


def test_failed_clips_are_tried_again_when_asked(
    config: BatchConfig, source: Path, memory: str
) -> None:
    assert run(config, source, memory).failed == 1
    (row,) = failures(memory)
    assert (row["id"], row["source"]) == ("b", str(source / "b"))
    assert "differ in size" in row["reason"]
    (source / "b" / "frame2.png").unlink()
    waiting = run(config, source, memory)
    assert (waiting.done, waiting.failed_before, waiting.left) == (0, 1, 0)
    retried = run(replace(config, retry_failed=True), source, memory)
    assert (retried.done, retried.failed) == (1, 0)
    assert failures(memory) == []
    assert run(config, source, memory).finished_before == 2


def test_a_run_over_everything_lists_the_failures_of_shards(
    config: BatchConfig, source: Path, memory: str
) -> None:
    run(replace(config, shard="2/2"), source, memory)
    assert run(config, source, memory).failed_before == 1
    assert [row["id"] for row in failures(memory)] == ["b"]
    (source / "b" / "frame2.png").unlink()
    assert run(replace(config, shard="2/2", retry_failed=True), source, memory).done == 1
    assert [row["id"] for row in failures(memory)] == ["b"]  # the list of another run
    run(config, source, memory)
    assert failures(memory) == []


def test_a_row_of_a_clip_that_fails_again_is_not_doubled(
    config: BatchConfig, clips: Path, memory: str
) -> None:
    run(config, clips / "bad", memory)
    assert run(replace(config, retry_failed=True), clips / "bad", memory).failed == 1
    assert len(failures(memory)) == 1


def test_tables_have_a_row_for_each_finished_clip(
    config: BatchConfig, clips: Path, memory: str, tmp_path: Path
) -> None:
    run(replace(config, write="statistics"), clips, memory)
    text = (Destination(memory).read("clips.csv") or b"").decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == [f"{n:02d}" for n in range(8)]
    assert all(float(row["max_length"]) >= float(row["mean_length"]) > 0 for row in rows)
    pq = pytest.importorskip("pyarrow.parquet")
    run(replace(config, write="statistics", table="parquet"), clips, memory)
    path = tmp_path / "t.parquet"
    path.write_bytes(Destination(memory).read("clips.parquet") or b"")
    table = pq.read_table(path).to_pylist()
    assert [(r["id"], r["pairs"]) for r in table] == [(r["id"], int(r["pairs"])) for r in rows]
    assert [r["mean_length"] for r in table] == [float(r["mean_length"]) for r in rows]


@pytest.mark.parametrize("table", ["csv", "parquet"])
@pytest.mark.parametrize("by", ["shards", "an interrupted run"])
def test_a_table_gets_the_clips_that_other_runs_finished(
    table: str, by: str, config: BatchConfig, clips: Path, memory: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    config = replace(config, write="statistics", table=table)
    folder = tmp_path / "clips"
    shutil.copytree(clips / "00", folder / "00")
    run(config, folder, memory)
    for name in ("01", "02", "bad"):
        shutil.copytree(clips / name, folder / name)
    if by == "shards":
        for part in ("1/2", "2/2"):
            run(replace(config, shard=part), folder, memory)
    else:

        def stop(progress: BatchProgress) -> None:
            if progress.done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_batch(config, [str(folder)], memory, watch=stop)
    assert run(config, folder, memory).done == 0
    assert count_rows(Destination(memory).read(f"clips.{table}") or b"", table) == 3


@pytest.mark.parametrize("table", ["csv", "parquet"])
def test_a_name_that_is_not_text_is_escaped_in_tables(
    config: BatchConfig, clips: Path, memory: str, tmp_path: Path, table: str
) -> None:
    if table == "parquet":
        pytest.importorskip("pyarrow")
    folder = tmp_path / os.fsdecode(b"caf\xe9") / "clip"
    shutil.copytree(clips / "00", folder)
    run(replace(config, write="statistics", table=table), folder, memory)
    assert rb"caf\udce9/clip" in (Destination(memory).read(f"clips.{table}") or b"")


@pytest.mark.parametrize("column", ["id", "name"])
def test_two_clips_of_one_name_are_refused(
    config: BatchConfig, clips: Path, memory: str, tmp_path: Path, column: str
) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text(f"path,{column}\n{clips}/00,x\n{clips}/01,y\n{clips}/02,x\n")
    sentence = f"identifier 'x': .*/00 and .*/02; give .* column '{column}'"
    with pytest.raises(FlowError, match=sentence):
        run(replace(config, id_column=column), manifest, memory)
    assert not any(name.startswith(RECORDS) for name in contents(memory))


def test_another_jobs_destination_is_refused(
    config: BatchConfig, clips: Path, memory: str, tmp_path: Path
) -> None:
    run(config, clips / "00", memory)
    with pytest.raises(OutputError, match="another job, started with iters 1, not 2"):
        run(replace(config, iters=2), clips / "00", memory)
    with pytest.raises(OutputError, match="another job, started with format flo, not npz"):
        run(replace(config, format="npz"), clips / "00", memory)
    # The same name from another folder is another clip.
    shutil.copytree(clips / "00", tmp_path / "other" / "00")
    with pytest.raises(OutputError, match="holds another clip called '00'"):
        run(config, tmp_path / "other" / "00", memory)
    # More clips of the same job are welcome.
    assert run(config, clips, memory).finished_before == 1
    Destination(f"{memory}-x").write("mine.txt", b"")
    with pytest.raises(OutputError, match="has files that gmaflow batch did not write"):
        run(config, clips, f"{memory}-x")


@pytest.mark.parametrize("record", [b"{", b"[]", b"{}", 100_000 * b"["])
def test_a_damaged_record_is_refused(
    record: bytes, config: BatchConfig, clips: Path, memory: str
) -> None:
    Destination(memory).write("batch.json", record)
    with pytest.raises(OutputError, match=r"batch\.json is damaged"):
        run(config, clips, memory)


def test_the_record_of_a_job_has_these_settings(
    config: BatchConfig, clips: Path, memory: str
) -> None:
    run(config, clips / "00", memory)
    assert json.loads(contents(memory)["batch.json"]).keys() == {
        *("batch", "model", "weights", "iters", "write", "format", "bound", "max_length"),
        *("precision", "backend", "every", "scale", "side", "warm_start", "no_cuts"),
        "views",
    }


def test_auto_does_not_mix_precisions(config: BatchConfig, clips: Path, memory: str) -> None:
    run(config, clips / "00", memory)
    record = json.loads(contents(memory)["batch.json"])
    assert record["precision"] == "fp32"
    assert run(replace(config, precision="fp32"), clips / "00", memory).finished_before == 1
    on_gpu = json.dumps(record | {"precision": "fp16"}).encode()
    Destination(memory).write("batch.json", on_gpu)
    message = "was started in fp16, and --precision auto means fp32 on cpu; give --precision fp16"
    with pytest.raises(OutputError, match=message):
        run(config, clips, memory)


def test_an_interrupt_keeps_what_is_finished(config: BatchConfig, clips: Path, memory: str) -> None:
    def stop(progress: BatchProgress) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch(config, [str(clips)], memory, watch=stop)
    rest = run(config, clips, memory)
    assert (rest.finished_before, rest.done, rest.failed + rest.failed_before) == (5, 3, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write": "flow,colours"}, "unknown output 'colours'"),
        ({"format": "gif"}, "unknown flow format 'gif'"),
        ({"engine": "dask"}, "unknown engine 'dask'"),
        ({"shard": "0/8"}, "give I/N with I from 1 to N"),
        ({"shard": "9/8"}, "give I/N with I from 1 to N"),
        ({"workers": 0}, "give at least 1"),
        ({"side": 8}, "give 16 to 8192"),
        ({"side": 256, "scale": 0.5}, "not both"),
        ({"num_gpus": 0.0}, "out of range"),
        ({"num_gpus": 1.5, "engine": "ray"}, "Ray cannot give a worker 1.5 GPUs"),
        # Before a destination is claimed with settings that no worker takes.
        ({"iters": 0}, "iters is 0; use a whole number"),
        ({"backend": "slow"}, "unknown back end 'slow'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"max_memory": "lots"}, "'lots' is not an amount of memory"),
    ],
)
def test_unusable_options_give_one_clear_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        BatchConfig(**options)  # type: ignore[arg-type]


def test_outputs_may_have_spaces_between() -> None:
    assert BatchConfig(write="flow, statistics").kinds == {"flow", "statistics"}


def test_progress_adds_up(config: BatchConfig, clips: Path, memory: str) -> None:
    seen: list[tuple[int, int | None]] = []
    run_batch(
        config,
        [str(clips)],
        memory,
        watch=lambda p: seen.append((p.left, None if p.seconds_left is None else 1)),
    )
    assert [left for left, _ in seen] == list(range(9, -1, -1))
    assert seen[0][1] is None
    assert seen[-1][1] is not None


def test_results_that_this_machine_does_not_see_are_refused(
    config: BatchConfig, clips: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work_elsewhere(
        config: BatchConfig, destination: Destination, todo: Iterator[Clip]
    ) -> Iterator[ClipResult]:
        for clip in todo:
            yield ClipResult(clip, node="far")

    monkeypatch.setattr(local_engine, "run_in_process", work_elsewhere)
    with pytest.raises(OutputError, match=r"far wrote '00' to .*this machine does not see it"):
        run(config, clips, memory)


def test_a_failure_after_a_row_that_a_crash_cut_off_is_listed(tmp_path: Path, memory: str) -> None:
    for url in (str(tmp_path), memory):
        destination = Destination(url)
        destination.write("failures.jsonl", b'{"id": "a", "source": "a.mp4", "rea')
        log = FailureLog(destination, "failures.jsonl")
        log.add(ClipResult(Clip("b", "b.mp4"), error="damaged"))
        log.close(lambda _key: False)
        assert [row["id"] for row in failures(url)] == ["b"]


@pytest.mark.parametrize(("inputs", "name"), [("bad", "failures.jsonl"), ("00", "clips.csv")])
def test_a_list_that_a_full_disk_cuts_off_is_one_sentence_and_is_completed_later(
    config: BatchConfig, clips: Path, memory: str, inputs: str, name: str
) -> None:
    config = replace(config, write="statistics")
    # For a store the list is written to a temporary file first.
    sentence = (
        rf"^{gettempdir()}/gmaflow-.*/{name} cannot be written: file too large; finished clips "
        "are kept, and the same"
    )
    with pytest.raises(OutputError, match=sentence), largest_file(20):
        run(config, clips / inputs, memory)
    run(config, clips / inputs, memory)
    assert len((Destination(memory).read(name) or b"").splitlines()) == 1 + (name == "clips.csv")


def test_rows_before_a_full_disk_reach_a_store(memory: str) -> None:
    log = FailureLog(Destination(memory), "failures.jsonl")
    log.add(ClipResult(Clip("a", "a.mp4"), error="damaged"))
    with largest_file(100):
        with pytest.raises(OutputError, match="cannot be written"):
            log.add(ClipResult(Clip("b", "b.mp4"), error="damaged"))
        log.close(lambda _key: False)
    assert [row["id"] for row in failures(memory)] == ["a"]

"""Measure, compare and write, with the smallest network."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from gmaflow.bench import (
    BenchConfig,
    BenchResult,
    as_json,
    as_text,
    bench,
    output_files,
    write_files,
)
from gmaflow.bench.bench_report import row_of
from gmaflow.bench.cases import Case
from gmaflow.bench.measuring import (
    MAX_ROUNDS,
    MIN_ROUNDS,
    Times,
    median_ratio,
    peak_of,
    time_in_turn,
    time_once,
)
from gmaflow.errors import FlowError, OutputError

QUICK = {"models": ("raft-small",), "iters": 1, "device": "cpu", "warm_up": 0, "rounds": 2}


@pytest.fixture(scope="module")
def compared() -> BenchResult:
    config = BenchConfig(sizes=("256x320",), against="reference", **QUICK)  # type: ignore[arg-type]
    return bench(config)


def test_everything_is_measured(compared: BenchResult) -> None:
    assert [one.case.way for one in compared.measured] == ["gmaflow", "published"]
    for one in compared.measured:
        assert one.parameters == 990_162
        assert len(one.times.wall) == len(one.times.cpu) == 2
        assert one.peak is not None
        assert 5e6 < one.peak.used < 200e6  # the program itself takes more
    (ratio,) = compared.ratios()
    assert ratio.size == "256x320"
    assert ratio.memory is not None


def test_the_figures_as_json(compared: BenchResult) -> None:
    document = json.loads(as_json(compared))
    assert document["machine"]["torch"]
    assert [one["way"] for one in document["measured"]] == ["gmaflow", "published"]
    wanted = {"height", "width", "batch", "iters", "precision", "parameters", "warm_up"}
    wanted |= {"median_s", "p95_s", "median_cpu_s", "peak_bytes"}
    assert all(wanted <= one.keys() for one in document["measured"])
    assert document["ratios"][0]["model"] == "raft-small"


def test_the_figures_as_tables(compared: BenchResult) -> None:
    text = as_text(compared)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4 + 3
    for start, end in ((0, 4), (4, 7)):  # a table's lines are aligned
        assert len({len(row) for row in rows[start:end]}) == 1
    assert "float32, back end fast, batch 1, 1 iteration, " in text
    one = compared.measured[0]
    batches = replace(one, case=replace(one.case, batch=4), times=Times([0.5], [0.25]))
    assert row_of(batches)[4:9] == ["1", "500.0", "500.0", "0.25", "8.00"]


def test_overhead_and_the_distance_from_float32() -> None:
    messages: list[str] = []
    more = {"sizes": ("64x64,64x72",), "skip_memory": True, "overhead": True, "check": True}
    result = bench(BenchConfig(**{**QUICK, **more}), progress=messages.append)  # type: ignore[arg-type]
    text = as_text(result)
    assert "Training memory is measured only on a CUDA device" in text
    assert "px from float32" in text
    assert "64x72: measuring time" in messages
    once = {"sizes": ("64x64",), "skip_memory": True}
    bench(BenchConfig(**{**QUICK, **once}), progress=messages.append)  # type: ignore[arg-type]
    assert messages[-1] == "64x64: measuring time"
    measured = json.loads(as_json(result))["measured"]
    assert len(measured) == 2
    assert all(0 < one["from_float32_px"]["largest"] < 1e-3 for one in measured)


def test_a_sweep_leaves_figures_and_a_plot(tmp_path: Path) -> None:
    config = BenchConfig(sizes=("256x256",), sweep=True, skip_memory=True, **QUICK)  # type: ignore[arg-type]
    files = output_files(config, tmp_path / "sweep.json", overwrite=False)
    write_files(bench(config), files)
    assert [file.name for file in files] == ["sweep.json", "sweep.png"]
    with Image.open(files[1]) as picture:
        assert picture.size[0] > 400
    with pytest.raises(OutputError, match="exists; add --overwrite"):
        output_files(config, tmp_path / "sweep.json", overwrite=False)
    with pytest.raises(OutputError, match="a sweep needs an output"):
        output_files(config, None, overwrite=False)
    with pytest.raises(OutputError, match=r"a name that ends in \.json"):
        output_files(config, tmp_path / "sweep.txt", overwrite=False)


def test_errors_in_the_child_process_are_reported() -> None:
    with pytest.raises(FlowError, match="unknown model 'raft-tiny'"):
        peak_of(Case(model="raft-tiny", device="cpu"))


CPU = torch.device("cpu")


def test_works_are_called_in_turn_and_warm_up_does_not_count() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = time_in_turn(works, CPU, warm_up=1, rounds=3)
    assert calls == ["a", "b"] * 4
    assert {name: len(found.wall) for name, found in times.items()} == {"a": 3, "b": 3}


def test_slow_works_are_still_measured_a_few_times() -> None:
    times = time_in_turn({"a": lambda: None}, CPU, warm_up=0, seconds=1e-9)
    assert len(times["a"].wall) == MIN_ROUNDS


def test_the_number_of_rounds_is_limited() -> None:
    times = time_in_turn({"a": lambda: None}, CPU, warm_up=0, seconds=float("inf"))
    assert len(times["a"].wall) == MAX_ROUNDS


def test_waiting_takes_wall_time_and_no_cpu_time() -> None:
    wall, cpu = time_once(lambda: time.sleep(0.05), CPU)
    assert wall >= 0.05
    assert cpu < wall / 2


def test_median_and_percentile() -> None:
    times = Times(wall=[float(i) for i in range(1, 102)], cpu=[2.0] * 101)
    assert (times.median, times.p95, times.median_cpu) == (51.0, 96.0, 2.0)


def test_a_ratio_is_taken_round_by_round() -> None:
    """One slow moment of the machine slows both, and changes nothing."""
    assert median_ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == pytest.approx(2.0)


@pytest.mark.slow
def test_it_runs_without_the_libraries_of_the_command_line() -> None:
    program = (
        "import sys\n"
        "for name in ('tyro', 'av', 'h5py', 'safetensors'): sys.modules[name] = None\n"
        "from gmaflow.cli import main\n"
        "main(['bench', *sys.argv[1:]])"
    )
    quick = ["models=raft-small", "sizes=64x64", "iters=1", "rounds=1", "skip_memory=true"]
    done = subprocess.run(
        [sys.executable, "-c", program, *quick], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| 64x64 | raft-small |" in done.stdout

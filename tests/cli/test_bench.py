import json
from pathlib import Path

import pytest
import torch

from gmaflow.bench.cases import BenchConfig
from gmaflow.bench.measuring import Measured, Progress, measure_size
from gmaflow.errors import OutputError
from tests.cli.conftest import Run

QUICK = ("--models", "raft-small", "--iters", "1", "--device", "cpu", "--rounds", "1")


def test_a_table_and_a_file(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = run("bench", *QUICK, "--sizes", "64x64,64x72", "--skip-memory", "-o", output)
    assert done.code == 0
    assert "| 64x72 | raft-small |" in done.out
    assert f"wrote {output}" in done.err
    assert len(json.loads(output.read_text())["measured"]) == 2


def test_figures_as_json(run: Run) -> None:
    done = run("bench", *QUICK, "--sizes", "64x64", "--skip-memory", "--json")
    assert json.loads(done.out)["measured"][0]["height"] == 64


def test_figures_are_printed_even_if_they_cannot_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr("gmaflow.bench.write_files", refuse)
    output = tmp_path / "bench.json"
    done = run("bench", *QUICK, "--sizes", "64x64", "--skip-memory", "-o", output)
    assert (done.code, "| 64x64 | raft-small |" in done.out) == (2, True)


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_leaves_the_sizes_that_were_measured(
    after: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0

    def interrupt(
        config: BenchConfig, size: tuple[int, int], device: torch.device, progress: Progress
    ) -> list[Measured]:
        nonlocal measured
        if measured == after:
            raise KeyboardInterrupt
        measured += 1
        return measure_size(config, size, device, progress)

    monkeypatch.setattr("gmaflow.bench.measuring.measure_size", interrupt)
    output = tmp_path / "bench.json"
    sizes = ("--sizes", "256x256", "--sweep", "--skip-memory")
    done = run("bench", *QUICK, *sizes, "-o", output)
    assert done.code == 130
    assert ("only the sizes above were measured" in done.err) == bool(after)
    assert list(tmp_path.iterdir()) == [output] * after  # and no plot of one size
    assert done.out.count("| raft-small |") == after


def test_a_place_that_cannot_be_is_reported_before_anything_is_measured(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = run("bench", *QUICK, "--sizes", "64x64", "-o", tmp_path / "file" / "bench.json")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'file'} is a file; choose another place" in done.err


def test_bad_input_is_a_sentence(run: Run) -> None:
    done = run("bench", "--sizes", "large")
    assert done.code == 2
    assert done.err == "gmaflow: 'large' is not a size; give height x width such as 440x1024\n"


def test_memory_can_be_limited_and_is_reported(
    run: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    args = ("flow", *pair, "-o", tmp_path / "flow.flo", "--iters", "1")
    outcome = run(*args, "--max-memory", "100MB", "--verbose")
    assert outcome.code == 0
    refused = run(*args, "--overwrite", "--max-memory", "1kB")
    assert "are not enough for images of 40x56" in refused.complaint
    nonsense = run(*args, "--overwrite", "--max-memory", "lots")
    assert "'lots' is not an amount of memory; use one such as 1.5GB" in nonsense.complaint

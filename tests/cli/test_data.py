import json
from pathlib import Path

import pytest

from gmaflow.data import DATASETS
from tests.cli.conftest import Run
from tests.data.trees import middlebury, put_images, sintel


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GMAFLOW_CONFIG", str(tmp_path / "data.toml"))
    for name in DATASETS:
        monkeypatch.delenv(f"GMAFLOW_{name.upper().replace('-', '_')}", raising=False)
    monkeypatch.delenv("GMAFLOW_DATA", raising=False)


@pytest.mark.parametrize("more", [[], ["--deep"]])
def test_a_complete_set_exits_with_0(run: Run, tmp_path: Path, more: list[str]) -> None:
    outcome = run("data", "check", "middlebury", middlebury(tmp_path), *more)
    assert outcome.code == 0
    assert "is complete" in outcome.out
    assert "24 files" in outcome.out


def test_an_incomplete_set_exits_with_1_and_names_the_missing_files(
    run: Run, tmp_path: Path
) -> None:
    sintel(tmp_path)
    gone = tmp_path / "training/clean/alley_1/frame_0002.png"
    gone.unlink()
    cut = tmp_path / "training/flow/alley_1/frame_0001.flo"
    cut.write_bytes(cut.read_bytes()[:99])
    outcome = run("data", "check", "sintel", tmp_path)
    assert outcome.code == 1
    assert f"missing: {gone}" in outcome.out
    assert f"broken: {cut}: its header asks for " in outcome.out
    assert "but it has 87; the file is truncated" in outcome.out
    assert "1,041" in outcome.out
    assert DATASETS["sintel"].source in outcome.out


def test_the_json_report_is_complete(run: Run, tmp_path: Path) -> None:
    outcome = run("data", "check", "sintel", sintel(tmp_path), "--json")
    report = json.loads(outcome.out)
    assert outcome.code == 1
    assert not report["complete"]
    assert report["parts"][0] == {
        "part": "training clean",
        "found": 2,
        "published": 1041,
        "required": True,
    }
    assert report["missing"] == report["problems"] == []


def test_many_missing_files_are_cut_short(run: Run, tmp_path: Path) -> None:
    sintel(tmp_path, frames=range(1, 40))
    for path in (tmp_path / "training/clean/alley_1").iterdir():
        path.unlink()
    put_images(tmp_path / "training/clean/alley_1", "frame_0001.png")
    outcome = run("data", "check", "sintel", tmp_path)
    assert outcome.code == 1
    assert "... and 18 more; --json lists all" in outcome.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "sintel"], "no folder is set for MPI Sintel"),
        (["check", "sintel", "/nowhere/at/all"], "/nowhere/at/all is not a folder"),
        (["check", "sintl"], "did you mean sintel"),
        (["chek"], "did you mean check"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(run: Run, args: list[str], message: str) -> None:
    outcome = run("data", *args)
    assert message in outcome.complaint
    assert len(outcome.err.splitlines()) == 1


def test_the_root_may_come_from_the_config_file(run: Run, tmp_path: Path) -> None:
    middlebury(tmp_path / "here")
    (tmp_path / "data.toml").write_text('[roots]\nmiddlebury = "here"\n')
    assert run("data", "check", "middlebury").code == 0
    listed = json.loads(run("data", "list", "--json").out)
    assert listed["middlebury"]["root"] == str(tmp_path / "here")
    assert listed["sintel"]["root"] is None
    assert listed["sintel"]["passes"] == ["clean", "final", "albedo"]


def test_the_list_shows_where_to_download_each_set(run: Run) -> None:
    outcome = run("data", "list")
    assert outcome.code == 0
    for name, info in DATASETS.items():
        assert name in outcome.out
        assert info.source in outcome.out
    assert "GMAFLOW_KITTI_2015" in outcome.out

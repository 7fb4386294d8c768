import json
from pathlib import Path

import pytest

from gmaflow.cli.app import main
from gmaflow.data import DATASETS
from tests.data.trees import put_flows, put_images, sintel


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GMAFLOW_CONFIG", str(tmp_path / "data.toml"))
    for name in DATASETS:
        monkeypatch.delenv(f"GMAFLOW_{name.upper().replace('-', '_')}", raising=False)
    monkeypatch.delenv("GMAFLOW_DATA", raising=False)


def exit_code(*args: str) -> int:
    try:
        main(["data", *args])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def middlebury(root: Path) -> Path:
    for i in range(8):
        put_images(root / f"other-data/{i}", "frame10.png", "frame11.png")
        put_flows(root / f"other-gt-flow/{i}", "flow10.flo")
    return root


@pytest.mark.parametrize("more", [[], ["--deep"]])
def test_a_complete_set_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert exit_code("check", "middlebury", str(middlebury(tmp_path)), *more) == 0
    shown = capsys.readouterr().out
    assert "is complete" in shown
    assert "24 files" in shown


def test_an_incomplete_set_exits_with_1_and_names_the_missing_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sintel(tmp_path)
    gone = tmp_path / "training/clean/alley_1/frame_0002.png"
    gone.unlink()
    cut = tmp_path / "training/flow/alley_1/frame_0001.flo"
    cut.write_bytes(cut.read_bytes()[:99])
    assert exit_code("check", "sintel", str(tmp_path)) == 1
    shown = capsys.readouterr().out
    assert f"missing: {gone}" in shown
    assert f"broken: {cut}: its header asks for " in shown
    assert "but it has 87; the file is truncated" in shown
    assert "1,041" in shown
    assert DATASETS["sintel"].source in shown


def test_the_json_report_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", "sintel", str(sintel(tmp_path)), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["complete"]
    assert report["parts"][0] == {
        "part": "training clean",
        "found": 2,
        "published": 1041,
        "required": True,
    }
    assert report["missing"] == report["problems"] == []


def test_many_missing_files_are_cut_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sintel(tmp_path, frames=range(1, 40))
    for path in (tmp_path / "training/clean/alley_1").iterdir():
        path.unlink()
    put_images(tmp_path / "training/clean/alley_1", "frame_0001.png")
    assert exit_code("check", "sintel", str(tmp_path)) == 1
    assert "... and 18 more; --json lists all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "sintel"], "no folder is set for MPI Sintel"),
        (["check", "sintel", "/nowhere/at/all"], "/nowhere/at/all is not a folder"),
        (["check", "sintl"], "did you mean sintel"),
        (["chek"], "did you mean check"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert exit_code(*args) == 2
    err = capsys.readouterr().err.strip()
    assert message in err
    assert len(err.splitlines()) == 1


def test_the_root_may_come_from_the_config_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    middlebury(tmp_path / "here")
    (tmp_path / "data.toml").write_text('[roots]\nmiddlebury = "here"\n')
    assert exit_code("check", "middlebury") == 0
    assert exit_code("list", "--json") == 0
    out = capsys.readouterr().out
    listed = json.loads(out[out.index("{") :])
    assert listed["middlebury"]["root"] == str(tmp_path / "here")
    assert listed["sintel"]["root"] is None
    assert listed["sintel"]["passes"] == ["clean", "final", "albedo"]


def test_the_list_shows_where_to_download_each_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("list") == 0
    shown = capsys.readouterr().out
    for name, info in DATASETS.items():
        assert name in shown
        assert info.source in shown
    assert "GMAFLOW_KITTI_2015" in shown

"""The record of how a folder's files were made."""

import json
from pathlib import Path

import pytest

from gmaflow.cli.flow_record import RECORD, FolderRecord, refuse_to_begin
from gmaflow.errors import OutputError

HOW: dict[str, object] = {"verb": "flow", "iters": 12}


def test_what_runs_add_is_kept(tmp_path: Path) -> None:
    FolderRecord(tmp_path, HOW).write([".flo"], scale=None)
    second = FolderRecord.resume(tmp_path, HOW, scale=7.0)
    assert (second.covers(".flo"), second.covers(".png"), second.scale) == (True, False, None)
    second.write([".png", ".flo"], scale=7.0)
    third = FolderRecord.resume(tmp_path, HOW, scale=None)
    third.write([".npy"], scale=None)
    assert json.loads((tmp_path / RECORD).read_text()) == {
        **HOW,
        "max_length": 7.0,
        "files": [".flo", ".png", ".npy"],
    }


@pytest.mark.parametrize(
    ("now", "scale", "complaint"),
    [
        ({"verb": "flow", "iters": 3}, None, "was begun with iters 12, not 3"),
        ({"verb": "flow"}, None, "was begun with iters 12, not None"),
        (HOW, 8.0, "was begun with max_length 7.0, not 8.0"),
    ],
)
def test_other_settings_are_named(
    now: dict[str, object], scale: float | None, complaint: str, tmp_path: Path
) -> None:
    FolderRecord(tmp_path, HOW).write([".png"], scale=7.0)
    with pytest.raises(OutputError, match=complaint):
        FolderRecord.resume(tmp_path, now, scale=scale)
    # What was not asked for at first may be added.
    assert FolderRecord.resume(tmp_path, {**HOW, "attention": ["1,2"]}, scale=7.0).scale == 7


@pytest.mark.parametrize("text", ["", "torn", "3", "[1]", '"text"', "null"])
def test_a_broken_record_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(OutputError, match="is broken; add --overwrite"):
        FolderRecord.resume(tmp_path, HOW, scale=None)


def test_without_a_record_what_is_there_is_trusted_if_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not FolderRecord(tmp_path, HOW).covers(".flo")
    record = FolderRecord.resume(tmp_path, HOW, scale=None)
    assert record.covers(".flo")
    record.tell_of_trust()
    assert "has no flow.json" in capsys.readouterr().err


def test_a_folder_is_begun_once_unless_asked_for(tmp_path: Path) -> None:
    refuse_to_begin(tmp_path, resume=False, overwrite=False)
    FolderRecord(tmp_path, HOW).write([".png"], scale=7.0)
    refuse_to_begin(tmp_path, resume=True, overwrite=False)
    refuse_to_begin(tmp_path, resume=False, overwrite=True)
    with pytest.raises(OutputError, match="holds flow already; add --resume"):
        refuse_to_begin(tmp_path, resume=False, overwrite=False)
    with pytest.raises(OutputError, match="give one of them"):
        refuse_to_begin(tmp_path, resume=True, overwrite=True)

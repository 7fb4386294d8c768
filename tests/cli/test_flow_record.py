"""The record of how a folder's files were made."""

import json
from pathlib import Path

import pytest

from gmaflow.cli.flow_record import (
    RECORD,
    FolderRecord,
    describe_source,
    endings_before,
    refuse_to_begin,
)
from gmaflow.errors import OutputError
from tests.cli.conftest import write_frames

HOW: dict[str, object] = {"verb": "flow", "iters": 12, "files": [".flo"]}


def test_the_first_scale_is_kept(tmp_path: Path) -> None:
    begun = FolderRecord.resume(tmp_path, HOW, scale=7.0)
    assert not begun.goes_on  # there was nothing
    begun.write(scale=7.0)
    later = FolderRecord.resume(tmp_path, HOW, scale=None)
    assert (later.goes_on, later.scale) == (True, 7)
    later.write(scale=None)
    assert json.loads((tmp_path / RECORD).read_text()) == {**HOW, "max_length": 7.0}


@pytest.mark.parametrize(
    ("now", "scale", "complaint"),
    [
        ({**HOW, "iters": 3}, None, "was begun with iters 12, not 3"),
        ({"verb": "flow", "files": [".flo"]}, None, "was begun with iters 12, not None"),
        ({**HOW, "legend": True}, None, "was begun with legend None, not True"),
        ({**HOW, "files": [".npy"]}, None, r"was begun with files \['.flo'\], not \['.npy'\]"),
        (HOW, 8.0, "was begun with max_length 7.0, not 8.0"),
    ],
)
def test_other_settings_are_named(
    now: dict[str, object], scale: float | None, complaint: str, tmp_path: Path
) -> None:
    FolderRecord(tmp_path, HOW).write(scale=7.0)
    with pytest.raises(OutputError, match=complaint):
        FolderRecord.resume(tmp_path, now, scale=scale)


@pytest.mark.parametrize("text", ["", "torn", "3", "[1]", '"text"', "null", "{}"])
def test_a_broken_record_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(OutputError, match="is broken; add --overwrite"):
        FolderRecord.resume(tmp_path, HOW, scale=None)
    assert endings_before(tmp_path, "flow") == []


def test_what_a_verb_wrote_is_its_own(tmp_path: Path) -> None:
    assert endings_before(tmp_path, "flow") == []
    FolderRecord(tmp_path, HOW).write(scale=None)
    assert endings_before(tmp_path, "flow") == [".flo"]
    assert endings_before(tmp_path, "video") == []


def test_frames_may_come_after_the_last_but_not_change(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    first, *_ = write_frames(source, 3)
    how = {**HOW, "frames": str(source), "source": describe_source(source)}
    FolderRecord(out, how).write(scale=None)
    (source / "frame9.png").write_bytes(first.read_bytes())
    assert FolderRecord.resume(out, how, scale=None).goes_on
    (source / "frame00.png").write_bytes(first.read_bytes())  # between the first and the second
    with pytest.raises(OutputError, match="has changed since"):
        FolderRecord.resume(out, how, scale=None)
    (source / "frame00.png").unlink()
    first.unlink()
    with pytest.raises(OutputError, match="has changed since"):
        FolderRecord.resume(out, how, scale=None)


def test_another_video_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    video, out = tmp_path / "in.mp4", tmp_path / "out"
    video.write_bytes(b"one")
    how = {**HOW, "frames": str(video), "source": describe_source(video)}
    FolderRecord(out, how).write(scale=None)
    assert FolderRecord.resume(out, how, scale=None).goes_on
    video.write_bytes(b"another")
    with pytest.raises(OutputError, match="has changed since"):
        FolderRecord.resume(out, how, scale=None)


def test_a_folder_is_begun_once_unless_asked_for(tmp_path: Path) -> None:
    refuse_to_begin(tmp_path, resume=False, overwrite=False)
    FolderRecord(tmp_path, HOW).write(scale=7.0)
    refuse_to_begin(tmp_path, resume=True, overwrite=False)
    refuse_to_begin(tmp_path, resume=False, overwrite=True)
    with pytest.raises(OutputError, match="holds flow already; add --resume"):
        refuse_to_begin(tmp_path, resume=False, overwrite=False)
    with pytest.raises(OutputError, match="give one of them"):
        refuse_to_begin(tmp_path, resume=True, overwrite=True)

"""Folders of results that are started, resumed or started over."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmaflow.errors import OutputError
from gmaflow.io.resumable import ResultRecord, is_finished, unlock_folder

SETTINGS: dict[str, object] = {"verb": "flow", "iters": 12, "size": (96, 128), "end": None}


@pytest.fixture
def record(tmp_path: Path) -> ResultRecord:
    return ResultRecord(tmp_path / "out", "flow.json", what="flow", required="verb")


def test_a_new_folder_is_started_whatever_was_asked(record: ResultRecord) -> None:
    for resume, overwrite in ((False, False), (True, False), (False, True)):
        record.check_start(resume=resume, overwrite=overwrite)
    assert not record.exists()
    assert not record.folder.exists()


def test_results_are_kept_unless_asked(record: ResultRecord) -> None:
    record.write(SETTINGS)
    assert record.exists()
    with pytest.raises(OutputError, match="already holds flow; add --resume to continue, --over"):
        record.check_start(resume=False, overwrite=False)
    record.check_start(resume=True, overwrite=False)
    record.check_start(resume=False, overwrite=True)
    with pytest.raises(OutputError, match="give only one"):
        record.check_start(resume=True, overwrite=True)


def test_other_files_are_not_mixed_with_results(record: ResultRecord) -> None:
    record.folder.mkdir()
    record.check_start(resume=False, overwrite=False)  # an empty folder is as good as none
    (record.folder / "notes.txt").write_text("mine")
    for resume, overwrite in ((False, False), (True, False), (False, True)):
        with pytest.raises(OutputError, match=r"is not empty and has no flow\.json"):
            record.check_start(resume=resume, overwrite=overwrite)
        record.check_start(resume=resume, overwrite=overwrite, among_others=True)


def test_a_folder_that_is_a_file_is_refused(record: ResultRecord) -> None:
    record.folder.write_text("a file")
    with pytest.raises(OutputError, match="cannot be written"):
        record.check_start(resume=False, overwrite=False)


def test_the_same_settings_match(record: ResultRecord) -> None:
    record.write(SETTINGS)
    assert record.read_matching(SETTINGS) == json.loads(json.dumps(SETTINGS))
    assert record.read_matching({**SETTINGS, "iters": 3}, ignore=["iters"])["iters"] == 12


@pytest.mark.parametrize(
    ("now", "complaint"),
    [
        ({**SETTINGS, "iters": 3}, "was started with iters 12, not 3;"),
        ({"verb": "flow", "size": (96, 128)}, "was started with --iters 12, not without;"),
        ({**SETTINGS, "end": 1.5}, "was started without --end, not with --end 1.5;"),
        ({**SETTINGS, "legend": True}, "was started without --legend;"),
        ({**SETTINGS, "size": (96, 96)}, r"was started with size \[96, 128\], not \[96, 96\];"),
    ],
)
def test_another_setting_is_named(
    record: ResultRecord, now: dict[str, object], complaint: str
) -> None:
    record.write(SETTINGS)
    with pytest.raises(OutputError, match=complaint):
        record.read_matching(now)


@pytest.mark.parametrize("text", ["", "torn", "3", "[1]", '"text"', "null", "{}", b"\xff"])
def test_a_damaged_record_is_refused(record: ResultRecord, text: str | bytes) -> None:
    record.folder.mkdir()
    record.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OutputError, match="is damaged; add --overwrite to start over"):
        record.read_matching(SETTINGS)


def test_a_result_is_finished_when_all_its_files_are(tmp_path: Path) -> None:
    paths = [tmp_path / "a.flo", tmp_path / "a.png"]
    assert not is_finished(paths)
    paths[0].write_text("flow")
    paths[1].touch()
    assert not is_finished(paths)
    paths[1].write_text("picture")
    assert is_finished(paths)


HOLD = """
import sys
from pathlib import Path
from gmaflow.io.resumable import ResultRecord
ResultRecord(Path(sys.argv[1]), "flow.json").write({"iters": 12})
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends(record: ResultRecord) -> None:
    unlock_folder(record.folder)
    command = [sys.executable, "-c", HOLD, str(record.folder)]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        for resume, overwrite in ((True, False), (False, True), (False, False)):
            with pytest.raises(OutputError, match="another process is writing to"):
                record.check_start(resume=resume, overwrite=overwrite)
        with pytest.raises(OutputError, match="another process"):
            record.write(SETTINGS)
        assert json.loads(record.path.read_text()) == {"iters": 12}
        first.kill()
    record.check_start(resume=True, overwrite=False)
    record.write(SETTINGS)
    assert [path.name for path in record.folder.iterdir()] == ["flow.json"]
    # This process holds the lock now, and may go on.
    record.check_start(resume=True, overwrite=False)
    second = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert b"another process is writing" in second.stderr
    unlock_folder(record.folder)
    assert subprocess.run(command, input=b"", check=False).returncode == 0


def test_a_check_is_not_in_the_way_of_others(record: ResultRecord) -> None:
    record.folder.mkdir()
    handle = os.open(record.folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)  # as a process that checks at the same time
    record.check_start(resume=False, overwrite=False)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


def test_partial_files_of_a_killed_run_are_removed(record: ResultRecord) -> None:
    unlock_folder(record.folder)
    left = [f".{'a' * 16}.partial.flo", f"deep/.{'b' * 16}.partial.png"]
    for name in (*left, ".mine.partial.flo", "a.flo"):
        (record.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (record.folder / name).touch()
    record.write(SETTINGS)
    kept = {path.name for path in record.folder.rglob("*") if path.is_file()}
    assert kept == {".mine.partial.flo", "a.flo", "flow.json"}
    unlock_folder(record.folder)


def test_a_record_of_endless_lists_is_damaged(record: ResultRecord) -> None:
    record.write(SETTINGS)
    record.path.write_text(100_000 * "[")
    with pytest.raises(OutputError, match="is damaged"):
        record.read()

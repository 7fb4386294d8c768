"""Destinations behave alike, local and remote, and recognise finished clips by names."""

import os
from pathlib import Path

import pytest

from gmaflow.batch.destination import STALE, Destination, FinishedClips, HashSet, record_name
from gmaflow.batch.manifest import Clip
from gmaflow.errors import FlowError, OutputError
from gmaflow.io.remote import explaining


@pytest.fixture(params=["local", "memory"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    if request.param == "local":
        return Destination(str(tmp_path / "out"))
    pytest.importorskip("fsspec")
    return Destination(f"memory://{tmp_path.name}")


def test_files_come_back(destination: Destination) -> None:
    assert destination.is_empty()
    assert destination.read("a/b.txt") is None
    destination.write("a/b.txt", b"one")
    with destination.scratch() as scratch:
        (scratch / "x").write_bytes(b"two")
        destination.put(scratch / "x", "a/c/d.txt")
        assert not (scratch / "x").exists()
    assert not scratch.exists()
    assert sorted(destination.names("a")) == ["b.txt", "c/d.txt"]
    assert list(destination.names("none")) == []
    assert destination.read_many(["a/b.txt", "a/c/d.txt"]) == [b"one", b"two"]
    assert not destination.is_empty()


def test_a_clip_is_finished_when_its_record_is_there(destination: Destination) -> None:
    one, other = Clip("x/one.v2", "/data/1.mp4"), Clip("other", "/data/2.mp4")
    assert one.key not in FinishedClips(destination)
    destination.write(record_name(one), b"{}")
    destination.write("other.npz", b"written, but not to its end")
    finished = FinishedClips(destination)
    assert len(finished) == 1
    assert one.key in finished
    assert other.key not in finished
    assert not finished.clashes(one)
    assert not finished.clashes(other)
    assert finished.clashes(Clip("x/one.v2", "/elsewhere/1.mp4"))


def test_unfinished_files_of_this_run_and_of_long_ago_are_removed(tmp_path: Path) -> None:
    destination, other = Destination(str(tmp_path)), Destination(str(tmp_path))
    killed = tmp_path / "_partial" / "0123456789abcdef"
    killed.mkdir(parents=True)
    with destination.scratch() as ours, other.scratch() as theirs:
        destination.remove_unfinished()
        assert not ours.exists()
        assert theirs.exists()
        assert killed.exists()
    os.utime(killed, (0, killed.stat().st_mtime - 2 * STALE))
    other.remove_unfinished()
    assert not (tmp_path / "_partial").exists()


def test_an_unwritable_destination_gives_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file is a file"):
        Destination(str(tmp_path / "file" / "out")).check()


def test_an_unreadable_destination_gives_one_clear_error(tmp_path: Path) -> None:
    destination = Destination(str(tmp_path))
    destination.write("a", b"one")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=r"folder cannot be read \(is a directory\)"):
        destination.read_many(["a", "folder"])
    with pytest.raises(OutputError, match="gone was removed during the run"):
        destination.read_many(["a", "gone"])
    with pytest.raises(OutputError, match=r"a cannot be read \(not a directory\)"):
        list(destination.names("a"))


def test_an_unknown_store_gives_one_clear_error() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(FlowError, match=r"nowhere://x cannot be used"):
        Destination("nowhere://x").is_empty()


def test_a_set_of_hashes_is_a_set() -> None:
    some = HashSet()
    assert "a" not in some
    for number in range(1000):
        some.add(str(number))
    assert all(str(number) in some for number in range(1000))
    assert not any(str(number) in some for number in range(1000, 2000))
    assert not some.repeated()
    some.add("7")
    assert len(some.repeated()) == 1


@pytest.mark.parametrize(
    ("url", "reason", "remedy"),
    [
        ("s3://b/x", "Install s3fs to access S3", r"pip install 'gmaflow\[remote\]'$"),
        ("gs://b/x", "install gcsfs", "install gcsfs"),
    ],
)
def test_a_missing_package_of_a_store_is_named(url: str, reason: str, remedy: str) -> None:
    with pytest.raises(FlowError, match=f"^{url} needs another package: {remedy}"), explaining(url):
        raise ImportError(reason)

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import ImageError, OutputError
from gmaflow.io import (
    FLOW_SUFFIXES,
    VIDEO_OUTPUTS,
    VideoWriter,
    atomic_write,
    ensure_can_fill,
    ensure_can_write,
    write_flow,
    write_image,
)
from gmaflow.io.paths import exists, require_file, write_text


def test_a_file_is_taken_as_text_or_path(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    assert require_file(file, ImageError, "a file") == file
    assert require_file(str(file), ImageError, "a file") == file


def test_a_path_that_is_not_a_file_is_refused_by_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    wrong: dict[str | Path, str] = {
        tmp_path: "is a folder",
        tmp_path / "none": "does not exist",
        pipe: "not a regular file",
        tmp_path / ("x" * 300): "cannot be read",
        "https://x.org/a.png": "URLs are not supported",
        "s3://bucket/a.png": "URLs are not supported",
    }
    for path, reason in wrong.items():
        with pytest.raises(ImageError, match=reason) as caught:
            require_file(Path(path), ImageError, "an image file")
        assert str(path) in str(caught.value)


def test_the_file_appears_on_success_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    with atomic_write(path) as file:
        assert [Path(file.name)] == list(path.parent.iterdir())
        assert Path(file.name).suffix == ".txt"
        file.write(b"whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, OSError])
def test_an_error_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match="no space left"), atomic_write(tmp_path / "a"):
        raise full
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_removed_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "a") as file:
        Path(file.name).unlink()


@pytest.mark.parametrize("suffix", [*sorted(FLOW_SUFFIXES), ".jpg", ".tiff", ".mp4", ".gif"])
def test_no_format_opens_its_file_by_name(tmp_path: Path, suffix: str) -> None:
    """Else a link put in its place would lead the writer to any file of the user."""
    secret = tmp_path / "secret"
    secret.write_text("kept")
    picture = np.zeros((32, 32, 3), np.uint8)

    @contextmanager
    def swapped(path: Path) -> Iterator[BufferedRandom]:
        with atomic_write(path) as file:
            Path(file.name).unlink()
            Path(file.name).symlink_to(secret)
            yield file

    with pytest.MonkeyPatch.context() as patch:
        for module in ("flow_files", "images", "video_writer"):
            patch.setattr(f"gmaflow.io.{module}.atomic_write", swapped)
        if suffix in FLOW_SUFFIXES:
            write_flow(tmp_path / f"a{suffix}", np.zeros((20, 20, 2), np.float32))
        elif suffix in VIDEO_OUTPUTS:
            with VideoWriter(tmp_path / f"a{suffix}") as video:
                video.write(picture)
                video.write(picture)
        else:
            write_image(tmp_path / f"a{suffix}", picture)
    assert secret.read_text() == "kept"


def test_a_file_that_waits_under_the_temporary_name_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can guess the name; if it exists all the same, its target is not changed."""
    monkeypatch.setattr("gmaflow.io.paths.secrets.token_hex", lambda _: "guessed")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".guessed.partial.txt").symlink_to("precious")
    with pytest.raises(OutputError, match="cannot be written: file exists"):
        write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "precious").read_text() == "precious"


def test_text_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "flöw\n")
    assert (tmp_path / "a.txt").read_bytes() == "flöw\n".encode()


def test_bytes_of_a_name_that_are_not_text_are_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", os.fsdecode(b"caf\xe9.mp4\n"))
    assert (tmp_path / "a.csv").read_text("utf-8") == "caf\\udce9.mp4\n"


def test_rights_are_those_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "a").stat().st_mode == plain.stat().st_mode


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "file" / "a.txt", tmp_path, pipe, tmp_path / ("x" * 300)):
        with pytest.raises(OutputError) as caught, atomic_write(path):
            pass
        assert str(path) in str(caught.value)
    assert pipe.is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission denied"), atomic_write(tmp_path / "a"):
        pass
    with pytest.raises(OutputError, match="is not writable"):
        ensure_can_write(tmp_path / "new" / "a", overwrite=True)
    tmp_path.chmod(0o700)


def test_an_existing_file_needs_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ensure_can_write(path, overwrite=False)
    path.touch()
    with pytest.raises(OutputError, match="exists; add --overwrite to replace it"):
        ensure_can_write(path, overwrite=False)
    ensure_can_write(path, overwrite=True)
    with pytest.raises(OutputError, match="is not a file"):
        ensure_can_write(tmp_path, overwrite=True)
    with pytest.raises(OutputError, match=r"new/b cannot be written: .*a is a file"):
        ensure_can_write(path / "new" / "b", overwrite=True)


def test_nothing_exists_by_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    assert exists(tmp_path)
    for name in ("absent", "null\0byte", "\ud800\udc00\ud800"):
        assert not exists(tmp_path / name)
    (tmp_path / "file").touch()
    assert not exists(tmp_path / "file" / "below")
    with pytest.raises(OSError, match="too long"):
        exists(tmp_path / ("a" * 300))


def test_a_folder_name_that_is_too_long_gives_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: .*too long; choose another place"):
        ensure_can_fill(tmp_path / ("a" * 300))

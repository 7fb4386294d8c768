from pathlib import Path

import pytest

from gmaflow.data.directory_cache import DirectoryCache
from gmaflow.errors import DatasetError


def test_files_folders_and_numbers(tmp_path: Path) -> None:
    for name in ("f_001.png", "f_2.png", "f_x.png", "f_003.png.part", "f_004_png"):
        (tmp_path / name).touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    cache = DirectoryCache()
    assert cache.numbers(tmp_path, "f_#.png") == {"001", "2"}
    assert cache.folders(tmp_path) == ("a", "b")
    assert cache.if_exists(tmp_path / "f_2.png") == tmp_path / "f_2.png"
    assert cache.if_exists(tmp_path / "f_3.png") is None
    assert not cache.has(tmp_path / "a")


def test_a_folder_is_listed_once(tmp_path: Path) -> None:
    cache = DirectoryCache()
    assert not cache.has(tmp_path / "late")
    (tmp_path / "late").touch()
    assert not cache.has(tmp_path / "late")


def test_folders_that_are_not_there_are_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "none", tmp_path / "file"):
        assert DirectoryCache().files(folder) == frozenset()
        assert DirectoryCache().folders(folder) == ()


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gmaflow.data.directory_cache.os.scandir", refuse)
    with pytest.raises(DatasetError, match=r"cannot list .*: Permission denied"):
        DirectoryCache().files(tmp_path)

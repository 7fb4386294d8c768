from pathlib import Path

import pytest

from gmaflow.data.shelf import Shelf, following, successor
from gmaflow.errors import DatasetError


def test_files_folders_and_numbers(tmp_path: Path) -> None:
    for name in ("f_001.png", "f_2.png", "f_x.png", "f_003.png.part", "f_004_png"):
        (tmp_path / name).touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    shelf = Shelf()
    assert shelf.numbers(tmp_path, "f_#.png") == {"001", "2"}
    assert shelf.folders(tmp_path) == ("a", "b")
    assert shelf.if_there(tmp_path / "f_2.png") == tmp_path / "f_2.png"
    assert shelf.if_there(tmp_path / "f_3.png") is None
    assert not shelf.has(tmp_path / "a")


def test_a_folder_is_listed_once(tmp_path: Path) -> None:
    shelf = Shelf()
    assert not shelf.has(tmp_path / "late")
    (tmp_path / "late").touch()
    assert not shelf.has(tmp_path / "late")


def test_folders_that_are_not_there_are_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "none", tmp_path / "file"):
        assert Shelf().files(folder) == frozenset()
        assert Shelf().folders(folder) == ()


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gmaflow.data.shelf.os.scandir", refuse)
    with pytest.raises(DatasetError, match="cannot be listed: Permission denied"):
        Shelf().files(tmp_path)


def test_numbers_follow_each_other() -> None:
    assert following({"0009", "0010", "0012", "0013"}) == [("0009", "0010"), ("0012", "0013")]
    assert following(set()) == []
    assert (successor("0009"), successor("9")) == ("0010", "10")

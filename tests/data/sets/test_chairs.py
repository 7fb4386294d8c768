from pathlib import Path

import pytest

from gmaflow.data import open_dataset
from gmaflow.errors import DatasetError
from tests.data.trees import chairs, listed, names


def test_the_split_file_tells_training_from_validation(tmp_path: Path) -> None:
    chairs(tmp_path)
    training = listed("chairs", tmp_path, "training")
    assert names(training) == [
        ("00001_img1.ppm", "00001_img2.ppm", "00001_flow.flo"),
        ("00003_img1.ppm", "00003_img2.ppm", "00003_flow.flo"),
    ]
    assert [pair.scene for pair in listed("chairs", tmp_path, "validation")] == ["00002"]
    assert len(listed("chairs", tmp_path, "all")) == 3


def test_numbers_decide_not_places_in_the_list(tmp_path: Path) -> None:
    chairs(tmp_path, numbers=(2, 3))  # 00001 was not downloaded
    assert [pair.scene for pair in listed("chairs", tmp_path, "validation")] == ["00002"]


@pytest.mark.parametrize("place", ["FlyingChairs_release", "."])
def test_the_folder_above_or_the_data_itself_will_do(tmp_path: Path, place: str) -> None:
    root = chairs(tmp_path / place)
    if place == ".":
        (root / "FlyingChairs_train_val.txt").rename(root / "data" / "FlyingChairs_train_val.txt")
        assert len(listed("chairs", root / "data", "training")) == 2
    assert len(listed("chairs", tmp_path, "training")) == 2


def test_without_the_split_file_it_is_told_where_to_get_it(tmp_path: Path) -> None:
    chairs(tmp_path, flags="")
    with pytest.raises(DatasetError, match=r"get it from https://lmb.*or take the split 'all'"):
        open_dataset("chairs", tmp_path)
    assert len(open_dataset("chairs", tmp_path, split="all")) == 3


@pytest.mark.parametrize("flags", ["<html>", " ", "1 3"])
def test_a_split_file_that_is_none_is_refused(tmp_path: Path, flags: str) -> None:
    chairs(tmp_path, flags=flags)
    with pytest.raises(DatasetError, match="is no list of 1"):
        open_dataset("chairs", tmp_path)


def test_real_pairs(material: Path) -> None:
    pairs = open_dataset("chairs", material / "realflow" / "flyingchairs", split="all")
    assert len(pairs) == 6
    for pair in pairs:
        sample = pair.load()
        assert sample.image1.shape == (384, 512, 3)
        assert sample.valid is not None
        assert sample.valid.all()

import logging
from pathlib import Path

import pytest

from gmaflow.data import DATASETS, open_dataset
from gmaflow.errors import DatasetError
from tests.data.trees import sintel


def test_incomplete_pairs_are_left_out_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sintel(tmp_path)
    (tmp_path / "training/clean/alley_1/frame_0001.png").unlink()
    with caplog.at_level(logging.WARNING):
        pairs = open_dataset("sintel", tmp_path)
    assert [pair.frame for pair in pairs] == ["0002"]
    assert "1 of 2 pairs are left out, since 1 files are missing" in caplog.text
    assert "gmaflow data check sintel" in caplog.text


def test_a_folder_with_nothing_complete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds no complete pair of sintel training clean; MPI"):
        open_dataset("sintel", tmp_path)
    with pytest.raises(DatasetError, match=r"sintel test final; MPI Sintel has test/clean/"):
        open_dataset("sintel", tmp_path, split="test", passes="final")
    sintel(tmp_path, frames=(1, 2))
    (tmp_path / "training/clean/alley_1/frame_0001.png").unlink()
    with pytest.raises(DatasetError, match=r"frame_0001\.png is missing"):
        open_dataset("sintel", tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sintl", {}, "did you mean sintel"),
        ("zzz", {}, "there are chairs, things"),
        ("sintel", {"split": "validation"}, "no split 'validation'; there are training, test"),
        ("sintel", {"passes": "noisy"}, "no pass 'noisy'; there are clean, final, albedo"),
        ("chairs", {"passes": "clean"}, "no pass 'clean'; it has but one"),
    ],
)
def test_wrong_wishes_are_answered_with_what_there_is(
    tmp_path: Path, name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        open_dataset(name, tmp_path, **options)


def test_the_root_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMAFLOW_SINTEL", str(sintel(tmp_path)))
    assert len(open_dataset("sintel")) == 2


def test_the_order_does_not_depend_on_the_disk(tmp_path: Path) -> None:
    sintel(tmp_path, scene="b")
    sintel(tmp_path, scene="a")
    assert [(p.scene, p.frame) for p in open_dataset("sintel", tmp_path)] == [
        ("a", "0001"),
        ("a", "0002"),
        ("b", "0001"),
        ("b", "0002"),
    ]


@pytest.mark.parametrize("name", DATASETS)
def test_every_set_refuses_an_empty_folder(tmp_path: Path, name: str) -> None:
    told = "is had from" if DATASETS[name].source else "holds no complete pair"
    with pytest.raises(DatasetError, match=told):
        open_dataset(name, tmp_path)


def test_a_folder_of_data_sets_is_not_one_of_them(tmp_path: Path) -> None:
    sintel(tmp_path / "Sintel")
    with pytest.raises(DatasetError, match=r"perhaps .*Sintel is meant"):
        open_dataset("sintel", tmp_path)

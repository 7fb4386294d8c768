import shutil
from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import CheckReport, check_dataset
from gmaflow.errors import DatasetError
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.scene_dataset import write_dataset
from tests.data.trees import chairs, middlebury, put_images, sintel


def found(report: CheckReport) -> dict[str, int]:
    return {str(part.part): part.found for part in report.parts}


def test_counts_are_held_against_the_published_ones(tmp_path: Path) -> None:
    report = check_dataset("sintel", sintel(tmp_path))
    assert found(report) == {
        "training clean": 2,
        "training final": 2,
        "training albedo": 0,
        "test clean": 0,
        "test final": 0,
    }
    assert not report.complete
    assert report.missing == ()
    assert report.problems == ()
    assert report.num_files == 2 * 3 + 3 * 2


@pytest.mark.parametrize("deep", [False, True])
def test_a_complete_set_is_complete(tmp_path: Path, deep: bool) -> None:
    seen: list[tuple[int, int]] = []
    report = check_dataset(
        "middlebury",
        middlebury(tmp_path),
        deep=deep,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert report.complete
    total = 8 if deep else 24
    assert seen == [(i + 1, total) for i in range(total)]


@pytest.mark.parametrize("deep", [False, True])
def test_missing_truncated_and_mismatched_files_are_named(tmp_path: Path, deep: bool) -> None:
    middlebury(tmp_path)
    gone = tmp_path / "other-data/0/frame11.png"
    gone.unlink()
    cut = tmp_path / "other-gt-flow/1/flow10.flo"
    cut.write_bytes(cut.read_bytes()[:100])
    put_images(tmp_path / "other-data/2", "frame11.png", size=(9, 9))
    report = check_dataset("middlebury", tmp_path, deep=deep)
    assert not report.complete
    assert found(report)["training"] == 7
    assert report.missing == (gone,)
    assert len(report.problems) == 2
    assert str(cut) in report.problems[0]
    assert "9x9" in report.problems[1]
    assert str(tmp_path / "other-data/2") in report.problems[1]


def test_deep_finds_what_headers_hide(tmp_path: Path) -> None:
    middlebury(tmp_path)
    path = tmp_path / "other-data/3/frame10.png"
    raw = bytearray(path.read_bytes())
    middle = raw.index(b"IDAT") + 6
    raw[middle : middle + 6] = bytes(np.arange(6, dtype=np.uint8))
    path.write_bytes(raw)
    assert check_dataset("middlebury", tmp_path).complete
    assert str(path) in check_dataset("middlebury", tmp_path, deep=True).problems[0]


def test_chairs_without_the_split_file(tmp_path: Path) -> None:
    report = check_dataset("chairs", chairs(tmp_path, flags=""))
    assert found(report) == {"training": 0, "validation": 0, "all": 3}
    assert len(report.problems) == 1
    assert "FlyingChairs_train_val.txt" in report.problems[0]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    sintel(tmp_path)
    with pytest.raises(DatasetError, match=r"no files of HD1K; expected hd1k_input.*download"):
        check_dataset("hd1k", tmp_path)
    with pytest.raises(DatasetError, match="is not a folder"):
        check_dataset("hd1k", tmp_path / "none")


def test_a_custom_folder_has_no_expected_count(tmp_path: Path) -> None:
    put_images(tmp_path, "1.png", "2.png", "3.png")
    assert check_dataset("folder", tmp_path).complete


def test_real_files_are_sound(material: Path) -> None:
    for name, folder, count in (("sintel", "sintel", 31), ("chairs", "flyingchairs", 18)):
        report = check_dataset(name, material / "realflow" / folder)
        assert report.num_files == count
        broken = [problem for problem in report.problems if "train_val" not in problem]
        assert broken == []


def test_an_interrupt_does_not_wait_for_the_rest(tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_dataset("middlebury", middlebury(tmp_path), progress=interrupt)


def rendered(root: Path, bank: TextureBank) -> Path:
    renderer = SceneRenderer("mix", size=(32, 48), seed=3, textures=bank)
    write_dataset(renderer, root, start=5, count=2)
    return root


@pytest.mark.parametrize("deep", [False, True])
def test_a_rendered_set_is_complete_when_its_own_files_are(
    tmp_path: Path, small_bank: TextureBank, deep: bool
) -> None:
    root = rendered(tmp_path / "set", small_bank)
    report = check_dataset("sintel", root, deep=deep)
    assert report.complete
    assert found(report) == {"training clean": 2, "training final": 2}
    gone = [
        root / "training/occlusions/mix_000005/frame_0001.png",
        root / "training/clean/mix_000006/frame_0002.png",
    ]
    for path in gone:
        path.unlink()
    report = check_dataset("sintel", root, deep=deep)
    assert not report.complete
    assert set(report.missing) == set(gone)


def test_a_scene_that_is_gone_as_a_whole_is_missed(tmp_path: Path, small_bank: TextureBank) -> None:
    root = rendered(tmp_path / "set", small_bank)
    for part in (root / "training").iterdir():
        shutil.rmtree(part / "mix_000006")
    report = check_dataset("sintel", root)
    assert not report.complete
    assert len(report.missing) == 7
    (root / "scenes.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"scenes\.json is broken"):
        check_dataset("sintel", root)

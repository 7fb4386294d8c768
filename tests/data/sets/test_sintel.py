from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import open_dataset
from gmaflow.geometry import leaves_frame
from gmaflow.io import read_flow_arrays
from tests.data.trees import listed, names, put_images, sintel


def test_pairs_with_truth_and_masks(tmp_path: Path) -> None:
    pairs = open_dataset("sintel", sintel(tmp_path), passes="final")
    assert names(pairs) == [
        ("frame_0001.png", "frame_0002.png", "frame_0001.flo"),
        ("frame_0002.png", "frame_0003.png", "frame_0002.flo"),
    ]
    assert pairs[0].image1.parts[-3:] == ("final", "alley_1", "frame_0001.png")
    assert [(pair.scene, pair.frame) for pair in pairs] == [
        ("alley_1", "0001"),
        ("alley_1", "0002"),
    ]
    sample = pairs.load(0)
    assert sample.occluded_in is not None
    assert sample.occluded_out is not None
    assert sample.invalid is not None
    assert sample.occluded_in[0, :6].all()
    assert not sample.occluded_in[1:].any()
    assert sample.invalid[-1].all()
    assert not sample.invalid[:-1].any()


def test_passes_are_joined_in_order(tmp_path: Path) -> None:
    sintel(tmp_path)
    both = open_dataset("sintel", tmp_path, passes=("clean", "final"))
    assert [pair.image1.parts[-3] for pair in both] == ["clean"] * 2 + ["final"] * 2


def test_the_test_split_has_no_truth(tmp_path: Path) -> None:
    sintel(tmp_path)
    put_images(tmp_path / "test/clean/market_1", "frame_0001.png", "frame_0002.png")
    pairs = open_dataset("sintel", tmp_path, split="test")
    assert names(pairs) == [("frame_0001.png", "frame_0002.png", "")]
    assert pairs.load(0).flow is None


def test_scenes_do_not_run_into_each_other(tmp_path: Path) -> None:
    sintel(sintel(tmp_path), frames=(5, 6), scene="bamboo_1")
    pairs = open_dataset("sintel", tmp_path)
    assert all(pair.image1.parent == pair.image2.parent for pair in pairs)
    assert [pair.frame for pair in pairs] == ["0001", "0002", "0005"]


@pytest.mark.parametrize("gone", ["clean/alley_1/frame_0003.png", "flow/alley_1/frame_0002.flo"])
def test_what_is_missing_is_still_spoken_of(tmp_path: Path, gone: str) -> None:
    sintel(tmp_path)
    (tmp_path / "training" / gone).unlink()
    pairs = listed("sintel", tmp_path, "training", "clean")
    assert [tmp_path / "training" / gone in pair.files for pair in pairs] == [False, True]


def test_masks_may_be_absent(tmp_path: Path) -> None:
    sintel(tmp_path)
    (tmp_path / "training" / "occlusions").rename(tmp_path / "elsewhere")
    pair = open_dataset("sintel", tmp_path)[0]
    assert pair.occlusion is None
    assert pair.invalid is not None
    sample = pair.load()
    assert sample.occluded_in is None
    assert sample.occluded_out is not None


def test_real_pairs_have_both_kinds_of_occlusion(material: Path) -> None:
    pairs = open_dataset("sintel", material / "realflow" / "sintel", passes="final")
    assert [pair.scene for pair in pairs] == [
        "alley_1",
        "ambush_4",
        "bandage_1",
        "cave_2",
        "market_5",
    ]
    for pair in pairs:
        sample = pair.load()
        assert sample.image1.shape == (436, 1024, 3)
        assert pair.flow is not None
        flow = read_flow_arrays(pair.flow).array
        assert sample.flow is not None
        np.testing.assert_array_equal(sample.flow, flow)
        assert sample.occluded_in is not None
        assert sample.occluded_out is not None
        assert not (sample.occluded_in & sample.occluded_out).any()
        np.testing.assert_array_equal(sample.occluded_out, leaves_frame(flow))
        assert sample.occluded_in.any()

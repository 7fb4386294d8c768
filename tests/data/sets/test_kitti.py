from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import open_dataset
from gmaflow.io import write_flow
from tests.data.trees import HEIGHT, WIDTH, listed, names, put_images, put_mask


def kitti(root: Path, folder: str) -> Path:
    frames = ("000000_09.png", "000000_10.png", "000000_11.png", "000000_12.png")
    put_images(root / "training" / folder, *frames)
    put_images(root / "testing" / folder, *frames)
    valid = np.zeros((HEIGHT, WIDTH), bool)
    valid[2:] = True
    flow = np.full((HEIGHT, WIDTH, 2), 1, np.float32)
    write_flow(root / "training/flow_occ/000000_10.png", flow, valid)
    valid[2] = False
    write_flow(root / "training/flow_noc/000000_10.png", flow, valid)
    return root


@pytest.mark.parametrize(
    ("name", "folder"),
    [("kitti-2012", "colored_0"), ("kitti-2012", "image_0"), ("kitti-2015", "image_2")],
)
def test_frames_10_and_11_and_nothing_else(tmp_path: Path, name: str, folder: str) -> None:
    kitti(tmp_path, folder)
    pairs = open_dataset(name, tmp_path)
    assert names(pairs) == [("000000_10.png", "000000_11.png", "000000_10.png")]
    assert pairs[0].sparse
    assert pairs[0].image1.parent.name == folder
    tests = open_dataset(name, tmp_path, split="test")
    assert names(tests) == [("000000_10.png", "000000_11.png", "")]
    assert tests[0].image1.parts[-3] == "testing"


def test_what_only_occ_knows_is_occluded(tmp_path: Path) -> None:
    kitti(tmp_path, "image_2")
    sample = open_dataset("kitti-2015", tmp_path).load(0)
    assert sample.valid is not None
    assert sample.valid.sum(axis=1).tolist() == [0, 0, 8, 8, 8, 8]
    assert sample.occluded is not None
    assert sample.occluded[2].all()
    assert not sample.occluded[:2].any()
    assert sample.unmatched is not None
    assert (sample.unmatched[2] == sample.valid[2]).all()
    assert not sample.unmatched[:2].any()
    visible = open_dataset("kitti-2015", tmp_path, passes="noc").load(0)
    assert visible.valid is not None
    assert visible.valid.sum(axis=1).tolist() == [0, 0, 0, 8, 8, 8]
    assert visible.occluded_in is None


def test_moving_objects_are_read_where_they_are(tmp_path: Path) -> None:
    kitti(tmp_path, "image_2")
    assert open_dataset("kitti-2015", tmp_path).load(0).foreground is None
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[1, 2] = True
    put_mask(tmp_path / "training/obj_map", "000000_10.png", mask)
    foreground = open_dataset("kitti-2015", tmp_path).load(0).foreground
    assert foreground is not None
    np.testing.assert_array_equal(foreground, mask)


def test_a_truth_without_images_is_still_spoken_of(tmp_path: Path) -> None:
    kitti(tmp_path, "image_2")
    (tmp_path / "training/image_2/000000_10.png").unlink()
    assert len(listed("kitti-2015", tmp_path, "training", "occ")) == 1


@pytest.mark.parametrize(
    ("name", "folder", "passes", "size"),
    [
        ("kitti-2015", "kitti2015", "occ", (375, 1242)),
        ("kitti-2012", "kitti2012", "noc", (376, 1241)),
    ],
)
def test_real_pairs(
    material: Path, name: str, folder: str, passes: str, size: tuple[int, int]
) -> None:
    pairs = open_dataset(name, material / "realflow" / folder, passes=passes)
    assert len(pairs) == 1
    sample = pairs.load(0)
    assert sample.image1.shape[:2] == size
    assert sample.valid is not None
    assert sample.flow is not None
    assert 0.1 < sample.valid.mean() < 0.3
    assert 1 < np.abs(sample.flow[sample.valid]).mean() < 100

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import FlowPair, open_dataset
from gmaflow.data.pairs import split_occlusion
from gmaflow.errors import DatasetError, FlowFileError, ImageError
from gmaflow.geometry import leaves_frame
from gmaflow.io import write_flow
from tests.data.trees import HEIGHT, WIDTH, put_flows, put_images, put_mask, sintel


@pytest.fixture
def pair(tmp_path: Path) -> FlowPair:
    return open_dataset("sintel", sintel(tmp_path))[0]


def test_a_pair_cannot_be_changed(pair: FlowPair) -> None:
    with pytest.raises(FrozenInstanceError):
        pair.scene = "other"  # type: ignore[misc]


def test_arrays_are_of_the_promised_kinds(pair: FlowPair) -> None:
    sample = pair.load()
    assert sample.image1.dtype == np.uint8
    assert (sample.image1 == 5).all()
    assert (sample.image2 == 15).all()
    assert sample.flow is not None
    assert sample.flow.dtype == np.float32
    assert sample.valid is not None
    assert sample.valid.sum(axis=0).tolist() == [HEIGHT] * (WIDTH - 1) + [0]


def test_absurd_motion_of_dense_truth_is_unknown(pair: FlowPair) -> None:
    flow = np.ones((HEIGHT, WIDTH, 2), np.float32)
    flow[0, 0, 1], flow[0, 1, 0] = -1000, 999
    assert pair.flow is not None
    write_flow(pair.flow, flow)
    sample = pair.load()
    assert sample.flow is not None
    assert sample.valid is not None
    assert not sample.valid[0, 0]
    assert sample.flow[0, 0].tolist() == [0, 0]
    assert sample.valid.sum() == HEIGHT * WIDTH - 1


@pytest.mark.parametrize("what", ["image2", "flow", "occlusion", "invalid"])
def test_sizes_that_disagree_are_named(pair: FlowPair, what: str) -> None:
    path = getattr(pair, what)
    path.unlink()
    if what == "flow":
        put_flows(path.parent, path.name, size=(5, 9))
    elif what == "image2":
        put_images(path.parent, path.name, size=(5, 9))
    else:
        put_mask(path.parent, path.name, np.ones((5, 9), bool))
    with pytest.raises(DatasetError, match=r"frame_0001\.png and .* differ in size: 6x8 and 5x9"):
        pair.load()


@pytest.mark.parametrize("what", ["image1", "image2", "flow", "occlusion"])
@pytest.mark.parametrize("how", ["cut", "empty", "gone", "folder"])
def test_broken_files_are_errors_of_ours_that_name_the_file(
    pair: FlowPair, what: str, how: str
) -> None:
    path = getattr(pair, what)
    raw = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "gone":
        path.write_bytes(raw[: len(raw) // 2] if how == "cut" else b"")
    with pytest.raises((ImageError, FlowFileError), match=path.name):
        pair.load()


def test_all_files_are_listed(pair: FlowPair) -> None:
    kinds = [path.parent.parent.name for path in pair.files]
    assert kinds == ["clean", "clean", "flow", "occlusions", "invalid"]
    assert len(replace(pair, occlusion=None).files) == 4


def test_occluded_is_parted_without_overlap() -> None:
    rng = np.random.default_rng(0)
    flow = rng.normal(0, 4, (20, 30, 2)).astype(np.float32)
    mask, valid = rng.random((20, 30)) < 0.5, rng.random((20, 30)) < 0.8
    inside, outside = split_occlusion(mask, flow, valid)
    assert inside is not None
    assert not (inside & outside).any()
    np.testing.assert_array_equal(inside | outside, mask | (leaves_frame(flow) & valid))
    np.testing.assert_array_equal(split_occlusion(None, flow, valid)[1], outside)
    assert split_occlusion(None, flow, valid)[0] is None

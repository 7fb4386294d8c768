from pathlib import Path

from gmaflow.data import open_dataset
from tests.data.trees import names, put_flows, put_images
from tests.io.exrs import rgb, write


def test_consecutive_frames_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    put_images(tmp_path, "frame10.png", "frame2.png", "frame1.png")
    pairs = open_dataset("folder", tmp_path)
    assert names(pairs) == [("frame1.png", "frame2.png", ""), ("frame2.png", "frame10.png", "")]
    assert pairs.load(0).flow is None


def test_truth_lies_beside_or_in_a_folder_of_its_own(tmp_path: Path) -> None:
    put_images(tmp_path, "a.png", "b.png", "c.png")
    put_flows(tmp_path, "a.flo", "flow/b.png")
    pairs = open_dataset("folder", tmp_path)
    assert names(pairs) == [("a.png", "b.png", "a.flo"), ("b.png", "c.png", "b.png")]
    assert [pair.sparse for pair in pairs] == [False, True]
    assert pairs.load(1).flow is not None


def test_frames_in_a_format_of_flow_are_not_their_own_truth(tmp_path: Path) -> None:
    for name in ("a.exr", "b.exr"):
        write(tmp_path / name, rgb(16, 16))
    put_flows(tmp_path, "flow/a.exr")
    [pair] = open_dataset("folder", tmp_path)
    assert (pair.image1, pair.flow) == (tmp_path / "a.exr", tmp_path / "flow/a.exr")
    (tmp_path / "flow/a.exr").unlink()
    assert names(open_dataset("folder", tmp_path)) == [("a.exr", "b.exr", "")]


def test_folders_are_scenes(tmp_path: Path) -> None:
    for scene in ("one", "two", ".hidden"):
        put_images(tmp_path / scene, "1.png", "2.png")
    assert [pair.scene for pair in open_dataset("folder", tmp_path)] == ["one", "two"]

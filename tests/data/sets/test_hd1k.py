from pathlib import Path

from gmaflow.data import open_dataset
from tests.data.trees import names, put_flows, put_images


def test_the_last_truth_of_each_sequence_has_no_second_frame(tmp_path: Path) -> None:
    frames = ["000000_0001.png", "000000_0002.png", "000000_0003.png", "000001_0001.png"]
    put_images(tmp_path / "hd1k_input/image_2", *frames, "000001_0002.png")
    put_flows(tmp_path / "hd1k_flow_gt/flow_occ", *frames, "000001_0002.png")
    pairs = open_dataset("hd1k", tmp_path)
    assert names(pairs) == [
        ("000000_0001.png", "000000_0002.png", "000000_0001.png"),
        ("000000_0002.png", "000000_0003.png", "000000_0002.png"),
        ("000001_0001.png", "000001_0002.png", "000001_0001.png"),
    ]
    assert all(pair.sparse for pair in pairs)
    assert pairs.load(2).valid is not None


def test_a_gap_is_no_pair(tmp_path: Path) -> None:
    frames = ["000000_0010.png", "000000_0020.png", "000000_0021.png"]
    put_images(tmp_path / "hd1k_input/image_2", *frames)
    put_flows(tmp_path / "hd1k_flow_gt/flow_occ", *frames)
    assert names(open_dataset("hd1k", tmp_path)) == [
        ("000000_0020.png", "000000_0021.png", "000000_0020.png")
    ]


def test_the_challenge_has_no_truth(tmp_path: Path) -> None:
    put_images(tmp_path / "hd1k_challenge/image_2", "000000_0010.png", "000000_0011.png")
    pairs = open_dataset("hd1k", tmp_path, split="test")
    assert names(pairs) == [("000000_0010.png", "000000_0011.png", "")]

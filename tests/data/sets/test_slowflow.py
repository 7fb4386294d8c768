from pathlib import Path

from gmaflow.data import open_dataset
from tests.data.trees import names, put_images


def test_neighbours_of_one_sequence_are_pairs(tmp_path: Path) -> None:
    put_images(
        tmp_path / "100/sequence/Animals",
        "seq1_0000000.png",
        "seq1_0000001.png",
        "seq1_0000010.png",
        "seq1_0000011.png",
        "seq2_0000002.png",
    )
    put_images(tmp_path / "200/sequence/Ball", "seq1_0000000.png", "seq1_0000001.png")
    pairs = open_dataset("slowflow", tmp_path)
    assert names(pairs) == [
        ("seq1_0000000.png", "seq1_0000001.png", ""),
        ("seq1_0000010.png", "seq1_0000011.png", ""),
    ]
    assert [pair.scene for pair in open_dataset("slowflow", tmp_path, passes="200")] == ["Ball"]

from pathlib import Path

from gmaflow.data import open_dataset
from tests.data.trees import names, put_flows, put_images


def test_scenes_with_a_truth(tmp_path: Path) -> None:
    for scene in ("Venus", "Walking"):  # Walking has no truth
        put_images(tmp_path / "other-data" / scene, "frame10.png", "frame11.png", "frame12.png")
    put_flows(tmp_path / "other-gt-flow", "Venus/flow10.flo")
    pairs = open_dataset("middlebury", tmp_path)
    assert names(pairs) == [("frame10.png", "frame11.png", "flow10.flo")]
    assert pairs[0].scene == "Venus"
    sample = pairs.load(0)
    assert sample.valid is not None
    assert not sample.valid[:, -1].any()


def test_the_evaluation_has_no_truth(tmp_path: Path) -> None:
    put_images(tmp_path / "eval-data" / "Army", "frame10.png", "frame11.png")
    assert names(open_dataset("middlebury", tmp_path, split="test")) == [
        ("frame10.png", "frame11.png", "")
    ]


def test_real_pairs(material: Path) -> None:
    pairs = open_dataset("middlebury", material / "realflow" / "middlebury")
    assert [pair.scene for pair in pairs] == ["Dimetrodon", "Grove2", "Hydrangea", "RubberWhale"]
    known = [sample.valid for sample in (pair.load() for pair in pairs) if sample.valid is not None]
    assert all(0.9 < valid.mean() <= 1 for valid in known)
    assert len(known) == 4

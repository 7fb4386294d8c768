from pathlib import Path

import pytest

from gmaflow.data import FlowPair, open_dataset
from gmaflow.data.sets.things import NUM_TEST_PAIRS, choose_validation
from gmaflow.errors import DatasetError
from tests.data.trees import listed, names, put_flows, put_images


def scene(root: Path, place: str = "TRAIN/A/0000", suffix: str = "png") -> Path:
    webp = "" if suffix == "png" else "_webp"
    for camera, letter in (("left", "L"), ("right", "R")):
        images = root / f"frames_cleanpass{webp}" / place / camera
        put_images(images, *(f"{n:04d}.{suffix}" for n in (6, 7, 8)))
        flows = root / "optical_flow" / place
        for n in (6, 7, 8):  # the outermost lead to frames that were not published
            put_flows(flows, f"into_future/{camera}/OpticalFlowIntoFuture_{n:04d}_{letter}.pfm")
            put_flows(flows, f"into_past/{camera}/OpticalFlowIntoPast_{n:04d}_{letter}.pfm")
    return root


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_both_directions_of_the_left_camera(tmp_path: Path, suffix: str) -> None:
    scene(tmp_path, suffix=suffix)
    pairs = open_dataset("things", tmp_path)
    assert names(pairs) == [
        (f"0006.{suffix}", f"0007.{suffix}", "OpticalFlowIntoFuture_0006_L.pfm"),
        (f"0007.{suffix}", f"0008.{suffix}", "OpticalFlowIntoFuture_0007_L.pfm"),
        (f"0007.{suffix}", f"0006.{suffix}", "OpticalFlowIntoPast_0007_L.pfm"),
        (f"0008.{suffix}", f"0007.{suffix}", "OpticalFlowIntoPast_0008_L.pfm"),
    ]
    assert [pair.direction for pair in pairs] == ["forward"] * 2 + ["backward"] * 2
    assert {pair.scene for pair in pairs} == {"A/0000"}
    assert pairs.load(0).image1.shape == (6, 8, 3)


def test_cameras_and_directions_can_be_chosen(tmp_path: Path) -> None:
    scene(tmp_path)
    both = open_dataset("things", tmp_path, cameras=("left", "right"), directions=("backward",))
    assert {(p.camera, p.direction) for p in both} == {("left", "backward"), ("right", "backward")}
    assert len(both) == 4


def test_test_scenes_are_a_split_and_passes_are_apart(tmp_path: Path) -> None:
    scene(scene(tmp_path), "TEST/B/0003")
    assert {pair.scene for pair in listed("things", tmp_path, "test", "clean")} == {"B/0003"}
    assert listed("things", tmp_path, "training", "final") == []


def test_a_missing_frame_is_still_spoken_of(tmp_path: Path) -> None:
    scene(tmp_path)
    gone = tmp_path / "frames_cleanpass/TRAIN/A/0000/left/0007.png"
    gone.unlink()
    left = [p for p in listed("things", tmp_path, "training", "clean") if p.camera == "left"]
    assert len(left) == 4
    assert all(gone in pair.files for pair in left)


def all_test_pairs() -> list[FlowPair]:
    """The test pairs of the left camera, scene by scene, as they are listed."""
    return [
        FlowPair(
            dataset="things",
            scene=f"A/{number:04d}",
            frame=str(frame),
            image1=Path(f"{number}/{frame}.png"),
            image2=Path(f"{number}/{frame + step}.png"),
            direction=direction,
        )
        for number in range(437)
        for direction, step in (("forward", 1), ("backward", -1))
        for frame in (range(6, 15) if step == 1 else range(7, 16))
    ]


def test_validation_is_one_in_ten_but_for_a_few() -> None:
    pairs = all_test_pairs()
    assert len(pairs) == NUM_TEST_PAIRS
    chosen = list(choose_validation(pairs, Path("things")))
    assert len(set(chosen)) == len(chosen) == 764
    published = [p for p in pairs if p.direction == "forward"]
    published += [p for p in pairs if p.direction == "backward"]
    place_of = {pair: place for place, pair in enumerate(published)}
    places = [place_of[pair] for pair in chosen]
    assert places == sorted(places)
    assert {place % 10 for place in places} == {0}
    left_out = set(range(0, NUM_TEST_PAIRS, 10)) - set(places)
    assert len(left_out) == 23
    assert {40, 200, 1990, 4000, 5050, 5060, 5770} <= left_out
    assert [(p.scene, p.frame, p.direction) for p in chosen[:2]] == [
        ("A/0000", "6", "forward"),
        ("A/0001", "7", "forward"),
    ]


def test_validation_of_a_part_cannot_be_told(tmp_path: Path) -> None:
    scene(scene(tmp_path), "TEST/B/0003")
    with pytest.raises(DatasetError, match=r"4 of FlyingThings3D's 7866 .* the split 'test'"):
        open_dataset("things", tmp_path, split="validation")


def test_without_test_scenes_validation_is_empty(tmp_path: Path) -> None:
    assert listed("things", scene(tmp_path), "validation", "clean") == []

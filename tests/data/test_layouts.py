from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import FlowPair, open_dataset
from gmaflow.data.layouts import (
    THINGS_TEST_PAIRS,
    DirectoryCache,
    choose_things_validation,
    consecutive,
    successor,
)
from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame
from gmaflow.io import read_flow_arrays, write_flow
from tests.data.trees import (
    HEIGHT,
    WIDTH,
    chairs,
    listed,
    names,
    put_flows,
    put_images,
    put_mask,
    sintel,
    things,
)
from tests.io.exrs import rgb, write


def test_the_split_file_separates_training_from_validation(tmp_path: Path) -> None:
    chairs(tmp_path)
    training = listed("chairs", tmp_path, "training")
    assert names(training) == [
        ("00001_img1.ppm", "00001_img2.ppm", "00001_flow.flo"),
        ("00003_img1.ppm", "00003_img2.ppm", "00003_flow.flo"),
    ]
    assert [pair.scene for pair in listed("chairs", tmp_path, "validation")] == ["00002"]
    assert len(listed("chairs", tmp_path, "all")) == 3


def test_numbers_decide_not_places_in_the_list(tmp_path: Path) -> None:
    chairs(tmp_path, numbers=(2, 3))  # 00001 was not downloaded
    assert [pair.scene for pair in listed("chairs", tmp_path, "validation")] == ["00002"]


@pytest.mark.parametrize("place", ["FlyingChairs_release", "."])
def test_the_folder_above_or_the_data_itself_will_do(tmp_path: Path, place: str) -> None:
    root = chairs(tmp_path / place)
    if place == ".":
        (root / "FlyingChairs_train_val.txt").rename(root / "data" / "FlyingChairs_train_val.txt")
        assert len(listed("chairs", root / "data", "training")) == 2
    assert len(listed("chairs", tmp_path, "training")) == 2


def test_without_the_split_file_the_error_names_the_download(tmp_path: Path) -> None:
    chairs(tmp_path, flags="")
    with pytest.raises(DatasetError, match=r"download it from https://lmb.*or use the split 'all'"):
        open_dataset("chairs", tmp_path)
    assert len(open_dataset("chairs", tmp_path, split="all")) == 3


@pytest.mark.parametrize("flags", ["<html>", " ", "1 3"])
def test_an_invalid_split_file_is_refused(tmp_path: Path, flags: str) -> None:
    chairs(tmp_path, flags=flags)
    with pytest.raises(DatasetError, match="must contain only 1"):
        open_dataset("chairs", tmp_path)


def test_real_chairs(material: Path) -> None:
    pairs = open_dataset("chairs", material / "realflow" / "flyingchairs", split="all")
    assert len(pairs) == 6
    for pair in pairs:
        sample = pair.load()
        assert sample.image1.shape == (384, 512, 3)
        assert sample.valid is not None
        assert sample.valid.all()


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_both_directions_of_the_left_camera(tmp_path: Path, suffix: str) -> None:
    things(tmp_path, suffix=suffix)
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
    things(tmp_path)
    both = open_dataset("things", tmp_path, cameras=("left", "right"), directions=("backward",))
    assert {(p.camera, p.direction) for p in both} == {("left", "backward"), ("right", "backward")}
    assert len(both) == 4


def test_test_scenes_are_a_split_and_passes_are_apart(tmp_path: Path) -> None:
    things(things(tmp_path), "TEST/B/0003")
    assert {pair.scene for pair in listed("things", tmp_path, "test", "clean")} == {"B/0003"}
    assert listed("things", tmp_path, "training", "final") == []


def test_a_missing_frame_is_still_spoken_of(tmp_path: Path) -> None:
    things(tmp_path)
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
    assert len(pairs) == THINGS_TEST_PAIRS
    chosen = list(choose_things_validation(pairs, Path("things")))
    assert len(set(chosen)) == len(chosen) == 764
    published = [p for p in pairs if p.direction == "forward"]
    published += [p for p in pairs if p.direction == "backward"]
    place_of = {pair: place for place, pair in enumerate(published)}
    places = [place_of[pair] for pair in chosen]
    assert places == sorted(places)
    assert {place % 10 for place in places} == {0}
    left_out = set(range(0, THINGS_TEST_PAIRS, 10)) - set(places)
    assert len(left_out) == 23
    assert {40, 200, 1990, 4000, 5050, 5060, 5770} <= left_out
    assert [(p.scene, p.frame, p.direction) for p in chosen[:2]] == [
        ("A/0000", "6", "forward"),
        ("A/0001", "7", "forward"),
    ]


def test_validation_of_an_incomplete_set_is_refused(tmp_path: Path) -> None:
    things(things(tmp_path), "TEST/B/0003")
    with pytest.raises(DatasetError, match=r"4 of FlyingThings3D's 7866 .* the split 'test'"):
        open_dataset("things", tmp_path, split="validation")


def test_without_test_scenes_validation_is_empty(tmp_path: Path) -> None:
    assert listed("things", things(tmp_path), "validation", "clean") == []


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
def test_missing_parts_are_still_mentioned(tmp_path: Path, gone: str) -> None:
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


def test_real_sintel_has_both_kinds_of_occlusion(material: Path) -> None:
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
def test_real_kitti(
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


def spring(root: Path, *, directions: tuple[str, ...] = ("FW", "BW")) -> Path:
    for camera in ("left", "right"):
        images = root / f"frame_{camera}"
        put_images(images, *(f"frame_{camera}_{n:04d}.png" for n in (1, 2, 3)))
        for direction in directions:
            for n in (1, 2) if direction == "FW" else (2, 3):
                flow = np.zeros((2 * HEIGHT, 2 * WIDTH, 2), np.float32)
                flow[::2, ::2] = n
                folder = f"flow_{direction}_{camera}"
                write_flow(root / folder / f"{folder}_{n:04d}.flo5", flow)
    return root


@pytest.mark.parametrize("above", [".", "spring"])
def test_directions_and_cameras(tmp_path: Path, above: str) -> None:
    spring(tmp_path / above / "train" / "0001")
    pairs = open_dataset("spring", tmp_path, cameras=("left",))
    assert names(pairs) == [
        ("frame_left_0001.png", "frame_left_0002.png", "flow_FW_left_0001.flo5"),
        ("frame_left_0002.png", "frame_left_0003.png", "flow_FW_left_0002.flo5"),
        ("frame_left_0002.png", "frame_left_0001.png", "flow_BW_left_0002.flo5"),
        ("frame_left_0003.png", "frame_left_0002.png", "flow_BW_left_0003.flo5"),
    ]
    assert [p.direction for p in pairs] == ["forward", "forward", "backward", "backward"]
    assert len(open_dataset("spring", tmp_path)) == 8


def test_every_second_pixel_of_the_truth_is_taken_as_it_is(tmp_path: Path) -> None:
    spring(tmp_path / "train" / "0001")
    sample = open_dataset("spring", tmp_path).load(1)
    assert sample.flow is not None
    assert sample.flow.shape == (HEIGHT, WIDTH, 2)
    assert (sample.flow == 2).all()


def test_a_single_direction_is_enough(tmp_path: Path) -> None:
    spring(tmp_path / "train" / "0001", directions=("FW",))
    assert {pair.direction for pair in open_dataset("spring", tmp_path)} == {"forward"}


def test_test_scenes_want_both_directions(tmp_path: Path) -> None:
    put_images(tmp_path / "test/0003/frame_left", "frame_left_0001.png", "frame_left_0002.png")
    pairs = open_dataset("spring", tmp_path, split="test")
    assert names(pairs) == [
        ("frame_left_0001.png", "frame_left_0002.png", ""),
        ("frame_left_0002.png", "frame_left_0001.png", ""),
    ]


def test_middlebury_scenes_with_a_truth(tmp_path: Path) -> None:
    for scene in ("Venus", "Walking"):  # Walking has no truth
        put_images(tmp_path / "other-data" / scene, "frame10.png", "frame11.png", "frame12.png")
    put_flows(tmp_path / "other-gt-flow", "Venus/flow10.flo")
    pairs = open_dataset("middlebury", tmp_path)
    assert names(pairs) == [("frame10.png", "frame11.png", "flow10.flo")]
    assert pairs[0].scene == "Venus"
    sample = pairs.load(0)
    assert sample.valid is not None
    assert not sample.valid[:, -1].any()


def test_the_middlebury_evaluation_has_no_truth(tmp_path: Path) -> None:
    put_images(tmp_path / "eval-data" / "Army", "frame10.png", "frame11.png")
    assert names(open_dataset("middlebury", tmp_path, split="test")) == [
        ("frame10.png", "frame11.png", "")
    ]


def test_real_middlebury(material: Path) -> None:
    pairs = open_dataset("middlebury", material / "realflow" / "middlebury")
    assert [pair.scene for pair in pairs] == ["Dimetrodon", "Grove2", "Hydrangea", "RubberWhale"]
    known = [sample.valid for sample in (pair.load() for pair in pairs) if sample.valid is not None]
    assert all(0.9 < valid.mean() <= 1 for valid in known)
    assert len(known) == 4


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


def test_consecutive_frames_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    put_images(tmp_path, "frame10.png", "frame2.png", "frame1.png")
    pairs = open_dataset("folder", tmp_path)
    assert names(pairs) == [("frame1.png", "frame2.png", ""), ("frame2.png", "frame10.png", "")]
    assert pairs.load(0).flow is None


def test_truth_is_next_to_the_frames_or_in_its_own_folder(tmp_path: Path) -> None:
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


def test_numbers_follow_each_other() -> None:
    assert consecutive({"0009", "0010", "0012", "0013"}) == [("0009", "0010"), ("0012", "0013")]
    assert consecutive(set()) == []
    assert (successor("0009"), successor("9")) == ("0010", "10")


def test_files_folders_and_numbers(tmp_path: Path) -> None:
    for name in ("f_001.png", "f_2.png", "f_x.png", "f_003.png.part", "f_004_png"):
        (tmp_path / name).touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    cache = DirectoryCache()
    assert cache.numbers(tmp_path, "f_#.png") == {"001", "2"}
    assert cache.folders(tmp_path) == ("a", "b")
    assert cache.if_exists(tmp_path / "f_2.png") == tmp_path / "f_2.png"
    assert cache.if_exists(tmp_path / "f_3.png") is None
    assert not cache.has(tmp_path / "a")


def test_a_folder_is_listed_once(tmp_path: Path) -> None:
    cache = DirectoryCache()
    assert not cache.has(tmp_path / "late")
    (tmp_path / "late").touch()
    assert not cache.has(tmp_path / "late")


def test_folders_that_are_not_there_are_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "none", tmp_path / "file"):
        assert DirectoryCache().files(folder) == frozenset()
        assert DirectoryCache().folders(folder) == ()


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gmaflow.data.layouts.os.scandir", refuse)
    with pytest.raises(DatasetError, match=r"cannot list .*: permission denied"):
        DirectoryCache().files(tmp_path)

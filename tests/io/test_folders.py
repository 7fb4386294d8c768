from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.errors import FlowFileError, ImageError
from gmaflow.io import find_breaks, list_flows, list_images
from gmaflow.io.folders import natural_key


def test_frames_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["frame1.png", "frame2.PNG", "frame10.jpg"]
    for name in [*reversed(names), ".hidden.png", "notes.txt", "flow.flo"]:
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [path.name for path in list_images(tmp_path)] == names


@given(st.lists(st.text(), max_size=5))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    backwards = list(reversed(names))
    assert sorted(names, key=natural_key) == sorted(backwards, key=natural_key)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.text(alphabet="ab-_"))
def test_numbers_decide(first: int, second: int, stem: str) -> None:
    in_order = natural_key(f"{stem}{first}.png") < natural_key(f"{stem}{second}.png")
    assert in_order == (first < second)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ImageError, match="holds no images"):
        list_images(tmp_path)
    for name, message in (("none", "does not exist; give"), ("notes.txt", "is not a folder; give")):
        with pytest.raises(ImageError, match=message):
            list_images(tmp_path / name)


@pytest.mark.parametrize(
    ("names", "breaks"),
    [
        (["f_0001", "f_0002", "f_0007", "other_0001"], [1, 2]),
        (["s1_f1", "s1_f2", "s2_f1", "s2_f2"], [1]),
        (["f1", "F2", "f3"], []),
        (["f000", "f010", "f020", "f030"], []),
        (["1305031102.175", "1305031102.211", "1305031102.244", "1305031103.011"], [2]),
        (["1305031102.966", "1305031103.001", "1305031103.034"], []),
        (["before", "after", "later"], []),
        (["only"], []),
        ([], []),
    ],
)
def test_neighbours_that_do_not_follow_are_found(names: list[str], breaks: list[int]) -> None:
    frames = [Path(f"{name}.png") for name in names]
    assert find_breaks(frames) == [(frames[i], frames[i + 1]) for i in breaks]


def test_flow_is_listed_without_the_pictures_next_to_it(tmp_path: Path) -> None:
    for name in ("flow10.flo", "flow2.flo", "flow2.png", "flow3.kitti.png", ".flow1.flo", "a.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in list_flows(tmp_path)] == [
        "flow2.flo",
        "flow3.kitti.png",
        "flow10.flo",
    ]


def test_a_folder_of_only_pngs_may_be_kittis_flow(tmp_path: Path) -> None:
    (tmp_path / "000000_10.png").touch()
    assert [path.name for path in list_flows(tmp_path)] == ["000000_10.png"]


def test_a_folder_without_flow_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError, match="holds no flow"):
        list_flows(tmp_path)
    with pytest.raises(FlowFileError, match="gone does not exist; give a folder"):
        list_flows(tmp_path / "gone")

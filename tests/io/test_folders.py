from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.errors import ImageError
from gmaflow.io import list_images
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
    for path in (tmp_path / "none", tmp_path / "notes.txt"):
        with pytest.raises(ImageError, match="is not a folder"):
            list_images(path)

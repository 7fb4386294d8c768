from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import open_dataset
from gmaflow.io import write_flow
from tests.data.trees import HEIGHT, WIDTH, names, put_images

pytest.importorskip("h5py")


def scene(root: Path, *, directions: tuple[str, ...] = ("FW", "BW")) -> Path:
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
    scene(tmp_path / above / "train" / "0001")
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
    scene(tmp_path / "train" / "0001")
    sample = open_dataset("spring", tmp_path).load(1)
    assert sample.flow is not None
    assert sample.flow.shape == (HEIGHT, WIDTH, 2)
    assert (sample.flow == 2).all()


def test_one_direction_alone_is_enough(tmp_path: Path) -> None:
    scene(tmp_path / "train" / "0001", directions=("FW",))
    assert {pair.direction for pair in open_dataset("spring", tmp_path)} == {"forward"}


def test_test_scenes_want_both_directions(tmp_path: Path) -> None:
    put_images(tmp_path / "test/0003/frame_left", "frame_left_0001.png", "frame_left_0002.png")
    pairs = open_dataset("spring", tmp_path, split="test")
    assert names(pairs) == [
        ("frame_left_0001.png", "frame_left_0002.png", ""),
        ("frame_left_0002.png", "frame_left_0001.png", ""),
    ]

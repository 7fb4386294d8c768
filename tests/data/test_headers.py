from pathlib import Path

import numpy as np
import pytest

from gmaflow.data.headers import measure
from gmaflow.errors import FlowError
from gmaflow.io import write_flow, write_image

IMAGES = ("a.png", "a.ppm", "a.webp", "a.jpg")
FLOWS = ("f.flo", "f.pfm", "f.png", "f.npy", "f.npz", "f.flo5", "f.exr")


def write(path: Path) -> None:
    rng = np.random.default_rng(0)
    if path.name in IMAGES:
        write_image(path, rng.integers(0, 256, (13, 17, 3), np.uint8))
    else:
        write_flow(path, rng.normal(0, 9, (13, 17, 2)).astype(np.float32))


@pytest.mark.parametrize("name", IMAGES + FLOWS)
def test_the_size_is_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert measure(tmp_path / name) == (13, 17)


@pytest.mark.parametrize("keep", [0, 0.005, 0.5, 0.9])
@pytest.mark.parametrize("name", IMAGES + FLOWS)
def test_a_truncated_file_is_detected(tmp_path: Path, name: str, keep: float) -> None:
    path = tmp_path / name
    write(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(FlowError, match=name):
        measure(path)


@pytest.mark.parametrize("name", IMAGES + FLOWS)
def test_another_kind_of_file_is_detected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"<html>404 not found</html>" * 50)
    with pytest.raises(FlowError, match=name):
        measure(tmp_path / name)


def test_a_pfm_of_two_channels_is_sound(tmp_path: Path) -> None:
    (tmp_path / "a.pfm").write_bytes(b"PF\n3 2\n-1.0\n" + bytes(2 * 3 * 8))
    assert measure(tmp_path / "a.pfm") == (2, 3)


def test_a_missing_file_is_an_error_of_ours(tmp_path: Path) -> None:
    for name in ("a.png", "a.webp", "a.flo", "a.flo5"):
        with pytest.raises(FlowError, match=name):
            measure(tmp_path / name)


def test_rarer_kinds_of_ppm_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P3\n# by hand\n2 1\n255\n1 2 3 4 5 6\n")
    assert measure(tmp_path / "a.ppm") == (1, 2)

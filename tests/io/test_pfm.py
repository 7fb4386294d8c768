from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import FlowArrays, read_flow, write_flow
from tests.io.flows import assert_same, ramp


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_either_byte_order_and_number_of_channels(
    tmp_path: Path, channels: int, order: str, newline: str
) -> None:
    flow = FlowArrays(ramp().array, np.ones((5, 7), bool))
    data = np.zeros((5, 7, channels), f"{order}f4")
    data[..., :2] = flow.array
    scale = "-1.0" if order == "<" else "1"
    header = newline.join(["PF", "7 5", scale, ""]).encode()
    (tmp_path / "a.pfm").write_bytes(header + data[::-1].tobytes())
    assert_same(tmp_path, read_flow(tmp_path / "a.pfm"), flow)


def test_rows_are_written_from_the_bottom_up(tmp_path: Path) -> None:
    write_flow(tmp_path / "a.pfm", np.array([[[1, 2]], [[3, 4]]], np.float32))
    values = np.array([3, 4, 0, 1, 2, 0], "<f4").tobytes()
    assert (tmp_path / "a.pfm").read_bytes() == b"PF\n1 2\n-1.0\n" + values


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"Pf\n1 1\n-1\n", "one-channel"),
        (b"PF\n1 1\n0\n", "scale"),
        (b"PF\n1 1\n...\n", "scale"),
        (b"PF\n-1 1\n1\n", "not a .pfm"),
        (b"PF\n999999999 999999999\n1\n", "its header"),
        (b"PF\n9999 9999\n1\n", "its header"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: bytes, reason: str) -> None:
    (tmp_path / "a.pfm").write_bytes(header + bytes(12))
    with pytest.raises(FlowFileError, match=reason):
        read_flow(tmp_path / "a.pfm")

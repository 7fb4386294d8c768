import io
import sys
import threading

import numpy as np
import OpenEXR
import pytest

from gmaflow.errors import FlowFileError, ImageError
from gmaflow.io.exr import count_values, import_openexr, in_display_window, read_planes
from gmaflow.io.exr_header import DamagedError, read_parts
from tests.io.exrs import deep, pack, pack_parts, rgb


def test_the_part_that_was_asked_for_is_read() -> None:
    file = io.BytesIO(pack_parts(a=({"Z": rgb()["R"]}, {}), b=(rgb(), {})))
    first, second = read_parts(file)
    assert read_planes(OpenEXR, file, first).keys() == {"Z"}
    found = read_planes(OpenEXR, file, second)
    assert found.keys() == set("RGB")
    for name, plane in rgb().items():
        np.testing.assert_array_equal(found[name], plane)


def test_the_complaints_of_the_library_are_kept_from_stdout_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Slow(io.BytesIO):
        """Lets another thread print while it is read."""

        def read(self, length: int | None = -1) -> bytes:
            other = threading.Thread(target=print, args=("from elsewhere",))
            other.start()
            other.join()
            return super().read(length)

    raw = bytearray(pack(rgb(64, 48)))
    raw[-200:-100] = bytes(100)
    [part] = read_parts(io.BytesIO(raw))
    out = sys.stdout
    with pytest.raises(DamagedError, match="cannot be unpacked"):
        read_planes(OpenEXR, Slow(raw), part)
    assert sys.stdout is out
    assert set(capsys.readouterr().out.splitlines()) == {"from elsewhere"}


def test_deep_values_weigh_more() -> None:
    [flat] = read_parts(io.BytesIO(pack(rgb())))
    [thick] = read_parts(
        io.BytesIO(
            pack(
                {"Z": deep(np.ones((20, 30), int), np.zeros(600))},
                type=OpenEXR.deepscanline,
                compression=OpenEXR.ZIPS_COMPRESSION,
            )
        )
    )
    assert count_values([flat, flat]) == 2 * 3 * 600
    assert count_values([thick]) > count_values([flat])


def test_a_plane_within_the_display_window_is_given_as_it_is() -> None:
    [part] = read_parts(io.BytesIO(pack(rgb())))
    plane = rgb()["R"]
    assert in_display_window(part, plane) is plane


def test_windows_that_do_not_meet_leave_nothing() -> None:
    [part] = read_parts(io.BytesIO(pack(rgb(2, 3), data=(10, 10, 12, 11), display=(0, 0, 3, 4))))
    assert in_display_window(part, np.ones((2, 3), bool)).tolist() == [[False] * 4] * 5


@pytest.mark.parametrize("error", [ImageError, FlowFileError])
def test_the_package_is_asked_for_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: type[ImageError] | type[FlowFileError]
) -> None:
    assert import_openexr("reading", error) is OpenEXR
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(error, match=r"^reading \.exr needs OpenEXR: pip install 'gmaflow\[exr\]'$"):
        import_openexr("reading", error)

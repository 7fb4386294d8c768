import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.viz.legend import add_legend, format_length


@pytest.mark.parametrize("size", [(72, 72), (128, 192), (436, 1024), (1080, 1920), (72, 2000)])
def test_the_legend_keeps_to_its_corner(size: tuple[int, int]) -> None:
    picture = np.full((*size, 3), 40, np.uint8)
    result = add_legend(picture, 12.3)
    rows, columns = (np.flatnonzero((result != picture).any(axis=(2, axis))) for axis in (1, 0))
    assert result.shape == picture.shape
    assert (
        0 < size[0] - 1 - rows[-1] == size[1] - 1 - columns[-1]
    )  # the same margin below and beside
    assert rows[0] > 0
    assert columns[0] > 0
    assert len(rows) < max(70, 0.4 * size[0])
    assert (picture == 40).all()


def test_the_label_is_not_clipped_by_its_plate() -> None:
    result = add_legend(np.full((200, 300, 3), 255, np.uint8), 123456.0)
    dark = np.flatnonzero((result.max(axis=2) < 100).any(axis=0))
    assert dark[-1] < 299 - 5
    assert dark[-1] - dark[0] > 30


def test_small_pictures_come_back_without_a_legend() -> None:
    for size in ((0, 0), (1, 1), (40, 300)):
        picture = np.full((*size, 3), 7, np.uint8)
        result = add_legend(picture, 1.0)
        assert np.array_equal(result, picture)
        assert result is not picture


def test_lengths_have_three_digits_at_most() -> None:
    lengths = (0.123, 1.0, 4.625, 12.34, 30.0, 99.96, 123.4, 12345.6)
    expected = ["0.123", "1", "4.62", "12.3", "30", "100", "123", "12346"]
    assert [format_length(length) for length in lengths] == expected


def test_the_scale_must_be_positive() -> None:
    with pytest.raises(FlowError, match="max_length"):
        add_legend(np.zeros((100, 100, 3), np.uint8), 0.0)

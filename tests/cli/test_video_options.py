from fractions import Fraction

import pytest

from gmaflow.cli.video_options import parse_fps, parse_time
from gmaflow.errors import FlowError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("12.5", Fraction(25, 2)),
        ("1:05", 65),
        ("0:01:30.25", Fraction(361, 4)),
        (".5", 0.5),
    ],
)
def test_times_are_seconds_or_have_colons(text: str, seconds: Fraction) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1:", ":1", "1:2:3:4", "1:-2", "nan", "inf", "1/0"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="is no time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("12", Fraction(12)),
        ("12.5", Fraction(25, 2)),
        ("1/3", Fraction(1, 3)),
        ("0.001", Fraction(1, 1000)),
        ("30000/1001", Fraction(30000, 1001)),
        ("29.97", Fraction(30000, 1001)),
        ("23.976", Fraction(24000, 1001)),
        ("23.98", Fraction(24000, 1001)),
        ("59.94", Fraction(60000, 1001)),
    ],
)
def test_rates(text: str, rate: Fraction) -> None:
    assert parse_fps(text) == rate


@pytest.mark.parametrize("text", ["0", "0.0001", "-1", "1001", "1/0", "fast", "nan", ""])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(FlowError, match="makes no sense"):
        parse_fps(text)

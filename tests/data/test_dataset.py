from pathlib import Path

import pytest

from gmaflow.data import FlowDataset, FlowPair
from gmaflow.errors import DatasetError


def some(name: str, count: int) -> FlowDataset:
    place = Path(name)
    pairs = (
        FlowPair(dataset=name, scene="s", frame=str(i), image1=place, image2=place)
        for i in range(count)
    )
    return FlowDataset(name, tuple(pairs))


def test_joining_and_repeating_make_new_values() -> None:
    one, two = some("a", 2), some("b", 1)
    mixed = 3 * one + two * 2
    assert [pair.dataset for pair in mixed] == ["a"] * 6 + ["b"] * 2
    assert [pair.frame for pair in mixed] == ["0", "1"] * 3 + ["0"] * 2
    assert (len(one), len(two), len(mixed)) == (2, 1, 8)
    assert mixed.name == "3 * (a) + 2 * (b)"
    assert mixed[0] is mixed[2]


def test_repeating_no_times_is_refused() -> None:
    with pytest.raises(DatasetError, match="cannot be repeated 0 times"):
        0 * some("a", 1)


def test_pairs_can_be_picked() -> None:
    assert [p.frame for p in some("a", 4).where(lambda pair: pair.frame != "2")] == ["0", "1", "3"]

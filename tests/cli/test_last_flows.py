"""What a warm start goes on from."""

import os
from pathlib import Path

import numpy as np

from gmaflow.cli.last_flows import LastFlows
from gmaflow.inference import Flow


def flow(seed: int) -> Flow:
    values = np.random.default_rng(seed)
    array = values.normal(size=(40, 56, 2)).astype(np.float32)
    return Flow(array, coarse=values.normal(size=(5, 7, 2)).astype(np.float32))


def test_the_last_two_are_kept_whatever_they_are_called(tmp_path: Path) -> None:
    names = ["b/c", "frame 10", "frame 9", os.fsdecode(b"\xff.1"), "a"]
    flows = LastFlows(tmp_path)
    for number, name in enumerate(names):
        flows.keep(name, flow(number))
        kept = LastFlows(tmp_path).load()
        assert list(kept) == names[: number + 1][-2:]
        for other, found in kept.items():
            expected = flow(names.index(other))
            assert found.coarse is not None
            assert expected.coarse is not None
            np.testing.assert_array_equal(found.coarse, expected.coarse)
            assert found.array.shape == expected.array.shape


def test_a_run_that_goes_on_drops_the_older_one(tmp_path: Path) -> None:
    flows = LastFlows(tmp_path)
    flows.keep("z", flow(0))
    flows.keep("a", flow(1))
    again = LastFlows(tmp_path)
    again.load()
    again.keep("m", flow(2))
    assert list(LastFlows(tmp_path).load()) == ["a", "m"]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert LastFlows(tmp_path / "nowhere").load() == {}

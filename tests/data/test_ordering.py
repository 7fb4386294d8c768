from itertools import islice

import pytest

from gmaflow.data import SampleKey, ShuffledEpochs
from gmaflow.errors import DatasetError


def first(count: int, **options: int) -> list[SampleKey]:
    return list(islice(ShuffledEpochs(7, **({"seed": 1} | options)), count))


def test_each_epoch_visits_each_sample_once_in_an_order_of_its_own() -> None:
    keys = first(21)
    epochs = [[key.number for key in keys if key.epoch == epoch] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_seed_decides() -> None:
    assert first(14) == first(14)
    assert first(14) != first(14, seed=2)


@pytest.mark.parametrize("start", [3, 7, 11])
def test_it_goes_on_from_where_it_was(start: int) -> None:
    assert first(10, start=start) == first(10 + start)[start:]


def test_processes_share_the_samples_between_them() -> None:
    parts = [first(6, rank=rank, world_size=3) for rank in range(3)]
    together = [key for keys in zip(*parts, strict=True) for key in keys]
    assert together == first(18)


def test_nonsense_is_refused() -> None:
    with pytest.raises(DatasetError, match="cannot be ordered"):
        ShuffledEpochs(0, seed=0)
    with pytest.raises(DatasetError, match="process 2 of 2"):
        ShuffledEpochs(3, seed=0, rank=2, world_size=2)

import logging
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from gmaflow.data import (
    AugmentedDataset,
    Batch,
    FlowDataset,
    SampleKey,
    ShuffledEpochs,
    dense_augmentation,
    open_dataset,
    sparse_augmentation,
)
from gmaflow.errors import DatasetError
from tests.data.trees import put_flows, put_images, sintel

AUGMENTATION = dense_augmentation((16, 24), (0.0, 0.5))


@pytest.fixture
def pairs(tmp_path: Path) -> FlowDataset:
    return open_dataset("sintel", sintel(tmp_path, frames=range(1, 7)))


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def spoil(dataset: FlowDataset, *numbers: int) -> None:
    for number in numbers:
        path = dataset[number].flow
        assert path is not None
        path.write_bytes(path.read_bytes()[:50])


def test_samples_are_tensors_of_the_promised_kinds(pairs: FlowDataset) -> None:
    sample = AugmentedDataset([(pairs, AUGMENTATION)])[0]
    assert sample.image1.shape == sample.image2.shape == (3, 16, 24)
    assert sample.flow.shape == (2, 16, 24)
    assert sample.valid.shape == sample.occluded.shape == (16, 24)
    assert [field.dtype for field in sample] == [torch.float32] * 3 + [torch.bool] * 2
    assert 0 <= sample.image1.min() <= sample.image1.max() <= 1


def test_a_sample_depends_only_on_seed_epoch_and_number(pairs: FlowDataset) -> None:
    dataset = AugmentedDataset([(pairs, AUGMENTATION)], seed=3)
    wanted = dataset[2, 1]
    again = AugmentedDataset([(pairs, AUGMENTATION)], seed=3)
    _ = again[0, 4]
    assert same(again[2, 1], wanted)
    assert same(dataset[4], dataset[0, 4])
    assert not same(dataset[1, 1], wanted)
    assert not same(AugmentedDataset([(pairs, AUGMENTATION)], seed=4)[2, 1], wanted)


def test_repeats_of_a_pair_are_augmented_differently(pairs: FlowDataset) -> None:
    dataset = AugmentedDataset([(2 * pairs, AUGMENTATION)])
    assert not same(dataset[0], dataset[len(pairs)])


def test_each_part_has_its_own_augmentation(tmp_path: Path, pairs: FlowDataset) -> None:
    put_images(tmp_path / "own", "1.png", "2.png")
    put_flows(tmp_path / "own", "flow/1.png")
    own = open_dataset("folder", tmp_path / "own")
    sparse = sparse_augmentation((16, 24), (0.0, 0.5))
    dataset = AugmentedDataset([(pairs, AUGMENTATION), (own, sparse)])
    assert len(dataset) == len(pairs) + 1
    # A sparse truth grows holes where a dense one is filled up.
    assert dataset[0].valid.float().mean() > 0.8
    assert dataset[len(pairs)].valid.float().mean() < 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_whatever_the_number_of_workers(
    pairs: FlowDataset, workers: int
) -> None:
    dataset = AugmentedDataset([(pairs, AUGMENTATION)])
    order = ShuffledEpochs(len(dataset), seed=0)
    loader = DataLoader(dataset, batch_size=2, sampler=order, num_workers=workers)
    batches = list(islice(loader, 4))
    keys = list(islice(order, 8))
    assert {key.epoch for key in keys} == {0, 1}
    for i, batch in enumerate(batches):
        assert isinstance(batch, Batch)
        assert batch.image1.shape == (2, 3, 16, 24)
        for j in range(2):
            assert same(Batch(*(field[j] for field in batch)), dataset[keys[2 * i + j]])


def test_a_broken_pair_is_replaced_by_the_next_and_reported_once(
    pairs: FlowDataset, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(pairs, 1, 2)
    dataset = AugmentedDataset([(3 * pairs, AUGMENTATION)], max_broken=2)
    with caplog.at_level(logging.WARNING):
        first, again = dataset[1], dataset[1]
        _ = dataset[6], dataset[11]
    assert same(first, again)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "skipping sintel alley_1/0002",
        "skipping sintel alley_1/0003",
    ]
    assert "frame_0002.flo" in caplog.text
    assert dataset.broken == (pairs[1], pairs[2])
    # In the place of number 1 stands pair 3, with the randomness of number 1.
    moved = FlowDataset("moved", (pairs[0], pairs[3], pairs[4]))
    assert same(first, AugmentedDataset([(moved, AUGMENTATION)])[1])


def test_too_many_broken_pairs_are_named(pairs: FlowDataset) -> None:
    spoil(pairs, 0, 1, 2)
    dataset = AugmentedDataset([(pairs, AUGMENTATION)], max_broken=2)
    with pytest.raises(DatasetError, match="more than 2 pairs cannot be read") as caught:
        _ = dataset[0]
    for number in (1, 2, 3):
        assert f"clean/alley_1/frame_{number:04d}.png" in str(caught.value)


def test_workers_count_broken_pairs_together(pairs: FlowDataset) -> None:
    spoil(pairs, 0, 1, 2)
    dataset = AugmentedDataset([(pairs, AUGMENTATION)], max_broken=5)
    loader = DataLoader(dataset, batch_size=1, num_workers=2)
    assert len(list(loader)) == len(pairs)
    assert dataset.broken == (pairs[0], pairs[1], pairs[2])
    strict = AugmentedDataset([(pairs, AUGMENTATION)], max_broken=1)
    batches = iter(DataLoader(strict, batch_size=1, num_workers=2))
    with pytest.raises(DatasetError, match="more than 1 pairs cannot be read"):
        list(batches)
    # Left to the garbage collector, torch waits five seconds for each worker.
    batches._shutdown_workers()  # type: ignore[attr-defined]


def test_nothing_readable_is_an_error_not_a_hang(pairs: FlowDataset) -> None:
    spoil(pairs, *range(len(pairs)))
    with pytest.raises(DatasetError, match="none of 5 pairs can be read"):
        _ = AugmentedDataset([(pairs, AUGMENTATION)])[3]


def test_data_that_cannot_be_trained_on_is_refused_at_once(
    tmp_path: Path, pairs: FlowDataset
) -> None:
    put_images(tmp_path / "own", "1.png", "2.png", "3.png")
    put_flows(tmp_path / "own", "flow/1.png")
    own = open_dataset("folder", tmp_path / "own")
    with pytest.raises(DatasetError, match="no pairs to train on"):
        AugmentedDataset([])
    with pytest.raises(DatasetError, match="use sparse_augmentation"):
        AugmentedDataset([(own, AUGMENTATION)])
    with pytest.raises(DatasetError, match=r"2\.png has no ground truth"):
        AugmentedDataset([(own, sparse_augmentation((16, 24), (0.0, 0.5)))])
    other = dense_augmentation((8, 8), (0.0, 0.5))
    with pytest.raises(DatasetError, match="must have the same size"):
        AugmentedDataset([(pairs, AUGMENTATION), (pairs, other)])


def test_numbers_end(pairs: FlowDataset) -> None:
    dataset = AugmentedDataset([(pairs, AUGMENTATION)])
    assert len(list(dataset)) == len(pairs)  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="index 5 is out of range"):
        _ = dataset[7, 5]


def test_real_pairs(material: Path) -> None:
    real = material / "realflow"
    crop = (128, 160)
    dense, sparse = dense_augmentation(crop, (-0.2, 0.6)), sparse_augmentation(crop, (-0.3, 0.5))
    dataset = AugmentedDataset(
        [
            (open_dataset("sintel", real / "sintel", passes="final"), dense),
            (open_dataset("middlebury", real / "middlebury"), dense),
            (open_dataset("kitti-2015", real / "kitti2015"), sparse),
        ]
    )
    for number in range(len(dataset)):
        sample = dataset[1, number]
        assert sample.image1.shape == (3, *crop)
        assert torch.isfinite(sample.flow).all()
        assert (sample.occluded <= sample.valid).all()
    assert dataset.broken == ()


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
def test_it_continues_at_the_same_place(start: int) -> None:
    assert first(10, start=start) == first(10 + start)[start:]


def test_processes_share_the_samples_between_them() -> None:
    parts = [first(6, rank=rank, world_size=3) for rank in range(3)]
    together = [key for keys in zip(*parts, strict=True) for key in keys]
    assert together == first(18)


def test_an_empty_data_set_cannot_be_ordered() -> None:
    with pytest.raises(DatasetError, match="cannot order"):
        ShuffledEpochs(0, seed=0)
    with pytest.raises(DatasetError, match="process 2 of 2"):
        ShuffledEpochs(3, seed=0, rank=2, world_size=2)

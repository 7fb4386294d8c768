import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from gmaflow.data import ClipDataset, ShardDataset
from gmaflow.errors import DatasetError, FlowFileError
from gmaflow.io import create_clip, open_clip, write_flow, write_image


def constant(value: float) -> np.ndarray:
    return np.full((16, 24, 2), value, np.float32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, frames in (("b/two.h5", (0, 1)), ("a.tar", (3, 4, 9)), ("b/one", (5,))):
        with create_clip(tmp_path / name) as clip:
            for frame in frames:
                clip.add(frame, constant(frame))
    (tmp_path / "b" / ".hidden.h5").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    return tmp_path


def test_every_flow_of_every_clip_once(root: Path) -> None:
    data = ClipDataset(root)
    assert list(data.clips) == ["a", "b/two", "b/one"]
    samples = [data[index] for index in range(len(data))]
    assert [(sample["clip"], sample["frame"]) for sample in samples] == [
        ("a", 3),
        ("a", 4),
        ("a", 9),
        ("b/two", 0),
        ("b/two", 1),
        ("b/one", 5),
    ]
    for sample in samples:
        assert sample["flow"].shape == (2, 16, 24)
        assert (sample["flow"] - sample["frame"]).abs().max() < 0.1
    assert torch.equal(data[-1]["flow"], data.sample("b/one", 5)["flow"])
    with pytest.raises(IndexError):
        data[6]
    with pytest.raises(DatasetError, match="no clip 'b/tow'; did you mean b/two"):
        data.sample("b/tow", 0)
    with pytest.raises(FlowFileError, match="no flow of frame 7"):
        data.sample("a", 7)


def test_x_comes_before_y(tmp_path: Path) -> None:
    write_flow(tmp_path / "7.flo", constant(0) + np.array([1, -2], np.float32))
    sample = ClipDataset(tmp_path)[0]
    assert sample["flow"][:, 0, 0].tolist() == [1, -2]
    assert sample["frame"] == 7
    assert sample["clip"] == tmp_path.name


def test_workers_read_what_one_process_reads(root: Path) -> None:
    data = ClipDataset([root / "a.tar", root / "b" / "two.h5"])
    alone, shared = (
        [batch["frame"].tolist() for batch in DataLoader(data, 2, num_workers=workers)]
        for workers in (0, 2)
    )
    assert alone == shared == [[3, 4], [9, 0], [1]]


def test_what_holds_no_clips_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds no clips"):
        ClipDataset(tmp_path)
    with pytest.raises(DatasetError, match="is not a folder"):
        ClipDataset(tmp_path / "gone")
    with pytest.raises(DatasetError, match="two clips have one name"):
        ClipDataset([tmp_path / "a.h5", tmp_path / "a.tar"])
    with pytest.raises(DatasetError, match=r"holds no \.tar files"):
        ShardDataset(tmp_path)


def test_other_files_of_a_batch_job_are_left_out(tmp_path: Path) -> None:
    for name in ("a.h5", "b", "_partial/1/2/files/clip", "_partial/1/2/files/c.tar"):
        with create_clip(tmp_path / name) as clip:
            clip.add(0, constant(1))
    (tmp_path / "a").mkdir()
    for place in (tmp_path / "a", tmp_path / "b"):
        write_image(place / "000000.png", np.zeros((16, 24, 3), np.uint8))
    for name in ("a", "b", "b/c"):
        np.savez(tmp_path / f"{name}.occlusion.npz", confidence=constant(1))
    data = ClipDataset(tmp_path)
    assert list(data.clips) == ["a", "b"]
    assert len(data) == 2
    with pytest.raises(DatasetError, match=r"holds no \.tar files"):
        ShardDataset(tmp_path)
    (tmp_path / "only").mkdir()
    np.savez(tmp_path / "only" / "a.occlusion.npz", confidence=constant(1))
    with pytest.raises(FlowFileError, match="holds occlusion but no flow files"):
        open_clip(tmp_path / "only")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for number in range(3):
        with create_clip(tmp_path / f"s{number}.tar", key=f"clip{number}") as clip:
            for frame in (0, 1):
                clip.add(frame, constant(number))
        with tarfile.open(tmp_path / f"s{number}.tar", "a") as tar:
            member = tarfile.TarInfo(f"clip{number}/000001.cls")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"7"))
    return tmp_path


def test_shards_give_samples_by_key_with_their_other_files(shards: Path) -> None:
    samples = list(ShardDataset(shards))
    keys = [f"clip{number}/00000{frame}" for number in range(3) for frame in range(2)]
    assert [sample["__key__"] for sample in samples] == keys
    assert [sample.get("cls") for sample in samples] == 3 * [None, b"7"]
    assert all(sample["flow"].shape == (2, 16, 24) for sample in samples)
    assert "flow_x.jpg" not in samples[0]


def test_workers_share_the_shards(shards: Path) -> None:
    loader = DataLoader(ShardDataset(shards), batch_size=None, num_workers=2)
    found = sorted(sample["__key__"] for sample in loader)
    assert found == [sample["__key__"] for sample in ShardDataset(shards)]


def test_an_epoch_has_its_own_order_which_is_repeatable(shards: Path) -> None:
    def order(epoch: int) -> list[str]:
        data = ShardDataset(shards, seed=1)
        data.set_epoch(epoch)
        return [sample["__key__"] for sample in data]

    assert order(0) == order(0)
    assert len({tuple(order(epoch)) for epoch in range(5)}) > 1
    assert sorted(order(3)) == sorted(order(0))

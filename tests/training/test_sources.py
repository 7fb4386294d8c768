from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.data import Batch
from gmaflow.errors import DatasetError, FlowError, ImageError, TrainingError
from gmaflow.io import write_image
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.texture_bank import is_held_out
from gmaflow.training.config import DataSource
from gmaflow.training.distributed import World
from gmaflow.training.sources import (
    AHEAD,
    GAMMAS,
    FileSource,
    SceneSource,
    SideStream,
    draw_gammas,
    from_scenes,
    load_textures,
    open_renderer,
    open_source,
)
from tests.data import trees
from tests.training.conftest import tiny_batch, tiny_config, write_pairs

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pairs(tmp_path)


def test_a_batch_of_scenes_is_known_by_its_number() -> None:
    source = open_source(tiny_config(), CPU)
    assert isinstance(source, SceneSource)
    first, second = islice(source.batches(0), 2)
    again = next(source.batches(1))
    assert torch.equal(second.image1, again.image1)
    assert torch.equal(second.flow, again.flow)
    assert not torch.equal(first.flow, second.flow)
    assert first.image1.shape == (2, 3, 32, 40)
    assert first.occluded.dtype == torch.bool


def test_exposure_changes_both_frames_of_a_share_of_the_pairs_alike() -> None:
    plain, exposed = (
        next(open_source(tiny_config(batch=24, exposure=share), CPU).batches(1))
        for share in (0.0, 0.5)
    )
    assert torch.equal(exposed.flow, plain.flow)
    gammas = draw_gammas(tiny_config(batch=24, exposure=0.5), np.arange(24, 48))
    changed = gammas != 1
    assert 6 <= changed.sum() <= 18
    assert GAMMAS[0] <= gammas.min() < 1 < gammas.max() <= GAMMAS[1]
    for before, after in ((plain.image1, exposed.image1), (plain.image2, exposed.image2)):
        assert torch.equal(after[~changed], before[~changed])
        powers = torch.from_numpy(gammas).float()[:, None, None, None]
        torch.testing.assert_close(after, before**powers, atol=0.5 / 255 + 1e-6, rtol=0)
        torch.testing.assert_close(255 * after, (255 * after).round(), atol=1e-3, rtol=0)


def test_scenes_for_mps_are_rendered_on_the_cpu() -> None:
    source = open_source(tiny_config(), torch.device("mps"))
    assert isinstance(source, SceneSource)
    assert source.renderer.device == CPU
    assert source.make(0).flow.device == CPU
    assert source.device.type == "mps"


@pytest.mark.parametrize("parts", [1, 2])
def test_both_ways_the_second_half_of_each_part_is_the_first_backward(parts: int) -> None:
    config = tiny_config(both_ways=True, batch=8, accumulate=parts)
    batch = next(open_source(config, CPU).batches(1))
    plain = next(open_source(tiny_config(batch=4), CPU).batches(1)).split(parts)
    for part, rendered in zip(batch.split(parts), plain, strict=True):
        forward, backward = part.split(2)
        assert all(torch.equal(one, two) for one, two in zip(forward, rendered, strict=True))
        assert torch.equal(backward.image1, forward.image2)
        assert torch.equal(backward.image2, forward.image1)
        assert not torch.equal(backward.flow, forward.flow)


@pytest.mark.parametrize("kind", ["scenes", "scenes, both ways", "files"])
def test_processes_share_a_batch(kind: str, folder: Path) -> None:
    data = f"folder:{folder}" if kind == "files" else "scenes:chairs"
    config = tiny_config(data=data, batch=4, workers=0, both_ways="both ways" in kind)
    whole = next(open_source(config, CPU).batches(3))
    shares = [next(open_source(config, CPU, World(rank, 2)).batches(3)) for rank in (0, 1)]
    assert [len(share.flow) for share in shares] == [2, 2]
    together = torch.cat([share.image1 for share in shares]).sum(dim=(1, 2, 3))
    alone = whole.image1.sum(dim=(1, 2, 3))
    torch.testing.assert_close(together.sort().values, alone.sort().values)


def put_textures(folder: Path, *, train: int, held_out: int) -> tuple[set[int], set[int]]:
    """Write images of one grey each; return the greys of both splits."""
    greys: tuple[set[int], set[int]] = (set(), set())
    for number in range(200):
        name = f"{number}.png"
        ours, wanted = (greys[1], held_out) if is_held_out(name) else (greys[0], train)
        if len(ours) < wanted:
            ours.add(number)
            write_image(folder / name, np.full((8, 8, 3), number, np.uint8))
    return greys


def greys_of(renderer: SceneRenderer) -> set[int]:
    """Return the greys of the photos that a renderer may use."""
    bank = renderer.bank
    first = [bank.texels[n * bank.texels_each] for n in bank.textures["photo"]]
    return {int(texel) & 255 for texel in first}


@pytest.fixture
def renderers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[set[int]]]:
    load = TextureBank.load  # at full size, the built-in patterns take seconds
    monkeypatch.setattr(TextureBank, "load", lambda folder, split: load(folder, 32, split))

    def open_both(**changes: object) -> list[set[int]]:
        config = tiny_config(textures=str(tmp_path), **changes)
        load_textures.cache_clear()
        source = DataSource.parse(config.data)
        return [greys_of(open_renderer(source, config, CPU, seed=1, split=split))
                for split in ("train", "held-out", "held-out")]  # fmt: skip

    return open_both


def test_training_and_validation_share_no_texture(
    tmp_path: Path, renderers: Callable[..., list[set[int]]]
) -> None:
    train, held_out = put_textures(tmp_path, train=4, held_out=2)
    assert renderers() == [train, held_out, held_out]
    assert renderers(textures_split="all") == 3 * [train | held_out]


@pytest.mark.parametrize("counts", [(2, 0), (0, 2)])
def test_a_folder_with_an_empty_split_is_used_whole(
    counts: tuple[int, int],
    tmp_path: Path,
    renderers: Callable[..., list[set[int]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    train, held_out = put_textures(tmp_path, train=counts[0], held_out=counts[1])
    assert renderers() == 3 * [train | held_out]
    assert caplog.text.count("has no textures; using") == 1


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(TrainingError, match="cannot be divided equally among 3 processes"):
        open_source(tiny_config(batch=4), CPU, World(0, 3))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_custom_folder_resumes_where_it_stopped(folder: Path, workers: int) -> None:
    config = tiny_config(data=f"folder:{folder}", workers=workers)
    source = open_source(config, CPU)
    assert isinstance(source, FileSource)
    assert len(source.dataset) == 4
    batches = list(islice(source.batches(0), 4))
    third = next(source.batches(2))
    for name, one, other in zip(third._fields, batches[2], third, strict=True):
        assert torch.equal(one, other), name
    assert third.image1.shape == (2, 3, 32, 40)
    assert 0 <= third.image1.min() < third.image1.max() <= 1


def test_a_data_set_and_a_stage_are_found_below_a_root(tmp_path: Path) -> None:
    trees.sintel(tmp_path / "MPI-Sintel")
    alone = tiny_config(data="set:sintel:final", root=str(tmp_path), crop=(16, 16))
    source = open_source(alone, CPU)
    assert isinstance(source, FileSource)
    assert len(source.dataset) == 2
    assert "final" in str(source.dataset.pairs[0].image1)

    trees.chairs(tmp_path / "FlyingChairs_release")
    stage = open_source(tiny_config(data="stage:chairs", root=str(tmp_path), crop=(16, 24)), CPU)
    assert isinstance(stage, FileSource)
    assert next(stage.batches(0)).flow.shape == (2, 2, 16, 24)


def test_a_stage_goes_without_data_sets_that_you_do_not_have(tmp_path: Path) -> None:
    trees.sintel(tmp_path / "MPI-Sintel")
    config = tiny_config(
        data="stage:sintel", without=("kitti-2015", "hd1k", "things"), root=str(tmp_path)
    )
    source = open_source(config, CPU)
    assert isinstance(source, FileSource)
    assert {pair.dataset for pair in source.dataset.pairs} == {"sintel"}


def test_the_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="nowhere is not a folder"):
        open_source(tiny_config(data="stage:chairs", root=str(tmp_path / "nowhere")), CPU)
    with pytest.raises(DatasetError, match="empty"):
        open_source(tiny_config(data=f"folder:{tmp_path / 'empty'}"), CPU)
    with pytest.raises(DatasetError, match="sintl"):
        open_source(tiny_config(data="set:sintl"), CPU)
    with pytest.raises(ImageError, match="not a folder"):
        open_source(tiny_config(textures=str(tmp_path / "nowhere")), CPU)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_workers_refusal_is_one_sentence(folder: Path, workers: int) -> None:
    for path in folder.glob("*.png"):
        path.write_bytes(b"no picture")
    source = open_source(tiny_config(data=f"folder:{folder}", workers=workers), CPU)
    with pytest.raises(FlowError) as error:
        list(islice(source.batches(0), 20))
    assert str(error.value).startswith(str(folder)) or "frame" in str(error.value)
    assert "Traceback" not in str(error.value)
    assert "\n" not in str(error.value)


def test_frames_without_truth_cannot_be_learned_from(tmp_path: Path) -> None:
    trees.put_images(tmp_path, "a.png", "b.png")
    with pytest.raises(DatasetError, match="no flow files found in "):
        open_source(tiny_config(data=f"folder:{tmp_path}"), CPU)


def test_data_sources_are_parsed_and_printed() -> None:
    for text in ("scenes:mix", "stage:kitti", "set:sintel:final", "set:spring", "folder:C:/my/x"):
        assert str(DataSource.parse(text)) == text


def test_without_a_gpu_work_is_done_at_once() -> None:
    batch = tiny_batch(1, seed=0, size=(32, 40))
    assert SideStream(torch.device("cpu")).make(lambda: batch) is batch


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_rendered_during_other_work_are_complete_when_read() -> None:
    device = torch.device("cuda")
    source = open_source(tiny_config(), device)
    assert isinstance(source, SceneSource)
    count = 3 * AHEAD
    expected = [from_scenes(source.renderer.render(2 * k, 2)) for k in range(count)]
    matrix = torch.randn(4096, 4096, device=device)
    found = []
    for batch in islice(source.batches(0), count):
        for _ in range(20):  # the stream that reads is behind, the one that renders is not
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        found.append(Batch(*(tensor.clone() for tensor in batch)))
        del batch
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for name, a, b in zip(Batch._fields, one, other, strict=True):
            assert torch.equal(a, b), f"{name} of batch {number}"

from pathlib import Path

import pytest
import torch

from gmaflow.errors import TrainingError
from gmaflow.inference.images import Padding
from gmaflow.model import FlowNetwork
from gmaflow.training import RunOptions
from gmaflow.training.distributed import ALONE, World
from gmaflow.training.loss import error_sums, mean_errors
from gmaflow.training.setup import prepare
from gmaflow.training.sources import FileSource, open_source
from gmaflow.training.validation import Validation
from tests.data import trees
from tests.training.conftest import tiny_config, tiny_network

CPU = torch.device("cpu")


@pytest.fixture
def network() -> FlowNetwork:
    return tiny_network().eval().requires_grad_(False)


def test_scenes_are_others_than_those_of_training(network: FlowNetwork) -> None:
    config = tiny_config(validate_every=1, validate_on=("scenes:chairs",), validate_pairs=2)
    validation = Validation(config, CPU)
    held_out = validation.sets[0].read(0)
    learned_from = next(open_source(config, CPU).batches(0))
    assert not torch.equal(held_out.flow[0], learned_from.flow[0])
    errors = validation.errors(network)["scenes:chairs"]
    assert {"epe", "epe-noc", "1px", "3px", "5px"} <= errors.keys()


def test_all_pairs_count_once(network: FlowNetwork) -> None:
    config = tiny_config(validate_every=1, validate_on=("scenes:chairs",), validate_pairs=3)
    validation = Validation(config, CPU)
    sums = sum(
        error_sums(network(p.image1, p.image2, iters=2).flow, p.flow, p.valid, p.occluded)
        for p in map(validation.sets[0].read, range(3))
    )
    assert isinstance(sums, torch.Tensor)
    assert validation.errors(network)["scenes:chairs"] == pytest.approx(mean_errors(sums))


def test_a_data_set_of_any_size(network: FlowNetwork, tmp_path: Path) -> None:
    trees.sintel(tmp_path / "MPI-Sintel", frames=range(1, 6))
    config = tiny_config(
        validate_every=1,
        validate_on=("set:sintel:clean", "set:sintel:final"),
        validate_pairs=3,
        root=str(tmp_path),
    )
    validation = Validation(config, CPU)
    assert [each.size for each in validation.sets] == [3, 3]
    pair = validation.sets[1].read(2)
    assert pair.image1.shape == (1, 3, trees.HEIGHT, trees.WIDTH)
    assert pair.valid.sum() == trees.HEIGHT * (trees.WIDTH - 1)
    assert pair.occluded[0, 0].all()


def test_a_data_set_with_a_validation_split_is_measured_on_it(tmp_path: Path) -> None:
    trees.chairs(tmp_path, numbers=range(1, 6), flags="1 1 2 1 1")
    on_chairs = {"data": "set:chairs", "validate_on": ("set:chairs",), "root": str(tmp_path)}
    config = tiny_config(validate_every=1, **on_chairs)
    assert [each.size for each in Validation(config, CPU).sets] == [1]
    source = open_source(config, CPU)
    assert isinstance(source, FileSource)
    assert len(source.dataset) == 4


def test_kitti_is_padded_as_in_its_published_figures(network: FlowNetwork, tmp_path: Path) -> None:
    kitti = tmp_path / "training"
    trees.put_images(kitti / "image_2", "000000_10.png", "000000_11.png", size=(20, 30))
    trees.put_flows(kitti / "flow_occ", "000000_10.png", size=(20, 30))
    config = tiny_config(validate_every=1, validate_on=("set:kitti-2015",), root=str(tmp_path))
    validation = Validation(config, CPU)
    pair = validation.sets[0].read(0)
    padding = Padding.of_kind("kitti", 20, 30)
    padded = (padding.pad(pair.image1), padding.pad(pair.image2))
    flow = padding.crop(network(*padded, iters=config.iters).flow)
    sums = error_sums(flow, pair.flow, pair.valid, pair.occluded)
    assert validation.errors(network)["set:kitti-2015"] == mean_errors(sums)


def test_errors_on_a_data_set(network: FlowNetwork, tmp_path: Path) -> None:
    trees.put_images(tmp_path, "a.png", "b.png", size=(20, 30))
    trees.put_flows(tmp_path, "a.flo", size=(20, 30))
    config = tiny_config(validate_every=1, validate_on=(f"folder:{tmp_path}",))
    errors = Validation(config, CPU).errors(network)
    assert errors[f"folder:{tmp_path}"]["epe"] > 0


def test_without_truth_there_is_no_error(tmp_path: Path) -> None:
    trees.put_images(tmp_path, "a.png", "b.png")
    with pytest.raises(TrainingError, match="has no ground truth"):
        Validation(tiny_config(validate_every=1, validate_on=(f"folder:{tmp_path}",)), CPU)


def test_off_means_nothing_is_opened(tmp_path: Path) -> None:
    config = tiny_config(validate_on=("set:sintel",), root=str(tmp_path / "nowhere"))
    assert prepare(config, RunOptions(output=tmp_path / "run"), ALONE, CPU).validation is None


def test_alone_means_one_process() -> None:
    assert World().share(6) == 6

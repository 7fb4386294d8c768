"""The published RAFT-small checkpoint on real pairs, through the whole evaluation."""

from functools import cache
from pathlib import Path

import pytest

from gmaflow.data import open_dataset
from gmaflow.evaluation.evaluating import PairEvaluator
from gmaflow.evaluation.examples import as_examples
from gmaflow.evaluation.metrics import ErrorSums, averaging_of
from gmaflow.inference import FlowEstimator
from tests.inference.real_pairs import OTHERS, SINTEL, Pair

WITHIN = 0.01
DATASETS = {"kitti2015": "kitti-2015", "kitti2012": "kitti-2012", "flyingchairs": "chairs"}
"""Their names, where the folder has another."""
PASSES = {"kitti-2012": "noc", "kitti-2015": "occ"}


class RaftSmall:
    """Judges each pair once, however many tests ask."""

    def __init__(self, folder: Path, weights: Path, results: Path) -> None:
        self.folder = folder
        estimator = FlowEstimator(weights, iters=24, device="cpu", precision="fp32")
        self.evaluator = PairEvaluator(estimator, results)
        self.sums = cache(self._sums)

    def _sums(self, pair: Pair) -> ErrorSums:
        name = name_of(pair)
        passes = pair.image1.split("/")[2] if name == "sintel" else PASSES.get(name)
        dataset = open_dataset(
            name,
            self.folder / pair.image1.partition("/")[0],
            split="all" if name == "chairs" else "training",
            passes=passes,
        )
        pairs = dataset.where(lambda one: one.image1 == self.folder / pair.image1).pairs
        (judged,) = self.evaluator.evaluate(as_examples(pairs, group=name))
        return judged.sums


def name_of(pair: Pair) -> str:
    folder = pair.image1.partition("/")[0]
    return DATASETS.get(folder, folder)


@pytest.fixture(scope="module")
def raft_small(
    material: Path, raft_small_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> RaftSmall:
    return RaftSmall(material / "realflow", raft_small_file, tmp_path_factory.mktemp("results"))


@pytest.mark.slow
@pytest.mark.parametrize("pair", [*SINTEL, *OTHERS], ids=lambda pair: pair.image1)
def test_each_pair_has_its_published_error(pair: Pair, raft_small: RaftSmall) -> None:
    found = raft_small.sums(pair).figures(averaging_of(name_of(pair)))["all"]
    assert found.images == 1
    assert found.epe == pytest.approx(pair.error, rel=WITHIN)
    if pair.outliers is not None:
        assert found.fl == pytest.approx(pair.outliers, rel=WITHIN)


@pytest.mark.slow
def test_sintel_errors_by_region(raft_small: RaftSmall) -> None:
    sums = sum((raft_small.sums(pair) for pair in SINTEL), ErrorSums.none())
    found = sums.figures(averaging_of("sintel"))
    for region, epe in {"noc": 9.21, "occ": 16.0, "occ-in": 12.2, "occ-out": 40.5}.items():
        assert found[region].epe == pytest.approx(epe, rel=WITHIN), region

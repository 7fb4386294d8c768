"""The published RAFT-small checkpoint on real pairs, through the whole evaluation.

The expected figures are the published code's: 24 iterations, replicate padding on both sides.
docs/evaluation.md has all of them; here are those that a CPU computes in seconds.
"""

from pathlib import Path

import pytest

from gmaflow.data import open_dataset
from gmaflow.evaluation import Figures
from gmaflow.evaluation.evaluating import PairEvaluator
from gmaflow.evaluation.examples import as_examples
from gmaflow.evaluation.metrics import ErrorSums, averaging_of
from gmaflow.inference import FlowEstimator

WITHIN = 0.01


@pytest.fixture(scope="module")
def raft_small(raft_small_file: Path) -> FlowEstimator:
    return FlowEstimator(raft_small_file, iters=24, device="cpu", precision="fp32")


def figures(
    judge: PairEvaluator, name: str, root: Path, *, scene: str, passes: str | None = None
) -> Figures:
    split = "all" if name == "chairs" else "training"
    dataset = open_dataset(name, root, split=split, passes=passes)
    pairs = dataset.where(lambda pair: pair.scene == scene).pairs
    judged = judge.evaluate(as_examples(pairs, group=name))
    sums = sum((one.sums for one in judged), ErrorSums.none())
    return sums.figures(averaging_of(name))["all"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "scene", "passes", "epe", "fl"),
    [
        ("chairs", "flyingchairs", "00002", None, 0.549, None),
        ("middlebury", "middlebury", "RubberWhale", None, 0.323, None),
        ("kitti-2012", "kitti2012", "000045", "noc", 0.769, 3.99),
    ],
)
def test_figures_are_the_published_codes(
    name: str,
    folder: str,
    scene: str,
    passes: str | None,
    epe: float,
    fl: float | None,
    *,
    material: Path,
    raft_small: FlowEstimator,
    tmp_path: Path,
) -> None:
    judge = PairEvaluator(raft_small, tmp_path)
    found = figures(judge, name, material / "realflow" / folder, scene=scene, passes=passes)
    assert found.images == 1
    assert found.epe == pytest.approx(epe, rel=WITHIN)
    if fl is not None:
        assert found.fl == pytest.approx(fl, rel=WITHIN)

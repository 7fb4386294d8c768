import json
import math
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.evaluation import compare, open_examples, pages, write_comparison
from gmaflow.evaluation.comparing import FEW, Improvement, improvements
from gmaflow.evaluation.metrics import Averaging, Column, measure
from gmaflow.inference import FlowEstimator
from tests.evaluation.conftest import random_estimator, write_sintel
from tests.evaluation.samples import random_case


def test_two_networks_region_by_region(
    tmp_path: Path, estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "incomplete", lambda _data: "")
    root = write_sintel(tmp_path / "sintel", frames=4)
    data = open_examples("sintel", root, passes=("clean", "final"))
    networks = {"one": estimator, "other": random_estimator(1, iters=3)}
    comparison = compare(networks, data, tmp_path / "out")
    found = json.loads((tmp_path / "out/comparison.json").read_text())
    apart = [
        json.loads((tmp_path / f"out/{name}/results.json").read_text())["results"]
        for name in networks
    ]
    occ = next(
        line for line in found["lines"] if (line["pass"], line["region"]) == ("final", "occ")
    )
    first, second = (each["final"]["cold"]["regions"]["occ"]["epe"] for each in apart)
    assert occ["epe"] == {"one": pytest.approx(first), "other": pytest.approx(second)}
    gain = occ["improvement_percent"]["other"]
    assert gain["percent"] == pytest.approx(100 * (first - second) / first)
    assert gain["low"] <= gain["percent"] <= gain["high"]

    changed = [comparison.most_changed(99, better=better) for better in (True, False)]
    for improved, some in zip((True, False), changed, strict=True):
        for place, example in some:
            before, after = (one.tables("cold")[place, 0] for one in comparison.contenders)
            assert (after[3] < before[3]) == improved, example.title
    assert sum(map(len, changed)) == len(data.examples)

    page = write_comparison(comparison, tmp_path / "out", pairs=["final/alley_1/0002"])
    text = page.read_text()
    assert text.count("<article>") == 1
    assert text.count("data:image/jpeg") == 8
    assert "final alley_1 0002" in text
    numbers = ("7.01", "5.03", "+28.2 %")
    assert "".join(f'<td class="number">{number}</td>' for number in numbers) in text
    with pytest.raises(FlowError, match="no pair 'nowhere/1'; give names such as alley_1/0001"):
        write_comparison(comparison, tmp_path / "out", pairs=["nowhere/1"])


def test_a_network_does_not_improve_on_itself(tmp_path: Path, estimator: FlowEstimator) -> None:
    root = write_sintel(tmp_path / "sintel")
    same = {"a": estimator, "b": estimator, "c": estimator}
    comparison = compare(same, open_examples("sintel", root), tmp_path / "out")
    assert comparison.most_changed(3, better=True) == []
    assert all(found.percent == 0 for line in comparison.lines for found in line.improvements)
    assert "There are none." in write_comparison(comparison, tmp_path / "out").read_text()


def test_a_single_one_is_refused(tmp_path: Path, estimator: FlowEstimator) -> None:
    data = open_examples("sintel", write_sintel(tmp_path / "sintel"))
    with pytest.raises(FlowError, match="two or more"):
        compare({"one": estimator}, data, tmp_path / "out")


def test_cold_and_warm_figures_are_both_shown(tmp_path: Path, estimator: FlowEstimator) -> None:
    data = open_examples("sintel", write_sintel(tmp_path / "sintel", frames=4))
    networks = {"one": estimator, "other": random_estimator(1)}
    comparison = compare(networks, data, tmp_path / "out", warm_start=True)
    titles = dict.fromkeys(comparison.title(line) for line in comparison.lines)
    assert list(titles) == ["clean, cold", "clean, warm"]
    for line in comparison.lines:
        totals = (
            one.evaluation.summary.totals["clean", line.start] for one in comparison.contenders
        )
        assert line.errors == tuple(sums.figures("pixels")[line.region].epe for sums in totals)
    whole = [line for line in comparison.lines if line.region == "all"]
    assert whole[0].errors != whole[1].errors
    page = write_comparison(comparison, tmp_path / "out", pairs=["alley_1/0001"]).read_text()
    assert "<h2>clean, warm</h2>" in page


def tables(count: int, *, seed: int = 0) -> np.ndarray:
    cases = (random_case(100 * seed + i, size=(13, 17)) for i in range(count))
    return np.stack([measure(*case).table for case in cases])


def scaled(some: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    result = some.copy()
    result[..., Column.ERROR] *= factor
    result[..., Column.MEANS] *= factor
    return result


@pytest.mark.parametrize("averaging", ["pixels", "images"])
def test_a_fifth_less_everywhere_is_20_percent_for_certain(averaging: Averaging) -> None:
    before = tables(20)
    for found in improvements(before, scaled(before, 0.8), averaging=averaging):
        if not math.isnan(found.percent):
            assert (found.percent, found.low, found.high) == pytest.approx((20, 20, 20))
            assert found.certain == (found.pairs >= FEW)


def test_a_few_pairs_make_nothing_certain() -> None:
    before = tables(FEW)
    after = scaled(before, 0.8)
    assert improvements(before, after, averaging="pixels")[0].certain
    before[0, 0] = after[0, 0] = 0  # one of them has no pixel of the region
    found = improvements(before, after, averaging="pixels")[0]
    assert found.pairs == FEW - 1
    assert found.low > 0
    assert not found.certain


def test_the_same_is_no_improvement_and_not_certain() -> None:
    before = tables(20)
    found = improvements(before, before, averaging="pixels")[0]
    assert found == Improvement(percent=0.0, low=0.0, high=0.0, pairs=20)
    assert not found.certain


def test_a_region_without_pixels_has_no_improvement() -> None:
    before = tables(3)
    before[:, 5] = 0
    found = improvements(before, before, averaging="images")[5]
    assert math.isnan(found.percent)
    assert math.isnan(found.low)


def test_intervals_are_those_of_drawing_the_pairs_themselves() -> None:
    before = tables(30)
    rng = np.random.default_rng(1)
    after = scaled(before, rng.uniform(0.5, 1.4, size=(30, 1)))
    found = improvements(before, after, averaging="pixels")[0]
    drawn = []
    for _ in range(4000):
        chosen = rng.integers(0, 30, 30)
        first, second = (
            some[chosen, 0, Column.ERROR].sum() / some[chosen, 0, Column.PIXELS].sum()
            for some in (before, after)
        )
        drawn.append(100 * (1 - second / first))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert low < found.percent < high
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.08 * (high - low))

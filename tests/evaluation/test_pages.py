import re
from pathlib import Path

import pytest

from gmaflow.evaluation import compare, evaluate, open_examples, write_comparison, write_report
from gmaflow.evaluation.comparing import FEW
from gmaflow.evaluation.pages import bar_chart
from gmaflow.inference import FlowEstimator
from tests.evaluation.conftest import random_estimator, write_sintel


def test_the_report_needs_nothing_but_itself(tmp_path: Path, estimator: FlowEstimator) -> None:
    root = write_sintel(tmp_path / "sintel", frames=9)
    evaluation = evaluate(estimator, open_examples("sintel", root), tmp_path / "out")
    page = write_report(evaluation, estimator, tmp_path / "out").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert page.count("<article>") == 6
    assert page.count("data:image/jpeg") == 6 * 6
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page).lower()
    assert len(list((tmp_path / "out/shown").glob("*.flo"))) == 6


def test_names_in_the_report_are_escaped(tmp_path: Path, estimator: FlowEstimator) -> None:
    root = write_sintel(tmp_path / "sintel", scenes=("<b>&",), frames=2)
    evaluation = evaluate(estimator, open_examples("sintel", root), tmp_path / "out")
    page = write_report(evaluation, estimator, tmp_path / "out").read_text()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page


def test_shown_pairs_are_estimated_again_if_their_flow_is_gone(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    evaluation = evaluate(estimator, open_examples("sintel", sintel), tmp_path / "out")
    first = write_report(evaluation, estimator, tmp_path / "out").read_text()
    for path in (tmp_path / "out/shown").iterdir():
        path.unlink()
    assert write_report(evaluation, estimator, tmp_path / "out").read_text() == first


def test_each_network_with_attention_has_a_row_of_maps(tmp_path: Path) -> None:
    data = open_examples("sintel", write_sintel(tmp_path / "sintel", frames=2))
    networks = {"raft": random_estimator(), "gma": random_estimator(model="gma")}
    comparison = compare(networks, data, tmp_path / "out")
    page = write_comparison(comparison, tmp_path / "out", pairs=["alley_1/0001"]).read_text()
    assert "query points of gma" in page
    assert "query points of raft" not in page


def test_only_a_certain_sign_is_coloured(tmp_path: Path, estimator: FlowEstimator) -> None:
    data = open_examples("sintel", write_sintel(tmp_path / "sintel", frames=FEW + 1))
    networks = {"one": estimator, "other": random_estimator(1, iters=3)}
    comparison = compare(networks, data, tmp_path / "out")
    page = write_comparison(comparison, tmp_path / "out", pairs=["alley_1/0001"]).read_text()
    found = [each for line in comparison.lines for each in line.improvements if each.certain]
    assert page.count('class="number good"') == sum(each.percent > 0 for each in found)
    assert page.count('class="number bad"') == sum(each.percent < 0 for each in found)
    assert found


def test_bars_are_as_high_as_their_values() -> None:
    chart = bar_chart(["a", "b"], {"one": [10.0, 40.0], "other": [0.0, 20.0]})
    heights = [bar["height"] for bar in chart["bars"]]
    first, _, second, third = heights
    assert second == pytest.approx(4 * first)
    assert third == pytest.approx(2 * first)
    assert [percent for _, percent in chart["ticks"]] == [0, 10, 20, 30, 40]
    assert all(bar["y"] + bar["height"] == pytest.approx(206) for bar in chart["bars"])

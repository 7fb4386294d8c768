import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.evaluation import (
    compare,
    evaluate,
    open_examples,
    pages,
    write_comparison,
    write_report,
)
from gmaflow.evaluation.comparing import FEW, Improvement
from gmaflow.evaluation.pages import (
    attention_figures,
    bar_chart,
    choose_queries,
    format_interval,
    format_percent,
)
from gmaflow.inference import FlowEstimator
from tests.evaluation.conftest import random_estimator, write_sintel
from tests.evaluation.samples import make_sample


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


@pytest.mark.parametrize(
    ("percent", "text"), [(1.23, "+1.2 %"), (-0.04, "+0.0 %"), (-0.06, "-0.1 %"), (np.nan, "-")]
)
def test_an_improvement_that_rounds_to_0_is_not_negative(percent: float, text: str) -> None:
    assert format_percent(Improvement(percent=percent, low=-1.0, high=1.0, pairs=20)) == text


def test_an_interval_that_ends_at_0_does_not_end_below() -> None:
    assert (
        format_interval(Improvement(percent=0.0, low=-0.04, high=-0.01, pairs=1)) == "+0.0 to +0.0"
    )


def test_only_whole_data_sets_are_compared_with_the_paper(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = evaluate(estimator, open_examples("sintel", sintel), tmp_path, warm_start=True)
    page = write_report(evaluation, estimator, tmp_path).read_text()
    assert "2 of the 1041 published pairs, so its figures do not compare" in page
    assert "GMA (p only)" not in page
    monkeypatch.setattr(pages, "incomplete", lambda _data: "")
    page = write_report(evaluation, estimator, tmp_path).read_text()
    assert "this run, warm" in page
    assert '<td>GMA</td><td>C+T</td><td class="number">1.30</td></tr>' in page.replace("\n", "")


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


SIZE = (40, 56)
STILL = np.zeros((*SIZE, 2))


@given(st.integers(0, 35), st.integers(0, 50), st.integers(1, 12), st.integers(1, 12))
def test_hidden_pixels_are_asked_where_there_are_any(
    top: int, left: int, tall: int, wide: int
) -> None:
    hidden = np.zeros(SIZE, bool)
    hidden[top : top + tall, left : left + wide] = True
    queries = choose_queries(make_sample(STILL, occluded=hidden))
    asked = [bool(hidden[int(y), int(x)]) for x, y in queries]
    assert len(set(queries)) == 3
    # As many as there are, and a hidden point never stands behind one that only fills up.
    assert asked[: hidden.sum()] == [True] * min(3, hidden.sum())


def test_two_regions_are_both_asked_and_specks_are_not() -> None:
    hidden = np.zeros(SIZE, bool)
    hidden[5:15, 5:15] = hidden[25:35, 40:50] = True
    hidden[0, 55] = True
    queries = choose_queries(make_sample(STILL, occluded=hidden))
    assert {x > 30 for x, _ in queries} == {False, True}
    assert (55.0, 0.0) not in queries


@pytest.mark.parametrize("occluded", [None, np.zeros(SIZE, bool)])
def test_points_are_spread_where_nothing_is_hidden(occluded: np.ndarray | None) -> None:
    queries = choose_queries(make_sample(STILL, occluded=occluded))
    assert queries == ((14.0, 20.0), (28.0, 20.0), (42.0, 20.0))


def test_a_row_as_in_the_paper() -> None:
    sample = make_sample(STILL)
    queries = choose_queries(sample)
    figures = attention_figures(
        random_estimator(model="gma"), sample, STILL.astype(np.float32), queries, name="mine"
    )
    assert len(figures) == 5
    assert "query points of mine" in figures[0].caption
    assert all("attention map" in figure.caption for figure in figures[1:4])


def test_a_network_without_attention_shows_none(estimator: FlowEstimator) -> None:
    sample = make_sample(STILL)
    still = STILL.astype(np.float32)
    assert attention_figures(estimator, sample, still, choose_queries(sample)) == []

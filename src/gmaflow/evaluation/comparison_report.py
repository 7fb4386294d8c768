"""A comparison as a page for people, with the paper's qualitative figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from gmaflow.errors import counted
from gmaflow.evaluation import html
from gmaflow.evaluation.attention import EXPLAINED, attention_figures, choose_queries
from gmaflow.evaluation.bootstrap import Improvement
from gmaflow.evaluation.comparing import COMPARISON_PAGE, Comparison, Line, pair_errors
from gmaflow.evaluation.evaluating import SHOWN
from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.paper import TABLE_1
from gmaflow.evaluation.pictures import pair_figures, shown_flow
from gmaflow.evaluation.regions import REGIONS
from gmaflow.evaluation.report import written
from gmaflow.io import atomic_write
from gmaflow.version import __version__

_HOW_TO_READ = (
    "Mean end-point errors in pixels, and how much of the first network's error is gone. The "
    "interval is what 95 of 100 data sets would show that are drawn from these pairs; a star and "
    "a colour mean that the sign is beyond doubt in that sense."
)


def write_comparison(
    comparison: Comparison, folder: Path, *, show: int = 3, pairs: Sequence[str] = ()
) -> Path:
    """Write comparison.html.

    Args:
        comparison: what was found.
        folder: where to.
        show: how many of the most improved pairs are shown.
        pairs: names of pairs to show instead.

    Raises:
        FlowError: there is no such pair, or the place cannot be written to.
    """
    chosen = comparison.find(pairs) if pairs else comparison.most_improved(show)
    names = [one.name for one in comparison.contenders]
    whole = [line for line in comparison.lines if line.region == "all"]
    body = [
        f"<h1>{html.escape(' against '.join(reversed(names)))}</h1>",
        f'<p class="sub">{html.escape(comparison.data.title)}, '
        f"{counted(len(comparison.data.examples), 'pair')}</p>",
        html.tiles(
            (
                f"{comparison.title(line)}: {name}",
                percent(found),
                f"improvement; 95 %: {interval(found)}",
            )
            for line in whole
            for name, found in zip(names[1:], line.improvements, strict=True)
        ),
        html.notes([_HOW_TO_READ, *comparison.notes]),
        *(_table(comparison, line) for line in whole),
        _cards("Pairs" if pairs else "Most improved pairs", comparison, chosen, folder),
        _paper(comparison),
        _networks(comparison),
        f"<footer>gmaflow {__version__}</footer>",
    ]
    path = folder / COMPARISON_PAGE
    title = f"{' against '.join(names)}: {comparison.data.title}"
    with atomic_write(path) as temporary:
        temporary.write_text(html.page(title, "\n".join(body)), "utf-8")
    return path


def percent(found: Improvement) -> str:
    """Write an improvement, with its sign."""
    return "-" if math.isnan(found.percent) else f"{found.percent:+.1f} %"


def interval(found: Improvement) -> str:
    """Write the interval of an improvement; a star says that its sign is certain."""
    if math.isnan(found.low):
        return "-"
    return f"{found.low:+.1f} to {found.high:+.1f}{' *' if found.certain else ''}"


def row_of(line: Line) -> list[str]:
    """Return a line's cells: errors, then improvement and interval of each but the first."""
    cells = [written(error) for error in line.errors]
    for found in line.improvements:
        cells += [percent(found), interval(found)]
    return cells


def header_of(comparison: Comparison) -> list[str]:
    """Return the titles of `row_of`'s cells."""
    names = [one.name for one in comparison.contenders]
    titles = list(names)
    for name in names[1:]:
        titles += ["improvement" if len(names) == 2 else f"by {name}", "95 % interval"]
    return titles


def _table(comparison: Comparison, whole: Line) -> str:
    header = ["region", *header_of(comparison), "what it is"]
    rows = [
        [line.region, *_toned_row(line), REGIONS[line.region]]
        for line in comparison.lines
        if (line.group, line.start) == (whole.group, whole.start)
    ]
    return html.section(
        comparison.title(whole), html.table(header, rows, text_columns=(0, len(header) - 1))
    )


def _toned_row(line: Line) -> list[str | html.Toned]:
    """Return a line's cells, in colour where the sign of an improvement is certain."""
    cells: list[str | html.Toned] = [written(error) for error in line.errors]
    for found in line.improvements:
        tone: Literal["good", "bad", ""] = ""
        if found.certain:
            tone = "good" if found.percent > 0 else "bad"
        cells += [html.Toned(percent(found), tone), interval(found)]
    return cells


def _cards(
    title: str, comparison: Comparison, chosen: list[tuple[int, Example]], folder: Path
) -> str:
    if not chosen:
        return html.section(title, lead="No pair is improved.")
    errors = [pair_errors(one.tables["cold"]) for one in comparison.contenders]
    cards = []
    for place, example in chosen:
        sample = example.source.load()
        estimates = {
            one.name: shown_flow(folder / SHOWN / f"{one.keys[place]}.flo", sample, one.estimator)
            for one in comparison.contenders
        }
        told = ", ".join(
            f"{one.name} {written(float(each[place]))} px"
            for one, each in zip(comparison.contenders, errors, strict=True)
        )
        queries = choose_queries(sample)
        attention = (
            attention_figures(one.estimator, sample, estimates[one.name], queries, name=one.name)
            for one in comparison.contenders
        )
        cards.append(html.card(example.title, told, pair_figures(sample, estimates), *attention))
    attentive = any(one.estimator.config.aggregates for one in comparison.contenders)
    return html.section(title, *cards, lead=EXPLAINED if attentive else "")


def _paper(comparison: Comparison) -> str:
    """Lay the paper's table 1 beside ours, where it has the passes."""
    if comparison.data.name != "sintel":
        return ""
    rows = []
    for line in comparison.lines:
        published = TABLE_1.get(line.group, {}).get(line.region)
        if published and line.start == "cold":
            raft, gma = published
            ours = (written(line.errors[0], 2), written(line.errors[1], 2))
            gained = f"{100 * (raft - gma) / raft:+.1f} %"
            paper = (f"{raft:.2f}", f"{gma:.2f}", gained)
            rows.append((line.group, line.region, *ours, percent(line.improvements[0]), *paper))
    first, second = (one.name for one in comparison.contenders[:2])
    paper_header = ("paper: RAFT", "GMA", "improvement")
    header = ("pass", "region", first, second, "improvement", *paper_header)
    return html.section(
        "Beside the paper",
        html.table(header, rows, text_columns=(0, 1)),
        lead="The last three columns are table 1 of the GMA paper, on the whole training set with "
        "networks trained on C+T+S/K.",
    )


def _networks(comparison: Comparison) -> str:
    rows = [
        (
            one.name,
            Path(one.evaluation.about.weights).name,
            one.evaluation.about.model,
            one.evaluation.about.iters,
            one.evaluation.about.precision,
            one.evaluation.about.fingerprint,
        )
        for one in comparison.contenders
    ]
    header = ("", "weights", "model", "iterations", "precision", "fingerprint")
    return html.section("Networks", html.table(header, rows, text_columns=(0, 1, 2, 4, 5)))

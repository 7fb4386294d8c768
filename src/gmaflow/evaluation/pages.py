"""The HTML pages of an evaluation, a comparison, and an evaluation without ground truth.

Each page is one file without external resources. The layout is in `templates/`; this module
prepares the numbers, tables and figures.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from gmaflow import viz
from gmaflow.errors import FlowFileError, counted
from gmaflow.evaluation.comparing import (
    COMPARISON_PAGE,
    Comparison,
    Improvement,
    Line,
    pair_errors,
)
from gmaflow.evaluation.evaluating import REPORT, SHOWN, Evaluation
from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.figures import (
    Figure,
    attention_figures,
    choose_queries,
    pair_figures,
    shown_flow,
)
from gmaflow.evaluation.metrics import HISTOGRAM_EDGES, REGIONS
from gmaflow.evaluation.pair_evaluator import PairResult, is_reproducible
from gmaflow.evaluation.paper_tables import TABLE_1, TABLE_2
from gmaflow.evaluation.unsupervised import MEANING, CheckedPair, average
from gmaflow.inference import BidirectionalFlow, FlowEstimator, read_flow
from gmaflow.inference.visibility import combine
from gmaflow.io import atomic_write, read_image
from gmaflow.version import __version__

UNSUPERVISED_PAGE = "unsupervised.html"
_SHOWN_PAIRS = 3
_OPEN_UP_TO = 30
_TILE_REGIONS = {"noc": "visible", "occ": "occluded", "occ-out": "out of frame", "s40+": "fast"}
_COLORS = ("var(--one)", "var(--two)", "var(--three)", "var(--four)")


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is highlighted."""

    text: str
    tone: Literal["good", "bad"]


@dataclass(frozen=True)
class Table:
    """A table for a page or the terminal.

    Attributes:
        header: titles of the columns.
        rows: their cells.
        text_columns: columns that hold text; the others hold numbers.
        strong: how many of the first rows are emphasized.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | int | Cell]]
    text_columns: Collection[int] = (0,)
    strong: int = 0


@dataclass(frozen=True)
class Card:
    """A pair on a page: its name, a line about it, and rows of figures."""

    title: str
    about: str
    rows: Sequence[Sequence[Figure]]


def write_report(evaluation: Evaluation, estimator: FlowEstimator, folder: Path) -> Path:
    """Write report.html. Flows that were saved for it are not estimated again.

    Raises:
        FlowError: a pair cannot be read any more, or the page cannot be written.
    """
    about, summary = evaluation.about, evaluation.summary
    worst, best = evaluation.shown()

    def cards(results: list[PairResult]) -> list[Card]:
        return [_result_card(result, estimator, folder) for result in results]

    return _write_page(
        folder / REPORT,
        "report.html",
        title=f"{evaluation.data.title}: {about.model}",
        evaluation=evaluation,
        subtitle=f"{about.model}, {Path(about.weights).name}, "
        f"{counted(about.iters, 'iteration')}, {counted(summary.num_pairs, 'pair')}",
        tiles=_tiles(evaluation),
        overall=overall_table(evaluation),
        regions=region_table(evaluation),
        paper=_paper_table(evaluation),
        histogram=_histogram(evaluation),
        cards={"Worst pairs": cards(worst), "Best pairs": cards(best)},
        attentive=estimator.config.aggregates,
        sequences={} if summary.too_many_scenes else dict(_sequence_tables(evaluation)),
        open_up_to=_OPEN_UP_TO,
        seconds=format_figure(summary.seconds / max(1, summary.num_pairs), 2),
    )


def write_comparison(
    comparison: Comparison, folder: Path, *, show: int = 3, pairs: Sequence[str] = ()
) -> Path:
    """Write comparison.html.

    Args:
        comparison: the comparison.
        folder: where to write the page.
        show: how many of the most improved pairs to show.
        pairs: names of pairs to show instead.

    Raises:
        FlowError: a name is unknown, or the page cannot be written.
    """
    chosen = comparison.find(pairs) if pairs else comparison.most_improved(show)
    names = [one.name for one in comparison.contenders]
    whole = [line for line in comparison.lines if line.region == "all"]
    tiles = [
        (
            f"{comparison.title(line)}: {name}",
            format_percent(found),
            f"improvement; 95 %: {format_interval(found)}",
        )
        for line in whole
        for name, found in zip(names[1:], line.improvements, strict=True)
    ]
    return _write_page(
        folder / COMPARISON_PAGE,
        "comparison.html",
        title=f"{' vs. '.join(names)}: {comparison.data.title}",
        heading=" vs. ".join(reversed(names)),
        comparison=comparison,
        subtitle=f"{comparison.data.title}, {counted(len(comparison.data.examples), 'pair')}",
        tiles=tiles,
        tables={comparison.title(line): _comparison_table(comparison, line) for line in whole},
        cards_title="Pairs" if pairs else "Most improved pairs",
        cards=[_comparison_card(comparison, *one, folder) for one in chosen],
        attentive=any(one.estimator.config.aggregates for one in comparison.contenders),
        paper=_paper_comparison(comparison),
        networks=_networks(comparison),
    )


def write_unsupervised(
    folder: Path, title: str, checked: list[CheckedPair], estimator: FlowEstimator
) -> Path:
    """Write unsupervised.html: the averages, and the pairs with the largest photometric error.

    The flow of those pairs is saved, so that a repeated run does not estimate it again.
    """
    mean = asdict(average(one.found for one in checked))
    worst = sorted(checked, key=lambda one: -np.nan_to_num(one.found.photometric))[:_SHOWN_PAIRS]
    meanings = [(readable(name), f"{text} ({unit})") for name, (unit, text) in MEANING.items()]
    return _write_page(
        folder / UNSUPERVISED_PAGE,
        "unsupervised.html",
        title=title,
        subtitle=f"{counted(len(checked), 'pair')}, evaluated without ground truth",
        tiles=[
            (readable(name), format_figure(mean[name], 2), unit)
            for name, (unit, _) in MEANING.items()
        ],
        meanings=Table(("figure", "meaning"), meanings, text_columns=(0, 1)),
        cards=[_unsupervised_card(one, folder / SHOWN, estimator) for one in worst],
    )


def _write_page(path: Path, template: str, **context: object) -> Path:
    # Imported here, since only pages need it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gmaflow.evaluation"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    style = resources.files("gmaflow.evaluation").joinpath("templates", "report.css").read_text()
    page = environment.get_template(template).render(style=style, version=__version__, **context)
    with atomic_write(path) as temporary:
        temporary.write_text(page, "utf-8")
    return path


def format_figure(value: float, digits: int = 3) -> str:
    """Format a figure; NaN becomes a dash."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def format_percent(found: Improvement) -> str:
    """Format an improvement with its sign."""
    return "-" if math.isnan(found.percent) else f"{found.percent:+.1f} %"


def format_interval(found: Improvement) -> str:
    """Format the interval of an improvement; a star marks one that excludes 0."""
    if math.isnan(found.low):
        return "-"
    return f"{found.low:+.1f} to {found.high:+.1f}{' *' if found.certain else ''}"


def readable(name: str) -> str:
    """Return the readable name of a figure without ground truth."""
    return name.replace("_", ", ")


def overall_table(evaluation: Evaluation) -> Table:
    """Return the overall figures of each pass."""
    rows: list[tuple[str | int, ...]] = []
    for title, regions in evaluation.columns():
        found = regions["all"]
        shares = (format_figure(x, 2) for x in (found.px1, found.px3, found.px5, found.fl))
        rows.append((title, found.images, format_figure(found.epe), *shares))
    header = ("", "pairs", "EPE, px", "> 1 px, %", "> 3 px, %", "> 5 px, %", "Fl, %")
    return Table(header, rows)


def region_table(evaluation: Evaluation, regions: Collection[str] = tuple(REGIONS)) -> Table:
    """Return the end-point error in each of some regions."""
    columns = list(evaluation.columns())
    most = max(figures["all"].pixels for _, figures in columns)
    rows = []
    for region in regions:
        found = [figures.get(region) for _, figures in columns]
        if not any(found):
            continue
        share = max((one.pixels for one in found if one), default=0) / max(1, most)
        errors = (format_figure(one.epe) if one else "" for one in found)
        rows.append((region, *errors, f"{100 * share:.1f}", REGIONS[region]))
    header = ("region", *(title for title, _ in columns), "pixels, %", "definition")
    return Table(header, rows, text_columns=(0, len(header) - 1))


def comparison_header(comparison: Comparison) -> list[str]:
    """Return the titles of the cells of `comparison_cells`."""
    names = [one.name for one in comparison.contenders]
    titles = list(names)
    for name in names[1:]:
        titles += ["improvement" if len(names) == 2 else f"by {name}", "95 % interval"]
    return titles


def comparison_cells(line: Line) -> list[str | Cell]:
    """Return a line's cells: the errors, then improvement and interval of each but the first."""
    cells: list[str | Cell] = [format_figure(error) for error in line.errors]
    for found in line.improvements:
        percent = format_percent(found)
        tone: Literal["good", "bad"] = "good" if found.percent > 0 else "bad"
        cells += [Cell(percent, tone) if found.certain else percent, format_interval(found)]
    return cells


def _tiles(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """Return a name, a number and its unit for each of the main figures."""
    columns = list(evaluation.columns())
    tiles = [
        (
            title,
            format_figure(regions["all"].epe),
            f"px · Fl {format_figure(regions['all'].fl, 2)} %",
        )
        for title, regions in columns
    ]
    if len(columns) == 1:
        regions = columns[0][1]
        tiles += [
            (name, format_figure(regions[region].epe), f"px · {region}")
            for region, name in _TILE_REGIONS.items()
            if region in regions
        ]
    return tiles


def _paper_table(evaluation: Evaluation) -> Table | None:
    """Return the paper's table 2 with this run above it; None if it has no such data."""
    columns = list(evaluation.columns())
    rows: list[tuple[str, ...]]
    ours = (evaluation.about.model, "this run")
    if evaluation.data.name == "kitti-2015":
        header = ["", "trained on", "EPE, px", "Fl, %"]
        whole = [regions["all"] for _, regions in columns]
        rows = [(*ours, format_figure(one.epe, 2), format_figure(one.fl, 1)) for one in whole]
        rows += [
            (row.label, row.training, f"{row.values[2]:.2f}", f"{row.values[3]:.1f}")
            for row in TABLE_2
        ]
    elif evaluation.data.name == "sintel":
        places = {"clean": 0, "final": 1}
        known = {title: places.get(title.split(",")[0]) for title, _ in columns}
        titles = [title for title, place in known.items() if place is not None]
        if not titles:
            return None
        errors = {title: format_figure(regions["all"].epe, 2) for title, regions in columns}
        header = ["", "trained on", *titles]
        rows = [(*ours, *(errors[title] for title in titles))]
        for row in TABLE_2:
            values = (f"{row.values[known[title] or 0]:.2f}" for title in titles)
            rows.append((row.label, row.training, *values))
    else:
        return None
    return Table(header, rows, text_columns=(0, 1), strong=len(rows) - len(TABLE_2))


def _histogram(evaluation: Evaluation) -> dict[str, Any]:
    edges = [f"{edge:g}" for edge in HISTOGRAM_EDGES]
    labels = [f"< {edges[0]}"]
    labels += [f"{least} to {most}" for least, most in pairwise(edges)]
    labels.append(f"> {edges[-1]}")
    # Without the last column, which combines the passes and adds nothing here.
    titles = (title for title, _ in evaluation.columns())
    series = {
        title: (100 * sums.histogram / max(1, sums.histogram.sum())).tolist()
        for title, sums in zip(titles, evaluation.summary.totals.values(), strict=False)
    }
    return bar_chart(labels, series)


def bar_chart(labels: Sequence[str], series: dict[str, Sequence[float]]) -> dict[str, Any]:
    """Lay out grouped bars of percentages: all coordinates that the template needs."""
    width, height, left, bottom, top = 860, 250, 40, 44, 14
    highest = max((value for values in series.values() for value in values), default=1) or 1
    step = next((s for s in (1, 2, 5, 10, 20) if highest / s <= 5), 20)
    ceiling = step * -(-highest // step)
    room, scale = (width - left) / len(labels), (height - bottom - top) / ceiling
    thick = 0.72 * room / max(1, len(series))
    base = height - bottom
    middles = [left + (j + 0.5) * room for j in range(len(labels))]
    return {
        "width": width,
        "height": height,
        "left": left,
        "ticks": [(base - scale * i * step, i * step) for i in range(int(ceiling // step) + 1)],
        "labels": list(zip(middles, labels, strict=True)),
        "legend": [(name, _COLORS[i % len(_COLORS)]) for i, name in enumerate(series)],
        "bars": [
            {
                "x": middle + (i - len(series) / 2) * thick,
                "y": base - scale * values[j],
                "width": thick - 1,
                "height": scale * values[j],
                "color": _COLORS[i % len(_COLORS)],
                "title": f"{name}: {labels[j]} px, {values[j]:.2f} %",
            }
            for j, middle in enumerate(middles)
            for i, (name, values) in enumerate(series.items())
        ],
    }


def _sequence_tables(evaluation: Evaluation) -> Iterator[tuple[str, Table]]:
    titles = (title for title, _ in evaluation.columns())
    # The last column, which combines the passes, has no sequences of its own.
    for title, scenes in zip(titles, evaluation.summary.scenes.values(), strict=False):
        rows: list[tuple[str | int, ...]] = []
        for scene, sums in sorted(scenes.items()):
            found = sums.figures(evaluation.averaging)
            whole = found["all"]
            rows.append(
                (
                    scene,
                    sums.num_pairs("all"),
                    format_figure(whole.epe),
                    *(format_figure(found[r].epe) if r in found else "" for r in ("noc", "occ")),
                    format_figure(whole.px3, 2),
                    format_figure(whole.fl, 2),
                )
            )
        header = ("sequence", "pairs", "EPE, px", "noc", "occ", "> 3 px, %", "Fl, %")
        yield title, Table(header, rows)


def _result_card(result: PairResult, estimator: FlowEstimator, folder: Path) -> Card:
    sample = result.example.source.load()
    flow = shown_flow(folder / SHOWN / f"{result.key}.flo", sample, estimator)
    attention = attention_figures(estimator, sample, flow, choose_queries(sample))
    about = f"{format_figure(result.epe)} px mean error"
    return Card(result.example.title, about, [pair_figures(sample, {"": flow}), attention])


def _comparison_table(comparison: Comparison, whole: Line) -> Table:
    header = ["region", *comparison_header(comparison), "definition"]
    rows = [
        [line.region, *comparison_cells(line), REGIONS[line.region]]
        for line in comparison.lines
        if (line.group, line.start) == (whole.group, whole.start)
    ]
    return Table(header, rows, text_columns=(0, len(header) - 1))


def _comparison_card(comparison: Comparison, place: int, example: Example, folder: Path) -> Card:
    sample = example.source.load()
    estimates, errors = {}, []
    for one in comparison.contenders:
        saved = folder / SHOWN / f"{one.keys[place]}.flo"
        estimates[one.name] = shown_flow(saved, sample, one.estimator)
        error = float(pair_errors(one.tables["cold"])[place])
        errors.append(f"{one.name} {format_figure(error)} px")
    queries = choose_queries(sample)
    attention = [
        attention_figures(one.estimator, sample, estimates[one.name], queries, name=one.name)
        for one in comparison.contenders
    ]
    return Card(example.title, ", ".join(errors), [pair_figures(sample, estimates), *attention])


def _paper_comparison(comparison: Comparison) -> Table | None:
    """Return the paper's table 1 next to this comparison; None for other data."""
    if comparison.data.name != "sintel":
        return None
    rows = []
    for line in comparison.lines:
        published = TABLE_1.get(line.group, {}).get(line.region)
        if published and line.start == "cold":
            raft, gma = published
            ours = (format_figure(error, 2) for error in line.errors[:2])
            paper = (f"{raft:.2f}", f"{gma:.2f}", f"{100 * (raft - gma) / raft:+.1f} %")
            improved = format_percent(line.improvements[0])
            rows.append((line.group, line.region, *ours, improved, *paper))
    first, second = (one.name for one in comparison.contenders[:2])
    header = ("pass", "region", first, second, "improvement", "paper: RAFT", "GMA", "improvement")
    return Table(header, rows, text_columns=(0, 1))


def _networks(comparison: Comparison) -> Table:
    rows = []
    for one in comparison.contenders:
        about = one.evaluation.about
        weights = Path(about.weights).name
        details = (about.model, about.iters, about.precision, about.fingerprint)
        rows.append((one.name, weights, *details))
    header = ("", "weights", "model", "iterations", "precision", "fingerprint")
    return Table(header, rows, text_columns=(0, 1, 2, 4, 5))


def _unsupervised_card(one: CheckedPair, folder: Path, estimator: FlowEstimator) -> Card:
    image1, image2 = read_image(one.pair.image1), read_image(one.pair.image2)
    both = _shown_both(folder / one.key, image1, image2, estimator)
    hidden = viz.occlusion_overlay(image1, both.occluded_in, both.occluded_out)
    figures = [
        Figure.of(image1, "first frame"),
        Figure.of(image2, "second frame"),
        Figure.of(both.forward.picture(legend=True), "flow"),
        Figure.of(both.forward.warp(image2), "second frame warped back to the first"),
        Figure.of(viz.confidence_map(both.confidence), "agreement of both directions, light: full"),
        Figure.of(hidden, "found occluded (orange), out of frame (blue)"),
    ]
    found = one.found
    about = f"photometric {found.photometric:.2f}, inconsistency {found.inconsistency:.2f} px"
    return Card(f"{one.pair.scene} {one.pair.frame}", about, [figures])


def _shown_both(
    stem: Path,
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    estimator: FlowEstimator,
) -> BidirectionalFlow:
    """Read the flow in both directions that was saved for the page, or estimate and save it."""
    ahead, back = (stem.with_name(f"{stem.name}-{way}.flo") for way in ("forward", "backward"))
    try:
        return combine(read_flow(ahead), read_flow(back))
    except FlowFileError:
        both = estimator.bidirectional(image1, image2)
        if is_reproducible(both.forward, estimator):
            both.forward.save(ahead)
            both.backward.save(back)
        return both

"""The HTML pages of an evaluation and of a comparison: their numbers, tables and pictures.

Each page is one file without external resources. The layout is in `templates/`.
"""

import base64
import io
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from gmaflow import viz
from gmaflow.data import FlowSample
from gmaflow.errors import FlowFileError, counted
from gmaflow.evaluation.comparing import (
    COMPARISON_PAGE,
    Comparison,
    Improvement,
    Line,
)
from gmaflow.evaluation.evaluating import (
    REPORT,
    SHOWN,
    Evaluation,
    PairResult,
    Start,
    is_reproducible,
)
from gmaflow.evaluation.examples import Example, incomplete
from gmaflow.evaluation.metrics import HISTOGRAM_EDGES, REGIONS, Figures
from gmaflow.evaluation.paper_tables import TABLE_1, TABLE_2, TABLE_2_COLUMNS
from gmaflow.geometry import hole_depths
from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays
from gmaflow.io.paths import write_text
from gmaflow.version import __version__

NUM_QUERIES = 3
"""As in the paper's figure of attention maps."""
Point = tuple[float, float]

_WIDEST = 560
_ATTENTION_WIDTH = 320
# Occluded pixels further than this many pixels from any visible one count as equally deep.
_DEEP = 48
# Regions shallower than this share of the deepest are specks or rims, and are not chosen.
_SPECK = 0.25
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
    """A table for a page or the terminal."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | int | Cell]]
    text_columns: Collection[int] = (0,)
    """Columns that hold text; the others hold numbers."""
    strong: int = 0
    """How many of the first rows are emphasized."""


@dataclass(frozen=True)
class Figure:
    """A picture with a caption; the picture is inside the page, as base64."""

    caption: str
    width: int
    height: int
    data: str

    @classmethod
    def of(cls, picture: UInt8[np.ndarray, "h w 3"], caption: str) -> "Figure":
        """Shrink a picture for a page and encode it."""
        image = Image.fromarray(picture)
        image.thumbnail((_WIDEST, _WIDEST), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90, subsampling=0)
        data = base64.b64encode(buffer.getvalue()).decode()
        return cls(caption, image.width, image.height, data)


@dataclass(frozen=True)
class Card:
    """A pair on a page: its name, a line about it, and rows of figures."""

    title: str
    about: str
    rows: Sequence[Sequence[Figure]]


def write_report(evaluation: Evaluation, estimator: FlowEstimator, folder: Path) -> Path:
    """Write report.html. Flows that were saved for it are not estimated again."""
    about, summary = evaluation.about, evaluation.summary
    worst, best = evaluation.shown()

    def cards(results: list[PairResult]) -> list[Card]:
        return [_result_card(result, estimator, folder) for result in results]

    return write_page(
        folder / REPORT,
        "report.html",
        title=f"{evaluation.data.title}: {about.model}",
        evaluation=evaluation,
        subtitle=f"{about.model}, {Path(about.weights).name}, "
        f"{'' if about.settled is None else 'at most '}{counted(about.iters, 'iteration')}, "
        f"{counted(summary.num_pairs, 'pair')}",
        tiles=_tiles(evaluation),
        overall=overall_table(evaluation),
        regions=region_table(evaluation),
        paper=_paper_table(evaluation),
        incomplete=incomplete(evaluation.data),
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

    It shows `show` of the most improved and of the most worsened pairs, or those named in `pairs`.
    """
    if pairs:
        chosen = {"Pairs": comparison.data.find(pairs)}
    else:
        chosen = {
            "Most improved pairs": comparison.most_changed(show, better=True),
            "Most worsened pairs": comparison.most_changed(show, better=False),
        }
    names = [one.name for one in comparison.contenders]
    whole = [line for line in comparison.lines if line.region == "all"]
    tiles = [
        (
            f"{comparison.title(line)}: {name}",
            format_percent(improvement),
            f"improvement; 95 %: {format_interval(improvement)}",
        )
        for line in whole
        for name, improvement in zip(names[1:], line.improvements, strict=True)
    ]
    return write_page(
        folder / COMPARISON_PAGE,
        "comparison.html",
        title=f"{' vs. '.join(names)}: {comparison.data.title}",
        heading=" vs. ".join(reversed(names)),
        comparison=comparison,
        subtitle=f"{comparison.data.title}, {counted(len(comparison.data.examples), 'pair')}",
        tiles=tiles,
        tables={comparison.title(line): _comparison_table(comparison, line) for line in whole},
        cards={
            title: [_comparison_card(comparison, *one, folder) for one in pairs]
            for title, pairs in chosen.items()
        },
        attentive=any(one.estimator.config.aggregates for one in comparison.contenders),
        paper=_paper_comparison(comparison),
        incomplete=incomplete(comparison.data),
        networks=_networks(comparison),
    )


def write_page(path: Path, template: str, **context: object) -> Path:
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
    write_text(path, page)
    return path


def format_figure(value: float, digits: int = 3) -> str:
    """Format a figure; NaN becomes a dash."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def format_percent(improvement: Improvement) -> str:
    """Format an improvement with its sign."""
    return "-" if math.isnan(improvement.percent) else f"{improvement.percent:+z.1f} %"


def format_interval(improvement: Improvement) -> str:
    """Format the interval of an improvement; a star marks one that excludes 0."""
    if math.isnan(improvement.low):
        return "-"
    return (
        f"{improvement.low:+z.1f} to {improvement.high:+z.1f}{' *' if improvement.certain else ''}"
    )


def overall_table(evaluation: Evaluation) -> Table:
    """Return the overall figures of each pass."""
    rows: list[tuple[str | int, ...]] = []
    for title, regions in evaluation.columns():
        figures = regions["all"]
        shares = (format_figure(x, 2) for x in (figures.px1, figures.px3, figures.px5, figures.fl))
        rows.append((title, figures.images, format_figure(figures.epe), *shares))
    header = ("", "pairs", "EPE, px", "> 1 px, %", "> 3 px, %", "> 5 px, %", "Fl, %")
    return Table(header, rows)


def region_table(evaluation: Evaluation, regions: Collection[str] = tuple(REGIONS)) -> Table:
    """Return the end-point error in each of some regions."""
    columns = list(evaluation.columns())
    total = max(figures["all"].pixels for _, figures in columns)
    rows = []
    for region in regions:
        by_column = [figures.get(region) for _, figures in columns]
        if not any(by_column):
            continue
        share = max((one.pixels for one in by_column if one), default=0) / max(1, total)
        errors = (format_figure(one.epe) if one else "" for one in by_column)
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
    for improvement in line.improvements:
        percent = format_percent(improvement)
        tone: Literal["good", "bad"] = "good" if improvement.percent > 0 else "bad"
        cells += [
            Cell(percent, tone) if improvement.certain else percent,
            format_interval(improvement),
        ]
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
    """Return the paper's table 2 with this run above it; None if they do not compare."""
    if incomplete(evaluation.data):
        return None
    name = evaluation.data.name
    ours: dict[Start, dict[tuple[str, str], Figures]] = {}
    for (group, start), sums in evaluation.summary.totals.items():
        ours.setdefault(start, {})[name, group] = sums.figures(evaluation.averaging)["all"]
    columns = {
        i: column for i, column in enumerate(TABLE_2_COLUMNS) if column.of(ours["cold"]) is not None
    }
    if not columns:
        return None
    rows = []
    for start, measured in ours.items():
        run = f"this run, {start}" if len(ours) > 1 else "this run"
        figures = (column.text(column.of(measured)) for column in columns.values())
        rows.append((evaluation.about.model, run, *figures))
    for row in TABLE_2:
        figures = (column.text(row.values[i]) for i, column in columns.items())
        rows.append((row.label, row.training, *figures))
    header = ["", "trained on", *(column.title for column in columns.values())]
    return Table(header, rows, text_columns=(0, 1), strong=len(ours))


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
            regions = sums.figures(evaluation.averaging)
            whole = regions["all"]
            rows.append(
                (
                    scene,
                    sums.num_pairs("all"),
                    format_figure(whole.epe),
                    *(
                        format_figure(regions[r].epe) if r in regions else ""
                        for r in ("noc", "occ")
                    ),
                    format_figure(whole.px3, 2),
                    format_figure(whole.fl, 2),
                )
            )
        header = ("sequence", "pairs", "EPE, px", "noc", "occ", "> 3 px, %", "Fl, %")
        yield title, Table(header, rows)


def _result_card(result: PairResult, estimator: FlowEstimator, folder: Path) -> Card:
    sample = result.example.load()
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
    sample = example.load()
    estimates, errors = {}, []
    for one in comparison.contenders:
        result = one.of("cold")[place]
        saved = folder / SHOWN / f"{result.key}.flo"
        estimates[one.name] = shown_flow(saved, sample, one.estimator)
        errors.append(f"{one.name} {format_figure(result.epe)} px")
    queries = choose_queries(sample)
    attention = [
        attention_figures(one.estimator, sample, estimates[one.name], queries, name=one.name)
        for one in comparison.contenders
    ]
    return Card(example.title, ", ".join(errors), [pair_figures(sample, estimates), *attention])


def _paper_comparison(comparison: Comparison) -> Table | None:
    """Return the paper's table 1 next to this comparison; None if they do not compare."""
    if comparison.data.name != "sintel" or incomplete(comparison.data):
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


def pair_figures(
    sample: FlowSample, estimates: dict[str, Float32[np.ndarray, "h w 2"]]
) -> list[Figure]:
    """Show a pair: frames, ground truth, each estimate and its error, and occlusion."""
    assert sample.flow is not None
    assert sample.valid is not None
    scale = viz.largest_length(sample.flow, valid=sample.valid) or 1.0
    errors = [
        viz.largest_length(flow - sample.flow, valid=sample.valid) for flow in estimates.values()
    ]
    most = max(1.0, *errors)
    truth = viz.flow_to_image(sample.flow, max_length=scale, valid=sample.valid)
    figures = [
        Figure.of(sample.image1, "first frame"),
        Figure.of(sample.image2, "second frame"),
        Figure.of(viz.add_legend(truth, scale), "true flow"),
    ]
    hidden = _occlusion_figures(sample)
    if len(estimates) > 1:  # next to the truth, so that estimates and errors share a row
        figures += hidden
    figures += [
        Figure.of(viz.flow_to_image(flow, max_length=scale), name or "estimate")
        for name, flow in estimates.items()
    ]
    for name, flow in estimates.items():
        error = viz.error_map(flow, sample.flow, valid=sample.valid, max_error=most)
        of = f" of {name}" if name else ""
        figures.append(Figure.of(error, f"error{of}, dark 0 to light {most:.3g} px"))
    return figures if len(estimates) > 1 else figures + hidden


def _occlusion_figures(sample: FlowSample) -> list[Figure]:
    if sample.occluded_out is None:
        return []
    inside = sample.occluded_in
    occluded_in = np.zeros_like(sample.occluded_out) if inside is None else inside
    picture = viz.occlusion_overlay(sample.image1, occluded_in, sample.occluded_out)
    caption = "occluded (orange), out of frame (blue)"
    return [Figure.of(picture, caption if inside is not None else "out of frame (blue)")]


def shown_flow(
    path: Path, sample: FlowSample, estimator: FlowEstimator
) -> Float32[np.ndarray, "h w 2"]:
    """Read an estimate that was saved for the report, or estimate and save it."""
    try:
        return read_flow_arrays(path).array
    except FlowFileError:
        flow = estimator(sample.image1, sample.image2)
        if is_reproducible(flow, estimator):
            flow.save(path)
        return flow.array


def choose_queries(sample: FlowSample) -> tuple[Point, ...]:
    """Return query points (x, y) whose attention is interesting.

    Occluded pixels are: their motion cannot be matched and has to be aggregated from elsewhere. The
    deepest is chosen first, then points that are deep and far from those already chosen. If there
    are too few, evenly spaced points are added.
    """
    height, width = sample.image1.shape[:2]
    hidden = sample.occluded
    hidden_queries = [] if hidden is None else _deep_and_apart(hidden, NUM_QUERIES)
    parts = NUM_QUERIES + 1
    spaced = [(float(width * i // parts), float(height // 2)) for i in range(1, parts)]
    return (*hidden_queries, *spaced[len(hidden_queries) :])


def attention_figures(
    estimator: FlowEstimator,
    sample: FlowSample,
    flow: Float32[np.ndarray, "h w 2"],
    queries: Sequence[Point],
    *,
    name: str = "",
) -> list[Figure]:
    """Show the frame with its query points, their attention maps and the flow.

    Networks without attention have no such figures.
    """
    if not estimator.config.aggregates:
        return []
    maps = list(estimator.attention(sample.image1, queries))
    # Drawn at the size they are shown, so that the rings around the points stay visible.
    small, shrunk = _shrink(sample.image1, queries)
    frame, overlays = viz.attention_pictures(small, maps, shrunk)
    of = f" of {name}" if name else ""
    return [
        Figure.of(frame, f"query points{of}"),
        *(Figure.of(overlay, f"attention map {i}") for i, overlay in enumerate(overlays, 1)),
        Figure.of(viz.flow_to_image(flow), f"flow{of}"),
    ]


def _shrink(
    image: UInt8[np.ndarray, "h w 3"], points: Sequence[Point]
) -> tuple[UInt8[np.ndarray, "_ _ 3"], list[Point]]:
    picture = Image.fromarray(image)
    picture.thumbnail((_ATTENTION_WIDTH, _ATTENTION_WIDTH), Image.Resampling.LANCZOS)
    across, down = picture.width / image.shape[1], picture.height / image.shape[0]
    moved = [
        (min(x * across, picture.width - 1), min(y * down, picture.height - 1)) for x, y in points
    ]
    return np.asarray(picture), moved


def _deep_and_apart(hidden: Bool[np.ndarray, "h w"], count: int) -> list[Point]:
    """Pick occluded pixels one by one, each deep in its region and far from the earlier ones."""
    height, width = hidden.shape
    # The frame's edge counts as visible, so that no point is cut off by it.
    depth = hole_depths(~np.pad(hidden, 1), limit=_DEEP)[1:-1, 1:-1].copy()
    depth[depth < depth.max() * _SPECK] = 0
    score = depth.copy()
    y, x = np.mgrid[:height, :width]
    nearest = np.full(hidden.shape, np.inf)
    points: list[Point] = []
    while len(points) < count and score.max() > 0:
        row, column = np.unravel_index(int(score.argmax()), score.shape)
        points.append((float(column), float(row)))
        nearest = np.minimum(nearest, np.hypot(x - column, y - row))
        score = depth * nearest
    return points

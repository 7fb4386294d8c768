"""The report for people: one page that can be sent to a colleague as it is."""

import math
from itertools import pairwise
from pathlib import Path

from gmaflow.errors import counted
from gmaflow.evaluation import html
from gmaflow.evaluation.attention import EXPLAINED, attention_figures, choose_queries
from gmaflow.evaluation.evaluating import REPORT, SHOWN, Evaluation
from gmaflow.evaluation.metrics import HISTOGRAM_EDGES
from gmaflow.evaluation.paper import TABLE_2
from gmaflow.evaluation.pictures import pair_figures, shown_flow
from gmaflow.evaluation.regions import REGIONS
from gmaflow.evaluation.summary import Ranked
from gmaflow.inference import FlowEstimator
from gmaflow.io import atomic_write
from gmaflow.version import __version__


def write_report(evaluation: Evaluation, estimator: FlowEstimator, folder: Path) -> Path:
    """Write report.html; pairs that are shown are estimated again only if they must be.

    Raises:
        FlowError: a pair that is shown cannot be read any more, or the place cannot be written to.
    """
    about = evaluation.about
    worst, best = evaluation.shown()
    body = [
        f"<h1>{html.escape(evaluation.data.title)}</h1>",
        f'<p class="sub">{html.escape(_subtitle(evaluation))}</p>',
        _tiles(evaluation),
        html.notes(evaluation.notes),
        _overall(evaluation),
        _regions(evaluation),
        _paper(evaluation),
        _histogram(evaluation),
        _pairs("Worst pairs", worst, estimator, folder),
        _pairs("Best pairs", best, estimator, folder),
        _sequences(evaluation),
        f"<footer>gmaflow {__version__} · weights {html.escape(about.fingerprint)} · "
        f"{html.escape(about.precision)} on {html.escape(about.device)} · "
        f"padding as for {html.escape(about.padding)} · "
        f"{evaluation.summary.seconds / max(1, evaluation.summary.num_pairs):.2f} s for a pair"
        "</footer>",
    ]
    path = folder / REPORT
    with atomic_write(path) as temporary:
        temporary.write_text(
            html.page(f"{evaluation.data.title}: {about.model}", "\n".join(body)), "utf-8"
        )
    return path


def written(value: float, digits: int = 3) -> str:
    """Write a figure; a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _subtitle(evaluation: Evaluation) -> str:
    about = evaluation.about
    weights = Path(about.weights).name
    return (
        f"{about.model}, {weights}, {counted(about.iters, 'iteration')}, on "
        f"{counted(evaluation.summary.num_pairs, 'pair')}"
    )


def _tiles(evaluation: Evaluation) -> str:
    columns = list(evaluation.columns())
    entries = []
    for title, regions in columns:
        found = regions["all"]
        entries.append((title, written(found.epe), f"px · Fl {written(found.fl, 2)} %"))
    if len(columns) == 1:
        regions = columns[0][1]
        names = {"noc": "visible", "occ": "occluded", "occ-out": "out of frame", "s40+": "fast"}
        entries += [
            (name, written(regions[region].epe), f"px · {region}")
            for region, name in names.items()
            if region in regions
        ]
    return html.tiles(entries)


def _overall(evaluation: Evaluation) -> str:
    rows = []
    for title, regions in evaluation.columns():
        found = regions["all"]
        shares = (found.px1, found.px3, found.px5, found.fl)
        rows.append(
            (title, found.images, written(found.epe), *(written(share, 2) for share in shares))
        )
    mean = {
        "pixels": "The mean end-point error is over all pixels of all pairs, as Sintel counts.",
        "images": "The mean end-point error is the mean of the pairs' means, as KITTI counts.",
    }[evaluation.averaging]
    header = ("", "pairs", "EPE, px", "> 1 px, %", "> 3 px, %", "> 5 px, %", "Fl, %")
    return html.section(
        "Overall",
        html.table(header, rows),
        lead=f"{mean} Shares are of all pixels; Fl is over 3 px and over 5 % of the motion.",
    )


def _regions(evaluation: Evaluation) -> str:
    columns = list(evaluation.columns())
    most = max(regions["all"].pixels for _, regions in columns)
    rows = []
    for region, meaning in REGIONS.items():
        found = [regions.get(region) for _, regions in columns]
        if not any(found):
            continue
        share = max((one.pixels for one in found if one), default=0) / max(1, most)
        errors = (written(one.epe) if one else "" for one in found)
        rows.append((region, *errors, f"{100 * share:.1f}", meaning))
    header = ("region", *(title for title, _ in columns), "pixels, %", "what it is")
    return html.section(
        "Where the errors are",
        html.table(header, rows, text_columns=(0, len(header) - 1)),
        lead="Mean end-point error in pixels. Occluded pixels have no counterpart to be matched "
        "with: their motion has to be inferred.",
    )


def _paper(evaluation: Evaluation) -> str:
    """Lay the paper's figures beside ours, where it has any for this data."""
    name = evaluation.data.name
    columns = list(evaluation.columns())
    rows: list[tuple[str, ...]]
    ours = (evaluation.about.model, "this run")
    if name == "kitti-2015":
        whole = [regions["all"] for _, regions in columns]
        rows = [(*ours, written(found.epe, 2), written(found.fl, 1)) for found in whole]
        rows += [(r.method, r.training, f"{r.kitti:.2f}", f"{r.kitti_fl:.1f}") for r in TABLE_2]
        header = ["", "trained on", "EPE, px", "Fl, %"]
    elif name == "sintel":
        titles = [title for title, _ in columns if title.split(",")[0] in ("clean", "final")]
        if not titles:
            return ""
        errors = {title: written(regions["all"].epe, 2) for title, regions in columns}
        header = ["", "trained on", *titles]
        rows = [(*ours, *(errors[title] for title in titles))]
        for row in TABLE_2:
            known = {"clean": row.clean, "final": row.final}
            values = (f"{known[title.split(',')[0]]:.2f}" for title in titles)
            rows.append((row.method, row.training, *values))
    else:
        return ""
    return html.section(
        "Beside the paper",
        html.table(header, rows, text_columns=(0, 1), strong=len(rows) - len(TABLE_2)),
        lead="Table 2 of the GMA paper, on the whole training set; this run is comparable if it is "
        "on all of it. C+T+S/K has seen the data that it is judged on.",
    )


def _histogram(evaluation: Evaluation) -> str:
    edges = [f"{edge:g}" for edge in HISTOGRAM_EDGES]
    labels = [f"< {edges[0]}"]
    labels += [f"{least} to {most}" for least, most in pairwise(edges)]
    labels.append(f"> {edges[-1]}")
    # Without the column of all passes together, which comes last and tells nothing new here.
    titles = (title for title, _ in evaluation.columns())
    series = {
        title: (100 * sums.histogram / max(1, sums.histogram.sum())).tolist()
        for title, sums in zip(titles, evaluation.summary.totals.values(), strict=False)
    }
    chart = html.bars(labels, series, axis="end-point error, px")
    return html.section("How errors are spread", chart, lead="Share of pixels by error.")


def _sequences(evaluation: Evaluation) -> str:
    if evaluation.summary.too_many_scenes:
        return ""
    parts = []
    several = len(evaluation.summary.scenes) > 1
    titles = (title for title, _ in evaluation.columns())
    # The column of all passes together comes last and has no sequences of its own.
    for title, scenes in zip(titles, evaluation.summary.scenes.values(), strict=False):
        rows = []
        for scene, sums in scenes.items():
            found = sums.figures(evaluation.averaging)
            rows.append(
                (
                    scene,
                    sums.told("all"),
                    written(found["all"].epe),
                    *(written(found[r].epe) if r in found else "" for r in ("noc", "occ")),
                    written(found["all"].px3, 2),
                    written(found["all"].fl, 2),
                )
            )
        rows.sort(key=lambda row: str(row[0]))
        header = ("sequence", "pairs", "EPE, px", "noc", "occ", "> 3 px, %", "Fl, %")
        listed = html.table(header, rows)
        if several:
            shown = " open" if len(rows) <= 30 else ""
            listed = f"<details{shown}><summary>{html.escape(title)}</summary>{listed}</details>"
        parts.append(listed)
    return html.section("Sequences", *parts)


def _pairs(title: str, some: list[Ranked], estimator: FlowEstimator, folder: Path) -> str:
    if not some:
        return ""
    cards = []
    for ranked in some:
        sample = ranked.example.source.load()
        flow = shown_flow(folder / SHOWN / f"{ranked.key}.flo", sample, estimator)
        told = f"{written(ranked.epe)} px mean error"
        attention = attention_figures(estimator, sample, flow, choose_queries(sample))
        figures = pair_figures(sample, {"": flow})
        cards.append(html.card(ranked.example.title, told, figures, attention))
    return html.section(title, *cards, lead=EXPLAINED if estimator.config.aggregates else "")

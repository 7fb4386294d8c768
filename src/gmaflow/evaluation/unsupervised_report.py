"""The page about footage whose truth nobody knows."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from gmaflow import viz
from gmaflow.errors import FlowFileError, counted
from gmaflow.evaluation import html
from gmaflow.evaluation.evaluating import SHOWN
from gmaflow.evaluation.judging import can_be_kept
from gmaflow.evaluation.report import written
from gmaflow.evaluation.unsupervised import JudgedPair, average
from gmaflow.inference import BidirectionalFlow, FlowEstimator, read_flow
from gmaflow.inference.visibility import combine
from gmaflow.io import atomic_write, read_image

PAGE = "unsupervised.html"
_SHOWN_PAIRS = 3


def write_page(
    folder: Path, title: str, judged: list[JudgedPair], estimator: FlowEstimator
) -> Path:
    """Write a page with the averages and the pairs that the frames speak against most.

    The flow of those is kept, so that a repeated run need not estimate it again.
    """
    mean = average(one.found for one in judged)
    worst = sorted(judged, key=lambda one: -np.nan_to_num(one.found.photometric))[:_SHOWN_PAIRS]
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{counted(len(judged), "pair")}, judged by their own frames: no truth is '
        "known</p>",
        html.tiles(
            (name, written(asdict(mean)[name], 2), unit) for name, (unit, _) in MEANING.items()
        ),
        html.section(
            "What the figures are", html.table(("figure", "is"), _meanings(), text_columns=(0, 1))
        ),
        html.section("Pairs to look at", *(_card(one, folder / SHOWN, estimator) for one in worst)),
    ]
    with atomic_write(folder / PAGE) as temporary:
        temporary.write_text(html.page(title, "\n".join(body)), "utf-8")
    return folder / PAGE


MEANING = {
    "photometric": ("levels of 255", "difference after the flow has brought frame 2 onto frame 1"),
    "photometric_unmoved": ("levels of 255", "the same without any flow"),
    "inconsistency": ("px", "how far forward and back again leads from home, median"),
    "occluded": ("% of pixels", "not found in the second frame"),
    "resting": ("% of pixels", "the same in both frames; half or more: a static camera"),
    "drift": ("px", "mean flow on those pixels; it should be zero"),
}
"""Unit and meaning of each figure."""


def spoken(name: str) -> str:
    """Return a figure's name for people."""
    return name.replace("_", ", ")


def _meanings() -> list[tuple[str, str]]:
    return [(spoken(name), f"{meaning} ({unit})") for name, (unit, meaning) in MEANING.items()]


def _card(one: JudgedPair, folder: Path, estimator: FlowEstimator) -> str:
    image1, image2 = read_image(one.pair.image1), read_image(one.pair.image2)
    both = _shown_flow(folder / one.key, image1, image2, estimator)
    figures = [
        html.figure(image1, "first frame"),
        html.figure(image2, "second frame"),
        html.figure(both.forward.picture(legend=True), "flow"),
        html.figure(both.forward.warp(image2), "second frame brought back onto the first"),
        html.figure(
            viz.confidence_map(both.confidence), "agreement of both directions, light: full"
        ),
        html.figure(
            viz.occlusion_overlay(image1, both.occluded_in, both.occluded_out),
            "found hidden (orange), out of the frame (blue)",
        ),
    ]
    found = one.found
    told = f"photometric {found.photometric:.2f}, inconsistency {found.inconsistency:.2f} px"
    return html.card(f"{one.pair.scene} {one.pair.frame}", told, figures)


def _shown_flow(
    stem: Path,
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    estimator: FlowEstimator,
) -> BidirectionalFlow:
    """Read flow both ways that was kept for show, or make and keep it."""
    ahead, back = (stem.with_name(f"{stem.name}-{way}.flo") for way in ("forward", "backward"))
    try:
        return combine(read_flow(ahead), read_flow(back))
    except FlowFileError:
        both = estimator.bidirectional(image1, image2)
        if can_be_kept(both.forward, estimator):
            both.forward.save(ahead)
            both.backward.save(back)
        return both

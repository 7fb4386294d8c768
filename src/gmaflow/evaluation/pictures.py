"""A pair and its estimates as pictures of a page."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from gmaflow import viz
from gmaflow.data import FlowSample
from gmaflow.errors import FlowFileError
from gmaflow.evaluation import html
from gmaflow.evaluation.judging import can_be_kept
from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays


def pair_figures(
    sample: FlowSample, estimates: dict[str, Float32[np.ndarray, "h w 2"]]
) -> list[str]:
    """Draw a pair: frames, truth, each estimate, each error, and what is hidden."""
    assert sample.flow is not None
    assert sample.valid is not None
    scale = viz.largest_length(sample.flow, valid=sample.valid) or 1.0
    errors = [
        viz.largest_length(flow - sample.flow, valid=sample.valid) for flow in estimates.values()
    ]
    most = max(1.0, *errors)
    truth = viz.flow_to_image(sample.flow, max_length=scale, valid=sample.valid)
    figures = [
        html.figure(sample.image1, "first frame"),
        html.figure(sample.image2, "second frame"),
        html.figure(viz.add_legend(truth, scale), "true flow"),
    ]
    hidden = _hidden(sample)
    if len(estimates) > 1:  # beside the truth, so that estimates and errors share a row
        figures += hidden
    figures += [
        html.figure(viz.flow_to_image(flow, max_length=scale), name or "estimate")
        for name, flow in estimates.items()
    ]
    for name, flow in estimates.items():
        error = viz.error_map(flow, sample.flow, valid=sample.valid, max_error=most)
        of = f" of {name}" if name else ""
        figures.append(html.figure(error, f"error{of}, dark 0 to light {most:.3g} px"))
    return figures if len(estimates) > 1 else figures + hidden


def _hidden(sample: FlowSample) -> list[str]:
    if sample.occluded_out is None:
        return []
    inside = sample.occluded_in
    known = np.zeros_like(sample.occluded_out) if inside is None else inside
    picture = viz.occlusion_overlay(sample.image1, known, sample.occluded_out)
    told = "hidden (orange), out of the frame (blue)"
    return [html.figure(picture, told if inside is not None else "out of the frame (blue)")]


def shown_flow(
    path: Path, sample: FlowSample, estimator: FlowEstimator
) -> Float32[np.ndarray, "h w 2"]:
    """Read an estimate that was kept for show, or make and keep it."""
    try:
        return read_flow_arrays(path).array
    except FlowFileError:
        flow = estimator(sample.image1, sample.image2)
        if can_be_kept(flow, estimator):
            flow.save(path)
        return flow.array

"""`gmaflow demo`: flow of a built-in pair whose true motion is known."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import Estimator, EstimatorOptions, Json, Overwrite, parse
from gmaflow.errors import counted
from gmaflow.io import ensure_can_write, write_flow, write_image

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.example import ExamplePair
    from gmaflow.inference import FlowEstimator

PICTURE, TRUTH, FRAMES = "demo.png", "truth.flo", ("frame1.png", "frame2.png")


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Estimate the flow of a built-in pair and compare it with the truth.

    Writes demo.png, one picture of everything, and the pair itself (frame1.png, frame2.png,
    truth.flo) to try other commands on.

    Examples:
      gmaflow demo -o demo
      gmaflow demo -o demo --weights gma-sintel.pth
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("gmaflow-demo")
    """The folder to write to."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    overwrite: Overwrite = False
    json: Json = False


def main(args: list[str]) -> None:
    options = parse(DemoOptions, args, verb="demo")
    for name in (PICTURE, TRUTH, *FRAMES):
        ensure_can_write(options.output / name, options.overwrite)

    from gmaflow.example import load_example

    example = load_example()
    picture, error = compare(example, options.estimator.make())

    write_image(options.output / FRAMES[0], example.image1)
    write_image(options.output / FRAMES[1], example.image2)
    write_flow(options.output / TRUTH, example.flow.array)
    write_image(options.output / PICTURE, picture)
    if options.json:
        report = {"picture": str(options.output / PICTURE), "mean_error": error}
        print(json.dumps(report, indent=2))
        return
    print(f"wrote {options.output / PICTURE}: the mean error of the estimate is {error:.2f} px")


def compare(example: "ExamplePair", estimator: "FlowEstimator") -> tuple["np.ndarray", float]:
    """Draw the estimate next to the truth; also return the mean end-point error."""
    from gmaflow import viz
    from gmaflow.weights import describe

    both = estimator.bidirectional(example.image1, example.image2)
    estimate, truth = both.forward.array, example.flow.array
    error = both.forward.mean_error(example.flow)
    scale = example.flow.statistics().max_length
    name = describe(estimator.config)
    picture = viz.panel(
        [
            example.image1,
            example.flow.picture(max_length=scale, legend=True),
            viz.occlusion_overlay(example.image1, example.occluded_in, example.occluded_out),
            viz.error_map(estimate, truth),
            both.forward.picture(max_length=scale, legend=True),
            viz.occlusion_overlay(example.image1, both.occluded_in, both.occluded_out),
        ],
        [
            "frame 1",
            "true flow",
            "truly hidden in frame 2 (orange), out of it (blue)",
            f"error, mean {error:.2f} px",
            f"flow by {name}, {counted(estimator.iters, 'iteration')}",
            "hidden, by forward-backward check",
        ],
        columns=3,
    )
    return picture, error

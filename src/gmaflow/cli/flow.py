"""`gmaflow flow`: the flow of a pair of images, or of a folder of frames."""

import json
import sys
import time
from dataclasses import asdict, replace

from gmaflow.cli.flow_folder import run_folder
from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.options import parse
from gmaflow.cli.outputs import (
    check_formats,
    file_paths,
    folder_paths,
    is_folder,
    refuse_existing,
    refuse_inputs,
    refuse_two_formats,
    write_parts,
)
from gmaflow.cli.pairs import estimate_pair, full_scale, how_estimated, settings
from gmaflow.errors import NOT_WHOLE, FlowError, ImageError, say
from gmaflow.io.sizes import check_same_size


def main(args: list[str]) -> None:
    """Run the verb."""
    options = parse(FlowOptions, args, verb="flow")
    options.check()
    started = time.perf_counter()
    if len(options.inputs) == 1:
        report = run_folder(options)
    elif len(options.inputs) == 2:
        report = run_pair(options)
    else:
        raise FlowError(f"{len(options.inputs)} inputs were given; give two images, or one folder")
    report["seconds"] = round(time.perf_counter() - started, 2)
    print(json.dumps(report, indent=2) if options.json else sentence(report))
    if report.get("skipped"):
        sys.exit(NOT_WHOLE)


def run_pair(options: FlowOptions) -> dict[str, object]:
    """Estimate and write one pair."""
    first, second = options.inputs
    if options.warm_start or options.resume:
        raise FlowError("--warm-start and --resume are for folders of frames, not for one pair")
    for path in options.inputs:
        if path.is_dir():
            raise ImageError(f"{path} is a folder; give two images, or one folder alone")
    points = options.points
    if is_folder(options.target):
        paths = folder_paths(options.output, ("flow", "flow"), options.extras, options.only)
    elif options.only is not None:
        refuse_two_formats(options.output)
    else:
        paths = file_paths(options.output, options.extras)
    check_formats(paths)
    sources = options.inputs if options.truth is None else (*options.inputs, options.truth)
    refuse_inputs(paths.values(), sources)
    refuse_existing(paths.values(), overwrite=options.overwrite)

    from gmaflow.inference import load_image, read_flow

    frames = load_image(first), load_image(second)
    check_same_size({str(first): frames[0], str(second): frames[1]}, error=ImageError)
    truth = None if options.truth is None else read_flow(options.truth)
    if truth is not None and truth.array.shape[:2] != frames[0].shape[:2]:
        raise FlowError(f"{options.truth} is not of the images' size; give the truth of this pair")
    if truth is not None and truth.valid is not None and not truth.valid.any():
        raise FlowError(f"{options.truth} knows the motion of no pixel; give another, or none")
    estimator = options.estimator.make()
    result = estimate_pair(estimator, *frames, backward=options.backward, points=points)
    result = replace(result, truth=truth, max_length=options.max_length)
    error = None if truth is None else result.flow.mean_error(truth)
    write_parts(result, paths)
    return {
        **settings(estimator),
        "inputs": [str(path) for path in options.inputs],
        "outputs": {part.value: str(path) for part, path in paths.items()},
        "statistics": asdict(result.flow.statistics()),
        "mean_error": error,
    }


def sentence(report: dict[str, object]) -> str:
    """Return a report as a person would say it."""
    outputs = report["outputs"]
    assert isinstance(outputs, dict)
    written = ", ".join(outputs.values())
    how = how_estimated(report)
    statistics = report.get("statistics")
    if isinstance(statistics, dict):
        lengths = "mean {mean_length:.2f} px, longest {max_length:.2f} px".format(**statistics)
        error = report.get("mean_error")
        told = "" if error is None else f", {error:.2f} px off the truth"
        return f"wrote {written}: {lengths}{told} ({how})"
    skipped = report["skipped"]
    assert isinstance(skipped, list)
    if skipped:
        say(f"gmaflow: {len(skipped)} of {report['pairs']} pairs were skipped")
    there = f", {report['already_there']} were there already" if report["already_there"] else ""
    return (
        f"wrote {report['estimated']} of {report['pairs']} pairs to {written}{there}"
        f"{full_scale(report['max_length'])} ({how})"
    )

"""`gmaflow export`: writes a network as a file that runs without gmaflow."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gmaflow.cli.options import Json, Overwrite, Quiet, WeightsOptions, parse
from gmaflow.errors import print_stderr
from gmaflow.export import ExportConfig


@dataclass(frozen=True, kw_only=True)
class ExportOptions(WeightsOptions):
    """Write a network as a file that other programs run: ONNX, or a program of torch.export.

    The program takes two RGB images as uint8 [batch, 3, height, width] and returns their flow in
    pixels, float32 [batch, 2, height, width]; scaling and padding are inside. The file is run with
    ONNX Runtime or torch, and verified against gmaflow before it is saved.

    Examples:
      gmaflow export -o gma.onnx --size 480x640
      gmaflow export -o gma.onnx --dynamic --batch any
      gmaflow export -o gma.onnx --size 480x640 --precision fp16
      gmaflow export -o gma.pt2 --weights gma-sintel.pth --iters 32
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
    """The file to write: .onnx, or .pt2 for torch.export.load."""
    config: Annotated[ExportConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=ExportConfig)
    overwrite: Overwrite = False
    quiet: Quiet = False
    json: Json = False


def main(args: list[str]) -> None:
    options = parse(ExportOptions, args, verb="export")

    from gmaflow.export import as_json, as_text, check_output, export
    from gmaflow.weights import find_checkpoint

    check_output(options.output, precision=options.config.precision, overwrite=options.overwrite)
    checkpoint = find_checkpoint(options.weights, model=options.model)
    if not options.quiet:
        print_stderr("gmaflow: tracing, writing and checking; this can take a minute or more")
    report = export(checkpoint, options.output, options.config, overwrite=options.overwrite)
    print(as_json(report) if options.json else as_text(report))

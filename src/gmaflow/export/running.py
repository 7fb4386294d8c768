"""Export a network: trace, write, read again, compare, and only then leave the file."""

from pathlib import Path

from gmaflow.export.checking import check_room, compare
from gmaflow.export.config import ExportConfig, ExportPrecision
from gmaflow.export.formats import Contract, Format, format_of, quiet_exporters, runtime_of
from gmaflow.export.program import FlowProgram, trace
from gmaflow.export.report import ExportReport, ports
from gmaflow.inference import FlowEstimator
from gmaflow.io import atomic_write, ensure_can_write
from gmaflow.runtime.device import DTYPES
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint, describe

TRIED_SIZES = ((384, 512), (203, 322))
"""Where the size is left open: two others than the one it was traced with, one of them odd."""
TRIED_BATCHES = (1, 3)
"""Where the batch is left open: two others than the one it was traced with."""


def export(
    checkpoint: Checkpoint, path: Path | str, config: ExportConfig, *, overwrite: bool = False
) -> ExportReport:
    """Write a network as a program that runs without gmaflow, and check that it is right.

    Args:
        checkpoint: The network.
        path: The file to write, `.onnx` or `.pt2`.
        config: What images the program takes, and how it computes.
        overwrite: Replace the file if it exists.

    Raises:
        FlowError: The file cannot be written, or what it would hold cannot be checked or is wrong.
    """
    path = Path(path)
    wanted = check_output(path, precision=config.precision, overwrite=overwrite)
    size, batch = config.fixed_size, config.fixed_batch
    tried = runs_to_try(size, batch)
    for height_width, pairs in tried:
        check_room(checkpoint.config, batch=pairs, size=height_width, warm_start=config.warm_start)
    inputs, outputs = ports(batch=batch, size=size, warm_start=config.warm_start)
    contract = Contract(inputs, outputs, about(checkpoint, config))

    with atomic_write(path) as temporary:
        network = checkpoint.build().to(DTYPES[config.precision])
        program = FlowProgram(network, iters=config.iters)
        with quiet_exporters():
            traced = trace(program, batch=batch, size=size, warm_start=config.warm_start)
        temporary.write_bytes(wanted.encode(traced, contract))
        run = wanted.load(temporary)
        estimator = FlowEstimator(checkpoint, iters=config.iters, device="cpu", precision="fp32")
        differences = tuple(
            compare(
                run,
                estimator,
                batch=pairs,
                size=height_width,
                precision=config.precision,
                warm_start=config.warm_start,
            )
            for height_width, pairs in tried
        )
    return ExportReport(
        file=path,
        format=wanted.name,
        bytes=path.stat().st_size,
        model=describe(checkpoint.config),
        iters=config.iters,
        precision=config.precision,
        inputs=inputs,
        outputs=outputs,
        checked_with=runtime_of(wanted),
        differences=differences,
    )


def runs_to_try(
    size: tuple[int, int] | None, batch: int | None
) -> list[tuple[tuple[int, int], int]]:
    """Return sizes and batches to check a file with; what is left open (None) is tried twice."""
    runs = 2 if size is None or batch is None else 1
    sizes = TRIED_SIZES if size is None else (size,) * runs
    batches = TRIED_BATCHES if batch is None else (batch,) * runs
    return list(zip(sizes, batches, strict=True))


def check_output(path: Path, *, precision: ExportPrecision, overwrite: bool) -> Format:
    """Refuse a file that will not be written, before any work is done for it.

    Raises:
        FlowError: Its format is not known, not installed or not in that precision, or it is there
            already.
    """
    wanted = format_of(path, precision)
    ensure_can_write(path, overwrite)
    return wanted


def about(checkpoint: Checkpoint, config: ExportConfig) -> dict[str, str]:
    """Return what a file tells of the network in it."""
    card = checkpoint.card
    return {
        "made_by": f"gmaflow {__version__}",
        "model": describe(checkpoint.config),
        "iterations": str(config.iters),
        "precision": config.precision,
        "weights": card.title,
        "trained_on": card.trained_on,
        "licence": card.licence,
        "use": (
            "Give two RGB images as uint8 [batch, 3, height, width]; scaling and padding are "
            "inside. The flow is in pixels at the images' size."
        ),
    }

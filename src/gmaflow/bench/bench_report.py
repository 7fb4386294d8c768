"""Writes the figures as Markdown tables, as JSON, and as a plot."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from gmaflow.bench.cases import BenchConfig, Distance
from gmaflow.bench.measuring import TRAINING_BATCH, TRAINING_SIZE, BenchResult, Measured, Peak
from gmaflow.errors import OutputError, counted
from gmaflow.io import ensure_can_write, write_image
from gmaflow.io.paths import write_text
from gmaflow.viz.plots import Series, line_plot, require_matplotlib

GB = 1e9
EMPTY_CELL = "-"


def as_text(result: BenchResult) -> str:
    """Write all tables, and the machine they were measured on."""
    machine = result.machine
    threads = counted(int(machine["threads"]), "thread")
    about = (
        f"{machine['device']}, {machine['processor']}, {threads} of "
        f"{machine['cores']} cores; gmaflow {machine['gmaflow']}, torch {machine['torch']}, "
        f"Python {machine['python']}"
    )
    about += "".join(f", {name} {machine[name]}" for name in ("cuda", "triton") if name in machine)
    config = result.config
    how = (
        f"{result.precision}, back end {result.backend}, batch {config.batch}, "
        f"{counted(config.iters, 'iteration')}, {counted(config.warm_up, 'warm-up round')}"
    )
    parts = [about, how, main_table(result), ratio_table(result), overhead_table(result)]
    return "\n\n".join(part for part in parts if part)


def main_table(result: BenchResult) -> str:
    """Write the figures of every case."""
    header = ["size", "model", "computed by", "parameters", "rounds", "median ms", "p95 ms"]
    header += ["CPU s", "pairs/s", "peak GB", "reserved GB", "first call s"]
    rows = [row_of(entry) for entry in result.measured]
    if result.config.check:
        header += ["px from float32", "largest"]
        rows = [
            row + distance_cells(entry.distance)
            for row, entry in zip(rows, result.measured, strict=True)
        ]
    return table(header, rows)


def row_of(entry: Measured) -> list[str]:
    """Write the figures of one case."""
    case, times = entry.case, entry.times
    return [
        case.size,
        case.model,
        case.way,
        f"{entry.parameters:,}",
        str(len(times.wall)),
        f"{1000 * times.median:.1f}",
        f"{1000 * times.p95:.1f}",
        f"{times.median_cpu:.2f}",
        f"{case.batch / times.median:.2f}",
        gigabytes(entry.peak.used if entry.peak else None),
        gigabytes(entry.peak.reserved if entry.peak else None),
        f"{entry.peak.first_s:.1f}" if entry.peak else EMPTY_CELL,
    ]


def distance_cells(distance: Distance | None) -> list[str]:
    """Write the distance of a flow from the reference."""
    if distance is None:
        return [EMPTY_CELL, EMPTY_CELL]
    return [f"{distance.mean:.2g}", f"{distance.largest:.2g}"]


def ratio_table(result: BenchResult) -> str:
    """Write the relative cost of the published algorithm; empty if it was not measured."""
    rows = [
        [
            ratio.size,
            ratio.model,
            f"{ratio.wall:.2f}x",
            f"{ratio.cpu:.2f}x",
            EMPTY_CELL if ratio.memory is None else f"{ratio.memory:.2f}x",
        ]
        for ratio in result.ratios()
    ]
    return table(["size", "model", "published: time", "CPU s", "memory"], rows) if rows else ""


def overhead_table(result: BenchResult) -> str:
    """Write the paper's table of overhead; empty if it was not requested."""
    if not result.training:
        return ""
    size = result.measured[0].case.size
    own = (
        entry
        for entry in result.measured
        if entry.case.way == "gmaflow" and entry.case.size == size
    )
    by_model = {entry.case.model: entry for entry in own}
    height, width = TRAINING_SIZE
    rows: dict[str, list[float | None]] = {
        "parameters, millions": [entry.parameters / 1e6 for entry in by_model.values()],
        f"time at {size}, ms": [1000 * entry.times.median for entry in by_model.values()],
        f"CPU-seconds at {size}": [entry.times.median_cpu for entry in by_model.values()],
        f"training, batch {TRAINING_BATCH} at {height}x{width}, GB": [
            peak.used / GB if peak else None for peak in result.training.values()
        ],
    }
    lines = []
    for name, figures in rows.items():
        cells = [EMPTY_CELL if figure is None else f"{figure:.2f}" for figure in figures]
        first, last = figures[0], figures[-1]
        lines.append([name, *cells, f"{last / first:.2f}x" if first and last else EMPTY_CELL])
    text = table(["", *by_model, "ratio"], lines)
    if None in result.training.values():
        text += "\n\nTraining memory is measured only on a CUDA device."
    return text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table with aligned columns."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| "
        + " | ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def gigabytes(number: float | None) -> str:
    """Write a number of bytes in GB."""
    return EMPTY_CELL if number is None else f"{number / GB:.3f}"


def as_json(result: BenchResult) -> str:
    """Write everything, including the seconds of each round."""
    measured = [
        {
            **asdict(entry.case),
            "precision": result.precision,
            "backend": result.backend,
            "parameters": entry.parameters,
            "warm_up": result.config.warm_up,
            "median_s": entry.times.median,
            "p95_s": entry.times.p95,
            "median_cpu_s": entry.times.median_cpu,
            "wall_s": entry.times.wall,
            "cpu_s": entry.times.cpu,
            **bytes_of(entry.peak),
            "from_float32_px": asdict(entry.distance) if entry.distance else None,
        }
        for entry in result.measured
    ]
    document = {
        "machine": result.machine,
        "measured": measured,
        "ratios": [asdict(ratio) for ratio in result.ratios()],
        "training": {model: bytes_of(peak) for model, peak in result.training.items()},
    }
    return json.dumps(document, indent=2) + "\n"


def bytes_of(peak: Peak | None) -> dict[str, float | None]:
    """Return a peak as plain values; null if it was not measured."""
    return {
        "peak_bytes": peak.used if peak else None,
        "reserved_bytes": peak.reserved if peak else None,
        "first_s": peak.first_s if peak else None,
    }


def plot(result: BenchResult) -> UInt8[np.ndarray, "_ _ 3"]:
    """Plot time and memory over the size, with a curve for each model and algorithm."""
    milliseconds = [1000 * entry.times.median for entry in result.measured]
    pictures = [curves(result, milliseconds, "milliseconds")]
    peaks = [entry.peak.used / GB for entry in result.measured if entry.peak]
    if len(peaks) == len(result.measured):
        pictures.append(curves(result, peaks, "peak memory, GB"))
    return np.concatenate(pictures)


def curves(result: BenchResult, heights: Sequence[float], label: str) -> UInt8[np.ndarray, "_ _ 3"]:
    """Plot one figure of all cases over their size."""
    names = [f"{entry.case.model}, {entry.case.way}" for entry in result.measured]
    pixels = [entry.case.height * entry.case.width / 1e6 for entry in result.measured]
    series = []
    for name in dict.fromkeys(names):
        points = [i for i, other in enumerate(names) if other == name]
        x, y = (np.array([values[i] for i in points]) for values in (pixels, heights))
        series.append(Series(name, x, y, dashed=name.endswith("published")))
    return line_plot(series, x_label="megapixels", y_label=label)


def output_files(config: BenchConfig, output: Path | None, *, overwrite: bool) -> list[Path]:
    """Return the files that a run will write, and check them before anything is measured."""
    if output is None:
        if config.sweep:
            raise OutputError("a sweep needs an output for its plot; add -o sweep.json")
        return []
    if output.suffix != ".json":
        raise OutputError(f"{output}: the output is JSON; give a name that ends in .json")
    files = [output]
    if config.sweep:
        require_matplotlib()
        files.append(output.with_suffix(".png"))
    for file in files:
        ensure_can_write(file, overwrite)
    return files


def write_files(result: BenchResult, files: Sequence[Path]) -> list[Path]:
    """Write the figures, and the plot of a complete sweep; return the written files."""
    written = [file for file in files if file.suffix == ".json" or not result.interrupted]
    for file in written:
        if file.suffix == ".json":
            write_text(file, as_json(result))
        else:
            write_image(file, plot(result))
    return written

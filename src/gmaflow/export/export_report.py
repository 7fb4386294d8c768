"""Describes an exported file: inputs, outputs, and differences from the estimator."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gmaflow.errors import counted


@dataclass(frozen=True)
class Port:
    """An input or an output."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """Dynamic sides are names."""
    meaning: str

    def describe(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype} [{shape}], {self.meaning}"


@dataclass(frozen=True)
class Difference:
    """The difference of the file's flow from the estimator's on the built-in example."""

    height: int
    width: int
    batch: int
    mean: float
    """Mean length of the difference, in pixels."""
    largest: float


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """A file that was written and verified."""

    file: Path
    format: str
    bytes: int
    model: str
    iters: int
    precision: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    checked_with: str
    """The runtime that ran the file."""
    differences: tuple[Difference, ...]

    @property
    def largest_difference(self) -> float:
        """The largest difference from the estimator in all checked runs, in pixels."""
        return max(difference.largest for difference in self.differences)


def as_json(report: ExportReport) -> str:
    return json.dumps({**asdict(report), "file": str(report.file)}, indent=2)


def as_text(report: ExportReport) -> str:
    lines = [
        f"wrote {report.file}: {report.model}, {counted(report.iters, 'iteration')}, "
        f"{report.precision}, {report.format}, {report.bytes / 2**20:.1f} MiB"
    ]
    lines += [f"  in   {port.describe()}" for port in report.inputs]
    lines += [f"  out  {port.describe()}" for port in report.outputs]
    lines += [
        f"  checked with {report.checked_with} on {counted(difference.batch, 'pair')} at "
        f"{difference.height}x{difference.width}: differs from the estimator by "
        f"{difference.mean:.1e} px on average, at most {difference.largest:.1e} px"
        for difference in report.differences
    ]
    return "\n".join(lines)


def ports(
    *, batch: int | None, size: tuple[int, int] | None, warm_start: bool
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the inputs and outputs of a program; a batch or size of None is dynamic."""
    pairs, (height, width) = batch or "batch", size or ("height", "width")
    inputs = [
        Port(name, "uint8", (pairs, 3, height, width), f"the {which} frame, RGB in 0..255")
        for name, which in (("image1", "first"), ("image2", "second"))
    ]
    in_pixels = "in pixels, x to the right, then y down"
    flow = Port(
        "flow", "float32", (pairs, 2, height, width), f"motion from image1 to image2 {in_pixels}"
    )
    if warm_start:
        meaning = f"flow of the previous pair {in_pixels}, for a warm start; zeros for none"
        inputs.append(replace(flow, name="previous", meaning=meaning))
    return tuple(inputs), (flow,)

"""What an exported file takes, gives, and how far it is from the estimator."""

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
    """A side that is left open goes by its name."""
    meaning: str

    def told(self) -> str:
        """Return it as a person would write it down."""
        shape = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype} [{shape}], {self.meaning}"


@dataclass(frozen=True)
class Difference:
    """How far the file's flow is from the estimator's on the built-in example, in one run."""

    height: int
    width: int
    batch: int
    mean: float
    """Of the lengths of the differences, in pixels."""
    largest: float


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """A file that was written, read again and found right."""

    file: Path
    format: str
    bytes: int
    model: str
    iters: int
    precision: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    checked_with: str
    """The independent runtime that ran the file."""
    differences: tuple[Difference, ...]

    @property
    def largest_difference(self) -> float:
        """The largest difference from the estimator in all runs that were tried, in pixels."""
        return max(difference.largest for difference in self.differences)


def as_json(report: ExportReport) -> str:
    """Return a report for programs."""
    return json.dumps({**asdict(report), "file": str(report.file)}, indent=2)


def as_text(report: ExportReport) -> str:
    """Return a report for people."""
    lines = [
        f"wrote {report.file}: {report.model}, {counted(report.iters, 'iteration')}, "
        f"{report.precision}, {report.format}, {report.bytes / 2**20:.1f} MiB"
    ]
    lines += [f"  in   {port.told()}" for port in report.inputs]
    lines += [f"  out  {port.told()}" for port in report.outputs]
    lines += [
        f"  run by {report.checked_with} on {counted(found.batch, 'pair')} at "
        f"{found.height}x{found.width}, it differs from the estimator by {found.mean:.1e} px on "
        f"average, {found.largest:.1e} px at most"
        for found in report.differences
    ]
    return "\n".join(lines)


def ports(
    *, batch: int | None, size: tuple[int, int] | None, warm_start: bool
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the inputs and outputs of a program; a batch or a size of None is left open."""
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
        before = f"flow of the pair before {in_pixels}, to start from; zeros for none"
        inputs.append(replace(flow, name="previous", meaning=before))
    return tuple(inputs), (flow,)

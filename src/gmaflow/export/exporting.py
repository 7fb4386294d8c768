"""Exports a network: trace, write, run the file, compare with gmaflow, and only then keep it.

Legend: b batch, H W rows and columns of the images.
"""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from gmaflow.errors import FlowError, check_known
from gmaflow.example import load_example
from gmaflow.export.export_report import Difference, ExportReport, ports
from gmaflow.export.formats import (
    Contract,
    ExportPrecision,
    FlowMap,
    Images,
    Run,
    check_output,
    quiet_exporters,
)
from gmaflow.export.program import FlowProgram, trace
from gmaflow.inference import FlowEstimator
from gmaflow.inference.images import Padding
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.inference.warm_start import coarsen, forward_project
from gmaflow.io import atomic_write
from gmaflow.io.images import check_smallest, read_size
from gmaflow.model import STRIDE, MemoryPlan, NetworkConfig
from gmaflow.runtime.device import DTYPES, memory_budget, memory_text
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint, describe

DEFAULT_SIZE = (440, 1024)
CHECKED_SIZES = ((384, 512), (203, 322))
"""Sizes to check a dynamic size with: two that differ from the traced one, one of them odd."""
CHECKED_BATCHES = (1, 3)
"""Batches to check a dynamic batch with: two that differ from the traced one."""
MAX_MEAN_DIFFERENCE: dict[ExportPrecision, float] = {"fp32": 1e-2, "fp16": 5e-2}
"""Largest accepted mean difference from the estimator in float32, in pixels."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """The program's images, and how it computes."""

    # The string under a field is its documentation, also in `gmaflow export --help`.
    size: tuple[int, int] | str | None = None
    """Height and width of the images; 440x1024 by default."""
    dynamic: bool = False
    """Accept images of any height and width from 128 up."""
    batch: int | Literal["any"] = 1
    """Pairs at a time, or any."""
    iters: int = 12
    """Refinement steps; 12 suits the shipped weights, and more are slower."""
    precision: ExportPrecision = "fp32"
    """fp16: weights and layers in half precision, flow and correlation in float32; .onnx only."""
    warm_start: bool = False
    """Add a third input, the flow of the previous pair, as initialization; zeros for none."""

    def __post_init__(self) -> None:
        check_known("precision", self.precision, get_args(ExportPrecision))
        if self.batch != "any" and self.batch < 1:
            raise FlowError(f"batch is {self.batch}; give at least 1, or any")
        if self.iters < 1:
            raise FlowError(f"iters is {self.iters}; give at least 1")
        if self.dynamic and self.size:
            raise FlowError(
                "a size and a dynamic size exclude each other; give --size or --dynamic"
            )
        check_smallest(self.fixed_size or DEFAULT_SIZE)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Height and width of the images; None if dynamic."""
        size = None if self.dynamic else self.size or DEFAULT_SIZE
        return read_size(size) if isinstance(size, str) else size

    @property
    def fixed_batch(self) -> int | None:
        """Pairs at a time; None if dynamic."""
        return None if self.batch == "any" else self.batch


def export(
    checkpoint: Checkpoint, path: Path | str, config: ExportConfig, *, overwrite: bool = False
) -> ExportReport:
    """Write a network as a program that runs without gmaflow, and verify its flow.

    Args:
        checkpoint: The network.
        path: The file to write, `.onnx` or `.pt2`.
        config: The images that the program takes, and how it computes.
        overwrite: Replace the file if it exists.

    Raises:
        FlowError: the file cannot be written, or its flow is wrong or cannot be checked.
    """
    path = Path(path)
    file_format = check_output(path, precision=config.precision, overwrite=overwrite)
    size, batch = config.fixed_size, config.fixed_batch
    checked = runs_to_check(size, batch)
    for height_width, pairs in checked:
        check_memory(
            checkpoint.config, batch=pairs, size=height_width, warm_start=config.warm_start
        )
    inputs, outputs = ports(batch=batch, size=size, warm_start=config.warm_start)
    contract = Contract(inputs, outputs, metadata(checkpoint, config))

    with atomic_write(path) as file:
        network = checkpoint.build().to(DTYPES[config.precision])
        program = FlowProgram(network, iters=config.iters)
        with quiet_exporters():
            traced = trace(program, batch=batch, size=size, warm_start=config.warm_start)
        content = file_format.encode(traced, contract)
        file.write(content)
        run = file_format.load(content)
        estimator = FlowEstimator(checkpoint, iters=config.iters, device="cpu", precision="fp32")
        differences = tuple(
            check_flow(
                run,
                estimator,
                batch=pairs,
                size=height_width,
                precision=config.precision,
                warm_start=config.warm_start,
            )
            for height_width, pairs in checked
        )
    return ExportReport(
        file=path,
        format=file_format.name,
        bytes=path.stat().st_size,
        model=describe(checkpoint.config),
        iters=config.iters,
        precision=config.precision,
        inputs=inputs,
        outputs=outputs,
        checked_with=f"{file_format.runtime} {version(file_format.runtime)}",
        differences=differences,
    )


def runs_to_check(
    size: tuple[int, int] | None, batch: int | None
) -> list[tuple[tuple[int, int], int]]:
    """Return sizes and batches to check a file with: two if either is dynamic (None)."""
    runs = 2 if size is None or batch is None else 1
    sizes = CHECKED_SIZES if size is None else (size,) * runs
    batches = CHECKED_BATCHES if batch is None else (batch,) * runs
    return list(zip(sizes, batches, strict=True))


def metadata(checkpoint: Checkpoint, config: ExportConfig) -> dict[str, str]:
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


def check_memory(
    config: NetworkConfig, *, batch: int, size: tuple[int, int], warm_start: bool = False
) -> None:
    """Refuse a size that cannot be checked here: exported programs keep everything in memory."""
    padding = Padding.to_stride(*size)
    height = size[0] + padding.top + padding.bottom
    width = size[1] + padding.left + padding.right
    need = bytes_needed(Computation(config), MemoryPlan(), batch=batch, height=height, width=width)
    if warm_start:  # the distances of `traceable_warm_start`, and their two addends
        need += 3 * 4 * batch * (height * width // STRIDE**2) ** 2
    free = memory_budget(torch.device("cpu"))
    if need > free:
        raise FlowError(
            f"checking the file at {size[0]}x{size[1]} takes about {memory_text(need)}, but only "
            f"{memory_text(free)} are free; give a smaller --size or --batch"
        )


def check_flow(
    run: Run,
    estimator: FlowEstimator,
    *,
    batch: int,
    size: tuple[int, int],
    precision: ExportPrecision = "fp32",
    warm_start: bool = False,
) -> Difference:
    """Compare a file's flow with the estimator's, on the built-in example.

    With a warm start, the first pair has one, and the others have none.
    """
    images1, images2 = example_batch(batch, size)
    inputs: list[Images | FlowMap] = [images1, images2]
    start = None
    if warm_start:
        inputs.append(example_previous(batch, size))
        padded = Padding.to_stride(*size).pad(torch.from_numpy(inputs[-1]))
        start = forward_project(coarsen(padded))
    tensors = (torch.from_numpy(images).float() / 255 for images in (images1, images2))
    expected = estimator.batch(*tensors, start=start).flow.numpy()
    length = np.linalg.norm(run(inputs) - expected, axis=1)
    difference = Difference(*size, batch, mean=float(length.mean()), largest=float(length.max()))
    if not difference.mean <= MAX_MEAN_DIFFERENCE[precision]:  # so that NaN is refused, too
        raise FlowError(
            f"the exported program's flow differs by {difference.mean:.3g} px on average from the "
            f"estimator's at {size[0]}x{size[1]}, which is more than rounding; no file was written"
        )
    return difference


def example_previous(batch: int, size: tuple[int, int]) -> FlowMap:
    """Return flows of previous pairs: a few pixels for the first, zeros for the others."""
    flow = np.zeros((batch, 2, *size), np.float32)
    rows, columns = np.indices(size, dtype=np.float32) / 8
    flow[0] = 6 * np.sin(rows), 9 * np.cos(columns)
    return flow


def example_batch(
    batch: int, size: tuple[int, int]
) -> tuple[UInt8[np.ndarray, "b 3 H W"], UInt8[np.ndarray, "b 3 H W"]]:
    """Return the built-in pair at a size; every other pair has its frames swapped."""
    example = load_example()
    height, width = size
    frames = [
        np.asarray(Image.fromarray(frame).resize((width, height))).transpose(2, 0, 1)
        for frame in (example.image1, example.image2)
    ]
    firsts = np.stack([frames[number % 2] for number in range(batch)])
    seconds = np.stack([frames[1 - number % 2] for number in range(batch)])
    return firsts, seconds

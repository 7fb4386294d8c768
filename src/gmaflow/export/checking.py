"""Whether a file computes what the estimator does: on the built-in example, at a given size.

Legend: b batch, H W rows and columns of the images.
"""

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from gmaflow.errors import FlowError
from gmaflow.example import load_example
from gmaflow.export.config import ExportPrecision
from gmaflow.export.formats import FlowMap, Images, Run
from gmaflow.export.report import Difference
from gmaflow.inference import FlowEstimator
from gmaflow.inference.images import Padding
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.inference.warm_start import coarsen, forward_project
from gmaflow.model import STRIDE, MemoryPlan, NetworkConfig
from gmaflow.runtime.memory import as_gigabytes, memory_budget

MOST_MEAN: dict[ExportPrecision, float] = {"fp32": 1e-2, "fp16": 5e-2}
"""Pixels by which a file's flow may differ from the estimator's, in float32, on average."""


def check_room(
    config: NetworkConfig, *, batch: int, size: tuple[int, int], warm_start: bool = False
) -> None:
    """Refuse a size that cannot be tried here: exported programs keep everything in memory.

    Raises:
        FlowError: It would take more memory than is free.
    """
    padding = Padding.to_stride(*size)
    height = size[0] + padding.top + padding.bottom
    width = size[1] + padding.left + padding.right
    need = bytes_needed(Computation(config), MemoryPlan(), batch=batch, height=height, width=width)
    if warm_start:  # the distances of `carry`, and what they are the sum of
        need += 3 * 4 * batch * (height * width // STRIDE**2) ** 2
    free = memory_budget(torch.device("cpu"))
    if need > free:
        raise FlowError(
            f"at {size[0]}x{size[1]} a run takes about {as_gigabytes(need)}, and to check the file "
            f"{as_gigabytes(free)} are free here; give a smaller --size or --batch"
        )


def compare(
    run: Run,
    estimator: FlowEstimator,
    *,
    batch: int,
    size: tuple[int, int],
    precision: ExportPrecision = "fp32",
    warm_start: bool = False,
) -> Difference:
    """Compare a file's flow with the estimator's.

    Args:
        run: Runs the file.
        estimator: What it should compute, in float32.
        batch: Pairs to try it with.
        size: Their height and width.
        precision: In which the file computes.
        warm_start: Whether the file takes the flow of the pair before; then the first pair starts
            from one, and the others from none.

    Raises:
        FlowError: They differ by more than rounding.
    """
    images1, images2 = example_batch(batch, size)
    inputs: list[Images | FlowMap] = [images1, images2]
    start = None
    if warm_start:
        inputs.append(example_previous(batch, size))
        padded = Padding.to_stride(*size).pad(torch.from_numpy(inputs[-1]))
        start = forward_project(coarsen(padded))
    tensors = (torch.from_numpy(images).float() / 255 for images in (images1, images2))
    wanted = estimator.batch(*tensors, start=start).flow.numpy()
    length = np.linalg.norm(run(inputs) - wanted, axis=1)
    found = Difference(*size, batch, mean=float(length.mean()), largest=float(length.max()))
    if not found.mean <= MOST_MEAN[precision]:  # so that NaN is refused too
        raise FlowError(
            f"the exported program's flow is {found.mean:.3g} px off the estimator's on average at "
            f"{size[0]}x{size[1]}, which is more than rounding; no file was left"
        )
    return found


def example_previous(batch: int, size: tuple[int, int]) -> FlowMap:
    """Return flows of the pairs before: a few pixels for the first, zeros for the others."""
    flow = np.zeros((batch, 2, *size), np.float32)
    rows, columns = np.indices(size, dtype=np.float32) / 8
    flow[0] = 6 * np.sin(rows), 9 * np.cos(columns)
    return flow


def example_batch(
    batch: int, size: tuple[int, int]
) -> tuple[UInt8[np.ndarray, "b 3 H W"], UInt8[np.ndarray, "b 3 H W"]]:
    """Return the built-in pair at a size, every other time with its frames exchanged."""
    example = load_example()
    height, width = size
    frames = [
        np.asarray(Image.fromarray(frame).resize((width, height))).transpose(2, 0, 1)
        for frame in (example.image1, example.image2)
    ]
    firsts = np.stack([frames[number % 2] for number in range(batch)])
    seconds = np.stack([frames[1 - number % 2] for number in range(batch)])
    return firsts, seconds

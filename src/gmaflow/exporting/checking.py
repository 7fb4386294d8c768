"""Whether a file computes what the estimator does: on the built-in example, at a given size.

Legend: b batch, H W rows and columns of the images.
"""

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from gmaflow.errors import FlowError
from gmaflow.example import load_example
from gmaflow.exporting.formats import Run
from gmaflow.exporting.report import Difference
from gmaflow.inference import FlowEstimator
from gmaflow.inference.memory import as_gigabytes, memory_budget
from gmaflow.inference.padding import Padding
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.model import MemoryPlan, NetworkConfig

MOST_MEAN = 1e-2
"""Pixels by which a file's flow may differ from the estimator's on average."""


def check_room(config: NetworkConfig, *, batch: int, size: tuple[int, int]) -> None:
    """Refuse a size that cannot be tried here: exported programs keep everything in memory.

    Raises:
        FlowError: It would take more memory than is free.
    """
    padding = Padding.to_stride(*size)
    need = bytes_needed(
        Computation(config),
        MemoryPlan(),
        batch=batch,
        height=size[0] + padding.top + padding.bottom,
        width=size[1] + padding.left + padding.right,
    )
    free = memory_budget(torch.device("cpu"))
    if need > free:
        raise FlowError(
            f"at {size[0]}x{size[1]} a run takes about {as_gigabytes(need)}, and to check the file "
            f"{as_gigabytes(free)} are free here; give a smaller --size or --batch"
        )


def compare(run: Run, estimator: FlowEstimator, *, batch: int, size: tuple[int, int]) -> Difference:
    """Compare a file's flow with the estimator's.

    Raises:
        FlowError: They differ by more than rounding.
    """
    images1, images2 = example_batch(batch, size)
    tensors = (torch.from_numpy(images).float() / 255 for images in (images1, images2))
    wanted = estimator.batch(*tensors).flow.numpy()
    length = np.linalg.norm(run(images1, images2) - wanted, axis=1)
    found = Difference(*size, mean=float(length.mean()), largest=float(length.max()))
    if not found.mean <= MOST_MEAN:  # so that NaN is refused too
        raise FlowError(
            f"the exported program's flow is {found.mean:.3g} px off the estimator's on average at "
            f"{size[0]}x{size[1]}, which is more than rounding; no file was left"
        )
    return found


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

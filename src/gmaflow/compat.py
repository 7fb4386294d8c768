"""Stand-ins for the optical flow of torchvision and OpenCV: change an import, keep the rest.

    from gmaflow.compat import Raft_Large_Weights, raft_large   # torchvision.models.optical_flow
    from gmaflow.compat import DenseOpticalFlow                 # cv2.DISOpticalFlow

`docs/migrating.md` shows both before and after. New code should use `FlowEstimator`.
"""

from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.images import ROUNDING, Padding, check_tensors
from gmaflow.inference.warm_start import coarsen
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.weights import Checkpoint, find_checkpoint


class OpticalFlowWeights(Enum):
    """Names of shipped weights, with torchvision's `transforms()`."""

    def transforms(self) -> "Normalise":
        """Return the preprocessing that the network expects."""
        return Normalise()


class Raft_Large_Weights(OpticalFlowWeights):  # noqa: N801  (torchvision's name)
    """Weights for `raft_large`."""

    DEFAULT = "raft"


class Gma_Weights(OpticalFlowWeights):  # noqa: N801  (as torchvision would call it)
    """Weights for `gma`."""

    DEFAULT = "gma"


class Normalise(nn.Module):
    """Scale images to -1..1, like torchvision's transforms for optical flow."""

    def forward(self, image1: Tensor, image2: Tensor) -> tuple[Tensor, Tensor]:
        """Take images in 0..255 (integers) or 0..1 (floats), single ones or batches."""
        return self.scale(image1), self.scale(image2)

    @staticmethod
    def scale(image: Tensor) -> Tensor:
        return 2 * (image if image.is_floating_point() else image.float() / 255) - 1


class NormalisedFlow(nn.Module):
    """A network with the call of torchvision's RAFT: normalised batches in, a list of flows out.

    Gradients reach the images and the parameters. Images of any size from 16 px are padded to
    multiples of 8.
    """

    def __init__(self, network: FlowNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        num_flow_updates: int = 12,
    ) -> list[Float[Tensor, "b 2 H W"]]:
        """Return the flow from `image1` to `image2` after each refinement.

        Args:
            image1: First frames, RGB in -1..1.
            image2: Second frames.
            num_flow_updates: Number of refinements, and length of the list.
        """
        if not isinstance(num_flow_updates, int) or num_flow_updates < 1:
            raise FlowError(f"num_flow_updates is {num_flow_updates!r}; give a whole number from 1")
        check_normalised(image1, image2)
        padding = Padding.to_stride(*image1.shape[-2:])
        first, second = (padding.pad((image + 1) / 2) for image in (image1, image2))
        prediction = self.network(first, second, iters=num_flow_updates, all_iterations=True)
        return [padding.crop(flow) for flow in prediction.flows]


def raft_large(
    *, weights: OpticalFlowWeights | Checkpoint | Path | str | None = None, progress: bool = True
) -> NormalisedFlow:
    """Return `raft`, called like torchvision's `raft_large`.

    Args:
        weights: `Raft_Large_Weights.DEFAULT` or "DEFAULT" for the weights that ship with gmaflow, a
            file (.safetensors, or a published .pth), or None for random weights.
        progress: Ignored: nothing is downloaded.
    """
    return make("raft", weights)


def raft_small(
    *, weights: Checkpoint | Path | str | None = None, progress: bool = True
) -> NormalisedFlow:
    """Return `raft-small`, called like torchvision's `raft_small`; no weights for it ship."""
    return make("raft-small", weights)


def gma(
    *, weights: OpticalFlowWeights | Checkpoint | Path | str | None = None, progress: bool = True
) -> NormalisedFlow:
    """Return `gma`, called like `raft_large`; its shipped weights are `Gma_Weights.DEFAULT`."""
    return make("gma", weights)


class DenseOpticalFlow:
    """Flow between frames as OpenCV has them: uint8, grey or BGR.

    It is used like `cv2.DISOpticalFlow`; see `create` and `calc`.
    """

    def __init__(self, estimator: FlowEstimator) -> None:
        self.estimator = estimator

    @classmethod
    def create(cls, weights: Path | str | None = None, **options: Any) -> "DenseOpticalFlow":  # noqa: ANN401
        """Load a network once, for any number of pairs.

        Args:
            weights: A file of weights or the name of shipped ones; default: `gma`.
            options: Any other argument of `FlowEstimator`, such as `iters` or `device`.
        """
        return cls(FlowEstimator(weights, **options))

    def calc(
        self,
        I0: np.ndarray,  # noqa: N803  (OpenCV's name)
        I1: np.ndarray,  # noqa: N803
        flow: Float32[np.ndarray, "h w 2"] | None = None,
    ) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow from `I0` to `I1` in pixels: x right, then y down.

        Args:
            I0: The first frame, uint8: height x width, or height x width x 3 in BGR.
            I1: The second frame, of the same shape.
            flow: As in OpenCV, an initial flow that the result is written to; or None.
        """
        first, second = bgr_to_rgb(I0, "the first frame"), bgr_to_rgb(I1, "the second frame")
        if flow is None:
            return self.estimator(first, second).array
        check_initial_flow(flow, I0.shape)
        if first.shape != second.shape:
            raise ImageError(f"the frames differ in shape: {first.shape} and {second.shape}")
        padding = Padding.of_kind(self.estimator.padding, *flow.shape[:2])
        start = coarsen(padding.pad(torch.tensor(flow).permute(2, 0, 1)[None]))
        images = (torch.from_numpy(x).permute(2, 0, 1)[None] / 255 for x in (first, second))
        result = self.estimator.batch(*images, start=start)
        flow[...] = result.flow[0].permute(1, 2, 0).cpu().numpy()
        return flow

    def collectGarbage(self) -> None:  # noqa: N802  (OpenCV's name)
        """Do nothing: no memory is kept between pairs."""


def make(
    model: str, weights: OpticalFlowWeights | Checkpoint | Path | str | None
) -> NormalisedFlow:
    """Build a network in training mode, as torchvision returns it."""
    if weights is None:
        return NormalisedFlow(FlowNetwork(MODELS[model]))
    if isinstance(weights, Checkpoint):
        checkpoint = weights
    elif isinstance(weights, OpticalFlowWeights) or weights == "DEFAULT":
        name = weights.value if isinstance(weights, OpticalFlowWeights) else None
        checkpoint = find_checkpoint(name, model=model)
    elif isinstance(weights, str | Path):
        checkpoint = find_checkpoint(weights, model=model)
    else:
        raise FlowError(
            f"weights is a {type(weights).__name__}; give 'DEFAULT', a file of weights or None "
            "(torchvision's weights fit only torchvision's network)"
        )
    return NormalisedFlow(checkpoint.build().requires_grad_().train())


def check_normalised(image1: Tensor, image2: Tensor) -> None:
    """Refuse batches that are not RGB in -1..1."""
    images = (image1, image2)
    with torch.no_grad():
        if all(isinstance(x, Tensor) and x.is_floating_point() and x.numel() for x in images):
            ends = torch.stack([end for image in images for end in torch.aminmax(image)]).tolist()
            # NaN is left to `check_tensors`.
            if min(ends) < -1 - ROUNDING or max(ends) > 1 + ROUNDING:
                raise ImageError(
                    f"the images hold values from {min(ends):g} to {max(ends):g}; scale them to "
                    "-1..1, as weights.transforms() does"
                )
            images = ((image1 + 1) / 2, (image2 + 1) / 2)
        check_tensors(*images)


def bgr_to_rgb(frame: np.ndarray, name: str) -> np.ndarray:
    """Return a frame of OpenCV as RGB, height x width x 3."""
    is_grey = isinstance(frame, np.ndarray) and (frame.ndim == 2 or frame.shape[2:] == (1,))
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8:
        what = frame.dtype if isinstance(frame, np.ndarray) else type(frame).__name__
        raise ImageError(f"{name} is {what}; give a uint8 array, as cv2.imread returns it")
    if is_grey:
        return np.repeat(frame.reshape(*frame.shape[:2], 1), 3, axis=2)
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ImageError(
            f"{name} has shape {frame.shape}; give height x width (grey), or height x width x 3 "
            "(BGR)"
        )
    return np.ascontiguousarray(frame[..., ::-1])


def check_initial_flow(flow: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse a flow that cannot be written to, or is of another size than the frames."""
    expected = (*shape[:2], 2)
    if not isinstance(flow, np.ndarray) or flow.dtype != np.float32 or flow.shape != expected:
        what = f"{flow.dtype} {flow.shape}" if isinstance(flow, np.ndarray) else type(flow).__name__
        raise FlowError(f"the flow is {what}; give None, or a float32 array of shape {expected}")

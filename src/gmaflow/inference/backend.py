"""One network, two ways to run it that mean the same; which one is chosen here and nowhere else.

The reference way is `FlowNetwork` itself, under autocast in half precision. The fast way is
`FastNetwork`: with kernels and recordings on CUDA, in plain torch on a CPU.
"""

from typing import Literal, Protocol, Unpack, cast, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError, check_known
from gmaflow.inference.fast import FastNetwork
from gmaflow.model import EncodedFrame, FlowNetwork, MatchOptions, Prediction
from gmaflow.runtime.kernels import has_kernels

Backend = Literal["auto", "reference", "fast"]


@runtime_checkable
class Runner(Protocol):
    """A network with all that it takes to run it for inference; see `FlowNetwork`."""

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`."""
        ...

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        ...

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""
        ...


class ReferenceRunner:
    """The network as it is; in half precision under autocast."""

    def __init__(self, network: FlowNetwork, dtype: torch.dtype) -> None:
        self.network = network
        self.dtype = dtype

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`."""
        with self._autocast(image1):
            return self.network(image1, image2, **how)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        with self._autocast(image):
            return self.network.encode_frame(image)

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""
        with self._autocast(features2):
            return self.network.match(first, features2, **how)

    def _autocast(self, like: Tensor) -> torch.autocast:
        half = self.dtype != torch.float32
        return torch.autocast(like.device.type, self.dtype if half else None, enabled=half)


def as_backend(text: str) -> Backend:
    """Return a text as a back end.

    Raises:
        FlowError: It is none.
    """
    check_known("back end", text, get_args(Backend))
    return cast("Backend", text)


def make_runner(network: FlowNetwork, dtype: torch.dtype, backend: Backend) -> Runner:
    """Return the network in a way to run it, on the device where it is.

    Raises:
        FlowError: The fast way is asked for where it cannot go.
    """
    device = network.features.conv_in.weight.device
    fast = can_be_fast(device, dtype)
    if as_backend(backend) == "fast" and not fast:
        raise FlowError(
            f"the fast back end computes on cuda, and on cpu in fp32, not on {device.type} in "
            f"{str(dtype).removeprefix('torch.')}; use another precision, or the back end auto"
        )
    if backend == "reference" or not fast:
        return ReferenceRunner(network, dtype)
    if device.type != "cuda":
        return FastNetwork(network, dtype=dtype)
    from gmaflow.inference.fast.recording import RecordedNetwork

    operations = None
    if has_kernels(device) and torch.version.hip is None:
        from gmaflow.inference.fast.triton_operations import TritonOperations

        operations = TritonOperations()
    return RecordedNetwork(FastNetwork(network, dtype=dtype, operations=operations))


def can_be_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether the fast way is there: CPUs convolve in half precision slowly or not at all."""
    return device.type == "cuda" or (device.type == "cpu" and dtype == torch.float32)

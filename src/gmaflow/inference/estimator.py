"""The estimator: images in, flow out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy.typing import ArrayLike
from torch import Tensor

from gmaflow.errors import FlowError, ImageError, WeightsError, counted
from gmaflow.inference.engine import (
    Backend,
    BatchEstimate,
    Engine,
    FrameAttention,
    Iterations,
    Pairs,
    Refinement,
    Watcher,
    as_backend,
    check_iters,
    check_watch,
    make_runner,
)
from gmaflow.inference.fast import RecordedNetwork
from gmaflow.inference.flow import BidirectionalFlow, Flow
from gmaflow.inference.images import (
    Frame,
    FrameLike,
    Frames,
    ImageArray,
    ImageLike,
    Padding,
    PaddingKind,
    as_padding_kind,
    check_pair,
    check_pairs,
    check_values,
    each_image,
    load_image,
    to_tensor,
    to_tensors,
)
from gmaflow.inference.mirroring import MirroredViews
from gmaflow.inference.sequence import CUT_THRESHOLD, SequenceFrame, estimate_pairs
from gmaflow.inference.tracking import Ignored, track
from gmaflow.inference.tracks import TrackedFrame
from gmaflow.inference.visibility import check_visibility, combine
from gmaflow.inference.warm_start import start_from
from gmaflow.io.images import check_positive
from gmaflow.model import EncodedFrame, MemoryPlan, NetworkConfig
from gmaflow.model.network import check_flow_init
from gmaflow.runtime.device import (
    DTYPES,
    Precision,
    as_bytes,
    as_precision,
    explaining_out_of_memory,
    has_kernels,
    memory_budget,
    pick_device,
    pick_fast_dtype,
    survive_forks,
)
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.runtime.kernels import warm_up_triton
from gmaflow.weights import Checkpoint, describe, find_checkpoint, find_config, hub

DEFAULT_ITERS = 12
"""Refinements for weights whose card does not name a number."""


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings:
    """Everything that an estimator's flow depends on, besides its weights and the images.

    Reports, and the records that tell whether a run may be resumed, are made from it, so a new
    option is part of them all. Its default must be how flow was estimated before.
    """

    model: str
    iters: int
    """The largest number of refinements."""
    precision: str
    device: str
    padding: PaddingKind = "sintel"
    backend: Backend = "auto"
    settled: float | None = None
    """The change in pixels at which refining stops (`--iters auto`); None: it does not stop."""
    max_memory: float | None = None
    """Bytes; None: the free memory. A limit can lead to tiles, which change the flow."""
    views: int = 1
    """How many mirrored views of each pair are averaged."""

    def chosen(self) -> dict[str, object]:
        """Return the options that differ from their defaults, by name."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(EstimatorSettings)
            if field.default not in (MISSING, getattr(self, field.name))
        }

    def as_json(self) -> dict[str, object]:
        """Return the settings as reports and records name them.

        Defaults are left out, so a folder that was started before an option existed can be resumed.
        """
        chosen = self.chosen()
        chosen.pop("settled", None)  # implied by `auto`
        return {
            "model": self.model,
            "iters": self.iters if self.settled is None else "auto",
            "device": self.device,
            "precision": self.precision,
            **chosen,
        }


class FlowEstimator:
    """Estimates optical flow with one network on one device.

    It keeps no state between pairs, so threads may share it, and it can be pickled for processes.
    Back ends hold copies of the weights: for other weights make another estimator.

    Args:
        weights: A checkpoint file or the name of shipped weights; by default those of the model.
        model: A model's name; by default what the weights are, or `gma`.
        iters: Refinements of each pair, or `auto`: up to 32, until the flow has settled. By default
            the number on the weights' card, else 12.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        precision: `auto`, `fp32`, `fp16`, `bf16`; `auto` is half precision on CUDA only.
        backend: `auto`, `fast`, or `reference`, which runs the plain PyTorch network.
        plan: What to keep in memory; by default whatever fits.
        max_memory: How much memory to plan with, beyond the loaded network: bytes, or a text such
            as `1.5GB`; by default what is free.
        padding: How to pad images to multiples of 8: as published for `sintel`, or for `kitti`.
        views: Mirrored views of each pair to average: 1, 2 (also left to right) or 4 (also upside
            down). More are more accurate, and take as many times longer.

    Raises:
        FlowError: The weights, the device or another argument cannot be used.
    """

    def __init__(  # noqa: PLR0913  (every choice a caller has)
        self,
        weights: str | Path | Checkpoint | None = None,
        *,
        model: str | None = None,
        iters: Iterations | None = None,
        device: str | torch.device = "auto",
        precision: Precision = "auto",
        backend: Backend = "auto",
        plan: MemoryPlan | None = None,
        max_memory: str | int | float | None = None,
        padding: PaddingKind = "sintel",
        views: int = 1,
    ) -> None:
        if plan is not None and max_memory is not None:
            raise FlowError(
                "use plan or max_memory, not both: a plan ignores how much memory there is"
            )
        if plan is not None and not isinstance(plan, MemoryPlan):
            raise FlowError(f"the plan is of type {type(plan).__name__}; use a MemoryPlan")
        survive_forks()  # loading weights starts torch's threads
        self.device = pick_device(device)
        if has_kernels(self.device):
            warm_up_triton()
        self.dtype = pick_fast_dtype(precision, self.device)
        self.padding = as_padding_kind(padding)
        mirrored = MirroredViews(views)
        if not isinstance(weights, Checkpoint):
            weights = find_checkpoint(weights, model=model)
        elif model is not None and find_config(model) != weights.config:
            raise WeightsError(f"the checkpoint holds {describe(weights.config)}, not {model}")
        self.card = weights.card
        iters = self.card.iters or DEFAULT_ITERS if iters is None else iters
        self.backend: Backend = backend
        with explaining_out_of_memory(self.device):
            self.network = weights.build().to(self.device)
            runner = make_runner(self.network, self.dtype, backend)
        limit = None if max_memory is None else as_bytes(max_memory)
        max_iters, settled = check_iters(iters)
        self._engine = Engine(
            self.network, runner, self.device, self.dtype, max_iters, plan, limit, settled, mirrored
        )

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        **options: Any,  # noqa: ANN401  (those of the class)
    ) -> "FlowEstimator":
        """Load weights from a folder that `save_pretrained` wrote, or from the Hugging Face Hub.

        Args:
            name: A folder, or `owner/name` on the Hub (needs the extra `hub`).
            revision: A branch, tag or commit on the Hub.
            token: An access token; default: that of `hf auth login`.
            cache_dir: Where downloads are kept; default: huggingface_hub's cache.
            local_files_only: Use what was downloaded before, without a connection.
            options: Any argument of `FlowEstimator` but the weights, such as `iters=32`.

        Raises:
            FlowError: There are no such weights, they cannot be read, or an option is not valid.
        """
        checkpoint = hub.load_pretrained(
            name,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
        )
        return cls(checkpoint, **options)

    @property
    def checkpoint(self) -> Checkpoint:
        """The network's weights, on the CPU, with its config and card."""
        tensors = {name: value.cpu() for name, value in self.network.state_dict().items()}
        return Checkpoint(config=self.config, tensors=tensors, card=self.card)

    def save_pretrained(self, folder: str | Path, *, half: bool = False) -> Path:
        """Write `model.safetensors`, `config.json` and a model card into a folder.

        `from_pretrained` reads it. An existing README.md is kept. `half` stores half precision.
        """
        return hub.save_pretrained(folder, self.checkpoint, half=half)

    def push_to_hub(
        self,
        repository: str,
        *,
        half: bool = False,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str = "Upload gmaflow weights",
    ) -> str:
        """Upload the same files to the Hugging Face Hub, and return the commit's address.

        Args:
            repository: `owner/name`; created if it does not exist.
            half: Store in half precision, at half the size.
            private: Create the repository private; default: the owner's setting.
            token: An access token that may write; default: that of `hf auth login`.
            revision: The branch to commit to; default: `main`.
            commit_message: Shown in the repository's history.

        Raises:
            FlowError: The name is not valid, you have no permission, or the Hub is out of reach.
        """
        return hub.push_to_hub(
            repository,
            self.checkpoint,
            half=half,
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
        )

    def __repr__(self) -> str:
        settings = self.settings
        return (
            f"<FlowEstimator of {settings.model}: {counted(settings.iters, 'iteration')}, "
            f"{settings.precision} on {settings.device}>"
        )

    def __reduce__(self) -> tuple[Callable[..., "FlowEstimator"], tuple[Checkpoint]]:
        """Pickle and copy the weights and options; back ends are rebuilt from them."""
        precision = next(name for name, dtype in DTYPES.items() if dtype == self.dtype)
        rebuild = partial(
            type(self),
            iters=self.iters if self.settled is None else "auto",
            device=str(self.device),
            precision=as_precision(precision),
            backend=self.backend,
            plan=self._engine.plan,
            max_memory=self.max_memory,
            padding=self.padding,
            views=self.views,
        )
        return rebuild, (self.checkpoint,)

    @property
    def settings(self) -> EstimatorSettings:
        """Everything its flow depends on, besides the weights and the images."""
        return EstimatorSettings(
            model=describe(self.config),
            iters=self.iters,
            precision=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            padding=self.padding,
            backend=self.backend,
            settled=self.settled,
            max_memory=self.max_memory,
            views=self.views,
        )

    @property
    def config(self) -> NetworkConfig:
        """The config of the network."""
        return self.network.config

    @property
    def iters(self) -> int:
        """How many refinements it makes at most; see `with_iters`."""
        return self._engine.iters

    @property
    def settled(self) -> float | None:
        """The change in pixels at which it stops refining (`iters="auto"`); None if it does not."""
        return self._engine.settled

    @property
    def max_memory(self) -> float | None:
        """How many bytes it plans with; None for the free memory."""
        return self._engine.max_memory

    @property
    def views(self) -> int:
        """How many mirrored views of each pair it averages."""
        return self._engine.views.count

    def __call__(
        self,
        image1: FrameLike,
        image2: FrameLike,
        *,
        previous: Flow | None = None,
        watch: Watcher | None = None,
    ) -> Flow:
        """Estimate the flow from one image to another.

        Args:
            image1: The first frame: a path, an array, a PIL image, or a `Frame` from `encode`.
            image2: The second frame, of the same size.
            previous: The flow of the previous pair in a sequence, to start from (warm start).
            watch: Called after each refinement; an exception that it raises stops the estimate.

        Raises:
            FlowError: An image cannot be read or used.
        """
        return self._launch(image1, image2, previous, watch)().to_flows()[0]

    def bidirectional(
        self,
        image1: FrameLike,
        image2: FrameLike,
        *,
        previous: Flow | None = None,
        watch: Watcher | None = None,
        scale: float = 1.0,
    ) -> BidirectionalFlow:
        """Estimate flow both ways, and from it occlusion and confidence for the first frame.

        A warm start (see `__call__`) is for the forward direction; backward begins at zero. A
        watcher sees the forward flow. If the images were made smaller, `scale` says by how much,
        such as 0.5; occlusion then covers about the same share of them as at full size.
        """
        check_positive("scale", scale)
        both = self._launch(image1, image2, previous, watch, both_ways=True)()
        visibility = check_visibility(both.flow[:1], both.flow[1:], scale=scale)
        forward, backward = both.to_flows()
        return combine(forward, backward, visibility)

    def match(
        self,
        first: Frame,
        second: Frame,
        *,
        both_ways: bool = True,
        watch: Watcher | None = None,
    ) -> BatchEstimate:
        """Estimate flow between encoded frames, and leave it on the device; row 1 is backward.

        A watcher is called after each refinement. With CUDA graphs it is called only
        once, after the last refinement, and without a flow.
        """
        recorded = isinstance(self._engine.runner, RecordedNetwork)
        check_watch(watch)
        watch_refinements = None if recorded else watch
        estimate = self._launch(first, second, watch=watch_refinements, both_ways=both_ways)()
        if recorded and watch is not None:
            last = max(estimate.iterations)
            watch(Refinement(last, last, None, self.network, self._padding(first.image)))
        return estimate

    def track(
        self,
        frames: Frames,
        points: ArrayLike | None = None,
        *,
        reference: int = 0,
        cut_threshold: float | None = CUT_THRESHOLD,
        ignore: Ignored | None = None,
        watch: Watcher | None = None,
    ) -> Iterator[TrackedFrame]:
        """Find where points of one frame are in every other frame, and whether they are visible.

        The reference frame comes first, then those before it, from late to early, then those after
        it. Only the frames that are still needed are kept.

        Args:
            frames: At least two images of one size, or a folder of them, read as they are needed.
            points: Points (x, y) of the reference frame; by default every pixel of it, and then
                results have the shape of the image.
            reference: The number of the frame with the points, from 0.
            cut_threshold: Tracks end between frames that differ more (see `cut_score`); None tracks
                across cuts.
            ignore: A mask for all frames, or a function that returns the mask of a frame by its
                number. Points are not visible in pixels where it is true.
            watch: Called after each refinement, or with CUDA graphs after each flow; an exception
                that it raises ends the tracking.

        Raises:
            FlowError: A frame cannot be used, a point lies outside or in an ignored pixel, or there
                is no such reference.
        """
        return track(
            self,
            frames,
            points,
            reference=reference,
            cut_threshold=cut_threshold,
            ignore=ignore,
            watch=watch,
        )

    def sequence(self, frames: Frames, *, warm_start: bool = False) -> Iterator[Flow]:
        """Estimate the flow between consecutive frames; each of them is encoded once.

        Args:
            frames: Any number of images, or a folder of them, read as they are needed.
            warm_start: Begin each pair with the flow of the one before, moved along itself.
        """
        # Encoded immediately: the caller may reuse the memory of an image for the next one.
        encoded = enumerate(map(self.encode, each_image(frames)))
        numbered = (SequenceFrame(number, frame) for number, frame in encoded)
        for pair in estimate_pairs(self, numbered, warm_start=warm_start):
            assert pair.flow is not None  # there are neither cuts nor errors
            yield pair.flow

    def sequence_on_device(self, frames: Frames) -> Iterator[BatchEstimate]:
        """Estimate the flow between consecutive frames, and leave it on the device as tensors.

        The next frame is loaded and encoded while a GPU estimates a pair. `estimate_pairs` cannot
        do that: it gives the flow as an array, which waits for the GPU.

        Args:
            frames: Any number of images, or a folder of them, read as they are needed.
        """
        first: Frame | None = None
        finish: Callable[[], BatchEstimate] | None = None
        for second in map(self.encode, each_image(frames)):
            if finish is not None:
                yield outside_inference_mode(finish())
            if first is not None:
                finish = self._launch(first, second)
            first = second
        if finish is not None:
            yield outside_inference_mode(finish())

    @torch.inference_mode()
    def consecutive(self, images: Sequence[ImageLike]) -> list[Flow]:
        """Estimate the flow between consecutive images at once, as one batch on the device.

        For small images on a GPU, which is faster with many at a time. `sequence` needs less memory
        and takes any number of images.

        Args:
            images: Two or more images of one size.

        Raises:
            FlowError: An image cannot be read or used, or they differ in size.
        """
        arrays = [load_image(image) for image in each_image(images)]
        if len(arrays) < 2:
            raise ImageError(f"there are {len(arrays)} images; flow needs at least two")
        for array in arrays[1:]:
            check_pair(arrays[0], array)
        height, width = arrays[0].shape[:2]
        with explaining_out_of_memory(self.device, (len(arrays) - 1, 3, height, width)):
            return self._consecutive(arrays)

    def _consecutive(self, arrays: list[ImageArray]) -> list[Flow]:
        padding = self._padding(arrays[0])
        if all(array.dtype == np.uint8 for array in arrays):
            stacked = to_tensors(np.stack(arrays), self.device)
        else:
            stacked = torch.cat([to_tensor(array, self.device) for array in arrays])
        padded = padding.pad(stacked)
        encoded = self._engine.encode(padded, padding)
        encoded_pairs = None
        if encoded is not None:
            first, second = (
                EncodedFrame(*(part[part_of_batch] for part in encoded))
                for part_of_batch in (slice(None, -self.views), slice(self.views, None))
            )
            encoded_pairs = first, second
        pairs = Pairs(padded[:-1], padded[1:], encoded_pairs)
        return self._engine.estimate(pairs, padding).to_flows()

    @torch.inference_mode()
    def encode(self, image: ImageLike) -> Frame:
        """Encode an image once, for all the pairs it will be part of.

        This estimator accepts the frame in place of the image.

        Raises:
            FlowError: The image cannot be read or used.
        """
        frame = self.load_frame(image)
        image_copy = frame.image.copy()  # the caller may reuse the memory of the image
        encoded = self._engine.encode(frame.padded, self._padding(image_copy))
        return replace(frame, image=image_copy, encoded=encoded)

    @torch.inference_mode()
    def load_frame(self, image: ImageLike, *, name: str = "the image") -> Frame:
        """Load an image onto the device, without encoding it.

        Two such frames are encoded together, like two images. Frames that were encoded one by one
        differ from that by rounding.
        """
        array = load_image(image, name=name)
        with explaining_out_of_memory(self.device, (1, 3, *array.shape[:2])):
            padded = self._padding(array).pad(to_tensor(array, self.device))
        return Frame(array, padded, None, self.network)

    def batch(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        start: Float[Tensor, "b 2 h w"] | None = None,
        watch: Watcher | None = None,
    ) -> BatchEstimate:
        """Estimate the flow of a batch of pairs, tensors in and out.

        Args:
            image1: First frames, RGB in 0..1, any size from 16 px on.
            image2: Second frames.
            start: Initial flow, such as the `coarse` flow of another estimate.
            watch: Called after each refinement; an exception that it raises stops the estimate.
        """
        # Fast layers take plain tensors, not those of classes such as MONAI's MetaTensor.
        with torch.inference_mode(), torch._C.DisableTorchFunctionSubclass():
            check_pairs(image1, image2)
            checks_late = self._engine.checks_late
            if not checks_late:
                check_values(image1, image2)
            padding = Padding.of_kind(self.padding, *image1.shape[-2:])
            first, second = (padding.pad(x.to(self.device).float()) for x in (image1, image2))
            start = None if start is None else check_flow_init(start, first)
            pairs = Pairs(first, second, checked=not checks_late)
            estimate = self._engine.estimate(pairs, padding, start, watch)
        return outside_inference_mode(estimate)

    def attention(
        self, image1: FrameLike, points: Sequence[tuple[float, float]]
    ) -> Float32[np.ndarray, "k h w"]:
        """Return for each point (x, y) how much it borrows from every pixel of the first frame.

        The maps are at the image's size and sum to 1 on the 1/8 grid; heads are averaged.

        Raises:
            FlowError: The network has no attention, or a point lies outside the image.
        """
        return self.attend(image1).maps(points)

    def attend(self, image1: FrameLike) -> FrameAttention:
        """Encode a first frame once, to query the attention of many of its points.

        Raises:
            FlowError: The network has no attention.
        """
        if not isinstance(image1, Frame):
            return FrameAttention.of(self.network, load_image(image1), self.device, self.padding)
        encoded = self._check_own(image1).encoded
        context = None if encoded is None else encoded.context[:1]  # the first view
        return FrameAttention.of(self.network, image1.image, self.device, self.padding, context)

    def with_iters(self, iters: Iterations) -> "FlowEstimator":
        """Return an estimator with the same network and another number of refinements."""
        max_iters, settled = check_iters(iters)
        return self._with_engine(replace(self._engine, iters=max_iters, settled=settled))

    def with_less_memory(self) -> "FlowEstimator":
        """Return an estimator with the same network that plans with half as much memory."""
        budget = memory_budget(self.device, self._engine.max_memory)
        return self._with_engine(replace(self._engine, plan=None, max_memory=budget / 2))

    def _with_engine(self, engine: Engine) -> "FlowEstimator":
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), _engine=engine)
        return twin

    @torch.inference_mode()
    def _launch(
        self,
        image1: FrameLike,
        image2: FrameLike,
        previous: Flow | None = None,
        watch: Watcher | None = None,
        *,
        both_ways: bool = False,
    ) -> Callable[[], BatchEstimate]:
        """Start estimating one pair, forward or both ways; call the returned function for the flow.

        Encoded frames are not encoded again.
        """
        encode = isinstance(image1, Frame) or isinstance(image2, Frame)
        first = self._as_frame(image1, name="the first image", encode=encode)
        second = self._as_frame(image2, name="the second image", encode=encode)
        check_pair(first.image, second.image)
        padding = self._padding(first.image)
        start = None
        if previous is not None:
            start = start_from(previous, first.image.shape, padding, self.device)
            start = check_flow_init(start, first.padded)
            start = torch.cat([start, torch.zeros_like(start)]) if both_ways else start
        encoded = None
        if first.encoded is not None and second.encoded is not None:
            encoded = first.encoded, second.encoded
        pairs = Pairs(first.padded, second.padded, encoded, both_ways)
        return torch.inference_mode()(self._engine.launch(pairs, padding, start, watch))

    def _as_frame(self, image: FrameLike, *, name: str, encode: bool) -> Frame:
        if isinstance(image, Frame):
            return self._check_own(image)
        return self.encode(image) if encode else self.load_frame(image, name=name)

    def _check_own(self, frame: Frame) -> Frame:
        if frame.network is not self.network:
            raise FlowError("the frame was encoded by another estimator; encode it with this one")
        return frame

    def _padding(self, array: ImageArray) -> Padding:
        return Padding.of_kind(self.padding, *array.shape[:2])


class DeviceArguments(TypedDict):
    """The arguments of `FlowEstimator` that say where and how it runs."""

    device: str
    precision: Precision
    backend: Backend
    max_memory: str | float | None
    views: int


def device_arguments(options: DeviceOptions) -> DeviceArguments:
    """Return the options of a command as arguments; all but the device are checked."""
    if options.max_memory is not None:
        as_bytes(options.max_memory)
    return DeviceArguments(
        device=options.device,
        precision=as_precision(options.precision),
        backend=as_backend(options.backend),
        max_memory=options.max_memory,
        views=MirroredViews(options.views).count,
    )


def outside_inference_mode(estimate: BatchEstimate) -> BatchEstimate:
    """Return an estimate for use outside of inference mode.

    Tensors of inference mode cannot be part of a loss, not even as its target; copies can.
    """
    flow, coarse = (
        part.clone() if part.is_inference() or not part.is_contiguous() else part
        for part in (estimate.flow, estimate.coarse)
    )
    return estimate._replace(flow=flow, coarse=coarse)


def estimate(
    image1: ImageLike,
    image2: ImageLike,
    *,
    weights: str | Path | None = None,
    model: str | None = None,
) -> Flow:
    """Estimate the flow from one image to another.

    It loads the network each time: for more than one pair make a `FlowEstimator`.
    """
    return FlowEstimator(weights, model=model)(image1, image2)

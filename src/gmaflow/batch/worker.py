"""One worker: reads a clip, estimates its flow, writes its files, and reports the result.

A bad clip is a result with a reason, never an exception: one unreadable video must not end a job
of a million. Only a destination that cannot be written to ends it (`ClipResult.fatal`).
"""

import json
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path, PurePosixPath

import torch

from gmaflow.batch.clip_outputs import ClipFiles, ClipPair, make_outputs
from gmaflow.batch.config import BatchConfig
from gmaflow.batch.destination import Destination, record_name
from gmaflow.batch.manifest import FRAME_SUFFIXES, Clip
from gmaflow.errors import FlowError, ImageError, OutputError, counted, os_reason
from gmaflow.inference import (
    CUT_THRESHOLD,
    FlowEstimator,
    PairEstimate,
    device_arguments,
    load_image,
)
from gmaflow.inference.sequence import estimate_pairs, estimate_pairs_in_batches
from gmaflow.io import TimedFrame, VideoReader, list_images, scale_image
from gmaflow.io.images import check_same_size
from gmaflow.io.paths import NO_ROOM, find_clash
from gmaflow.io.remote import explaining, is_remote, open_store
from gmaflow.runtime.device import (
    explaining_out_of_memory,
    is_out_of_memory,
    memory_budget,
    pick_device,
)
from gmaflow.weights import Checkpoint

PIXELS_AT_ONCE = 32 * 256 * 344
"""Pixels of a batch on a GPU: one small frame at a time does not keep it busy. The batch depends on
the size of the frames only, so that results do not depend on what else the GPU does."""
MOST_PAIRS = 32
SMALLER_PLANS = 3
"""How often a clip that runs out of memory is tried again, each time with half as much."""
REPORT_EVERY = 2.0
"""Seconds between two reports of the progress of a clip."""


@dataclass(frozen=True)
class ClipResult:
    """The result of a clip."""

    clip: Clip
    pairs: int = 0
    seconds: float = 0.0
    node: str = ""
    """The machine that processed it."""
    worker: str = ""
    """The worker process."""
    error: str | None = None
    """Why the clip failed."""
    fatal: bool = False
    """Whether no other clip can be written either."""


@dataclass(frozen=True)
class ClipProgress:
    """The progress of a clip that is being processed."""

    clip: Clip
    pairs: int
    """Pairs that are done."""
    expected: int | None = None
    """All its pairs, approximately; None if its file does not say."""
    node: str = ""
    """The machine that processes it."""
    worker: str = ""
    """The worker process."""
    seconds: float = field(default=0.0, compare=False)
    """Since it began."""

    @property
    def seconds_left(self) -> float:
        """An estimate for this clip; 0 if its file does not say how long it is."""
        left = max(0, (self.expected or 0) - self.pairs)
        return self.seconds / self.pairs * left if self.pairs else 0.0


Progress = Callable[[ClipProgress], None]


class ClipWorker:
    """Processes clips with one estimator on one device. Threads may share it."""

    def __init__(
        self,
        config: BatchConfig,
        destination: Destination,
        *,
        device: str = "auto",
        checkpoint: Checkpoint | None = None,
        name: str = "",
    ) -> None:
        self.config, self.destination = config, destination
        self.node, self.name = socket.gethostname(), name
        torch_device = pick_device(device)
        # Rounding on a CPU depends on the number of threads: with one, the bytes are the same on
        # every machine with such cores, and a process for each core is faster than many threads.
        torch.set_num_threads(1)
        arguments = device_arguments(config)
        arguments["device"] = device
        arguments["max_memory"] = memory_limit(config, torch_device)
        self.estimator = FlowEstimator(
            checkpoint or config.weights, model=config.model, iters=config.iters, **arguments
        )

    def run(
        self,
        clip: Clip,
        progress: Progress = lambda _: None,
    ) -> ClipResult:
        """Process a clip.

        Args:
            clip: The clip.
            progress: Called every `REPORT_EVERY` seconds.
        """
        started = time.monotonic()
        result = ClipResult(clip, node=self.node, worker=self.name)
        try:
            result = replace(result, pairs=self._run(clip, progress))
        except OutputError as err:
            result = replace(result, error=str(err), fatal=True)
        except FlowError as err:
            result = replace(result, error=str(err))
        except OSError as err:
            reason = f"{err.filename or clip.source}: {os_reason(err)}"
            result = replace(result, error=reason, fatal=err.errno in NO_ROOM)
        except Exception as err:  # noqa: BLE001 - the other clips can still be processed
            result = replace(result, error=f"{type(err).__name__}: {err}"[:1000])
        return replace(result, seconds=time.monotonic() - started)

    def _run(self, clip: Clip, progress: Progress) -> int:
        with self.destination.scratch() as scratch:
            local = fetch(clip, scratch)
            estimator = self.estimator
            for left in reversed(range(SMALLER_PLANS + 1)):
                try:
                    with ClipFiles(scratch, clip.identifier) as files:
                        return self._estimate(clip, local, files, estimator, progress)
                except FlowError as err:
                    if not left or not ran_out_of_memory(err):
                        raise
                estimator = estimator.with_less_memory()
        raise AssertionError("the last try returns or raises")

    def _estimate(
        self,
        clip: Clip,
        local: Clip,
        files: ClipFiles,
        estimator: FlowEstimator,
        progress: Progress,
    ) -> int:
        config = self.config
        outputs = make_outputs(
            files,
            kinds=config.kinds,
            flow_format=config.format,
            bound=config.bound,
            max_length=config.max_length,
        )
        footage = ClipFrames(local, config)
        pairs, size = 0, (0, 0)
        cuts: list[str] = []
        started = reported = time.monotonic()
        with closing(self._pairs(footage, estimator)) as estimated:
            for pair in estimated:
                name = footage.names[pair.first.number]
                size = pair.first.image.shape[:2]
                if pair.flow is None:
                    cuts.append(name)
                    continue
                pairs += 1
                for output in outputs:
                    output.add(ClipPair(pair.first.number, name, pair.flow, pair.both))
                if time.monotonic() - reported >= REPORT_EVERY:
                    reported = time.monotonic()
                    expected, seconds = footage.expected_pairs, reported - started
                    progress(ClipProgress(clip, pairs, expected, self.node, self.name, seconds))
        footage.check()
        height, width = size
        record = {**clip.as_row(), "height": height, "width": width, "pairs": pairs, "cuts": cuts}
        for output in outputs:
            record |= output.entries()
        record["files"] = files.publish(self.destination)
        # Written last: it marks the clip as finished.
        text = json.dumps(record, indent=1) + "\n"
        self.destination.write(record_name(clip), text.encode())
        return pairs

    def _pairs(
        self, footage: "ClipFrames", estimator: FlowEstimator
    ) -> "Generator[PairEstimate[TimedFrame]]":
        threshold = None if self.config.no_cuts else CUT_THRESHOLD
        both = self.config.both_ways
        if self.config.warm_start or estimator.device.type != "cuda" or both:
            yield from estimate_pairs(
                estimator,
                footage,
                backward=both,
                warm_start=self.config.warm_start,
                cut_threshold=threshold,
            )
            return
        yield from estimate_pairs_in_batches(
            estimator,
            footage,
            batch=lambda height, width: min(MOST_PAIRS, PIXELS_AT_ONCE // (height * width)),
            cut_threshold=threshold,
        )


def memory_limit(config: BatchConfig, device: torch.device) -> str | float | None:
    """Return a worker's memory limit: its share, if others are on the same GPU."""
    if config.max_memory is not None or device.type != "cuda" or config.num_gpus >= 1:
        return config.max_memory
    with explaining_out_of_memory(device):  # the first call to a GPU takes some of it
        return config.num_gpus * memory_budget(device)


class ClipFrames:
    """The frames of a clip whose files are local, and their names."""

    def __init__(self, clip: Clip, config: BatchConfig) -> None:
        self.clip, self.config = clip, config
        self.names: list[str] = []
        """Of the frames that were read so far."""
        self.expected_pairs: int | None = None
        """Pairs of the clip, approximately; None before the first frame, and if unknown."""
        self._reader: VideoReader | None = None

    def __iter__(self) -> Iterator[TimedFrame]:
        clip = self.clip
        if clip.second is None and not Path(clip.source).is_dir():
            yield from self._video()
            return
        if clip.start is not None or clip.end is not None:
            raise ImageError(
                f"{clip.source} has a start or end in seconds, which only videos can have; leave "
                "both empty"
            )
        if clip.second is not None:
            yield from self._images([Path(clip.source), Path(clip.second)])
        else:
            yield from self._images(list_images(clip.source)[:: self.config.every])

    def check(self) -> None:
        """Refuse a clip that was not read to its end, or that has no pair."""
        if self._reader is not None and self._reader.problem:
            raise ImageError(self._reader.problem)
        if len(self.names) < 2:
            found = counted(len(self.names), "frame")
            raise ImageError(f"{self.clip.source} has {found}; flow needs at least two")

    def _images(self, paths: list[Path]) -> Iterator[TimedFrame]:
        shape: tuple[int, ...] = ()
        self.expected_pairs = len(paths) - 1
        check_names(paths[:-1])
        for number, path in enumerate(paths):
            image = load_image(path)
            shape = shape or image.shape
            check_same_size({str(paths[0]): shape, str(path): image}, error=ImageError)
            self.names.append(path.stem)
            scale = self._scale(image.shape)
            yield TimedFrame(number, scale_image(image, scale), Fraction(number), scale)

    def _video(self) -> Iterator[TimedFrame]:
        start, end = (
            None if moment is None else Fraction(moment).limit_denominator(10**6)
            for moment in (self.clip.start, self.clip.end)
        )
        reader = VideoReader(
            self.clip.source, start=start or Fraction(0), end=end, every=self.config.every
        )
        reader.scale = self._scale((reader.info.height, reader.info.width))
        self._reader = reader
        self.expected_pairs = reader.num_frames and reader.num_frames - 1
        for frame in reader:
            self.names.append(f"{frame.number:06d}")
            yield frame

    def _scale(self, shape: tuple[int, ...]) -> float:
        if self.config.side is None:
            return self.config.scale
        return min(1.0, self.config.side / min(shape[:2]))


def check_names(paths: list[Path]) -> None:
    """Refuse frames that would give their results the same name."""
    if clash := find_clash((path, Path(path.stem)) for path in paths):
        one, other, name = clash
        raise ImageError(
            f"{one} and {other.name} would both write {str(name)!r}; rename one of them"
        )


def fetch(clip: Clip, folder: Path) -> Clip:
    """Return a clip whose files are local; remote ones are downloaded to a folder."""
    sources = [clip.source] if clip.second is None else [clip.source, clip.second]
    local = [
        str(download(source, folder / f"source{number}")) if is_remote(source) else source
        for number, source in enumerate(sources)
    ]
    return replace(clip, source=local[0], second=local[1] if len(local) > 1 else None)


def download(source: str, folder: Path) -> Path:
    """Download a file, or the frames of a folder; returns the local file or folder."""
    store, path = open_store(source)
    folder.mkdir()
    with explaining(source, ImageError):
        if store.isfile(path):
            target = folder / PurePosixPath(path).name
            store.get_file(path, str(target))
            return target
        frames = [
            name
            for name in store.ls(path, detail=False)
            if PurePosixPath(name).suffix.lower() in FRAME_SUFFIXES
        ]
        if not frames:
            raise ImageError(f"{source} does not exist, or holds no frames")
        store.get(frames, [str(folder / PurePosixPath(name).name) for name in frames])
    return folder


def ran_out_of_memory(err: BaseException | None) -> bool:
    """Whether an error, or its cause, means that memory was short."""
    while err is not None:
        if isinstance(err, Exception) and is_out_of_memory(err):
            return True
        err = err.__cause__
    return False

"""A video, or a folder of pictures, is an iterator of frames."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import ImageError, ImageTooLargeError
from gmaflow.io.folders import list_images
from gmaflow.io.images import read_image
from gmaflow.io.paths import PathLike, require_file

if TYPE_CHECKING:
    import av.container
    import av.video.frame
    import av.video.stream

DEFAULT_FPS, LARGEST_RATE = Fraction(25), 1000

# FFmpeg goes by content: a playlist called clip.mp4 would make it open other files and addresses.
_OPTIONS = {
    "format_whitelist": "mov,mp4,matroska,webm,avi,mpeg,mpegts,ogg,gif",
    "protocol_whitelist": "file",
}


@dataclass(frozen=True)
class VideoInfo:
    """What is known of a video before its frames are read."""

    height: int
    """Rows of an upright frame."""
    width: int
    """Columns of an upright frame."""
    fps: Fraction
    """Frames per second; 25 where the source does not say."""
    num_frames: int | None
    """Frames by the file's own account, or None if it gives none."""
    seconds: Fraction | None
    """How long it plays, about, by the file's own account; None if it gives none."""
    time_base: Fraction
    """All frames appear at multiples of it, in seconds."""
    pixel_aspect: Fraction = Fraction(1)
    """How wide pixels of an upright frame are shown in proportion to their height."""


def probe_video(
    path: PathLike, *, fps: Fraction = DEFAULT_FPS, max_pixels: int | None = None
) -> VideoInfo:
    """Look at a video, or a folder of pictures, without reading it all.

    Args:
        path: where it is.
        fps: how fast the pictures of a folder follow each other.
        max_pixels: the most that a frame of a video may have.

    Raises:
        ImageError: it cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        images = list_images(path)
        height, width, _ = read_image(images[0]).shape
        return VideoInfo(height, width, fps, len(images), len(images) / fps, 1 / fps)
    with open_video(path, max_pixels) as (container, stream):
        # The way up is told by the first frame.
        first = next(container.decode(stream), None)
        if first is None:
            raise ImageError(f"{path} holds no frames; give another video")
        height, width, _ = upright(first).shape
        aspect = stream.sample_aspect_ratio or Fraction(1)
        return VideoInfo(
            height,
            width,
            rate_of(stream),
            stream.frames or None,
            duration_of(container, stream) or _rough_duration(container),
            stream.time_base or 1 / rate_of(stream),
            1 / aspect if quarter_turns(first) % 2 else aspect,
        )


def read_frames(
    path: PathLike,
    *,
    start: int = 0,
    end: int | None = None,
    every: int = 1,
    max_pixels: int | None = None,
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Read the frames start, start + every, ... before end, one at a time.

    Memory does not grow with the length of the video. Frames come upright, RGB and all of one size.

    Args:
        path: a video, or a folder of pictures, which are taken in natural order.
        start: number of the first frame wanted, from 0.
        end: number of the first frame no longer wanted; None for all.
        every: 1 for every frame, 2 for every other one.
        max_pixels: the most that a frame of a video may have, whatever the file says it has.

    Raises:
        ImageError: it cannot be read, or frames differ in size. What can be seen without decoding
            is raised by the call, the rest while the frames are read.
    """
    if start < 0 or every < 1 or (end is not None and end <= start):
        raise ImageError(
            f"frames {start} to {end} by {every} are none; start is at least 0, end lies after it "
            "and every is at least 1"
        )
    path = Path(path)
    frames: Iterator[np.ndarray]
    if path.is_dir():
        frames = map(read_image, list_images(path)[start:end:every])
    else:
        require_file(path, ImageError, "a video or a folder of images")
        frames = _decode(path, slice(start, end, every), max_pixels)
    return _of_one_size(path, frames)


def import_av(doing: str) -> ModuleType:
    """Import PyAV, or say how to get it."""
    try:
        import av
    except ModuleNotFoundError as err:
        raise ImageError(f"{doing} needs PyAV: pip install av") from err
    return av


@contextmanager
def open_video(
    path: PathLike, max_pixels: int | None = None
) -> Iterator[tuple["av.container.InputContainer", "av.video.stream.VideoStream"]]:
    """Open a video file and find the pictures in it.

    Args:
        path: where it is.
        max_pixels: larger frames are not decoded; the file's head may be wrong about their size.

    Raises:
        ImageError: it cannot be read, now or inside the block, or holds no pictures.
    """
    path = require_file(path, ImageError, "a video or a folder of images")
    av = import_av("reading video")
    try:
        with av.open(str(path), options=_OPTIONS, metadata_errors="replace") as container:
            if not container.streams.video:
                raise ImageError(f"{path} holds no video stream; give a video")
            stream = container.streams.video[0]
            if stream.codec_context is None:  # to decode without one would end the process
                raise ImageError(
                    f"{path} is damaged, or coded in a way that is not known; give another video"
                )
            stream.thread_type = "AUTO"
            if max_pixels is not None:
                stream.codec_context.options = {"max_pixels": str(max_pixels)}
            yield container, stream
    except av.FFmpegError as err:
        raise ImageError(
            f"{path} cannot be read as video ({err.strerror}); give a video such as .mp4, or a "
            "folder of images"
        ) from err


def rate_of(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return how many frames a second there are on average, or a guess."""
    rate = stream.average_rate or stream.guessed_rate
    # Some recordings give the ticks of their clock instead.
    return Fraction(rate) if rate and 0 < rate < LARGEST_RATE else DEFAULT_FPS


def duration_of(
    container: "av.container.InputContainer", stream: "av.video.stream.VideoStream"
) -> Fraction | None:
    """Return how many seconds the pictures last by the file's own account, or None."""
    if stream.duration is not None and stream.time_base is not None:
        return stream.duration * stream.time_base
    # That of the whole file, only where nothing else can last longer than the pictures.
    return _rough_duration(container) if len(container.streams) == 1 else None


def _rough_duration(container: "av.container.InputContainer") -> Fraction | None:
    """Return the length of the whole file, sound included, which it tells in microseconds."""
    if not container.duration:
        return None
    # Matroska counts from time 0 on, though what a camera or a stream left may begin later.
    late = (container.start_time or 0) if "matroska" in container.format.name else 0
    return Fraction(max(container.duration - late, 0), 1_000_000) or None


def quarter_turns(frame: "av.video.frame.VideoFrame") -> int:
    """Return by how many right angles a frame must be turned, counterclockwise as by np.rot90."""
    return round(frame.rotation / 90)


def upright(frame: "av.video.frame.VideoFrame") -> UInt8[np.ndarray, "h w 3"]:
    """Return a frame as RGB, the right way up."""
    turned = np.rot90(frame.to_ndarray(format="rgb24"), quarter_turns(frame))
    return np.ascontiguousarray(turned)


def _decode(path: Path, wanted: slice, max_pixels: int | None) -> Iterator[np.ndarray]:
    with open_video(path, max_pixels) as (container, stream):
        # Counted, not sought: a seek lands on the nearest key frame.
        decoded = container.decode(stream)
        for frame in islice(decoded, wanted.start, wanted.stop, wanted.step):
            yield upright(frame)


def _of_one_size(path: Path, frames: Iterator[np.ndarray]) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    first = None
    for frame in frames:
        first = first or frame.shape
        if frame.shape != first:
            raise other_size(path, frame.shape, first)
        yield frame


def other_size(path: Path, found: tuple[int, ...], wanted: tuple[int, ...]) -> ImageError:
    """Return the error that a frame differs in size from those before it."""
    return ImageError(
        f"{path}: a frame of {found[0]} x {found[1]} follows frames of {wanted[0]} x {wanted[1]}; "
        "all must have one size"
    )


def check_video_size(path: PathLike, max_pixels: int) -> None:
    """Refuse a video whose frames are too large, before any of them is decoded.

    Raises:
        ImageTooLargeError: they are.
        ImageError: it cannot be read.
    """
    with open_video(path) as (container, _):
        for stream in container.streams.video:
            coded = stream.codec_context
            if coded is None:
                continue
            width, height = coded.width, coded.height
            if width * height > max_pixels:
                raise ImageTooLargeError(
                    f"{path} has frames of {width} x {height} pixels, more than the "
                    f"{max_pixels:,} that are allowed; shrink it"
                )

"""A video, or a folder of pictures, is an iterator of frames."""

from collections.abc import Iterator
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
    import av.video.frame

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".ogv"}
)
DEFAULT_FPS = Fraction(25)

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


def probe_video(path: PathLike) -> VideoInfo:
    """Look at a video, or a folder of pictures, without reading it all.

    Raises:
        ImageError: it cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        images = list_images(path)
        height, width, _ = read_image(images[0]).shape
        return VideoInfo(height, width, DEFAULT_FPS, len(images))
    path = require_file(path, ImageError, "a video or a folder of images")
    av = import_av("reading video")
    try:
        with av.open(str(path), options=_OPTIONS, metadata_errors="replace") as container:
            if not container.streams.video:
                raise ImageError(f"{path} holds no video stream; give a video")
            stream = container.streams.video[0]
            # The way up is told by the first frame.
            first = next(container.decode(stream), None)
            if first is None:
                raise ImageError(f"{path} holds no frames; give another video")
            height, width, _ = _upright(first).shape
            fps = stream.average_rate or stream.guessed_rate or DEFAULT_FPS
            return VideoInfo(height, width, Fraction(fps), stream.frames or None)
    except av.FFmpegError as err:
        raise _unreadable(path, err) from err


def read_frames(
    path: PathLike, *, start: int = 0, end: int | None = None, every: int = 1
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Read the frames start, start + every, ... before end, one at a time.

    Memory does not grow with the length of the video. Frames come upright, RGB and all of one size.

    Args:
        path: a video, or a folder of pictures, which are taken in natural order.
        start: number of the first frame wanted, from 0.
        end: number of the first frame no longer wanted; None for all.
        every: 1 for every frame, 2 for every other one.

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
        path = require_file(path, ImageError, "a video or a folder of images")
        frames = _decode(path, start, end, every)
    return _of_one_size(path, frames)


def import_av(doing: str) -> ModuleType:
    """Import PyAV, or say how to get it."""
    try:
        import av
    except ModuleNotFoundError as err:
        raise ImageError(f"{doing} needs PyAV: pip install av") from err
    return av


def _decode(path: Path, start: int, end: int | None, every: int) -> Iterator[np.ndarray]:
    av = import_av("reading video")
    try:
        container = av.open(str(path), options=_OPTIONS, metadata_errors="replace")
    except av.FFmpegError as err:
        raise _unreadable(path, err) from err
    try:
        if not container.streams.video:
            raise ImageError(f"{path} holds no video stream; give a video")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        # Counted, not sought: a seek lands on the nearest key frame.
        for frame in islice(container.decode(stream), start, end, every):
            yield _upright(frame)
    except av.FFmpegError as err:
        raise _unreadable(path, err) from err
    finally:
        container.close()


def _upright(frame: "av.video.frame.VideoFrame") -> UInt8[np.ndarray, "h w 3"]:
    # The rotation is counterclockwise, as that of np.rot90.
    quarter_turns = round(frame.rotation / 90)
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), quarter_turns))


def _of_one_size(path: Path, frames: Iterator[np.ndarray]) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    first = None
    for frame in frames:
        first = first or frame.shape
        if frame.shape != first:
            raise ImageError(
                f"{path}: a frame of {frame.shape[0]} x {frame.shape[1]} follows frames of "
                f"{first[0]} x {first[1]}; all must have one size"
            )
        yield frame


def _unreadable(path: Path, err: Exception) -> ImageError:
    return ImageError(
        f"{path} cannot be read as video ({err}); give a video such as .mp4, or a folder of images"
    )


def check_video_size(path: PathLike, max_pixels: int) -> None:
    """Refuse a video whose frames are too large, before any of them is decoded.

    Raises:
        ImageTooLargeError: they are.
        ImageError: it cannot be read.
    """
    path = require_file(path, ImageError, "a video")
    av = import_av("reading video")
    try:
        with av.open(str(path), options=_OPTIONS, metadata_errors="replace") as container:
            for stream in container.streams.video:
                width, height = stream.codec_context.width, stream.codec_context.height
                if width * height > max_pixels:
                    raise ImageTooLargeError(
                        f"{path} has frames of {width} x {height} pixels, more than the "
                        f"{max_pixels:,} that are allowed; shrink it"
                    )
    except av.FFmpegError as err:
        raise _unreadable(path, err) from err

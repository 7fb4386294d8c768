"""Reading uploads: bytes to frames, recognized by content, within limits, at the working size."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from io import SEEK_SET, IOBase, RawIOBase
from itertools import chain, islice
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from starlette.datastructures import UploadFile

from gmaflow.errors import ImageError
from gmaflow.example import load_example
from gmaflow.inference import CUT_THRESHOLD, is_cut
from gmaflow.inference.images import check_pair, load_image
from gmaflow.io import VideoReader, check_video_size, decode_image
from gmaflow.io.images import check_same_size
from gmaflow.model import MIN_SIDE
from gmaflow.serving.http_errors import ApiError
from gmaflow.serving.jobs import Footage, Size, frame_name
from gmaflow.serving.limits import Limits
from gmaflow.serving.results import ResultFolder

IMAGES_FPS = 25.0
"""Frame rate of clips that are uploaded as images."""

ImageArray = UInt8[np.ndarray, "_ _ 3"]


class Deadline:
    """When to stop decoding an upload: a thread cannot be stopped from outside."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = float("inf")
        self._cancelled = False

    def start(self) -> None:
        self._end = time.monotonic() + self._seconds

    def cancel(self) -> None:
        """Let the next check fail."""
        self._cancelled = True

    def check(self) -> None:
        """Raise `ApiError` if the time is over or the upload is cancelled."""
        if self._cancelled:
            raise ApiError(499, "the client has disconnected")
        if time.monotonic() > self._end:
            raise ApiError(
                504,
                f"decoding the upload took longer than {self._seconds:g} s; send smaller images or "
                "a shorter clip",
            )


class WatchedFile(RawIOBase):
    """A file that checks a deadline whenever something is read.

    Decoders read small pieces. A long comment in a file, which Pillow reads byte by byte, would
    otherwise take minutes.
    """

    def __init__(self, file: IOBase, deadline: Deadline) -> None:
        self._file = file
        self._deadline = deadline

    def read(self, size: int = -1) -> bytes:
        self._deadline.check()
        content: bytes = self._file.read(size)
        return content

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


def read_example(folder: ResultFolder, limits: Limits | None = None) -> Footage:
    """Read the built-in example; with limits at the working size, without the true flow."""
    example = load_example()
    original = size_of(example.image1)
    size = original if limits is None else working_size(original, limits)
    for number, frame in enumerate((example.image1, example.image2)):
        folder.save(frame_name(number), resize(frame, size))
    if limits is None:
        folder.save("truth", example.flow.array)
    return Footage("pair", folder, 2, size, original, truth=limits is None)


def read_pair(
    image1: UploadFile,
    image2: UploadFile,
    folder: ResultFolder,
    limits: Limits,
    deadline: Deadline,
) -> Footage:
    frames = []
    for name, upload in (("image1", image1), ("image2", image2)):
        file = WatchedFile(cast(IOBase, upload.file), deadline)
        frames.append(load_image(decode_image(file, name=name, max_pixels=limits.pixels)))
    check_pair(frames[0], frames[1])
    original = size_of(frames[0])
    size = working_size(original, limits)
    for number, frame in enumerate(frames):
        folder.save(frame_name(number), resize(frame, size))
    return Footage("pair", folder, 2, size, original)


def read_clip(
    upload: UploadFile, folder: ResultFolder, limits: Limits, deadline: Deadline
) -> Footage:
    """Read a clip, up to the limits on its length."""
    path = folder.path / "clip"
    with path.open("wb") as copy:
        upload.file.seek(0)
        shutil.copyfileobj(upload.file, copy)
    try:
        check_video_size(path, limits.pixels)
        return read_video(path, folder, limits, deadline)
    except ImageError as err:
        # Clients must not see paths of the server.
        raise type(err)(str(err).replace(str(path), "clip")) from err
    finally:
        path.unlink()


def read_video(path: Path, folder: ResultFolder, limits: Limits, deadline: Deadline) -> Footage:
    """Save the frames of a video; of a damaged one, those that can be read."""
    reader = VideoReader(path, max_pixels=limits.pixels, watch=deadline.check)
    info = reader.info
    max_frames = min(
        limits.clip_frames,
        round(limits.clip_seconds * info.fps) + 1,
        max(2, limits.clip_pixels // (info.height * info.width)),
    )
    with closing(iter(reader)) as frames:
        # One extra frame shows whether the clip is longer.
        images = (frame.image for frame in islice(frames, max_frames + 1))
        footage = save_frames(images, folder, limits, max_frames=max_frames, fps=float(info.fps))
    if reader.problem is None:
        return footage
    # Clients must not see paths of the server.
    problem = reader.problem.replace(str(path), "the clip")
    return replace(footage, notes=(*footage.notes, problem))


def read_images(
    uploads: Sequence[UploadFile], folder: ResultFolder, limits: Limits, deadline: Deadline
) -> Footage:
    """Read a clip whose frames are images; all must be usable."""

    def decode() -> Iterator[ImageArray]:
        first: ImageArray | None = None
        for number, upload in enumerate(uploads, 1):
            name = f"frame {number}"
            file = WatchedFile(cast(IOBase, upload.file), deadline)
            image = load_image(decode_image(file, name=name, max_pixels=limits.pixels))
            first = image if first is None else first
            check_same_size(
                {"frame 1": first, name: image},
                error=ImageError,
                remedy="the frames of a clip need one size",
            )
            yield image

    frames = decode()
    first = next(frames)
    max_frames = min(limits.clip_frames, max(2, limits.clip_pixels // (first.size // 3)))
    clip_frames = chain(
        [first], islice(frames, max_frames)
    )  # one extra shows whether the clip is longer
    return save_frames(clip_frames, folder, limits, max_frames=max_frames, fps=IMAGES_FPS)


def save_frames(
    frames: Iterator[ImageArray],
    folder: ResultFolder,
    limits: Limits,
    *,
    max_frames: int,
    fps: float,
) -> Footage:
    """Save up to `max_frames` frames."""
    count, original = 0, None
    last: ImageArray | None = None
    cuts: list[int] = []
    for frame in frames:
        count += 1
        original = size_of(load_image(frame, name="a frame of the clip"))
        if count <= max_frames:
            if last is not None and is_cut(last, frame, CUT_THRESHOLD):
                cuts.append(count)
            last = frame
            size = working_size(original, limits)
            folder.save(frame_name(count - 1), resize(frame, size))
    if original is None or min(count, max_frames) < 2:
        raise ImageError("the clip has fewer than two frames; send a longer clip or two images")
    notes = []
    if count > max_frames:
        notes.append(f"only the first {max_frames} frames are used")
    if cuts:
        frame_list = ", ".join(map(str, cuts[:5])) + (" ..." if len(cuts) > 5 else "")
        notes.append(
            f"scene cut at frame {frame_list}: neither flow nor tracks continue across a cut"
        )
    return Footage(
        "clip",
        folder,
        min(count, max_frames),
        working_size(original, limits),
        original,
        tuple(notes),
        fps=fps,
    )


def working_size(original: Size, limits: Limits) -> Size:
    """Return the largest size of the same aspect ratio within `work_pixels`."""
    scale = min(1.0, (limits.work_pixels / (original.width * original.height)) ** 0.5)
    size = Size(int(original.width * scale), int(original.height * scale))
    if min(size.width, size.height) < MIN_SIDE <= min(original.width, original.height):
        raise ImageError(
            f"{original} pixels are too many, and scaled down to {size} too narrow; crop the image "
            f"to at most {limits.work_pixels:,} pixels"
        )
    return size


def resize(image: ImageArray, size: Size) -> ImageArray:
    if size == size_of(image):
        return image
    return np.array(
        Image.fromarray(image).resize((size.width, size.height), Image.Resampling.LANCZOS)
    )


def size_of(image: ImageArray) -> Size:
    return Size(image.shape[1], image.shape[0])

"""A video as frames that know their time, read as far as it can be read."""

from collections.abc import Callable, Container, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import ImageError, counted
from gmaflow.io.folders import list_images
from gmaflow.io.images import read_image, scale_image
from gmaflow.io.paths import PathLike
from gmaflow.io.seeking import find_landing, packets_from, stream_start, stream_unit
from gmaflow.io.video import (
    DEFAULT_FPS,
    duration_of,
    import_av,
    open_video,
    other_size,
    probe_video,
    rate_of,
    upright,
)

if TYPE_CHECKING:
    import av.video.frame

    from gmaflow.io.seeking import Packet

LARGEST_SCALE = 8

_Undrawn = tuple[Fraction, Callable[[], np.ndarray]]
"""When a frame appears, and what makes the picture of it, which takes longer than to decode it."""


@dataclass(frozen=True, eq=False)
class TimedFrame:
    """A picture of a video, and when it appears."""

    number: int
    """Which one it is, from 0, of those that are wanted."""
    image: UInt8[np.ndarray, "h w 3"]
    time: Fraction
    """Seconds from the beginning of the video."""


class VideoReader:
    """The frames of a video, or of a folder of pictures, with their times.

    Frames come upright, RGB and one at a time, so that memory does not grow with the video. A video
    that is damaged, cut short or changes its size is read as far as it goes; `problem` tells then
    what is wrong with it.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        start: Fraction = Fraction(0),
        end: Fraction | None = None,
        every: int = 1,
        scale: float = 1.0,
        fps: Fraction = DEFAULT_FPS,
    ) -> None:
        """Look at the video.

        Args:
            path: a video, or a folder of pictures, which are taken in natural order.
            start: the first moment wanted, in seconds.
            end: the first moment no longer wanted; None for all.
            every: 1 for every frame, 2 for every other one.
            scale: by how much frames are made larger or, below 1, smaller.
            fps: how fast the pictures of a folder follow each other.

        Raises:
            ImageError: it cannot be read, or nothing is wanted of it.
        """
        self.path = Path(path)
        self.problem: str | None = None
        if every < 1:
            raise ImageError(f"every {every} frames makes no sense; give at least 1")
        if not 0 < scale <= LARGEST_SCALE:
            raise ImageError(f"a scale of {scale:g} makes no sense; give 0.5 for half the size")
        self.info = probe_video(path, fps=fps)
        length = self.info.seconds
        if end is not None and end <= start:
            raise ImageError(f"the part ends at {float(end):g} s and starts at {float(start):g} s")
        if start < 0 or (length is not None and start >= length):
            lasts = "" if length is None else f"lasts {float(length):.2f} s and "
            raise ImageError(f"{path} {lasts}has nothing at {float(start):g} s")
        self.scale = scale
        self.start = start
        self._end, self._every = end, every

    def glimpses(self, count: int) -> "list[VideoReader]":
        """Return so many readers of the video that begin at moments spread evenly over the part."""
        end = self._end if self.info.seconds is None else self._part_end(self.info.seconds)
        span = Fraction(0) if end is None else end - self.start
        readers = [copy(self) for _ in range(count if span else 1)]
        for number, reader in enumerate(readers):
            # Not in the middle of each stretch: a video of two frames has but one pair.
            reader.start = self.start + span * number / len(readers)
        return readers

    def _part_end(self, seconds: Fraction) -> Fraction:
        return seconds if self._end is None else min(self._end, seconds)

    @property
    def is_folder(self) -> bool:
        """Whether the frames are files of a folder."""
        return self.path.is_dir()

    @property
    def num_frames(self) -> int | None:
        """How many frames there will be, about; None if nobody knows."""
        if self.info.seconds is None:
            return None
        whole = self.info.num_frames or round(self.info.seconds * self.info.fps)
        part = self._part_end(self.info.seconds) - self.start
        share = part / self.info.seconds if self.info.seconds else 1
        return -(-round(whole * share) // self._every)

    def __iter__(self) -> Generator[TimedFrame]:
        """Read the frames.

        Raises:
            ImageError: not even one of them can be read.
        """
        return (frame for frame in self.passing_over(()) if frame is not None)

    def passing_over(self, numbers: Container[int]) -> Generator[TimedFrame | None]:
        """Read the frames, but give nothing in place of some, by number; the others keep theirs.

        Of a folder they are not read. Of a video they are decoded, for those after them, and no
        more: to count them is the only way to be certain of the numbers. Files may hide frames, or
        give times that are missing or wrong.

        Raises:
            ImageError: not even one frame can be read.
        """
        self.problem = None
        shape: tuple[int, ...] = ()
        given = 0
        try:
            for count, (time, draw) in enumerate(self._wanted()):
                number, left_out = divmod(count, self._every)
                if left_out:
                    continue
                frame = None
                if number not in numbers:
                    image = draw()
                    shape = shape or image.shape
                    if image.shape != shape:
                        raise other_size(self.path, image.shape, shape)
                    frame = TimedFrame(number, scale_image(image, self.scale), time)
                given += 1
                yield frame
        except ImageError as err:
            if not given:
                raise
            self.problem = str(err)
        if not given:
            raise ImageError(f"{self.path} holds no frames in the part that was asked for")

    def _wanted(self) -> Iterator[_Undrawn]:
        """The frames of the part that is wanted, every one of them."""
        for time, draw in self._pictures() if self.is_folder else self._decoded():
            if self._end is not None and time >= self._end:
                return
            yield time, draw

    def _pictures(self) -> Iterator[_Undrawn]:
        first = -(-self.start // self.info.time_base)
        paths = list_images(self.path)
        for number in range(int(first), len(paths)):
            yield number * self.info.time_base, partial(read_image, paths[number])

    def _decoded(self) -> Iterator[_Undrawn]:
        place = find_landing(self.path, self.start) if self.start else None
        with open_video(self.path) as (container, stream):
            begin = stream_start(stream)
            step, expected = 1 / rate_of(stream), Fraction(0)
            for frame in self._frames(packets_from(container, stream, place)):
                time = expected if frame.pts is None else frame.pts * stream_unit(stream) - begin
                shown = frame.duration * stream_unit(stream) if frame.duration else step
                expected = time + shown
                if time >= self.start:
                    yield time, partial(upright, frame)
            self._note_an_early_end(expected, duration_of(container, stream), 2 * step)

    def _frames(self, packets: Iterator["Packet"]) -> Iterator["av.video.frame.VideoFrame"]:
        av = import_av("reading video")
        damaged = 0
        for packet in packets:
            try:
                yield from packet.decode()
            except av.FFmpegError:
                damaged += 1
                places = counted(damaged, "place")
                self.problem = f"{self.path} is damaged in {places}, which are left out"

    def _note_an_early_end(
        self, reached: Fraction, length: Fraction | None, tolerance: Fraction
    ) -> None:
        # Half a second where nothing but the whole file's length is known, which is rounded.
        if length is not None and reached + max(tolerance, Fraction(1, 2)) < length:
            self.problem = (
                f"{self.path} is cut short: {float(reached):.2f} of {float(length):.2f} s are there"
            )

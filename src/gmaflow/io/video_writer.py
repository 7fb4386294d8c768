"""Frames -> a video that every player plays."""

from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import OutputError
from gmaflow.io.atomic import NO_ROOM, atomic_write
from gmaflow.io.paths import PathLike
from gmaflow.io.sound import Sound
from gmaflow.io.video import DEFAULT_FPS, import_av
from gmaflow.io.video_formats import VIDEO_FORMATS, with_palette

if TYPE_CHECKING:
    import av.container
    import av.video.frame
    import av.video.stream

_BT709 = 1  # FFmpeg's number of it, for the matrix, the primaries and the curve alike
_LIMITED_RANGE = 1
_FRAME_DURATION = 1 << 8  # FFmpeg's flag: frames say how long they are shown


class VideoWriter:
    """Write a video frame by frame; it appears under its name when the block ends well.

    The suffix picks the format: .mp4 .mov .mkv .webm .gif. The first frame gives the size. Video
    codecs want even sizes, so that an odd last row or column is written twice.

        with VideoWriter("flow.mp4", fps=30) as video:
            video.write(image)
    """

    def __init__(
        self,
        path: PathLike,
        *,
        fps: Fraction | int | float = DEFAULT_FPS,
        time_base: Fraction | None = None,
        pixel_aspect: Fraction = Fraction(1),
        sound: Sound | None = None,
    ) -> None:
        """Choose the place and the speed; nothing is opened yet.

        Args:
            path: where to; an existing file is replaced.
            fps: frames per second, on average if their times are given.
            time_base: what the frames' times are multiples of; 1 / fps if None.
            pixel_aspect: how wide pixels are shown in proportion to their height.
            sound: what is heard; it ends with the pictures.

        Raises:
            OutputError: the suffix is not known, or `fps` makes no sense.
        """
        self.path = Path(path)
        found = VIDEO_FORMATS.get(self.path.suffix.lower())
        if found is None:
            known = ", ".join(VIDEO_FORMATS)
            raise OutputError(f"{self.path}: video is written as {known}; use such a suffix")
        self._format = found
        if not 0 < fps <= 1000:
            raise OutputError(
                f"{self.path}: {fps} frames per second; give more than 0, at most 1000"
            )
        self._fps = Fraction(fps).limit_denominator(10_000)
        self._time_base = self._format.time_base or time_base or 1 / self._fps
        self._aspect = pixel_aspect
        self._sound = sound
        self._av = import_av("writing video")
        self._stack = ExitStack()
        self._container: av.container.OutputContainer | None = None
        self._stream: av.video.stream.VideoStream | None = None
        self._shape: tuple[int, ...] = ()
        self._last = -1
        self._end = Fraction(0)

    def __enter__(self) -> "VideoWriter":
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_write(self.path))
            self._container = self._av.open(
                str(temporary), "w", format=self._format.container, options=self._format.options
            )
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(
        self,
        image: UInt8[np.ndarray, "h w 3"],
        *,
        time: Fraction | None = None,
        seconds: Fraction | None = None,
    ) -> None:
        """Add a frame.

        Args:
            image: the picture.
            time: when it appears; by default when the one before ends.
            seconds: how long it is shown; by default 1 / fps.

        Raises:
            OutputError: its size differs from the first one's, or it cannot be encoded.
        """
        if self._container is None:
            raise RuntimeError("VideoWriter.write is called inside its with block")
        if self._shape and image.shape != self._shape:
            raise OutputError(
                f"{self.path}: a frame of {image.shape[0]} x {image.shape[1]} after frames of "
                f"{self._shape[0]} x {self._shape[1]}; all must have one size"
            )
        self._shape = image.shape
        frame = self._as_frame(image)
        time = self._end if time is None else time
        self._end = time + (seconds or 1 / self._fps)
        # Times that the container cannot tell apart would be refused.
        self._last = max(round(time / self._time_base), self._last + 1)
        frame.pts, frame.time_base = self._last, self._time_base
        frame.duration = max(1, round(self._end / self._time_base) - self._last)
        try:
            self._stream = self._stream or self._add_streams(frame)
            self._container.mux(self._stream.encode(frame))
            if self._sound is not None:
                self._sound.copy_until(self._end)
        except self._av.FFmpegError as err:
            raise self._failure(err) from err

    def _as_frame(self, image: UInt8[np.ndarray, "h w 3"]) -> "av.video.frame.VideoFrame":
        if self._format.pixels == "pal8":
            return self._av.VideoFrame.from_ndarray(with_palette(image), format="pal8")
        height, width, _ = image.shape
        even = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        frame = self._av.VideoFrame.from_ndarray(even, format="rgb24")
        # Said openly: players take unmarked video for one matrix or the other by its size.
        return frame.reformat(format=self._format.pixels, dst_colorspace="itu709")

    def _finish(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush after success, close in any case; what is raised here undoes the file as well."""
        container, stream = self._container, self._stream
        self._container = self._stream = None
        assert container is not None
        if error is not None or stream is None:
            with suppress(self._av.FFmpegError):
                container.close()
            if error is None:
                raise OutputError(f"{self.path}: no frames were written, so there is no video")
            return
        try:
            with container:
                container.mux(stream.encode(None))
                if self._sound is not None:
                    self._sound.finish()
        except self._av.FFmpegError as err:
            raise self._failure(err) from err

    def _failure(self, err: OSError) -> OutputError:
        if err.errno in NO_ROOM:
            return OutputError(f"{self.path} cannot be written: {(err.strerror or '').lower()}")
        return OutputError(f"{self.path}: the video cannot be encoded ({err.strerror})")

    def _add_streams(self, frame: "av.video.frame.VideoFrame") -> "av.video.stream.VideoStream":
        assert self._container is not None
        added = self._container.add_stream(
            self._format.codec, rate=self._fps, options=self._format.quality
        )
        stream = cast("av.video.stream.VideoStream", added)
        stream.height, stream.width = frame.height, frame.width
        stream.pix_fmt = self._format.pixels
        context = stream.codec_context
        context.time_base = self._time_base
        # Else every frame, and so the last one, would be said to last as long as the average.
        context.flags |= _FRAME_DURATION
        context.sample_aspect_ratio = self._aspect
        if self._format.pixels != "pal8":
            context.colorspace = context.color_primaries = context.color_trc = _BT709
            context.color_range = _LIMITED_RANGE
        if self._sound is not None:
            self._sound.attach(self._container)
        return stream

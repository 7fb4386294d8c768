"""Frames -> an H.264 video that every player plays."""

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import OutputError
from gmaflow.io.atomic import atomic_write
from gmaflow.io.paths import PathLike
from gmaflow.io.video import DEFAULT_FPS, import_av

if TYPE_CHECKING:
    import av.container
    import av.video.stream

_BT709 = 1  # FFmpeg's number of it, for the matrix, the primaries and the curve alike
_LIMITED_RANGE = 1


class VideoWriter:
    """Write an .mp4 frame by frame; it appears under its name when the block ends well.

    The first frame gives the size. H.264 wants even sizes, so that an odd last row or column is
    written twice.

        with VideoWriter("flow.mp4", fps=30) as video:
            video.write(image)
    """

    def __init__(self, path: PathLike, *, fps: Fraction | int | float = DEFAULT_FPS) -> None:
        """Choose the place and the speed; nothing is opened yet.

        Raises:
            OutputError: the suffix is not .mp4, or `fps` makes no sense.
        """
        self.path = Path(path)
        if self.path.suffix.lower() != ".mp4":
            raise OutputError(f"{self.path}: video is written as .mp4; use that suffix")
        if not 0 < fps <= 1000:
            raise OutputError(
                f"{self.path}: {fps} frames per second; give more than 0, at most 1000"
            )
        self._fps = Fraction(fps).limit_denominator(10_000)
        self._av = import_av("writing video")
        self._stack = ExitStack()
        self._container: av.container.OutputContainer | None = None
        self._stream: av.video.stream.VideoStream | None = None
        self._shape: tuple[int, ...] = ()

    def __enter__(self) -> "VideoWriter":
        options = {"movflags": "+faststart"}  # the index first, so that browsers start at once
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_write(self.path))
            self._container = self._av.open(str(temporary), "w", format="mp4", options=options)
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

    def write(self, image: UInt8[np.ndarray, "h w 3"]) -> None:
        """Add a frame.

        Raises:
            OutputError: its size differs from the first one's, or the encoder refuses it.
        """
        if self._container is None:
            raise RuntimeError("VideoWriter.write is called inside its with block")
        if self._shape and image.shape != self._shape:
            raise OutputError(
                f"{self.path}: a frame of {image.shape[0]} x {image.shape[1]} after frames of "
                f"{self._shape[0]} x {self._shape[1]}; all must have one size"
            )
        height, width, _ = self._shape = image.shape
        even = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        frame = self._av.VideoFrame.from_ndarray(even, format="rgb24")
        # Said openly: players take unmarked video for one matrix or the other by its size.
        frame = frame.reformat(format="yuv420p", dst_colorspace="itu709")
        try:
            self._stream = self._stream or self._add_stream(*even.shape[:2])
            self._container.mux(self._stream.encode(frame))
        except self._av.FFmpegError as err:
            raise OutputError(f"{self.path}: the video cannot be encoded ({err})") from err

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
        with container:
            if error is not None:
                return
            if stream is None:
                raise OutputError(f"{self.path}: no frames were written, so there is no video")
            try:
                container.mux(stream.encode(None))
            except self._av.FFmpegError as err:
                raise OutputError(f"{self.path}: the video cannot be encoded ({err})") from err

    def _add_stream(self, height: int, width: int) -> "av.video.stream.VideoStream":
        assert self._container is not None
        stream = self._container.add_stream(
            "libx264", rate=self._fps, options={"crf": "17", "preset": "fast"}
        )
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        context.color_range = _LIMITED_RANGE
        return stream

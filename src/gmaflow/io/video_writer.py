"""Writing video that every player plays, with the sound of another video."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from io import SEEK_CUR, SEEK_SET, BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import ImageError, OutputError, os_reason
from gmaflow.io.images import check_image, check_picture
from gmaflow.io.paths import PathLike, atomic_write
from gmaflow.io.video_reader import DEFAULT_FPS, import_av, open_video, stream_start

if TYPE_CHECKING:
    import av.container
    import av.video.frame
    import av.video.stream
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.packet import Packet as AnyPacket

    Packet = AnyPacket[AudioStream]

Value = TypeVar("Value")

_BT709 = 1  # FFmpeg's number, for the matrix, the primaries and the curve
_LIMITED_RANGE = 1
_FRAME_DURATION = 1 << 8  # FFmpeg's flag: frames carry their own duration
# What players support; by the standard mp4 can hold nearly everything.
_COPIED = dict.fromkeys(("mp4", "mov"), frozenset({"aac", "mp3", "ac3", "eac3", "alac"}))
_ENCODERS = {"webm": "libopus"}
_USUAL_ENCODER = "aac"
_RATE = 48_000  # supported by every encoder


@dataclass(frozen=True)
class VideoFormat:
    """How frames are encoded, and the container."""

    container: str
    codec: str
    pixels: str
    quality: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    time_base: Fraction | None = None
    """The finest time unit of the container; None if it takes any."""


_H264 = {"crf": "17", "preset": "fast"}
# mp4 and mov add up the durations of frames in decoding order. If frames are shown in another order
# and their times are uneven, the sum falls short of the true duration, and players stop early.
# Without B-frames there is only one order; it costs a fifth more.
_H264_IN_ORDER = _H264 | {"bf": "0"}
_INDEX_FIRST = {"movflags": "+faststart"}  # so that browsers start at once
VIDEO_FORMATS = {
    ".mp4": VideoFormat("mp4", "libx264", "yuv420p", _H264_IN_ORDER, _INDEX_FIRST),
    ".mov": VideoFormat("mov", "libx264", "yuv420p", _H264_IN_ORDER, _INDEX_FIRST),
    ".mkv": VideoFormat("matroska", "libx264", "yuv420p", _H264, {}, Fraction(1, 1000)),
    ".webm": VideoFormat(
        "webm",
        "libvpx-vp9",
        "yuv420p",
        {"crf": "24", "b": "0", "deadline": "good", "cpu-used": "4", "row-mt": "1"},
        {},
        Fraction(1, 1000),
    ),
    ".gif": VideoFormat("gif", "gif", "pal8", {}, {}, Fraction(1, 100)),
}
VIDEO_OUTPUTS = frozenset(VIDEO_FORMATS)
"""Suffixes of videos that can be written."""


def has_sound(path: PathLike) -> bool:
    """Whether a video has sound that can be read; a folder of images has none."""
    if Path(path).is_dir():
        return False
    with open_video(path) as (container, _):
        return _find_track(container) is not None


def _find_track(container: "av.container.InputContainer") -> "AudioStream | None":
    # Without a decoder, as of newer codecs of phones, there is no context.
    return next((track for track in container.streams.audio if track.codec_context), None)


class Sound:
    """The first sound track of a video that can be read, from a moment on.

    It is copied unchanged if the new container can hold it, and encoded again otherwise.
    """

    def __init__(self, path: PathLike, *, start: Fraction = Fraction(0)) -> None:
        """Set the source and the moment that becomes the beginning; nothing is opened yet."""
        self._av = import_av("writing sound")
        self._path = path
        self._opened = open_video(path)
        self._start = start
        self._packets: Iterator[Packet] = iter(())
        self._waiting: Packet | None = None
        self._target: Any = None
        self._encodes = False
        self._resampler: Any = None
        self._kind: tuple[object, ...] = ()
        self._end = -math.inf
        self._begin = Fraction(0)
        self._last: int | None = None

    def __enter__(self) -> "Sound":
        container, pictures = self._opened.__enter__()
        track = _find_track(container)
        if track is None:
            self._opened.__exit__(None, None, None)
            raise ImageError(f"{self._path} has no sound that can be read; write it without")
        self._source = track
        self._unit = Fraction(self._source.time_base or Fraction(1, _RATE))
        self._begin = stream_start(pictures) + self._start
        if self._start:
            container.seek(int(self._begin / self._unit), stream=self._source)
        self._packets = container.demux(self._source)
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.__exit__(None, None, None)

    def attach(self, container: "av.container.OutputContainer") -> None:
        """Add a sound track to a new video, before anything is written to it."""
        self._container = container
        copied = _COPIED.get(container.format.name, container.supported_codecs)
        codec = self._source.codec_context.codec
        if copied & {codec.name, codec.canonical_name}:  # mp3float is a decoder of mp3
            self._target = container.add_stream_from_template(self._source)
            return
        encoder = _ENCODERS.get(container.format.name, _USUAL_ENCODER)
        self._target = container.add_stream(encoder, rate=_RATE)
        self._target.codec_context.layout = "stereo"
        self._target.codec_context.open()
        self._encodes = True

    def copy_until(self, moment: Fraction) -> None:
        """Write the sound up to a moment of the new video, continuing where it stopped."""
        for packet in self._next_packets():
            time = (packet.pts or 0) * self._unit - self._begin
            if time >= moment:
                self._waiting = packet
                return
            # The beginning of a file holds what a decoder needs before the first sample.
            if time < 0 and self._start:
                continue
            if self._encodes:
                self._encode(packet)
            else:
                self._copy(packet)

    def finish(self) -> None:
        """Write what is left in the encoder."""
        if self._encodes:
            self._encode_resampled(None)
            self._container.mux(self._target.encode(None))

    def _next_packets(self) -> Iterator["Packet"]:
        if self._waiting is not None:
            packet, self._waiting = self._waiting, None
            yield packet
        # If the file cannot be read further, the sound ends.
        with suppress(self._av.FFmpegError):
            for packet in self._packets:
                if packet.pts is not None:
                    yield packet

    def _copy(self, packet: "Packet") -> None:
        # Sound is decoded in the order in which it is heard. Times that go back, as in damaged
        # packets, are refused by containers.
        time = (packet.pts or 0) - round(self._begin / self._unit)
        if self._last is not None and time <= self._last:
            return
        packet.pts = packet.dts = self._last = time
        packet.stream = self._target
        self._container.mux(packet)

    def _encode(self, packet: "Packet") -> None:
        frames = []
        with suppress(self._av.FFmpegError):  # a damaged packet is a moment of silence
            frames = self._source.codec_context.decode(packet)
        for frame in frames:
            # In samples of the encoder: a resampler that has nothing to convert keeps the unit of
            # the source, which in Matroska is a millisecond.
            time = (frame.pts or 0) * self._unit - self._begin
            frame.pts, frame.time_base = round(time * _RATE), Fraction(1, _RATE)
            self._encode_resampled(frame)

    def _encode_resampled(self, frame: "AudioFrame | None") -> None:
        kind = frame and (frame.format.name, frame.layout.name, frame.sample_rate)
        if kind and kind != self._kind:
            # Broadcasts change from stereo to surround and back, which a resampler refuses. What
            # the old one holds, less than a frame of the encoder, is left out.
            self._kind, context = kind, self._target.codec_context
            self._resampler = self._av.AudioResampler(
                context.format, "stereo", _RATE, frame_size=context.frame_size
            )
        for ready in self._resampler.resample(frame) if self._resampler else ():
            # Coarse times, as of AVI, overlap by a few samples, and containers refuse such frames.
            self._end = ready.pts = max(ready.pts, self._end)
            self._end += ready.samples
            self._container.mux(self._target.encode(ready))


class VideoWriter:
    """Write a video frame by frame; the file appears when the block ends without an error.

    The suffix picks the format: .mp4 .mov .mkv .webm .gif. The first frame sets the size. Video
    codecs need even sizes, so an odd last row or column is written twice.

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
        """Set the output and frame rate; nothing is opened yet.

        Args:
            path: Where to; an existing file is replaced.
            fps: Frames per second, on average if times are given.
            time_base: The unit of the frames' times, in seconds; 1 / fps if None.
            pixel_aspect: Width of a pixel in proportion to its height.
            sound: The sound track; it ends with the frames.
        """
        self.path = Path(path)
        video_format = VIDEO_FORMATS.get(self.path.suffix.lower())
        if video_format is None:
            suffixes = ", ".join(VIDEO_FORMATS)
            raise OutputError(
                f"{self.path}: {self.path.suffix!r} is not a video format; use one of {suffixes}"
            )
        self._format = video_format
        if not 0 < fps <= 1000:
            raise OutputError(
                f"{self.path}: {fps} frames per second; give more than 0, at most 1000"
            )
        # A lower rate would become 0.
        self._fps = max(Fraction(fps).limit_denominator(10_000), Fraction(1, 10_000))
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
            self._file = QuietFile(stack.enter_context(atomic_write(self.path)))
            self._container = self._av.open(
                self._file,
                "w",
                format=self._format.container,
                options=self._format.options,
                # To move the index to the front FFmpeg reads what it has written.
                io_open=lambda *_: WrittenPart(self._file),
            )
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self._stack.__exit__(*error)

    def write(
        self,
        image: UInt8[np.ndarray, "h w 3"],
        *,
        time: Fraction | None = None,
        seconds: Fraction | None = None,
    ) -> None:
        """Add a frame.

        Args:
            image: The frame, of the same size as the first.
            time: When it appears; by default when the previous one ends.
            seconds: How long it is shown; by default 1 / fps.
        """
        if self._container is None:
            raise RuntimeError("VideoWriter.write is called inside its with block")
        check_picture(self.path, image, alpha=False)
        check_image(image)
        if self._shape and image.shape != self._shape:
            raise OutputError(
                f"{self.path}: a frame of {image.shape[0]} x {image.shape[1]} after frames of "
                f"{self._shape[0]} x {self._shape[1]}; all must have one size"
            )
        self._shape = image.shape
        frame = self._as_frame(image)
        time = self._end if time is None else time
        self._end = time + (seconds or 1 / self._fps)
        # The container refuses frames of equal time.
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
        self._check_file()

    def _as_frame(self, image: UInt8[np.ndarray, "h w 3"]) -> "av.video.frame.VideoFrame":
        if self._format.pixels == "pal8":
            return self._av.VideoFrame.from_ndarray(with_palette(image), format="pal8")
        height, width, _ = image.shape
        even = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        frame = self._av.VideoFrame.from_ndarray(even, format="rgb24")
        # Marked explicitly: players guess the matrix of unmarked video by its size.
        return frame.reformat(format=self._format.pixels, dst_colorspace="itu709")

    def _finish(self, kind: object, *_error: object) -> None:
        """Flush after success, and close; an error here removes the file as well."""
        container, stream = self._container, self._stream
        self._container = self._stream = None
        assert container is not None
        if kind is not None or stream is None:
            with suppress(self._av.FFmpegError):
                container.close()
            if kind is None:
                raise OutputError(f"{self.path}: no frames were written")
            return
        try:
            with container:
                container.mux(stream.encode(None))
                if self._sound is not None:
                    self._sound.finish()
        except self._av.FFmpegError as err:
            raise self._failure(err) from err
        self._check_file()

    def _check_file(self) -> None:
        if self._file.error is not None:
            reason = os_reason(self._file.error)
            raise OutputError(f"{self.path} cannot be written: {reason}") from self._file.error

    def _failure(self, err: "av.FFmpegError") -> OutputError:
        self._check_file()  # what FFmpeg makes of a file that is cut off is no reason
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
        # Otherwise every frame, including the last, would get the average duration.
        context.flags |= _FRAME_DURATION
        context.sample_aspect_ratio = self._aspect
        if self._format.pixels != "pal8":
            context.colorspace = context.color_primaries = context.color_trc = _BT709
            context.color_range = _LIMITED_RANGE
        if self._sound is not None:
            self._sound.attach(self._container)
        return stream


class QuietFile:
    """An open file that never fails: it keeps its first error, and ignores what follows.

    PyAV would raise the first error, and print a traceback for each one after it.
    """

    name = "video"
    """PyAV passes it to `io_open` as UTF-8, which not every name of a file is."""

    def __init__(self, file: BufferedRandom) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        return self._try(lambda: self._file.write(data), len(data))

    def read(self, count: int) -> bytes:
        return self._try(lambda: self._file.read(count), b"")

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return self._try(lambda: self._file.seek(offset, whence), offset)

    def tell(self) -> int:
        return self._try(self._file.tell, 0)

    def _try(self, call: Callable[[], Value], otherwise: Value) -> Value:
        if self.error is None:
            try:
                return call()
            except OSError as err:
                self.error = err
        return otherwise


class WrittenPart:
    """Reads an open file with its own position."""

    def __init__(self, file: QuietFile) -> None:
        self._file = file
        self._place = 0

    def read(self, count: int) -> bytes:
        back = self._file.tell()
        self._file.seek(self._place)
        data = self._file.read(count)
        self._place += len(data)
        self._file.seek(back)
        return data

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        back = self._file.tell()
        start = self._place if whence == SEEK_CUR else self._file.seek(0, whence)
        self._place = start + offset
        self._file.seek(back)
        return self._place

    def tell(self) -> int:
        return self._place

    def close(self) -> None:
        """Leave the file open for its writer."""


def with_palette(
    image: UInt8[np.ndarray, "h w 3"],
) -> tuple[UInt8[np.ndarray, "h w"], UInt8[np.ndarray, "256 4"]]:
    """Choose 256 colours for an image; returns an index for each pixel, and alpha and RGB."""
    from PIL import Image

    chosen = Image.fromarray(image).quantize(256)
    colors = np.array(chosen.getpalette("RGB"), np.uint8).reshape(-1, 3)
    palette = np.full((256, 4), 255, np.uint8)
    palette[: len(colors), 1:] = colors
    return np.array(chosen), palette

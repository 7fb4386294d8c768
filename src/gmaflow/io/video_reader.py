"""Reading video: frames with their times, from a video file or a folder of images."""

from collections.abc import Callable, Container, Generator, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import dropwhile, islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import ImageError, ImageTooLargeError, counted
from gmaflow.io.folders import list_images
from gmaflow.io.images import IMAGE_SUFFIXES, read_image, scale_image, shape_text
from gmaflow.io.paths import PathLike, as_path, require_file

if TYPE_CHECKING:
    import av.container
    import av.video.frame
    import av.video.stream
    from av.packet import Packet as AnyPacket

    Packet = AnyPacket[av.video.stream.VideoStream]

DEFAULT_FPS, LARGEST_RATE = Fraction(25), 1000
LARGEST_SCALE = 8

ALWAYS_DECODED = 36_000_000
"""Pixels of a frame that any file may have, more than 8K. Decoders take ten bytes for each."""
SAFE_PIXELS_PER_BYTE = 16
"""Larger frames are decoded only in files of a size to match: a bomb is small."""

# FFmpeg goes by content: a playlist called clip.mp4 would make it open other files and addresses.
_OPTIONS = {
    "format_whitelist": "mov,mp4,matroska,webm,avi,mpeg,mpegts,ogg,gif",
    "protocol_whitelist": "file",
    # Some decoders allocate ten bytes for each pixel that the header claims when they are opened,
    # which FFmpeg does to probe a file. Larger frames are decoded, but not to probe.
    "max_pixels": str(ALWAYS_DECODED),
}
_TIMES_ARE_GUESSED = ("mpeg", "avi", "ogg")
"""Formats that do not store the time of each frame: after a seek FFmpeg guesses other times."""
_STORE_FRAMES, _SHOW_EVERY_PACKET = ("mov", "matroska"), {"av1", "h264", "hevc", "vp9"}
"""Formats that store frames with their times, and codecs of which each stored one is shown."""
_STEPS_BACK = (0, 1, 4, 16)
"""Seconds to aim earlier, tried in order until a seek lands before the moment."""

_Undrawn = tuple[Fraction, Callable[[], np.ndarray]]
"""The time of a frame, and a function that converts it to RGB, which takes longer than decoding."""


@dataclass(frozen=True)
class VideoInfo:
    """What is known about a video before its frames are read."""

    height: int
    """Rows of an upright frame."""
    width: int
    """Columns of an upright frame."""
    fps: Fraction
    """Frames per second; 25 if the source does not say."""
    num_frames: int | None
    """Number of frames according to the file; None if it does not say, or counts hidden ones."""
    seconds: Fraction | None
    """Approximate duration according to the file, or None."""
    time_base: Fraction
    """All frames appear at multiples of it, in seconds."""
    pixel_aspect: Fraction = Fraction(1)
    """Width of a pixel of an upright frame in proportion to its height."""


@dataclass(frozen=True, eq=False)
class TimedFrame:
    """A frame of a video and its time."""

    number: int
    """Its index among the frames that are read, from 0."""
    image: UInt8[np.ndarray, "h w 3"]
    time: Fraction
    """Seconds from the beginning of the video."""
    scale: float = 1.0
    """By how much it was resized."""


class VideoReader:
    """The frames of a video, or of a folder of images, with their times.

    Frames are upright RGB and come one at a time, so memory does not grow with the video.

    What is damaged is read as far as possible, and `problem` says what is wrong: frames of a video
    that cannot be decoded are skipped; an image that cannot be read, or a frame of another size,
    ends the reading. It is an error if not even the first frame can be read.
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
        max_pixels: int | None = None,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        """Look at the video.

        Args:
            path: A video, or a folder of images, which are taken in natural order.
            start: Where to begin, in seconds.
            end: Where to end, in seconds; None reads to the end.
            every: 1 for every frame, 2 for every other one.
            scale: Factor by which frames are resized; below 1 makes them smaller.
            fps: Frame rate of a folder of images.
            max_pixels: Videos: do not decode larger frames, whatever size the file claims.
            watch: Videos: called before something is decoded; may raise to stop.
        """
        self.path = as_path(path, ImageError)
        self.problem: str | None = None
        if every < 1:
            raise ImageError(f"every is {every}; give at least 1")
        if not 0 < scale <= LARGEST_SCALE:
            raise ImageError(f"a scale of {scale:g} is out of range; give 0.5 for half the size")
        self.info = probe_video(path, fps=fps, max_pixels=max_pixels)
        length = self.info.seconds
        if end is not None and end <= start:
            raise ImageError(
                f"the end ({float(end):g} s) is not after the start ({float(start):g} s)"
            )
        if start < 0 or (length is not None and start >= length):
            lasts = "" if length is None else f"lasts {float(length):.2f} s and "
            raise ImageError(f"{path} {lasts}has nothing at {float(start):g} s")
        self.scale = scale
        self.start = start
        self._end, self._every = end, every
        # Frames of the part to read, at its beginning. Counting them may take long.
        self._left_out: Callable[[], int] = lambda: 0
        self._max_pixels, self._watch = max_pixels, watch

    def alike(self, path: PathLike) -> "VideoReader":
        """Return a reader of the same frames, by number, of another video or folder such as masks.

        Times would not do: those of the other may differ, and a folder has none of its own.
        """
        reader = VideoReader(path, every=self._every, scale=self.scale, fps=self.info.fps)
        reader._left_out = cache(self._count_before)
        return reader

    def _count_before(self) -> int:
        """Return how many frames come before the part to read; some videos must be decoded."""
        if not self.start:
            return 0
        count = None if self.is_folder else count_before(self.path, self.start)
        if count is not None:
            return count
        before = copy(self)
        before.start, before._end, before.problem = Fraction(0), self.start, None
        count = sum(1 for _ in before._wanted())
        if before.problem:
            raise ImageError(
                f"{before.problem}, so the frames before {float(self.start):g} s cannot be "
                "counted; cut the part out as a video of its own, with masks of its own"
            )
        return count

    def glimpses(self, count: int) -> "list[VideoReader]":
        """Return `count` readers that begin at moments spread evenly over the part to read."""
        end = self._end if self.info.seconds is None else self._part_end(self.info.seconds)
        span = Fraction(0) if end is None else end - self.start
        readers = [copy(self) for _ in range(count if span else 1)]
        for number, reader in enumerate(readers):
            # Not in the middle of each stretch: a video of two frames has only one pair.
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
        """The approximate number of frames to read; None if unknown."""
        if self.info.seconds is None:
            return None
        whole = self.info.num_frames or round(self.info.seconds * self.info.fps)
        part = self._part_end(self.info.seconds) - self.start
        share = part / self.info.seconds if self.info.seconds else 1
        return -(-round(whole * share) // self._every)

    def __iter__(self) -> Generator[TimedFrame]:
        return (frame for frame in self.passing_over(()) if frame is not None)

    def passing_over(self, numbers: Container[int]) -> Generator[TimedFrame | None]:
        """Read the frames, but yield None for some, by number; the others keep their numbers.

        Skipped images of a folder are not read. Skipped frames of a video are decoded, since later
        frames depend on them, but not converted. They must be counted: files may hide frames, or
        store times that are missing or wrong.
        """
        self.problem = None
        shape: tuple[int, ...] = ()
        yielded = 0
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
                        raise ImageError(
                            f"{self.path}: frame {number} is {shape_text(image.shape[:2])}, those "
                            f"before it {shape_text(shape[:2])}; all must have one size"
                        )
                    frame = TimedFrame(number, scale_image(image, self.scale), time, self.scale)
                yielded += 1
                yield frame
        except ImageError as err:
            if not yielded:
                raise
            self.problem = str(err)
        if not yielded:
            raise ImageError(f"{self.path} has no frames in the part to read")

    def _wanted(self) -> Iterator[_Undrawn]:
        """Yield every frame of the part to read."""
        pictures = self._pictures() if self.is_folder else self._decoded()
        for time, draw in islice(pictures, self._left_out(), None):
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
        with open_video(self.path, self._max_pixels) as (container, stream):
            begin = stream_start(stream)
            step, expected = 1 / rate_of(stream), Fraction(0)
            for frame in self._frames(packets_from(container, stream, place)):
                time = expected if frame.pts is None else frame.pts * stream_unit(stream) - begin
                shown = frame.duration * stream_unit(stream) if frame.duration else step
                expected = time + shown
                if time >= self.start:
                    yield time, partial(upright, frame)
            self._note_early_end(expected, duration_of(container, stream), 2 * step)

    def _frames(self, packets: Iterator["Packet"]) -> Iterator["av.video.frame.VideoFrame"]:
        av = import_av("reading video")
        damaged = 0
        for packet in packets:
            self._watch()
            try:
                yield from packet.decode()
            except av.FFmpegError:
                damaged += 1
                places = counted(damaged, "place")
                self.problem = f"{self.path} is damaged in {places}, which were skipped"

    def _note_early_end(
        self, reached: Fraction, length: Fraction | None, tolerance: Fraction
    ) -> None:
        # Half a second where only the rounded length of the whole file is known.
        if length is not None and reached + max(tolerance, Fraction(1, 2)) < length:
            self.problem = (
                f"{self.path} is truncated: it has {float(reached):.2f} of {float(length):.2f} s"
            )


def probe_video(
    path: PathLike, *, fps: Fraction = DEFAULT_FPS, max_pixels: int | None = None
) -> VideoInfo:
    """Look at a video, or a folder of images at `fps`, without reading all of it."""
    path = Path(path)
    if path.is_dir():
        images = list_images(path)
        height, width, _ = read_image(images[0]).shape
        return VideoInfo(height, width, fps, len(images), len(images) / fps, 1 / fps)
    with open_video(path, max_pixels) as (container, stream):
        # Only the first frame says how the video is rotated.
        first = next(container.decode(stream), None)
        if first is None:
            raise ImageError(f"{path} holds no frames; give another video")
        height, width, _ = upright(first).shape
        aspect = Fraction(stream.sample_aspect_ratio or 1)
        seconds = duration_of(container, stream) or _rough_duration(container)
        return VideoInfo(
            height,
            width,
            rate_of(stream),
            _count_of(stream, seconds),
            seconds,
            stream_unit(stream),
            1 / aspect if quarter_turns(first) % 2 else aspect,
        )


def check_video_size(path: PathLike, max_pixels: int) -> None:
    """Refuse a video whose frames are too large, before any of them is decoded."""
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


def import_av(doing: str) -> ModuleType:
    """Import PyAV, or say how to install it."""
    try:
        import av
    except ModuleNotFoundError as err:
        raise ImageError(f"{doing} needs PyAV: pip install av") from err
    return av


@contextmanager
def open_video(
    path: PathLike, max_pixels: int | None = None
) -> Iterator[tuple["av.container.InputContainer", "av.video.stream.VideoStream"]]:
    """Open a video file and find its video stream.

    Frames above `max_pixels` are not decoded, even if the header claims a smaller size. By default
    that is more than 8K, and more for a large file.
    """
    path = require_file(path, ImageError, "a video or a folder of images")
    av = import_av("reading video")
    # Before version 19 PyAV refuses notes that are not UTF-8, unless told otherwise.
    lenient = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "replace"}
    try:
        with av.open(str(path), options=_OPTIONS, **lenient) as container:
            if not container.streams.video:
                raise ImageError(f"{path} holds no video stream; give a video")
            stream = container.streams.video[0]
            if stream.codec_context is None:  # decoding without one would end the process
                raise ImageError(
                    f"{path} is damaged, or its codec is not supported; give another video"
                )
            stream.thread_type = "AUTO"
            if max_pixels is None:
                by_size = int(SAFE_PIXELS_PER_BYTE * path.stat().st_size)
                max_pixels = max(ALWAYS_DECODED, by_size)
            stream.codec_context.options = {"max_pixels": str(max_pixels)}
            yield container, stream
    except av.FFmpegError as err:
        if path.suffix.lower() in IMAGE_SUFFIXES - {".gif"}:
            raise ImageError(
                f"{path} is an image, not a video; give a video such as .mp4, or a folder of images"
            ) from err
        raise ImageError(
            f"{path} cannot be read as video ({err.strerror}); give a video such as .mp4, or a "
            "folder of images"
        ) from err


# --- Seeking: where to start decoding so that every frame from a moment on is decoded correctly ---
# A seek follows the order in which frames are stored. They are shown in another order, so a seek
# may land after the wanted frames, or on one that cannot be decoded without those before it.


def find_landing(path: PathLike, moment: Fraction) -> int | None:
    """Find a place to seek to from which all frames of a moment and later can be decoded.

    It is in the stream's own time; None if no place is certain, and the video must be decoded from
    its beginning.
    """
    av = import_av("reading video")
    with open_video(path) as (container, stream):
        if container.format.name in _TIMES_ARE_GUESSED:
            return None
        target = int((moment + stream_start(stream)) / stream_unit(stream))
        for seconds in _STEPS_BACK:
            place = target - int(seconds / stream_unit(stream))
            if place <= (stream.start_time or 0):
                break
            try:
                if _lands_before(container, stream, place, target):
                    return place
            except av.FFmpegError:
                continue
    return None


def packets_from(
    container: "av.container.InputContainer",
    stream: "av.video.stream.VideoStream",
    place: int | None,
) -> Iterator["Packet"]:
    """Read a video's packets from a place that `find_landing` found, or from its beginning."""
    if place is None:
        return container.demux(stream)
    container.seek(place, stream=stream)
    return dropwhile(lambda packet: not packet.is_keyframe, container.demux(stream))


def _lands_before(
    container: "av.container.InputContainer",
    stream: "av.video.stream.VideoStream",
    place: int,
    target: int,
) -> bool:
    """Whether a seek finds a key frame no later than wanted, and the decoder starts with it.

    Frames that are stored after the key frame but shown before it are skipped: they may depend on
    frames that were not read. Some decoders leave out the key frame itself; then the seek is no
    good.
    """
    key: int | None = None
    for packet in packets_from(container, stream, place):
        if key is None:
            key = packet.pts
            if key is None or key > target:
                return False
        for frame in packet.decode():
            if frame.pts is None:
                return False
            if frame.pts >= key:
                return frame.pts == key and bool(frame.key_frame)
    return False


def count_before(path: PathLike, moment: Fraction) -> int | None:
    """Count the frames that are shown before a moment, without decoding them.

    Frames that cannot be decoded count too. None if it is not certain.
    """
    with open_video(path) as (container, stream):
        if not (
            container.format.name.startswith(_STORE_FRAMES)
            and stream.codec_context.codec.canonical_name in _SHOW_EVERY_PACKET
        ):
            return None
        begin = stream.start_time or 0
        end = begin + moment / stream_unit(stream)
        count, key = 0, None
        for packet in container.demux(stream):
            if packet.pts is None:
                if packet.size:
                    return None
                continue  # the end
            if key is None and packet.is_keyframe:
                key = packet.pts
            if key is None or packet.pts < key:
                return None  # it may depend on frames that are not there
            if packet.dts is not None and packet.dts >= end:
                break
            count += not packet.is_discard and begin <= packet.pts < end
    return count


def stream_unit(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return the unit of a stream's times, in seconds."""
    return Fraction(stream.time_base) if stream.time_base else 1 / rate_of(stream)


def stream_start(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return when the first frame appears, in the file's own time."""
    return (stream.start_time or 0) * stream_unit(stream)


def rate_of(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return the average frame rate, or a guess."""
    rate = stream.average_rate or stream.guessed_rate
    # Some recordings give the ticks of their clock instead.
    return Fraction(rate) if rate and 0 < rate < LARGEST_RATE else DEFAULT_FPS


def _count_of(stream: "av.video.stream.VideoStream", seconds: Fraction | None) -> int | None:
    """Return the number of frames according to the file, or None."""
    if seconds is not None and stream.frames > seconds * rate_of(stream) + Fraction(1, 2):
        # A clip that was cut without encoding it again also has the frames from the last key frame
        # to its beginning, which are not shown.
        return None
    return stream.frames or None


def duration_of(
    container: "av.container.InputContainer", stream: "av.video.stream.VideoStream"
) -> Fraction | None:
    """Return the duration of the video stream in seconds according to the file, or None."""
    if stream.duration is not None and stream.time_base is not None:
        return stream.duration * stream.time_base
    # The duration of the whole file only if there is no other stream that could last longer.
    return _rough_duration(container) if len(container.streams) == 1 else None


def _rough_duration(container: "av.container.InputContainer") -> Fraction | None:
    """Return the duration of the whole file, including sound, which it stores in microseconds."""
    if not container.duration:
        return None
    # Matroska counts from time 0, although the first frame may come later.
    late = (container.start_time or 0) if "matroska" in container.format.name else 0
    return Fraction(max(container.duration - late, 0), 1_000_000) or None


def quarter_turns(frame: "av.video.frame.VideoFrame") -> int:
    """Return by how many right angles to turn a frame, counterclockwise as in np.rot90."""
    return round(frame.rotation / 90)


def upright(frame: "av.video.frame.VideoFrame") -> UInt8[np.ndarray, "h w 3"]:
    turned = np.rot90(frame.to_ndarray(format="rgb24"), quarter_turns(frame))
    return np.ascontiguousarray(turned)

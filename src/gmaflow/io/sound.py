"""The sound of one video, carried over into another as its pictures go on."""

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmaflow.io.paths import PathLike
from gmaflow.io.seeking import stream_start
from gmaflow.io.video import import_av, open_video

if TYPE_CHECKING:
    import av.container
    from av.audio.stream import AudioStream
    from av.packet import Packet as AnyPacket

    Packet = AnyPacket[AudioStream]

# What players play; by the letter mp4 can hold nearly everything.
_COPIED = dict.fromkeys(("mp4", "mov"), frozenset({"aac", "mp3", "ac3", "eac3", "alac"}))
_ENCODERS = {"webm": "libopus"}
_USUAL_ENCODER = "aac"
_RATE = 48_000  # which every encoder takes


def has_sound(path: PathLike) -> bool:
    """Tell whether there is sound beside the pictures; a folder of pictures has none."""
    if Path(path).is_dir():
        return False
    with open_video(path) as (container, _):
        return bool(container.streams.audio)


class Sound:
    """The first sound track of a video from a moment on.

    It is copied as it is where the new container can hold it, and encoded anew elsewhere.
    """

    def __init__(self, path: PathLike, *, start: Fraction = Fraction(0)) -> None:
        """Choose the part; nothing is opened yet.

        Args:
            path: a video with sound.
            start: the moment of it that becomes the beginning, in seconds.
        """
        self._av = import_av("writing sound")
        self._opened = open_video(path)
        self._start = start
        self._packets: Iterator[Packet] = iter(())
        self._waiting: Packet | None = None
        self._target: Any = None
        self._resampler: Any = None
        self._begin = Fraction(0)

    def __enter__(self) -> "Sound":
        container, pictures = self._opened.__enter__()
        self._source = container.streams.audio[0]
        self._unit = self._source.time_base or Fraction(1, _RATE)
        self._begin = stream_start(pictures) + self._start
        if self._start:
            container.seek(int(self._begin / self._unit), stream=self._source)
        self._packets = container.demux(self._source)
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.__exit__(None, None, None)

    def attach(self, container: "av.container.OutputContainer") -> None:
        """Give a new video a track for the sound, before anything is written to it."""
        self._container = container
        copied = _COPIED.get(container.format.name, container.supported_codecs)
        if self._source.codec_context.name in copied:
            self._target = container.add_stream_from_template(self._source)
            return
        encoder = _ENCODERS.get(container.format.name, _USUAL_ENCODER)
        self._target = container.add_stream(encoder, rate=_RATE)
        self._target.codec_context.layout = "stereo"
        context = self._target.codec_context
        context.open()
        self._resampler = self._av.AudioResampler(
            context.format, "stereo", _RATE, frame_size=context.frame_size
        )

    def copy_until(self, moment: Fraction) -> None:
        """Write the sound before a moment of the new video, as far as it is not yet written."""
        for packet in self._next_packets():
            time = (packet.pts or 0) * self._unit - self._begin
            if time >= moment:
                self._waiting = packet
                return
            # At the beginning of a file lies what a decoder needs before the first sample.
            if time < 0 and self._start:
                continue
            if self._resampler is None:
                self._copy(packet)
            else:
                self._encode(packet)

    def finish(self) -> None:
        """Write what the encoder still holds."""
        if self._resampler is not None:
            for frame in self._resampler.resample(None):
                self._container.mux(self._target.encode(frame))
            self._container.mux(self._target.encode(None))

    def _next_packets(self) -> Iterator["Packet"]:
        if self._waiting is not None:
            packet, self._waiting = self._waiting, None
            yield packet
        # Where the file cannot be read any further, the sound ends.
        with suppress(self._av.FFmpegError):
            for packet in self._packets:
                if packet.pts is not None:
                    yield packet

    def _copy(self, packet: "Packet") -> None:
        shift = round(self._begin / self._unit)
        packet.pts = (packet.pts or 0) - shift
        packet.dts = packet.pts if packet.dts is None else packet.dts - shift
        packet.stream = self._target
        self._container.mux(packet)

    def _encode(self, packet: "Packet") -> None:
        frames = []
        with suppress(self._av.FFmpegError):  # a damaged packet is a moment of silence
            frames = self._source.codec_context.decode(packet)
        for frame in frames:
            frame.pts = (frame.pts or 0) - round(self._begin / self._unit)
            for ready in self._resampler.resample(frame):
                self._container.mux(self._target.encode(ready))

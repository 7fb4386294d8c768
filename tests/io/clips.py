"""Small clips of every kind, made by PyAV."""

import io
import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("av", reason="videos need PyAV")
import av

from gmaflow.io import VideoReader
from tests.io.frames import SIZE, moving

RATE = 48_000


def write_clip(
    path: Path,
    frames: Sequence[np.ndarray],
    *,
    times: Sequence[Fraction] | None = None,
    sound: str | None = None,
    layout: str = "stereo",
    quality: str = "17",
) -> Path:
    """Write an H.264 clip with its index in front; sound is a codec's name."""
    options = {"movflags": "+faststart"} if path.suffix in (".mp4", ".mov") else {}
    unit = Fraction(1, 15360)
    times = times or [Fraction(n, 20) for n in range(len(frames))]
    with av.open(str(path), "w", options=options) as container:
        video = container.add_stream("libx264", rate=20, options={"crf": quality, "bf": "0"})
        video.height, video.width, video.pix_fmt = *frames[0].shape[:2], "yuv420p"
        video.codec_context.time_base = unit
        audio = None
        if sound is not None:
            audio = cast("av.AudioStream", container.add_stream(sound, rate=RATE))
            audio.codec_context.layout = layout
        for image, time in zip(frames, times, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round(time / unit), unit
            frame.duration = round(Fraction(1, 20) / unit)
            container.mux(video.encode(frame))
        if audio is not None:
            write_tone(container, audio, times[-1] + Fraction(1, 20))
            container.mux(audio.encode(None))
        container.mux(video.encode(None))
    return path


def write_coded(
    path: Path,
    codec: str,
    options: dict[str, str],
    *,
    count: int = 30,
    times: Sequence[Fraction] | None = None,
) -> Path:
    """Write a clip of 25 frames a second, or of uneven times, in which key frames are rare."""
    unit = Fraction(1, 25) if times is None else Fraction(1, 1000)
    with av.open(str(path), "w") as container:
        video = cast("av.VideoStream", container.add_stream(codec, rate=25, options=options))
        video.height, video.width, video.pix_fmt = *SIZE, "yuv420p"
        video.codec_context.time_base = unit
        for number, image in enumerate(moving(count)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = number if times is None else round(times[number] / unit)
            frame.time_base = unit
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
    return path


def write_mislabelled_clip(
    path: Path, *, declared: tuple[int, int], actual: tuple[int, int]
) -> Path:
    """Write a clip of JPEGs in which only the first frame has the declared size."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("mjpeg", rate=20)
        video.height, video.width, video.pix_fmt = *declared, "yuvj420p"
        container.start_encoding()
        for number, size in enumerate((declared, actual, actual)):
            jpeg = io.BytesIO()
            Image.fromarray(np.full((*size, 3), 90, np.uint8)).save(jpeg, "JPEG")
            packet = av.Packet(jpeg.getvalue())
            packet.stream, packet.pts, packet.dts = video, 50 * number, 50 * number
            packet.time_base = Fraction(1, 1000)
            packet.is_keyframe = True
            container.mux(packet)
    return path


def write_tone(
    container: "av.container.OutputContainer", audio: "av.AudioStream", seconds: Fraction
) -> None:
    for start in range(0, int(seconds * RATE), 960):
        tone = 0.3 * np.sin(2 * np.pi * 440 * (start + np.arange(960)) / RATE)
        frame = av.AudioFrame.from_ndarray(
            np.stack([tone, tone]).astype(np.float32), format="fltp", layout="stereo"
        )
        frame.sample_rate, frame.pts, frame.time_base = RATE, start, Fraction(1, RATE)
        container.mux(audio.encode(frame))


def turn(clip: Path, path: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Copy a clip and write the way up into the track's header, as phones do."""
    raw = bytearray(clip.read_bytes())
    place = raw.index(b"tkhd") + 44
    a, b, c, d = (value * 2**16 for value in matrix)  # a, b, u, c, d, v in 16.16 fixed point
    raw[place : place + 24] = struct.pack(">6i", a, b, 0, c, d, 0)
    path.write_bytes(raw)
    return path


def cut_short(clip: Path, path: Path, share: float = 0.6) -> Path:
    """Copy the first part of a clip's bytes."""
    raw = clip.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    return path


def spoil_frame(clip: Path, path: Path, number: int) -> Path:
    """Copy a clip with a frame, in the order in which they are stored, that cannot be decoded."""
    with av.open(str(clip)) as container:
        packet = list(container.demux(container.streams.video[0]))[number]
    raw = bytearray(clip.read_bytes())
    assert packet.pos is not None
    place = raw.index(bytes(packet), packet.pos)
    raw[place : place + packet.size] = b"\xff" * packet.size
    path.write_bytes(raw)
    return path


def cut_without_encoding(clip: Path, path: Path, start: Fraction) -> Path:
    """Copy a clip from a moment on, with the frames before it that are needed to decode it."""
    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        stream = source.streams.video[0]
        assert stream.time_base is not None
        copy = target.add_stream_from_template(stream)
        begin = int(start / stream.time_base)
        source.seek(begin, stream=stream)
        for packet in source.demux(stream):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts = packet.pts - begin, packet.dts - begin
                packet.stream = copy
                target.mux(packet)
    return path


def images(path: Path) -> list[np.ndarray]:
    """The frames of a clip."""
    return [frame.image for frame in VideoReader(path)]


def frame_times(path: Path) -> list[Fraction]:
    """When the frames of a video appear."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        return [(frame.pts or 0) * stream.time_base for frame in container.decode(stream)]


def sound_of(path: Path) -> tuple[str, float] | None:
    """The sound's codec and its length in seconds."""
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return None
        stream = container.streams.audio[0]
        samples = sum(frame.samples for frame in container.decode(stream))
        return stream.codec_context.name, samples / stream.codec_context.sample_rate

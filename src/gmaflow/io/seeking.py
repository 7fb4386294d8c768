"""Where to begin to decode a video, so that from a moment on every frame comes, and comes right.

A seek goes by the order in which frames are stored. They are shown in another, so it may land after
the frames that were wanted, or on one that cannot be decoded without those before it.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import dropwhile
from typing import TYPE_CHECKING

from gmaflow.io.paths import PathLike
from gmaflow.io.video import import_av, open_video, rate_of

if TYPE_CHECKING:
    import av.container
    import av.video.stream
    from av.packet import Packet as AnyPacket

    Packet = AnyPacket[av.video.stream.VideoStream]

_TIMES_ARE_GUESSED = ("mpeg", "avi", "ogg")
"""Formats that do not tell when each frame is shown: after a seek the guesses are others."""
_STEPS_BACK = (0, 1, 4, 16)
"""Seconds by which to aim earlier, one after the other, until a seek lands before the moment."""


def find_landing(path: PathLike, moment: Fraction) -> int | None:
    """Find a place to seek to from which on all frames of a moment and later can be decoded.

    Args:
        path: a video.
        moment: seconds from its beginning.

    Returns:
        The place in the stream's own time; None where there is none to be certain of, and the video
        must be decoded from its beginning.
    """
    av = import_av("reading video")
    with open_video(path) as (container, stream):
        if container.format.name in _TIMES_ARE_GUESSED:
            return None
        wanted = int((moment + stream_start(stream)) / stream_unit(stream))
        for seconds in _STEPS_BACK:
            place = wanted - int(seconds / stream_unit(stream))
            if place <= (stream.start_time or 0):
                break
            try:
                if _lands_before(container, stream, place, wanted):
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


def stream_unit(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return what a stream counts its times in, in seconds."""
    return stream.time_base or 1 / rate_of(stream)


def stream_start(stream: "av.video.stream.VideoStream") -> Fraction:
    """Return when the first frame appears, in the file's own time."""
    return (stream.start_time or 0) * stream_unit(stream)


def _lands_before(
    container: "av.container.InputContainer",
    stream: "av.video.stream.VideoStream",
    place: int,
    wanted: int,
) -> bool:
    """Tell whether a seek finds a key frame no later than wanted, and the decoder begins with it.

    Frames that are stored after the key frame but shown before it are passed over: they may need
    what was not read. A decoder that leaves out the key frame itself takes it for something else.
    """
    key: int | None = None
    for packet in packets_from(container, stream, place):
        if key is None:
            key = packet.pts
            if key is None or key > wanted:
                return False
        for frame in packet.decode():
            if frame.pts is None:
                return False
            if frame.pts >= key:
                return frame.pts == key and bool(frame.key_frame)
    return False

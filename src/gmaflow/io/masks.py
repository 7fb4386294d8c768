"""Masks of pixels to ignore: one image for all frames, or a folder or video with one for each."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from gmaflow.errors import FlowError, ImageError, counted
from gmaflow.io.folders import list_images
from gmaflow.io.images import IMAGE_SUFFIXES, check_same_size, read_image, scale_image
from gmaflow.io.paths import PathLike
from gmaflow.io.video_reader import TimedFrame, VideoReader

_MIDDLE_GREY = 127


def read_mask(path: PathLike) -> Bool[np.ndarray, "h w"]:
    """Read an image as a mask: true where it is lighter than middle grey."""
    return _as_mask(read_image(path), Path(path))


class MaskReader:
    """The masks of a clip's frames, true where a pixel is ignored: white, not black.

    An image holds for every frame. A folder of images or a video has a mask for each frame of the
    whole clip, and those of a part of it are found by number, not by time. Ask for the masks of a
    video in rising order: to go back, the video is read again from its beginning. Pairs of a data
    set have no clip and may differ in size; then the masks in a folder may differ too.

    Args:
        path: The image, folder or video.
        clip: The reader of the frames.
        count: How many frames there are, if they have no reader.

    Raises:
        ImageError: The masks cannot be read.
        FlowError: Their size or number is not that of the frames.
    """

    def __init__(
        self, path: PathLike, *, clip: VideoReader | None = None, count: int | None = None
    ) -> None:
        self.path = Path(path)
        self._still: UInt8[np.ndarray, "h w 3"] | None = None
        self._paths: list[Path] = []
        self._reader: VideoReader | None = None
        self._frames: Iterator[TimedFrame] = iter(())
        self._last: TimedFrame | None = None
        suffix = self.path.suffix.lower()
        if not self.path.is_dir() and suffix in IMAGE_SUFFIXES - {".gif"}:
            self._still = read_image(path)
            size = self._still.shape[:2]
        elif clip is None and self.path.is_dir():
            self._paths = list_images(path)
            self._check_count(len(self._paths), count)
        else:
            self._reader = VideoReader(path) if clip is None else clip.alike(path)
            info = self._reader.info
            size = (info.height, info.width)
            self._check_count(info.num_frames, clip.info.num_frames if clip else count)
        if clip is not None:
            _check_size(self.path, size, (clip.info.height, clip.info.width))
            if self._still is not None:
                self._still = scale_image(self._still, clip.scale)

    def mask(
        self, number: int, size: tuple[int, ...], *, may_be_whole: bool = False
    ) -> Bool[np.ndarray, "h w"]:
        """Return the mask of a frame.

        Args:
            number: The number of the frame, from 0.
            size: Its height and width.
            may_be_whole: It may ignore every pixel.

        Raises:
            ImageError: The mask holds only 0 and 1.
            FlowError: There is no such mask, it has another size, or it ignores every pixel.
        """
        image = self._image(number)
        path = self._paths[number] if self._paths else self.path
        _check_size(path, image.shape[:2], size[:2])
        mask = _as_mask(image, path)
        if mask.all() and not may_be_whole:
            raise FlowError(
                f"{self.path} ignores every pixel of frame {number}; white is ignored, black is "
                "used: leave some pixels black"
            )
        return mask

    def _image(self, number: int) -> UInt8[np.ndarray, "h w 3"]:
        if self._still is not None:
            return self._still
        if self._reader is not None:
            return self._advance(self._reader, number)
        if number >= len(self._paths):
            raise self._too_few(len(self._paths))
        return read_image(self._paths[number])

    def _advance(self, reader: VideoReader, number: int) -> UInt8[np.ndarray, "h w 3"]:
        if self._last is None or self._last.number > number:
            self._frames, self._last = iter(reader), None
        while self._last is None or self._last.number < number:
            count = 0 if self._last is None else self._last.number + 1
            self._last = next(self._frames, None)
            if self._last is None:
                raise FlowError(reader.problem) if reader.problem else self._too_few(count)
        return self._last.image

    def _too_few(self, count: int) -> FlowError:
        return FlowError(
            f"{self.path} has {counted(count, 'mask')}, but there are more frames; give one for "
            "each, or one image for all"
        )

    def _check_count(self, count: int | None, expected: int | None) -> None:
        if count is not None and expected is not None and count != expected:
            raise FlowError(
                f"{self.path} has {counted(count, 'mask')} for {counted(expected, 'frame')}; give "
                "one for each, or one image for all"
            )


def _check_size(path: Path, size: tuple[int, ...], expected: tuple[int, ...]) -> None:
    sizes = {f"the mask {path}": size, "the frames": expected}
    check_same_size(sizes, remedy="give a mask of the frames' size")


def _as_mask(image: UInt8[np.ndarray, "h w 3"], path: Path) -> Bool[np.ndarray, "h w"]:
    # Labels 0 and 1 would ignore nothing. A black frame of a lossy video may have such noise.
    lossless = path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES
    if lossless and image.max() == 1:
        raise ImageError(
            f"{path} holds only 0 and 1 of 255, all black as a mask; ignored pixels are white: "
            "multiply the mask by 255"
        )
    light: Bool[np.ndarray, "h w"] = image.max(axis=2) > _MIDDLE_GREY
    return light

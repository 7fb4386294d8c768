"""Masks come from an image, a folder or a video, in step with the frames they are for."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowError, ImageError
from gmaflow.io import MaskReader, VideoReader, read_mask, write_image
from gmaflow.io.video_reader import count_before
from tests.io.clips import cut_without_encoding, spoil_frame, write_clip, write_coded
from tests.io.frames import SIZE, moving

COUNT = 6


def blocks() -> list[np.ndarray]:
    """A mask for each frame: a white block of eight columns that moves to the right."""
    masks = [np.zeros((*SIZE, 3), np.uint8) for _ in range(COUNT)]
    for number, mask in enumerate(masks):
        mask[:, 8 * number : 8 * number + 8] = 255
    return masks


def write_folder(folder: Path, images: list[np.ndarray]) -> Path:
    folder.mkdir()
    for number, image in enumerate(images):
        write_image(folder / f"{number}.png", image)
    return folder


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return write_clip(tmp_path / "clip.mp4", moving(COUNT), quality="0")


def test_white_is_ignored(tmp_path: Path) -> None:
    image = np.array([[0, 127, 128, 255]], np.uint8)
    write_image(tmp_path / "mask.png", image)
    assert read_mask(tmp_path / "mask.png").tolist() == [[False, False, True, True]]


def test_an_image_holds_for_every_frame(tmp_path: Path, clip: Path) -> None:
    write_image(tmp_path / "mask.png", blocks()[2])
    masks = MaskReader(tmp_path / "mask.png", clip=VideoReader(clip))
    for number in (0, 3, 5):
        assert (masks.mask(number, SIZE) == (blocks()[2][..., 0] > 0)).all()


@pytest.fixture(params=["folder", "video"])
def moving_masks(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A mask for each frame, as a folder or as a video."""
    if request.param == "folder":
        return write_folder(tmp_path / "masks", blocks())
    return write_clip(tmp_path / "masks.mp4", blocks(), quality="0")


def test_each_frame_has_its_mask_and_frames_may_be_left_out(clip: Path, moving_masks: Path) -> None:
    masks = MaskReader(moving_masks, clip=VideoReader(clip))
    for number in (0, 1, 1, 4, 2):
        assert (masks.mask(number, SIZE) == (blocks()[number][..., 0] > 0)).all()


def test_masks_are_of_the_part_and_scale_that_is_read(clip: Path, moving_masks: Path) -> None:
    frames = VideoReader(clip, start=Fraction("0.05"), every=2, scale=0.5)
    masks = MaskReader(moving_masks, clip=frames)
    small = (SIZE[0] // 2, SIZE[1] // 2)
    for number, original in ((0, 1), (1, 3), (2, 5)):
        columns = masks.mask(number, small).mean(axis=0)
        assert (columns[4 * original : 4 * original + 4] == 1).all()
        assert columns.sum() == 4


def test_frames_that_a_clip_hides_need_no_mask(tmp_path: Path) -> None:
    whole = write_coded(tmp_path / "whole.mp4", "libx264", {"g": "12"}, count=30)
    clip = cut_without_encoding(whole, tmp_path / "clip.mp4", Fraction("0.7"))
    frames = list(VideoReader(clip))
    assert len(frames) == 30 - 18  # from the one that is shown at 0.7 s
    folder = write_folder(tmp_path / "masks", [255 * np.eye(*SIZE, dtype=np.uint8)] * 12)
    masks = MaskReader(folder, clip=VideoReader(clip))
    assert masks.mask(11, SIZE).any()
    for number, frame in enumerate(frames):
        assert count_before(clip, frame.time) == number


def test_masks_of_another_number_are_refused(tmp_path: Path, clip: Path) -> None:
    few = write_folder(tmp_path / "few", blocks()[:4])
    with pytest.raises(FlowError, match=r"has 4 masks for 6 frames; give one for each"):
        MaskReader(few, clip=VideoReader(clip))
    with pytest.raises(FlowError, match=r"has 4 masks for 9 frames"):
        MaskReader(few, count=9)
    masks = MaskReader(few)
    with pytest.raises(FlowError, match=r"has 4 masks, but there are more frames"):
        masks.mask(4, SIZE)


UNEVEN = [Fraction(n, 40) for n in (0, 4, 5, 6, 20, 36)]


@pytest.mark.parametrize("start", ["0", "0.001", "0.105", "0.12", "0.3", "0.85"])
def test_masks_of_a_part_are_found_by_number_whatever_the_times(
    tmp_path: Path, moving_masks: Path, start: str
) -> None:
    frames = write_clip(tmp_path / "uneven.mp4", moving(COUNT), times=UNEVEN)
    folder = write_folder(tmp_path / "frames", moving(COUNT))
    clips = [
        VideoReader(frames, start=Fraction(start)),
        VideoReader(folder, start=Fraction(start), fps=Fraction(5)),
        VideoReader(frames, start=Fraction(start), end=Fraction("0.91"), every=2),
    ]
    for clip in clips:
        masks = MaskReader(moving_masks, clip=clip)
        times = [frame.time for frame in clip]
        all_times = UNEVEN if clip.path == frames else [Fraction(n, 5) for n in range(COUNT)]
        for number, time in enumerate(times):
            expected = blocks()[all_times.index(time)][..., 0] > 0
            assert (masks.mask(number, SIZE) == expected).all()


def test_frames_before_the_part_that_cannot_be_decoded_have_masks_too(
    tmp_path: Path, moving_masks: Path
) -> None:
    whole = write_coded(tmp_path / "whole.mov", "libx264", {"g": "1"}, count=COUNT)
    clip = VideoReader(spoil_frame(whole, tmp_path / "clip.mov", 1), start=Fraction(3, 25))
    masks = MaskReader(moving_masks, clip=clip)
    for frame in clip:
        expected = blocks()[frame.number + 3][..., 0] > 0
        assert (masks.mask(frame.number, SIZE) == expected).all()


def test_where_they_cannot_be_counted_masks_are_refused(tmp_path: Path, moving_masks: Path) -> None:
    whole = write_coded(tmp_path / "whole.avi", "mpeg4", {"g": "1"}, count=COUNT)
    clip = VideoReader(spoil_frame(whole, tmp_path / "clip.avi", 1), start=Fraction(3, 25))
    masks = MaskReader(moving_masks, clip=clip)
    with pytest.raises(
        ImageError, match=r"clip\.avi is damaged in 1 place.*cannot be counted; cut"
    ):
        masks.mask(0, SIZE)


@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "libx264"), (".avi", "mpeg4")])
def test_frames_before_the_part_are_decoded_only_where_they_must_and_when_a_mask_is_asked_for(
    tmp_path: Path, suffix: str, codec: str
) -> None:
    path = write_coded(tmp_path / f"clip{suffix}", codec, {"g": "1"}, count=COUNT)
    folder = write_folder(tmp_path / "masks", blocks())
    decoded = []
    clip = VideoReader(path, start=Fraction(3, 25), watch=lambda: decoded.append(True))
    masks = MaskReader(folder, clip=clip)
    assert not decoded
    for number in (1, 0):
        assert (masks.mask(number, SIZE) == (blocks()[number + 3][..., 0] > 0)).all()
    assert (len(decoded) > 0) == (suffix == ".avi")
    assert len(decoded) < 2 * COUNT  # once


def test_a_mask_of_another_size_is_refused(tmp_path: Path, clip: Path) -> None:
    write_image(tmp_path / "mask.png", blocks()[0][:20])
    with pytest.raises(FlowError, match=r"differ in size: 20x64 and 48x64"):
        MaskReader(tmp_path / "mask.png", clip=VideoReader(clip))
    with pytest.raises(FlowError, match=r"differ in size: 20x64 and 48x64"):
        MaskReader(tmp_path / "mask.png").mask(0, (*SIZE, 3))


def test_masks_of_pairs_may_differ_in_size(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "masks", [blocks()[0], blocks()[0][:20], blocks()[1]])
    masks = MaskReader(path, count=3)
    assert masks.mask(2, SIZE)[:, 8:16].all()
    assert masks.mask(1, (20, SIZE[1])).sum() == 20 * 8
    first = sorted(path.iterdir())[0].name
    with pytest.raises(FlowError, match=rf"{first} and .* differ in size: 48x64 and 20x64"):
        masks.mask(0, (20, SIZE[1]))


def test_a_damaged_mask_is_named(tmp_path: Path, clip: Path) -> None:
    path = write_folder(tmp_path / "masks", blocks())
    (path / "3.png").write_bytes(b"no image")
    masks = MaskReader(path, clip=VideoReader(clip))
    masks.mask(2, SIZE)
    with pytest.raises(FlowError, match=r"3\.png"):
        masks.mask(3, SIZE)


def test_a_mask_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "mask.png", np.full(SIZE, 255, np.uint8))
    with pytest.raises(FlowError, match="ignores every pixel of frame 0"):
        MaskReader(tmp_path / "mask.png").mask(0, SIZE)


def test_labels_0_and_1_are_not_taken_for_a_mask(tmp_path: Path, clip: Path) -> None:
    labels = np.eye(*SIZE, dtype=np.uint8)
    image = write_folder(tmp_path / "labels", [labels] * COUNT) / "0.png"
    with pytest.raises(ImageError, match=r"0\.png holds only 0 and 1 of 255.*multiply"):
        read_mask(image)
    for path in (image, image.parent):
        with pytest.raises(ImageError, match=f"{path} holds only 0 and 1"):
            MaskReader(path, clip=VideoReader(clip)).mask(0, SIZE)
    write_image(image, 255 * labels)
    assert read_mask(image).sum() == min(SIZE)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for name in ("no.png", "no.mp4", "folder"):
        with pytest.raises(FlowError, match=name):
            MaskReader(tmp_path / name)

"""`gmaflow video`, on clips of every kind."""

import json
import re
import shutil
import weakref
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from gmaflow import viz
from gmaflow.cli.options import parse_fps, parse_time
from gmaflow.cli.video import Show, draw_step
from gmaflow.errors import FlowError
from gmaflow.inference import BidirectionalFlow, Flow, FlowEstimator, VideoStep
from gmaflow.io import (
    MaskReader,
    TimedFrame,
    open_clip,
    read_flow_arrays,
    read_image,
    write_image,
)
from gmaflow.io.video_reader import upright
from tests.cli.conftest import Run
from tests.io.clips import cut_short, frame_times, images, sound_of, turn, write_clip
from tests.io.frames import SIZE, moving


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve frames with sound; after the seventh another shot begins."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    return write_clip(path, [*moving(7, seed=1), *moving(5, seed=2)], sound="aac")


def report(run: Run, *args: str | Path) -> dict[str, Any]:
    outcome = run("video", *args, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


@pytest.mark.parametrize(
    ("show", "width"),
    [
        ("flow", 64),
        ("side-by-side", 128),
        ("arrows", 64),
        ("occlusion", 64),
        ("residual", 64),
        ("moving", 64),
    ],
)
def test_every_way_to_show_it(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, show: str, width: int
) -> None:
    out = tmp_path / "out.mp4"
    result = report(run, clip, "-o", out, "--show", show, *fast)
    assert (result["frames"], result["cuts"], result["sound"]) == (11, [0.35], "kept")
    frames = images(out)
    assert [frame.shape for frame in frames] == [(48, width, 3)] * 11
    assert frame_times(out) == frame_times(clip)[:-1]
    assert list(tmp_path.iterdir()) == [out]
    assert (result["max_length"] is None) == (show in ("occlusion", "moving"))


def test_before_a_cut_the_flow_is_black(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    report(run, clip, "-o", tmp_path / "a.mp4", "--show", "side-by-side", "--no-sound", *fast)
    frames = images(tmp_path / "a.mp4")
    source = images(clip)
    for number, frame in enumerate(frames):
        assert np.abs(frame[:, :64].astype(int) - source[number]).mean() < 12
        assert (frame[:, 64:].mean() < 8) == (number == 6)
    assert sound_of(tmp_path / "a.mp4") is None
    assert report(run, clip, "-o", tmp_path / "b.mp4", "--no-cuts", *fast)["cuts"] == []
    all_cuts = report(run, clip, "-o", tmp_path / "c.mp4", "--cut-threshold", "1e-9", *fast)
    assert len(all_cuts["cuts"]) == 11


@pytest.mark.parametrize("ending", ["flo", "pfm", "npy", "npz", "kitti"])
def test_a_folder_gets_the_flow_of_every_frame(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "out"
    result = report(run, clip, "-o", out, "--format", ending, "--warm-start", *fast)
    assert result["max_length"] is None
    assert "left out" in result["sound"]
    suffix = ".kitti.png" if ending == "kitti" else f".{ending}"
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names == {"flow.json", *(f"{n:06d}{suffix}" for n in range(11) if n != 6)}
    estimator = FlowEstimator(fast[1], iters=1, device="cpu")
    warm = list(estimator.sequence(images(clip)[:7], warm_start=True))
    for number, flow in enumerate(warm):
        found = read_flow_arrays(out / f"{number:06d}{suffix}").array
        np.testing.assert_allclose(found, flow.array, atol=1 / 64 if ending == "kitti" else 1e-4)


@pytest.mark.parametrize("name", ["flow.h5", "flow.tar", "flow/"])
def test_small_flow_of_every_frame_but_before_a_cut(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    options = ["--format", "xy"] if name == "flow/" else []
    result = report(run, clip, "-o", f"{tmp_path}/{name}", "--bound", "40", *options, *fast)
    assert (result["frames"], result["show"], result["max_length"]) == (11, "flow", None)
    flows = open_clip(out)
    assert flows.frames == (0, 1, 2, 3, 4, 5, 7, 8, 9, 10)
    first, second = images(clip)[7:9]
    flow = FlowEstimator(fast[1], iters=1, device="cpu")(first, second)
    difference = np.abs(flows.at_frame(7).array - flow.array.clip(-40, 40))
    assert difference.mean() < (0.01 if name == "flow.h5" else 0.5)


def test_a_folder_of_pictures_in_and_out(run: Run, fast: list[str], tmp_path: Path) -> None:
    for number, image in enumerate(moving(5)):
        write_image(tmp_path / "in" / f"{number}.png", image)
    out = tmp_path / "out"
    result = report(run, tmp_path / "in", "-o", out, "--format", "png", "--show", "arrows", *fast)
    assert (result["frames"], result["sound"]) == (4, "none in the source")
    names = {path.name for path in out.iterdir()}
    assert names == {"flow.json", *(f"{n:06d}.png" for n in range(4))}
    assert read_image(out / "000000.png").shape == (*SIZE, 3)
    report(run, tmp_path / "in", "-o", tmp_path / "a.mp4", "--fps", "10", *fast)
    assert frame_times(tmp_path / "a.mp4") == [Fraction(n, 10) for n in range(4)]


def test_times_and_the_way_up_are_kept(run: Run, fast: list[str], tmp_path: Path) -> None:
    times = [Fraction(n, 1000) for n in (0, 50, 200, 250, 700)]
    uneven = write_clip(tmp_path / "uneven.mp4", moving(5), times=times)
    turned = turn(uneven, tmp_path / "turned.mp4", (0, 1, -1, 0))
    report(run, turned, "-o", tmp_path / "a.mov", *fast)
    assert frame_times(tmp_path / "a.mov") == frame_times(uneven)[:-1]
    assert images(tmp_path / "a.mov")[0].shape == (64, 48, 3)


def test_a_part_by_time_by_number_and_in_small(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.webm"
    part = ["--start", "0:00.1", "--end", "0.5", "--every", "2", "--scale", "0.5"]
    result = report(run, clip, "-o", out, *part, "--no-cuts", *fast)
    assert result["frames"] == 3
    assert images(out)[0].shape == (24, 32, 3)
    assert [round(100 * time) for time in frame_times(out)] == [0, 10, 20]
    assert sound_of(out) == pytest.approx(("opus", 0.3), abs=0.1)


def test_a_gif_reports_why_it_has_no_sound(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    outcome = run("video", clip, "-o", tmp_path / "a.gif", "--legend", *fast)
    assert outcome.code == 0
    assert "sound left out: .gif cannot hold sound" in outcome.out
    assert "1 cut (at 0.35 s)" in outcome.out
    assert len(images(tmp_path / "a.gif")) == 11
    again = report(run, tmp_path / "a.gif", "-o", tmp_path / "b.gif", *fast)
    assert again["frames"] == 10


def test_the_scale_is_given_or_reported(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    given = report(run, clip, "-o", tmp_path / "a.mp4", "--max-length", "7.5", *fast)
    assert given["max_length"] == 7.5
    outcome = run("video", clip, "-o", tmp_path / "b.mp4", *fast)
    match = re.search(r"full scale at ([\d.]+) px", outcome.out)
    assert match is not None
    assert float(match[1]) >= 1


def test_a_truncated_video_gives_its_readable_frames(
    run: Run, fast: list[str], tmp_path: Path
) -> None:
    whole = write_clip(tmp_path / "whole.mp4", moving(40), quality="0")
    part = cut_short(whole, tmp_path / "part.mp4")
    outcome = run("video", part, "-o", tmp_path / "a.mp4", *fast)
    assert outcome.code == 1
    assert "is truncated" in outcome.err
    assert 5 < len(images(tmp_path / "a.mp4")) < 39


def test_a_change_of_size_keeps_earlier_frames(run: Run, fast: list[str], tmp_path: Path) -> None:
    for number, image in enumerate([*moving(4), *moving(2, size=(56, 64))]):
        write_image(tmp_path / "in" / f"{number}.png", image)
    outcome = run("video", tmp_path / "in", "-o", tmp_path / "a.mp4", *fast)
    assert outcome.code == 1
    assert "frame 4 is 56x64, those before it 48x64; all must have one size" in outcome.err
    assert len(images(tmp_path / "a.mp4")) == 3


@pytest.mark.parametrize(("after", "left"), [(5, 4), (1, None)])
def test_an_interrupt_leaves_finished_results(
    run: Run,
    fast: list[str],
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    left: int | None,
) -> None:
    calls = 0

    def interrupt(*_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr("gmaflow.inference.sequence.is_cut", interrupt)
    outcome = run("video", clip, "-o", tmp_path / "a.mp4", "--max-length", "5", *fast)
    assert outcome.code == 130
    assert outcome.err.endswith(
        "gmaflow: interrupted\n" if left is None else "interrupted; the finished part is kept\n"
    )
    if left is None:
        assert list(tmp_path.iterdir()) == []
        return
    assert f"{left} frames of flow" in outcome.out
    assert len(images(tmp_path / "a.mp4")) == left
    assert list(tmp_path.iterdir()) == [tmp_path / "a.mp4"]


def test_bad_inputs_and_outputs_are_refused(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copy(clip, tmp_path / "in.mp4"))
    before = source.read_bytes()
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "there.mp4").write_text("precious")
    write_clip(tmp_path / "one.mp4", moving(1))
    out = tmp_path / "out.mp4"
    known = set(tmp_path.iterdir())
    for args, complaint in (
        ((tmp_path / "none.mp4", "-o", out), "does not exist"),
        ((tmp_path / "empty.mp4", "-o", out), "cannot be read as video"),
        ((tmp_path / "text.mp4", "-o", out), "cannot be read as video"),
        ((tmp_path / "one.mp4", "-o", out), "gives one frame; flow needs at least two"),
        ((source, "-o", out, "--every", "99"), "gives one frame; flow needs at least two (take"),
        ((source, "-o", source, "--overwrite"), "is an input"),
        ((source, "-o", tmp_path / "there.mp4"), "exists; add --overwrite"),
        (
            (source, "-o", tmp_path / "a.avi"),
            ".avi cannot be written; use .gif, .mkv, .mov, .mp4, .webm",
        ),
        ((source, "-o", tmp_path / "text.mp4" / "a.mp4"), "cannot be written"),
        ((source, "-o", tmp_path), "is not empty"),
        ((source, "-o", tmp_path / "new", "--show", "arrows"), "add --format png"),
        ((source, "-o", out, "--format", "npz"), "--format is for folders"),
        ((source, "-o", out, "--resume"), "--resume is for folders"),
        ((source, "-o", out, "--backward"), "--backward is for flow files in a folder"),
        ((source, "-o", tmp_path / "new", "--resume", "--overwrite"), "give only one"),
        ((source, "-o", tmp_path / "text.mp4" / "new"), "cannot be written"),
        ((tmp_path / "one.mp4", "-o", tmp_path / "new"), "gives one frame"),
        ((tmp_path / "one.mp4", "-o", tmp_path / "new.h5"), "gives one frame"),
        ((source, "-o", tmp_path / "new.tar", "--resume"), "which cannot be resumed"),
        ((source, "-o", tmp_path / "new.h5", "--backward"), "--backward is for flow files"),
        ((source, "-o", tmp_path / "new.h5", "--show", "arrows"), "gets flow, not arrows"),
        ((source, "-o", out, "--bound", "1e9"), "give more than 0 and at most 10000,"),
        ((source, "-o", out, "--start", "5"), "has nothing at 5 s"),
        ((source, "-o", out, "--start", "soon"), "is not a time"),
        ((source, "-o", out, "--start", "1:2:3:4"), "is not a time"),
        ((source, "-o", out, "--end", "0"), "the end (0 s) is not after the start"),
        ((source, "-o", out, "--fps", "10"), "--fps is for folders"),
        ((source, "-o", out, "--max-length", "0"), "--max-length is 0; give a number above 0"),
        ((source, "-o", out, "--cut-threshold", "0"), "--no-cuts"),
        ((source, "-o", out, "--scale", "0.1"), "at least 16 pixels"),
        ((source, "-o", out, "--every", "0"), "give at least 1"),
    ):
        outcome = run("video", *args, *fast)
        assert (outcome.code, outcome.out) == (2, ""), args
        assert complaint in outcome.err, outcome.err
        assert outcome.err.count("\n") == 1
        assert set(tmp_path.iterdir()) == known
    assert source.read_bytes() == before
    assert (tmp_path / "there.mp4").read_text() == "precious"


def test_a_file_with_only_sound_is_refused(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    path = tmp_path / "sound.mp4"
    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        track = target.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(source.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = track
                target.mux(packet)
    outcome = run("video", path, "-o", tmp_path / "a.mp4", *fast)
    assert "holds no video stream" in outcome.complaint


def test_few_frames_are_in_memory_at_once(
    run: Run, fast: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weakref.ref[np.ndarray]] = []
    most = 0

    def counted(frame: av.VideoFrame) -> np.ndarray:
        nonlocal most
        image = upright(frame)
        seen.append(weakref.ref(image))
        most = max(most, sum(ref() is not None for ref in seen))
        return image

    monkeypatch.setattr("gmaflow.io.video_reader.upright", counted)
    path = write_clip(tmp_path / "long.mp4", moving(30))
    result = report(run, path, "-o", tmp_path / "a.mp4", "--max-length", "5", *fast)
    assert result["frames"] == 29
    # A few wait to be estimated, as many to be written, and two are at work.
    assert most <= 12


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("12.5", Fraction(25, 2)),
        ("1:05", 65),
        ("0:01:30.25", Fraction(361, 4)),
        (".5", 0.5),
    ],
)
def test_times_are_seconds_or_have_colons(text: str, seconds: Fraction) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1:", ":1", "1:2:3:4", "1:-2", "nan", "inf", "1/0"]
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="is not a time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("12", Fraction(12)),
        ("12.5", Fraction(25, 2)),
        ("1/3", Fraction(1, 3)),
        ("0.001", Fraction(1, 1000)),
        ("30000/1001", Fraction(30000, 1001)),
        ("29.97", Fraction(30000, 1001)),
        ("23.976", Fraction(24000, 1001)),
        ("23.98", Fraction(24000, 1001)),
        ("59.94", Fraction(60000, 1001)),
    ],
)
def test_rates(text: str, rate: Fraction) -> None:
    assert parse_fps(text) == rate


@pytest.mark.parametrize("text", ["0", "0.0001", "-1", "1001", "1/0", "fast", "nan", ""])
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="is not a frame rate"):
        parse_fps(text)


IMAGE = np.full((96, 128, 3), 120, np.uint8)


def shown(both: BidirectionalFlow | None) -> VideoStep:
    """A grey frame with its flow; None: before a cut."""
    first, second = (TimedFrame(number, IMAGE, Fraction(number)) for number in range(2))
    return VideoStep(first, second, None if both is None else both.forward, both)


def step(x: float | None) -> VideoStep:
    """A grey frame whose pixels all go to the right; None: before a cut."""
    if x is None:
        return shown(None)
    there, back = (np.zeros((96, 128, 2), np.float32) for _ in range(2))
    there[..., 0], back[..., 0] = x, -x
    inside, outside = np.zeros((96, 128), bool), np.zeros((96, 128), bool)
    inside[:10], outside[-10:] = True, True
    sure = np.ones((96, 128), np.float32)
    both = BidirectionalFlow(Flow(there), Flow(back), inside, outside, sure)
    return shown(both)


def test_colours_depend_only_on_the_scale() -> None:
    full = draw_step(step(8), "flow", max_length=8.0)
    half = draw_step(step(4), "flow", max_length=8.0)
    assert full[0, 0].tolist() == [255, 0, 0]
    assert half[0, 0, 0] == 255
    assert 100 < half[0, 0, 1] < 160


def test_the_source_is_on_the_left() -> None:
    picture = draw_step(step(8), "side-by-side", max_length=8.0)
    assert picture.shape == (96, 256, 3)
    np.testing.assert_array_equal(picture[:, :128], IMAGE)
    np.testing.assert_array_equal(picture[:, 128:], draw_step(step(8), "flow", max_length=8.0))


def test_occlusion_has_two_colours() -> None:
    picture = draw_step(step(8), "occlusion", max_length=1.0).astype(int)
    assert picture[0, 0, 0] > picture[0, 0, 2] + 50
    assert picture[-1, 0, 2] > picture[-1, 0, 0] + 50
    np.testing.assert_array_equal(picture[50], IMAGE[50])


def with_object() -> VideoStep:
    """A step in which the camera moves to the right by 8 and a part moves down by 6."""
    found = step(8)
    assert found.flow is not None
    found.flow.array[40:60, 30:70, 1] = 6
    return found


def test_the_cameras_motion_is_left_out() -> None:
    colours = draw_step(with_object(), "residual", max_length=6.0)
    assert (colours[:30] > 250).all()
    still = np.zeros((96, 128, 2), np.float32)
    still[40:60, 30:70, 1] = 6
    wanted = viz.flow_to_image(still, max_length=6.0)
    assert np.abs(colours.astype(int) - wanted).mean() < 1


def test_what_moves_by_itself_is_lit_up() -> None:
    light = draw_step(with_object(), "moving", max_length=1.0).mean(axis=2)
    assert light[45:55, 35:65].min() > 2 * light[:35].max()


def test_ignored_pixels_do_not_move_the_camera(tmp_path: Path) -> None:
    write_image(tmp_path / "mask.png", np.uint8(255) * (np.indices((96, 128))[0] < 60))
    found = step(8)
    assert found.flow is not None
    found.flow.array[:60] = (1, 3)
    masks = MaskReader(tmp_path / "mask.png")
    plain, masked = (
        draw_step(found, "moving", max_length=1.0, masks=m).mean(axis=2) for m in (None, masks)
    )
    assert plain[80:].min() > plain[:50].max()  # most of the frame is taken for the backdrop
    assert masked[80:].max() < masked[:50].min()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ignore", "mask.png"], "--ignore leaves pixels out of the camera's motion"),
        (["--show", "moving", "--ignore", "mask.png"], "mask.png"),
    ],
)
def test_masks_that_cannot_be_used(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, args: list[str], message: str
) -> None:
    outcome = run("video", clip, "-o", tmp_path / "a.mp4", *args, *fast)
    assert message in outcome.complaint
    assert not list(tmp_path.iterdir())


def test_no_motion_is_drawn_before_a_cut() -> None:
    assert not draw_step(step(None), "residual", max_length=8.0).any()
    np.testing.assert_array_equal(draw_step(step(None), "moving", max_length=8.0), IMAGE)
    assert not draw_step(step(None), "flow", max_length=8.0).any()
    assert not draw_step(step(None), "side-by-side", max_length=8.0)[:, 128:].any()
    np.testing.assert_array_equal(draw_step(step(None), "occlusion", max_length=8.0), IMAGE)
    arrows = draw_step(step(None), "arrows", max_length=8.0)
    assert len(np.unique(arrows)) == 1  # the frame, dimmed as those with arrows are
    assert len(np.unique(draw_step(step(8), "arrows", max_length=8.0))) > 1


@pytest.mark.parametrize("show", ["flow", "side-by-side", "arrows"])
@pytest.mark.parametrize("x", [8.0, None])
def test_the_legend_lies_in_the_lower_right_corner(show: Show, x: float | None) -> None:
    plain = draw_step(step(x), show, max_length=8.0)
    with_legend = draw_step(step(x), show, max_length=8.0, legend=True)
    changed = np.argwhere((plain != with_legend).any(axis=2))
    assert len(changed) > 100
    assert changed[:, 0].min() > 96 / 3
    assert changed[:, 1].min() > plain.shape[1] / 2

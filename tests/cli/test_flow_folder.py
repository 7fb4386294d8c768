"""A folder of frames: `gmaflow flow FOLDER -o DIR`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gmaflow.cli.outputs import FileFormat, OutputFile, PairOutput, ending_of, write_parts
from gmaflow.inference import FlowEstimator, Frame
from gmaflow.io import open_clip, read_flow_arrays, read_image
from gmaflow.viz import flow_arrows, flow_to_image
from tests.cli.conftest import Outcome, Run, write_frames

ENDINGS = (".flo", ".png", "-arrows.png", "-warped.png", "-panel.png")


@pytest.fixture
def fast(weights: dict[str, Path]) -> list[str]:
    return ["--weights", str(weights["raft-small"]), "--iters", "2", "--device", "cpu"]


@pytest.fixture
def estimate(run: Run, fast: list[str], tmp_path: Path) -> Run:
    """Estimate the flow of the frames in the folder `in`, into one of the given name."""

    def call(name: str, *options: str | Path) -> Outcome:
        return run("flow", tmp_path / "in", "-o", tmp_path / name, *fast, *options)

    return call


def test_consecutive_frames_in_natural_order(
    estimate: Run, fast: list[str], tmp_path: Path
) -> None:
    frames = write_frames(tmp_path / "in", 12)
    outcome = estimate("out")
    assert outcome.code == 0
    assert "wrote 11 of 11 pairs" in outcome.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    expected = {f"frame{n}{end}" for n in range(11) for end in ENDINGS}
    assert names == {*expected, "flow.json"}
    estimator = FlowEstimator(fast[1], iters=2, device="cpu")
    flow = read_flow_arrays(tmp_path / "out" / "frame9.flo").array
    np.testing.assert_allclose(flow, estimator(frames[9], frames[10]).array, atol=1e-4)


@pytest.mark.parametrize("word", get_args(FileFormat))
def test_the_format_selects_the_files(
    word: FileFormat, estimate: Run, fast: list[str], tmp_path: Path
) -> None:
    frames = write_frames(tmp_path / "in", 3)
    assert estimate("out", "--format", word, "--backward").code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()} - {"flow.json"}
    if word == "png":
        endings = (*ENDINGS[1:], "-occlusion.png", "-confidence.png")
        assert names == {f"frame{n}{end}" for n in range(2) for end in endings}
        return
    ahead, back = (
        ("flow_x_frame{}.jpg", "flow_x_frame{}-backward.jpg")
        if word == "xy"
        else (f"frame{{}}{ending_of(word)}", f"frame{{}}-backward{ending_of(word)}")
    )
    # Files are called by the frame whose pixels move, backward ones by the second of a pair.
    wanted = {ahead.format(n) for n in (0, 1)} | {back.format(n) for n in (1, 2)}
    if word == "xy":
        wanted |= {name.replace("_x_", "_y_") for name in wanted}
    assert names == wanted
    both = FlowEstimator(fast[1], iters=2, device="cpu").bidirectional(*frames[:2])
    for flow, name in ((both.forward, ahead.format(0)), (both.backward, back.format(1))):
        written = read_flow_arrays(tmp_path / "out" / name).array
        wanted_flow = flow.array.clip(-20, 20) if word == "xy" else flow.array
        np.testing.assert_allclose(written, wanted_flow, atol=4.0 if word == "xy" else 1 / 64)


@pytest.mark.parametrize("name", ["clip.h5", "clip.tar"])
def test_a_sequence_fits_into_one_file(
    name: str, estimate: Run, fast: list[str], tmp_path: Path
) -> None:
    frames = write_frames(tmp_path / "in", 4)
    (tmp_path / "in" / "frame1.png").write_bytes(b"no image")
    outcome = estimate(name, "--bound", "60")
    assert outcome.code == 1
    assert f"wrote 1 of 3 pairs to {tmp_path / name}" in outcome.out
    clip = open_clip(tmp_path / name)
    assert clip.frames == (2,)
    flow = FlowEstimator(fast[1], iters=2, device="cpu")(*frames[2:])
    difference = np.abs(clip[0].array - flow.array)
    assert difference.mean() < (0.01 if name == "clip.h5" else 0.5)
    for options, message in (
        ((), "exists; add --overwrite"),
        (("-f", "--resume"), "holds only forward flow, and cannot be resumed"),
        (("-f", "--backward"), "holds only forward flow, and cannot be resumed"),
    ):
        outcome = estimate(name, *options)
        assert message in outcome.complaint


@pytest.mark.parametrize(
    ("name", "kept"),
    [("clip.h5", "the finished part is kept"), ("out", "the same command with --resume continues")],
)
def test_an_interrupt_keeps_finished_results(
    name: str, kept: str, estimate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_frames(tmp_path / "in", 4)
    encode, calls = FlowEstimator.encode, iter(range(10))

    def interrupt_at_the_last_frame(self: FlowEstimator, image: np.ndarray) -> Frame:
        if next(calls) == len(frames) - 1:
            raise KeyboardInterrupt
        return encode(self, image)

    monkeypatch.setattr(FlowEstimator, "encode", interrupt_at_the_last_frame)
    outcome = estimate(name, "--max-length", "5")
    assert outcome.code == 130
    assert outcome.err.endswith(f"gmaflow: interrupted; {kept}\n")
    assert "wrote 2 of 3 pairs" in outcome.out
    written = open_clip(tmp_path / name)
    assert len(written) == 2


def test_a_folder_of_8_bits_is_resumed_by_its_bound(estimate: Run, tmp_path: Path) -> None:
    write_frames(tmp_path / "in", 3)
    out = tmp_path / "out"
    assert estimate("out", "--format", "xy").code == 0
    (out / "flow_x_frame1.jpg").unlink()  # as after an interrupt: y comes first
    outcome = estimate("out", "--format", "xy", "--resume")
    assert "wrote 1 of 2 pairs" in outcome.out
    outcome = estimate("out", "--format", "xy", "--resume", "--bound", "30")
    assert "was started with bound 20.0, not 30.0" in outcome.complaint


def test_all_pictures_of_a_folder_share_a_scale(
    estimate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "in", 4)
    drawn: list[float | None] = []

    def note(result: PairOutput, files: Iterable[OutputFile]) -> None:
        drawn.append(result.max_length)
        write_parts(result, files)

    monkeypatch.setattr("gmaflow.cli.flow.write_parts", note)
    outcome = estimate("out", "--json")
    scale = json.loads(outcome.out)["max_length"]
    assert drawn == [scale] * 3
    for number in range(3):
        flow = read_flow_arrays(tmp_path / "out" / f"frame{number}.flo").array
        frame, picture, arrows = (
            read_image(path / f"frame{number}{end}")
            for path, end in (
                (tmp_path / "in", ".png"),
                (tmp_path / "out", ".png"),
                (tmp_path / "out", "-arrows.png"),
            )
        )
        np.testing.assert_array_equal(picture, flow_to_image(flow, max_length=scale))
        np.testing.assert_array_equal(arrows, flow_arrows(frame, flow, max_length=scale))
    second = estimate("given", "--max-length", "12.5")
    assert "full scale at 12.5 px" in second.out
    assert drawn[3:] == [12.5] * 3


def test_flow_files_need_no_scale(
    estimate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "in", 3)
    monkeypatch.delattr("gmaflow.cli.flow.choose_scale")
    assert json.loads(estimate("out", "--format", "flo", "--json").out)["max_length"] is None


def test_a_warm_start_uses_the_pair_before(estimate: Run, fast: list[str], tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "in", 3)
    assert estimate("out", "--warm-start").code == 0
    estimator = FlowEstimator(fast[1], iters=2, device="cpu")
    warm = list(estimator.sequence(frames, warm_start=True))
    for number, flow in enumerate(warm):
        written = read_flow_arrays(tmp_path / "out" / f"frame{number}.flo").array
        np.testing.assert_allclose(written, flow.array, atol=1e-4)


def test_one_bad_frame_is_reported_and_not_fatal(estimate: Run, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "in", 5)
    frames[2].write_text("no image")
    write_frames(tmp_path / "odd", 1, size=(64, 64))[0].replace(frames[4])
    outcome = estimate("out", "--json")
    assert outcome.code == 1
    report = json.loads(outcome.out)
    assert (report["pairs"], report["estimated"]) == (4, 1)
    assert [entry.split(":")[0] for entry in report["skipped"]] == [
        "frame1.png -> frame2.png",
        "frame2.png -> frame3.png",
        "frame3.png -> frame4.png",
    ]
    assert "differ in size" in report["skipped"][2]
    assert {path.stem for path in (tmp_path / "out").glob("*.flo")} == {"frame0"}
    second = estimate("again")
    assert "3 of 4 pairs were skipped" in second.err


def test_an_output_that_no_pair_can_have_ends_the_run_at_once(
    estimate: Run, tmp_path: Path
) -> None:
    write_frames(tmp_path / "in", 4)
    for options, complaint in (
        (("--attention", "1,1"), "this network has no attention"),
        (("--max-memory", "1MB"), "of memory are not enough"),
    ):
        outcome = estimate("out", *options)
        assert complaint in outcome.complaint
        assert outcome.err.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))


def test_resume_skips_finished_pairs(estimate: Run, tmp_path: Path) -> None:
    write_frames(tmp_path / "in", 4)
    assert estimate("out").code == 0
    out = tmp_path / "out"
    (out / "frame1.flo").unlink()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("frame[02]*")}
    refused = estimate("out")
    assert "already holds flow; add --resume to continue, --overwrite to" in refused.complaint
    (out / "flow.json").rename(tmp_path / "flow.json")
    assert "exists; add --overwrite" in estimate("out").err
    (tmp_path / "flow.json").rename(out / "flow.json")
    outcome = estimate("out", "--resume", "--json")
    assert json.loads(outcome.out)["estimated"] == 1
    assert (out / "frame1.flo").exists()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "wrote 0 of 3 pairs" in (again := estimate("out", "--resume").out)
    assert "3 already there" in again


def test_more_than_was_asked_for_at_first_is_another_folder(estimate: Run, tmp_path: Path) -> None:
    write_frames(tmp_path / "in", 2)
    assert estimate("out").code == 0
    outcome = estimate("out", "--resume", "--backward")
    assert "was started with files" in outcome.complaint


@pytest.mark.parametrize("change", ["iters", "weights", "frames", "warm-start"])
def test_resume_never_mixes_two_ways(
    change: str, run: Run, fast: list[str], weights: dict[str, Path], tmp_path: Path
) -> None:
    write_frames(tmp_path / "in", 3)
    write_frames(tmp_path / "other", 3)
    out = tmp_path / "out"
    assert run("flow", tmp_path / "in", "-o", out, *fast).code == 0
    (out / "frame1.flo").unlink()
    changed: dict[str, list[str | Path]] = {
        "iters": ["--iters", "3"],
        "weights": ["--weights", weights["gma"]],
        "warm-start": ["--warm-start"],
        "frames": [],
    }
    folder = tmp_path / ("other" if change == "frames" else "in")
    outcome = run("flow", folder, "-o", out, *fast, *changed[change], "--resume")
    assert outcome.code == 2
    how = {"weights": "with model", "warm-start": "without --warm-start"}
    assert f"was started {how.get(change, f'with {change}')}" in outcome.err
    assert not (out / "frame1.flo").exists()


def test_the_rest_of_an_interrupted_overwrite_is_not_resumed(
    estimate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "in", 4)
    assert estimate("out").code == 0
    encode, seen = FlowEstimator.encode, []
    with monkeypatch.context() as patch:

        def interrupt_at_the_third_frame(self: FlowEstimator, image: np.ndarray) -> Frame:
            seen.append(image)
            if len(seen) == 3:
                raise KeyboardInterrupt
            return encode(self, image)

        patch.setattr(FlowEstimator, "encode", interrupt_at_the_third_frame)
        outcome = estimate("out", "--iters", "1", "--overwrite")
        assert (outcome.code, "with --resume continues" in outcome.err) == (130, True)
    outcome = estimate("out", "--iters", "1", "--resume", "--json")
    assert json.loads(outcome.out)["already_there"] == 1


def test_files_without_a_record_are_not_resumed(estimate: Run, tmp_path: Path) -> None:
    write_frames(tmp_path / "in", 3)
    assert estimate("out").code == 0
    (tmp_path / "out" / "flow.json").unlink()
    outcome = estimate("out", "--resume")
    assert "add --overwrite" in outcome.complaint
    (tmp_path / "out" / "flow.json").write_text("torn")
    outcome = estimate("out", "--resume")
    assert "is damaged" in outcome.complaint
    outcome = estimate("out", "--resume", "--overwrite")
    assert "give only one" in outcome.complaint


@pytest.mark.parametrize("name", ["seq.v02", "seq.v02/", "out.flo/"])
def test_folders_may_have_a_dot_in_their_name(
    name: str, run: Run, fast: list[str], tmp_path: Path
) -> None:
    write_frames(tmp_path / "in", 2)
    assert run("flow", tmp_path / "in", "-o", f"{tmp_path}/{name}", *fast).code == 0
    assert (tmp_path / name / "frame0.flo").is_file()


def test_gaps_are_reported(estimate: Run, tmp_path: Path) -> None:
    write_frames(tmp_path / "in", 5)[2].unlink()
    outcome = estimate("out")
    assert outcome.code == 0
    assert "1 of 3 pairs are not consecutive by name, the first frame1.png -> frame3.png" in (
        outcome.err
    )


def test_bad_folders_are_refused(estimate: Run, run: Run, fast: list[str], tmp_path: Path) -> None:
    write_frames(tmp_path / "single", 1)
    outcome = run("flow", tmp_path / "single", "-o", tmp_path / "out", *fast)
    assert "at least two frames" in outcome.complaint
    frames = write_frames(tmp_path / "in", 3)
    outcome = estimate("out.flo")
    assert "needs a folder; drop the suffix" in outcome.complaint
    frames[1].with_suffix(".jpg").write_bytes(frames[1].read_bytes())
    outcome = estimate("out")
    assert "would both be written to frame1" in outcome.complaint
    into_itself = run("flow", tmp_path / "single", "-o", tmp_path / "single", *fast)
    assert into_itself.code == 2
    for options, complaint in (
        (("--max-length", "0"), "--max-length is 0; give a number above 0"),
        (("--format", "flo", "--attention", "1,1"), "--attention is drawn, and --format flo"),
        (("--truth", "a.flo"), "--truth is for one pair"),
    ):
        outcome = estimate("out", *options)
        assert complaint in outcome.complaint
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_also_that_of_backward_flow_is_reported(
    estimate: Run, tmp_path: Path
) -> None:
    first, second = write_frames(tmp_path / "in", 2)
    first.rename(tmp_path / "in" / "a-backward.png")
    second.rename(tmp_path / "in" / "a.png")
    outcome = estimate("out", "--format", "npy", "--backward")
    message = "a.png and a-backward.png would both be written to a-backward.npy"
    assert message in outcome.complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_frames_are_never_written_over(option: str, estimate: Run, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "in", 3)
    before = [frame.read_bytes() for frame in frames]
    outcome = estimate("in", option)
    assert "holds the frames" in outcome.complaint
    assert [frame.read_bytes() for frame in frames] == before
    assert len(list((tmp_path / "in").iterdir())) == 3


def test_markup_in_names_is_text(estimate: Run, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "in", 4)
    frames[3].rename(tmp_path / "in" / "frame4[bold].png").write_text("no image")
    outcome = estimate("out")
    assert outcome.code == 1
    assert "frame4[bold].png" in outcome.err


def test_a_folder_of_nothing_usable_is_refused(estimate: Run, tmp_path: Path) -> None:
    for frame in write_frames(tmp_path / "in", 3):
        frame.write_text("no image")
    outcome = estimate("out", "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no pair can be used" in outcome.err


def test_a_list_of_images_and_a_pattern_are_as_a_folder(
    run: Run, fast: list[str], tmp_path: Path
) -> None:
    frames = write_frames(tmp_path / "in", 3)
    frames[2] = frames[2].rename(tmp_path / "in" / "frame10.png")
    for name, inputs in (
        ("folder", [tmp_path / "in"]),
        ("list", [frames[0], frames[2], frames[1]]),
        ("pattern", [tmp_path / "in" / "*.png"]),
    ):
        outcome = run("flow", *inputs, "-o", tmp_path / name, "--format", "flo", *fast)
        assert outcome.code == 0, outcome.err
        assert sorted(path.name for path in (tmp_path / name).glob("*.flo")) == [
            "frame0.flo",
            "frame1.flo",
        ]
        for path in (tmp_path / name).glob("*.flo"):
            assert path.read_bytes() == (tmp_path / "folder" / path.name).read_bytes()
    more = ["-o", tmp_path / "list", "--format", "flo", "--resume", *fast]
    assert "2 already there" in run("flow", *frames, *more).out
    assert "several outputs are for one pair" in run("flow", *frames, "-o", "a/", "-o", "b/").err


@pytest.mark.parametrize("turned", [False, True])
def test_a_pattern_of_two_images_takes_them_in_order(
    turned: bool, run: Run, fast: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_frames(tmp_path / "in", 2)
    names = ("9.png", "10.png")
    frames = [
        frame.rename(frame.with_name(name)) for frame, name in zip(frames, names, strict=True)
    ]
    assert run("flow", *frames, "-o", tmp_path / "a.flo", *fast).code == 0
    # Disks list files in any order.
    listed = [str(path) for path in (frames[::-1] if turned else frames)]
    monkeypatch.setattr("gmaflow.cli.flow.glob", lambda pattern: list(listed))
    assert run("flow", tmp_path / "in" / "*.png", "-o", tmp_path / "b.flo", *fast).code == 0
    assert (tmp_path / "a.flo").read_bytes() == (tmp_path / "b.flo").read_bytes()

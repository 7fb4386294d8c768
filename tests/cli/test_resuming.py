"""Interrupted folders of results are resumed, by `flow FOLDER` and by `video`."""

import importlib.util
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from gmaflow.cli import pipeline
from gmaflow.cli.pipeline import (
    PairFolder,
    describe_source,
    endings_before,
    make_settings,
    read_before,
    record_of,
)
from gmaflow.errors import OutputError
from gmaflow.evaluation.evaluating import identify
from gmaflow.inference import FlowEstimator, LastFlows
from gmaflow.io import video_reader, write_image
from gmaflow.io.video_reader import upright
from tests.cli.conftest import Outcome, Run, write_frames
from tests.conftest import contents, random_checkpoint
from tests.io.clips import write_coded
from tests.io.frames import moving

HOW: dict[str, object] = {"verb": "flow", "iters": 12, "files": [".flo"]}


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """Six frames of one shot, then two of another."""
    for number, image in enumerate([*moving(6, seed=1), *moving(2, seed=2)]):
        write_image(tmp_path / "in" / f"{number:06d}.png", image)
    return tmp_path / "in"


@pytest.fixture(params=["flow", "video"])
def verb(request: pytest.FixtureRequest) -> str:
    """The commands that write folders of results."""
    return str(request.param)


@pytest.fixture
def estimate(run: Run, frames: Path, weights: dict[str, Path], tmp_path: Path) -> Run:
    """Run a verb on the frames, into a folder of the given name, with more options."""

    def call(verb: str, name: str, *options: str) -> Outcome:
        network = ("--weights", weights["raft-small"], "--iters", "2", "--device", "cpu")
        return run(verb, frames, "-o", f"{tmp_path / name}/", *network, *options)

    return call


@contextmanager
def broken_off(owner: type, name: str, *, at: int) -> Iterator[None]:
    """Let the n-th call of a method do its work, and be interrupted then."""
    method, calls = getattr(owner, name), 0

    def counted(*args: object) -> object:
        nonlocal calls
        calls += 1
        result = method(*args)
        if calls == at:
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "png"),
        ("--format", "flo", "--warm-start"),
        ("--format", "flo", "--warm-start", "--backward"),
    ],
)
def test_a_resumed_folder_equals_an_uninterrupted_one(
    verb: str, options: tuple[str, ...], estimate: Run, tmp_path: Path
) -> None:
    assert estimate(verb, "whole", *options).code == 0
    for at in (4, 5):
        with broken_off(FlowEstimator, "encode", at=at):
            outcome = estimate(verb, "parts", *options, "--resume")
        assert outcome.code == 130
        assert "the same command with --resume continues" in outcome.err
        assert not list(tmp_path.glob("parts/.*partial*"))
        assert contents(tmp_path / "parts").keys() < contents(tmp_path / "whole").keys()
    outcome = estimate(verb, "parts", *options, "--resume", "--json")
    assert json.loads(outcome.out)["already_there"] > 2
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_several_threads_write_the_same_files(
    verb: str,
    run: Run,
    estimate: Run,
    weights: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for threads in (1, 4):
        monkeypatch.setattr(pipeline, "WRITERS", threads)
        assert estimate(verb, f"by{threads}", "--format", "png").code == 0
        video = ["video", tmp_path / "in", "-o", tmp_path / f"{threads}.mp4", "--iters", "1"]
        assert run(*video, "--weights", weights["raft-small"], "--device", "cpu").code == 0
    assert contents(tmp_path / "by1") == contents(tmp_path / "by4")
    assert (tmp_path / "1.mp4").read_bytes() == (tmp_path / "4.mp4").read_bytes()


def test_a_resumed_video_does_not_convert_finished_frames(
    run: Run, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames are stored in another order than they are shown, and across groups."""
    coding = {"g": "4", "x264-params": "bframes=3:b-adapt=0:open-gop=1"}
    clip = write_coded(tmp_path / "in.mp4", "libx264", coding, count=9)
    network = ["--weights", weights["raft-small"], "--iters", "1", "--device", "cpu"]
    call = ["video", clip, "--warm-start", "--no-cuts", *network]
    assert run(*call, "-o", f"{tmp_path}/whole/").code == 0
    with broken_off(FlowEstimator, "encode", at=6):
        assert run(*call, "-o", f"{tmp_path}/parts/").code == 130
    finished = len(list(tmp_path.glob("parts/*.flo")))
    assert finished >= 4
    drawn = []

    def counted(frame: av.VideoFrame) -> np.ndarray:
        drawn.append(frame.pts)
        return upright(frame)

    monkeypatch.setattr(video_reader, "upright", counted)
    outcome = run(*call, "-o", f"{tmp_path}/parts/", "--resume", "--json")
    result = json.loads(outcome.out)
    assert (result["frames"], result["already_there"]) == (8, finished)
    assert len(drawn) == 1 + 9 - finished  # the first frame once more, to look at the video
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_folder_with_frames_that_cannot_be_read_is_resumed_too(
    estimate: Run, frames: Path, tmp_path: Path
) -> None:
    for number in (0, 4):
        (frames / f"{number:06d}.png").write_text("no image")
    options = ("--warm-start", "--backward")
    assert estimate("flow", "whole", *options).code == 1
    with broken_off(FlowEstimator, "encode", at=3):
        assert estimate("flow", "parts", *options).code == 130
    outcome = estimate("flow", "parts", *options, "--resume", "--json")
    result = json.loads(outcome.out)
    assert (outcome.code, result["already_there"], result["estimated"]) == (1, 1, 3)
    assert len(result["skipped"]) == 3
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_warm_start_resumes_where_the_files_of_a_pair_are_missing(
    verb: str, estimate: Run, tmp_path: Path
) -> None:
    options = ("--warm-start", "--format", "flo")
    assert estimate(verb, "whole", *options).code == 0
    with broken_off(LastFlows, "save", at=3):
        assert estimate(verb, "parts", *options).code == 130
    assert len(list(tmp_path.glob("parts/*.flo"))) == 2
    assert estimate(verb, "parts", *options, "--resume").code == 0
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_gap_is_filled_without_a_warm_start(verb: str, estimate: Run, tmp_path: Path) -> None:
    assert estimate(verb, "cold", "--format", "flo").code == 0
    assert estimate(verb, "warm", "--format", "flo", "--warm-start").code == 0
    gap = tmp_path / "warm" / "000002.flo"
    others = contents(gap.parent)
    before = others.pop(gap.name)
    gap.unlink()
    assert estimate(verb, "warm", "--format", "flo", "--warm-start", "--resume").code == 0
    assert gap.read_bytes() == (tmp_path / "cold" / gap.name).read_bytes() != before
    others.pop(".warm-start.safetensors")
    assert others.items() <= contents(gap.parent).items()


def test_finished_pairs_are_not_estimated_again(
    verb: str, estimate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert estimate(verb, "out", "--format", "png").code == 0

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is left to estimate")

    monkeypatch.setattr(FlowEstimator, "encode", refuse)
    monkeypatch.setattr(FlowEstimator, "__call__", refuse)
    outcome = estimate(verb, "out", "--format", "png", "--resume")
    assert (outcome.code, "7 already there" in outcome.out) == (0, True)
    assert "full scale at" in outcome.out


def test_the_first_scale_is_kept(verb: str, estimate: Run, tmp_path: Path) -> None:
    def max_length_of(*options: str) -> float:
        report: dict[str, Any] = json.loads(estimate(verb, "out", *options, "--json").out)
        return report["max_length"]

    first = max_length_of("--format", "png")
    assert first >= 1
    record = tmp_path / "out" / "flow.json"
    (tmp_path / "out" / "000001.png").unlink()
    # One that these frames would not give.
    record.write_text(record.read_text().replace(str(first), str(first := first + 5)))
    assert max_length_of("--format", "png", "--resume") == first
    outcome = estimate(verb, "out", "--format", "png", "--max-length", "77", "--resume")
    assert f"was started with max_length {first}, not 77.0" in outcome.complaint


def test_numbers_need_no_scale(verb: str, estimate: Run, tmp_path: Path) -> None:
    assert estimate(verb, "out", "--format", "flo", "--max-length", "9").code == 0
    record = json.loads((tmp_path / "out" / "flow.json").read_text())
    assert (record["max_length"], record["files"]) == (None, [".flo"])
    assert estimate(verb, "out", "--format", "flo", "--max-length", "7", "--resume").code == 0
    outcome = estimate(verb, "out", "--format", "png", "--resume")
    assert "was started with files ['.flo'], not" in outcome.complaint


def test_a_folder_is_begun_once(verb: str, estimate: Run, tmp_path: Path) -> None:
    assert estimate(verb, "out", "--format", "flo").code == 0
    before = contents(tmp_path / "out")
    outcome = estimate(verb, "out", "--format", "npy", "--iters", "1")
    assert "add --resume to continue, --overwrite to start over" in outcome.complaint
    outcome = estimate(verb, "out", "--format", "flo", "--iters", "1", "--resume")
    assert "was started with iters 2, not 1" in outcome.complaint
    other = "video" if verb == "flow" else "flow"
    outcome = estimate(other, "out", "--format", "flo", "--resume")
    assert f"was started with verb {verb}, not {other}" in outcome.complaint
    assert contents(tmp_path / "out") == before


HOLD = """
import sys
from pathlib import Path
from gmaflow.io.resumable import ResultRecord
record = ResultRecord(Path(sys.argv[1]), "flow.json")
record.write({})
(record.folder / "000000.flo").write_text("theirs")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ends", [False, True])
def test_files_of_a_process_that_began_at_the_same_time_are_kept(
    verb: str, ends: bool, estimate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, start = tmp_path / "out", PairFolder._start

    def start_later(self: PairFolder) -> None:
        command = [sys.executable, "-c", HOLD, str(folder)]
        with subprocess.Popen(command, stdin=-1, stdout=-1) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"locked\n"
            if ends:
                other.communicate()
            try:
                start(self)
            finally:
                other.kill()

    monkeypatch.setattr(PairFolder, "_start", start_later)
    outcome = estimate(verb, "out", "--format", "flo")
    assert f"another process {'has written' if ends else 'is writing'} to" in outcome.complaint
    assert (folder / "000000.flo").read_text() == "theirs"


def test_a_back_end_is_part_of_the_settings(verb: str, estimate: Run) -> None:
    named = ("--backend", "reference")
    assert estimate(verb, "plain", "--format", "flo").code == 0
    assert estimate(verb, "named", "--format", "flo", *named).code == 0
    assert estimate(verb, "named", "--format", "flo", *named, "--resume").code == 0
    outcome = estimate(verb, "plain", "--format", "flo", *named, "--resume")
    assert "was started without --backend, not with --backend reference;" in outcome.complaint
    outcome = estimate(verb, "named", "--format", "flo", "--resume")
    assert "was started with --backend reference, not without;" in outcome.complaint


def test_a_run_that_ran_out_of_memory_resumes_within_less(verb: str, estimate: Run) -> None:
    assert estimate(verb, "out", "--format", "flo").code == 0
    assert estimate(verb, "out", "--format", "flo", "--max-memory", "1GB", "--resume").code == 0


def test_every_argument_of_an_estimator_is_recorded(frames: Path) -> None:
    """A new argument that no record knows would let a resumed run mix results."""
    plain: dict[str, Any] = {"weights": random_checkpoint("raft-small", seed=0), "device": "cpu"}
    others: dict[str, Any] = {
        "weights": random_checkpoint("raft-small", seed=1),
        "model": "raft",
        "iters": "auto",
        "precision": "fp16",
        "backend": "reference",
        "max_memory": "1GB",
        "padding": "kitti",
        "views": 2,
    }
    # The device is in the keys of stored results, but a folder may be resumed on another one. A
    # memory plan changes rounding only, and no command has an option for it.
    arguments = inspect.signature(FlowEstimator).parameters.keys() - {"device", "plan"}
    assert others.keys() == arguments

    def records(estimator: FlowEstimator) -> tuple[dict[str, Any], str]:
        how = make_settings(
            estimator, verb="flow", source=frames, endings=[".flo"], warm_start=False
        )
        return how, identify(estimator)

    how, key = records(FlowEstimator(**plain))
    for name, value in others.items():
        changed = {**plain, name: value}
        if name == "model":
            changed["weights"] = random_checkpoint(value, seed=0)
        other_how, other_key = records(FlowEstimator(**changed))
        # Less memory may be all that a run needs to go on.
        assert (other_how == how) == (name == "max_memory"), name
        assert other_key != key, name
    assert list(how) == [
        *("verb", "frames", "source", "model", "iters", "precision", "weights", "warm_start"),
        "files",
    ]


def test_an_overwrite_keeps_files_that_it_did_not_write(
    verb: str, estimate: Run, tmp_path: Path
) -> None:
    once = ("--format", "png", "--iters", "1")
    assert estimate(verb, "whole", *once).code == 0
    assert estimate(verb, "out", "--format", "png").code == 0
    (tmp_path / "out" / "notes.png").write_text("mine")
    with broken_off(FlowEstimator, "encode", at=4):
        assert estimate(verb, "out", *once, "--overwrite").code == 130
    outcome = estimate(verb, "out", *once, "--resume", "--json")
    assert json.loads(outcome.out)["already_there"] < 4
    found = contents(tmp_path / "out")
    assert found["notes.png"] == b"mine"
    expected = contents(tmp_path / "whole")
    expected.pop("flow.json")
    assert expected.items() <= found.items()


def test_a_run_that_gives_nothing_leaves_nothing(verb: str, estimate: Run, tmp_path: Path) -> None:
    for at in (1, 2):
        with broken_off(FlowEstimator, "encode", at=at):
            outcome = estimate(verb, "out", "--format", "flo")
        assert (outcome.code, outcome.out) == (130, "")
        assert not (tmp_path / "out").exists()


def test_a_broken_warm_start_is_reported(estimate: Run, tmp_path: Path) -> None:
    assert estimate("flow", "out", "--format", "flo", "--warm-start").code == 0
    (tmp_path / "out" / ".warm-start.safetensors").write_bytes(b"torn")
    outcome = estimate("flow", "out", "--format", "flo", "--warm-start", "--resume")
    assert "is damaged; add --overwrite to start over" in outcome.complaint
    assert estimate("flow", "out", "--format", "flo", "--warm-start", "--overwrite").code == 0


def test_another_format_begins_anew_without_the_old_files(
    verb: str, estimate: Run, tmp_path: Path
) -> None:
    assert estimate(verb, "out", "--format", "npy", "--backward").code == 0
    assert estimate(verb, "out", "--format", "flo", "--overwrite").code == 0
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".flo", ".json"}


def test_a_pair_without_its_backward_flow_is_not_finished(
    verb: str, estimate: Run, tmp_path: Path
) -> None:
    options = ("--format", "npy", "--backward")
    assert estimate(verb, "out", *options).code == 0
    whole = contents(tmp_path / "out")
    assert "000000-backward.npy" not in whole
    (tmp_path / "out" / "000003-backward.npy").unlink()
    outcome = estimate(verb, "out", *options, "--resume", "--json")
    pairs = sum("-backward" in name for name in whole)
    assert json.loads(outcome.out)["already_there"] == pairs - 1
    assert contents(tmp_path / "out") == whole


def test_numbered_files_of_others_are_never_touched(estimate: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "000500.png").write_text("mine")
    for option, advice in (("--resume", "is not empty"), ("--overwrite", "remove such")):
        outcome = estimate("video", "out", "--format", "png", option)
        assert advice in outcome.complaint
    assert estimate("video", "out", "--format", "flo", "--overwrite").code == 0
    assert estimate("video", "out", "--format", "flo", "--overwrite").code == 0
    outcome = estimate("video", "out", "--format", "png", "--overwrite")
    assert (
        "000500.png, which gmaflow video did not write according to flow.json" in outcome.complaint
    )
    assert (out / "000500.png").read_text() == "mine"
    (out / "000500-backward.flo").write_text("mine")
    assert estimate("video", "out", "--format", "flo", "--overwrite").code == 0
    outcome = estimate("video", "out", "--format", "flo", "--backward", "--overwrite")
    assert "000500-backward.flo" in outcome.complaint
    assert (out / "000500-backward.flo").read_text() == "mine"


def test_the_folder_of_another_verb_can_still_be_resumed(
    verb: str, estimate: Run, run: Run, frames: Path, weights: dict[str, Path], tmp_path: Path
) -> None:
    with broken_off(FlowEstimator, "encode", at=4):
        assert estimate(verb, "out", "--format", "flo").code == 130
    other = "flow" if verb == "video" else "video"
    refused = estimate(other, "out", "--format", "npy", "--overwrite")
    assert f"holds the results of gmaflow {verb}; choose another folder" in refused.complaint
    if importlib.util.find_spec("OpenEXR"):
        network = ("--weights", weights["raft-small"], "--iters", "1", "--device", "cpu")
        refused = run("track", frames, "-o", f"{tmp_path}/out/", "--overwrite", *network)
        assert f"holds the results of gmaflow {verb}; choose another folder" in refused.complaint
    assert estimate(verb, "out", "--format", "flo", "--resume").code == 0


def record(folder: Path, scale: float | None = None, **how: object) -> dict[str, object]:
    """Start a folder of results."""
    settings = {**HOW, **how}
    record_of(folder).write({**settings, "max_length": scale})
    return settings


def test_the_first_scale_is_kept_in_the_record(tmp_path: Path) -> None:
    record(tmp_path, 7.0)
    assert read_before(tmp_path, HOW, tmp_path, scale=None)["max_length"] == 7
    assert read_before(tmp_path, HOW, tmp_path, scale=7.0)["max_length"] == 7
    with pytest.raises(OutputError, match=r"was started with max_length 7\.0, not 8\.0"):
        read_before(tmp_path, HOW, tmp_path, scale=8.0)


@pytest.mark.parametrize("text", ["", "torn", "{}"])
def test_a_damaged_record_is_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text(text)
    with pytest.raises(OutputError, match="is damaged; add --overwrite"):
        read_before(tmp_path, HOW, tmp_path, scale=None)
    assert endings_before(tmp_path, "flow") == []


def test_a_verb_recognises_its_own_files(tmp_path: Path) -> None:
    assert endings_before(tmp_path, "flow") == []
    record(tmp_path)
    assert endings_before(tmp_path, "flow") == [".flo"]
    assert endings_before(tmp_path, "video") == []


def test_frames_may_come_after_the_last_but_not_change(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    first, *_ = write_frames(source, 3)
    how = record(out, frames=str(source), source=describe_source(source))
    (source / "frame9.png").write_bytes(first.read_bytes())
    assert read_before(out, how, source, scale=None)
    (source / "frame00.png").write_bytes(first.read_bytes())  # between the first and the second
    with pytest.raises(OutputError, match="has changed since"):
        read_before(out, how, source, scale=None)
    (source / "frame00.png").unlink()
    first.unlink()
    with pytest.raises(OutputError, match="has changed since"):
        read_before(out, how, source, scale=None)


def test_another_video_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    video, out = tmp_path / "in.mp4", tmp_path / "out"
    video.write_bytes(b"one")
    how = record(out, frames=str(video), source=describe_source(video))
    assert read_before(out, how, video, scale=None)
    video.write_bytes(b"another")
    with pytest.raises(OutputError, match="has changed since"):
        read_before(out, how, video, scale=None)

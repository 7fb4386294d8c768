"""One pair: `gmaflow flow A B -o OUT`."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from gmaflow.inference import Flow, FlowEstimator
from gmaflow.io import read_flow_arrays
from gmaflow.viz import pair_panel
from tests.cli.conftest import Run, is_picture, write_frames

Pair = tuple[Path, Path]
SIZE = (40, 56)


@pytest.fixture
def fast(weights: dict[str, Path]) -> list[str]:
    return ["--weights", str(weights["raft-small"]), "--iters", "2", "--device", "cpu"]


def without(options: list[str], given: list[Path | str]) -> list[str]:
    """Leave out the options that are given otherwise."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return [part for pair in pairs if pair[0] not in given for part in pair]


@pytest.mark.parametrize("suffix", [".flo", ".pfm", ".npy", ".npz", ".flo5", ".exr", ".kitti.png"])
def test_numbers_in_every_format(
    suffix: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    target = tmp_path / f"out{suffix}"
    outcome = run("flow", *pair, "-o", target, *fast)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"wrote {target}: mean " in outcome.out
    assert outcome.out.rstrip().endswith(" s in all)")  # with loading the network
    expected = FlowEstimator(fast[1], iters=2, device="cpu")(*pair).array
    np.testing.assert_allclose(read_flow_arrays(target).array, expected, atol=0.01)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [target.name]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_pictures(suffix: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path) -> None:
    assert run("flow", *pair, "-o", tmp_path / f"out{suffix}", *fast).code == 0
    assert is_picture(tmp_path / f"out{suffix}", SIZE)


def test_iterations_until_the_flow_has_settled(
    run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    options = without(fast, ["--iters"])
    outcome = run("flow", *pair, "-o", tmp_path / "x.flo", *options, "--iters", "auto", "--json")
    assert outcome.code == 0
    expected = FlowEstimator(fast[1], iters="auto", device="cpu")(*pair)
    assert json.loads(outcome.out)["iters"] == expected.iterations


def test_the_documented_call(
    run: Run, pair: Pair, weights: dict[str, Path], tmp_path: Path
) -> None:
    call = ["flow", *pair, "-o", tmp_path / "out.flo", "--weights", weights["raft-small.pth"]]
    outcome = run(*call, "--iters", "12", "--device", "cpu", "--precision", "fp32")
    assert outcome.code == 0
    assert read_flow_arrays(tmp_path / "out.flo").array.shape == (*SIZE, 2)


def test_a_folder_gets_everything(run: Run, pair: Pair, fast: list[str], tmp_path: Path) -> None:
    assert run("flow", *pair, "-o", tmp_path / "out", *fast, "--backward").code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "flow.flo",
        "flow.png",
        "flow-arrows.png",
        "flow-warped.png",
        "flow-panel.png",
        "flow-backward.flo",
        "flow-occlusion.png",
        "flow-confidence.png",
    }
    for name in names:
        if name.endswith(".png") and name != "flow-panel.png":
            assert is_picture(tmp_path / "out" / name, SIZE)
    both = FlowEstimator(fast[1], iters=2, device="cpu").bidirectional(*pair)
    backward = read_flow_arrays(tmp_path / "out" / "flow-backward.flo").array
    np.testing.assert_allclose(backward, both.backward.array, atol=1e-4)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("npz", {"flow.npz"}),
        ("png", {"flow.png", "flow-arrows.png", "flow-warped.png", "flow-panel.png"}),
    ],
)
def test_a_folder_gets_one_format_if_asked_for(
    word: str, names: set[str], run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    assert run("flow", *pair, "-o", tmp_path / "out", *fast, "--format", word).code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    refused = run("flow", *pair, "-o", tmp_path / "out.flo", *fast, "--format", word)
    assert "the suffix picks the format" in refused.complaint


@pytest.mark.parametrize("target", ["out.npz", "out/"])
def test_an_npz_holds_occlusion_and_confidence_if_they_were_asked_for(
    target: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    wanted = [] if target.endswith(".npz") else ["--format", "npz"]
    args = ["flow", *pair, "-o", f"{tmp_path}/{target}", *fast, *wanted]
    both = FlowEstimator(fast[1], iters=2, device="cpu").bidirectional(*pair)
    assert run(*args, "--backward").code == 0
    (file,) = [path for path in tmp_path.glob("**/*.npz") if "backward" not in path.name]
    with np.load(file) as found:
        np.testing.assert_allclose(found["flow"], both.forward.array, atol=1e-4)
        for name in ("occluded_in", "occluded_out"):
            np.testing.assert_array_equal(found[name], getattr(both, name))
        np.testing.assert_allclose(found["confidence"], both.confidence, atol=1e-3)
    assert run(*args, "--overwrite").code == 0
    with np.load(file) as found:
        assert set(found) == {"flow", "valid"}


@pytest.mark.parametrize(
    ("target", "backward"),
    [
        ("f.flo", "f-backward.flo"),  # the stem is part of the ending, too
        ("5.flo5", "5-backward.flo5"),
        ("npz.npz", "npz-backward.npz"),
        ("a.f16.npz", "a-backward.f16.npz"),
        ("flow_x.jpg", "flow-backward.flow_x.jpg"),
        ("12.flow_x.jpg", "12-backward.flow_x.jpg"),
        ("flow_x_12.jpg", "flow_x_12-backward.jpg"),
        ("clip_flow_x_12.jpg", "clip_flow_x_12-backward.jpg"),
    ],
)
def test_backward_flow_is_next_to_forward_flow_in_its_format(
    target: str, backward: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    outcome = run("flow", *pair, "-o", tmp_path / target, *fast, "--backward", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["outputs"]["backward"] == str(tmp_path / backward)
    expected = FlowEstimator(fast[1], iters=2, device="cpu").bidirectional(*pair).backward.array
    within = 0.6 if backward.endswith(".jpg") else 0.01
    np.testing.assert_allclose(read_flow_arrays(tmp_path / backward).array, expected, atol=within)


def test_the_error_against_the_truth(
    run: Run, pair: Pair, fast: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Mock(side_effect=pair_panel)
    monkeypatch.setattr("gmaflow.viz.pair_panel", drawn)
    estimate = FlowEstimator(fast[1], iters=2, device="cpu")(*pair)
    truth = Flow(estimate.array + np.array([3, 4], np.float32))
    truth.save(tmp_path / "truth.flo")
    call = ["flow", *pair, "-o", tmp_path / "out", *fast, "--truth", tmp_path / "truth.flo"]
    report = json.loads(run(*call, "--json", "--max-length", "20").out)
    assert report["mean_error"] == pytest.approx(5, abs=1e-3)
    assert (tmp_path / "out" / "flow-error.png").exists()
    assert drawn.call_args.kwargs["error_caption"] == "error, mean 5.00 px"
    outcome = run(*call, "--overwrite")
    assert "mean error 5.00 px" in outcome.out
    Flow(np.zeros((20, 20, 2), np.float32)).save(tmp_path / "truth.flo")
    refused = run(*call, "--overwrite")
    assert "differs in size from the images" in refused.complaint
    Flow(np.zeros((*SIZE, 2), np.float32), np.zeros(SIZE, bool)).save(tmp_path / "truth.flo")
    refused = run(*call, "--overwrite")
    assert "has no valid pixels" in refused.complaint


def test_attention_is_drawn_next_to_the_output(
    run: Run, pair: Pair, weights: dict[str, Path], tmp_path: Path
) -> None:
    call = ["flow", *pair, "-o", tmp_path / "out.flo", "--weights", weights["gma"], "--iters", "1"]
    assert run(*call, "--attention", "5,6", "--attention", "50,30").code == 0
    assert {path.name for path in tmp_path.glob("out*")} == {"out.flo", "out-attention.png"}


def test_json_for_machines(run: Run, pair: Pair, fast: list[str], tmp_path: Path) -> None:
    outcome = run("flow", *pair, "-o", tmp_path / "out.flo", *fast, "--json")
    report = json.loads(outcome.out)
    assert report["outputs"] == {"flow": str(tmp_path / "out.flo")}
    assert (report["model"], report["iters"], report["precision"]) == ("raft-small", 2, "float32")
    assert report["statistics"]["height"] == SIZE[0]
    assert report["seconds"] > 0


def test_verbose_reports_the_decisions(
    run: Run,
    pair: Pair,
    fast: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert run("flow", *pair, "-o", tmp_path / "out.flo", *fast, "--verbose").code == 0
    assert "correlation stored" in caplog.text


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def spoiled(tmp_path: Path, good: Path) -> dict[str, list[Path | str]]:
    """Calls that must be refused, by what is wrong with them; -o comes later."""
    content = good.read_bytes()
    other = write_frames(tmp_path / "other", 1, size=(40, 64))[0]
    tiny = tmp_path / "tiny.png"
    Image.fromarray(np.zeros((1, 1, 3), np.uint8)).save(tiny)
    floats = tmp_path / "floats.tiff"
    Image.fromarray(np.full((40, 56), np.nan, np.float32)).save(floats)
    (tmp_path / "empty").mkdir()
    return {
        f"{good} and {other} differ in size": [good, other],
        "empty.png is empty": [good, write(tmp_path / "empty.png", b"")],
        "cut.png cannot be read": [good, write(tmp_path / "cut.png", content[: len(content) // 2])],
        "text.png is not an image": [good, write(tmp_path / "text.png", b"hello\n" * 100)],
        f"{tiny} is 1x1; flow needs at least 16 pixels": [tiny, tiny],
        "floating-point values": [good, floats],
        "nowhere.png": [good, tmp_path / "nowhere.png"],
        "http://x.org/a.png: URLs are not supported": [good, "http://x.org/a.png"],
        "is a folder": [good, tmp_path / "empty"],
        "no images": [tmp_path / "empty"],
        "is one file": [good],
        "is given twice": [good, good, good],
        "there is no input": [],
        "iters is 0": [good, good, "--iters", "0"],
        "--iters abc is not a whole number or auto": [good, good, "--iters", "abc"],
        "unknown model 'pwc'": [good, good, "--model", "pwc"],
        "did you mean raft-small?": [good, good, "--model", "raft_small"],
        "1 means bytes; give a unit, such as 1GB": [good, good, "--max-memory", "1"],
        "device 'tpu'; use auto": [good, good, "--device", "tpu"],
        "unknown precision 'fp8'": [good, good, "--precision", "fp8"],
        "is not a point": [good, good, "--attention", "here"],
        "this network has no attention": [good, good, "--attention", "1,1"],
        "are for sequences": [good, good, "--resume"],
        "does not exist; give a .safetensors": [good, good, "--weights", "nowhere.pth"],
    }


def test_bad_input_is_one_sentence_and_nothing_is_left(
    run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    target = tmp_path / "results" / "out.flo"
    for complaint, inputs in spoiled(tmp_path, pair[0]).items():
        outcome = run("flow", *inputs, "-o", target, *without(fast, inputs))
        assert outcome.code == 2, complaint
        assert complaint in outcome.err
        assert outcome.err.startswith("gmaflow: ")
        assert outcome.err.count("\n") == 1, outcome.err
        assert outcome.out == ""
        assert not target.parent.exists() or not list(target.parent.iterdir())


@pytest.mark.parametrize("name", ["out.flo", "folder/flow.flo"])
def test_existing_outputs_are_kept(
    name: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_text("precious")
    output = target.parent if "/" in name else target
    outcome = run("flow", *pair, "-o", output, *fast)
    assert f"{target} exists; add --overwrite to replace it" in outcome.complaint
    assert target.read_text() == "precious"
    assert run("flow", *pair, "-o", output, *fast, "--overwrite").code == 0
    assert read_flow_arrays(target).array.shape == (*SIZE, 2)


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("pair/frame0.png", "is an input; choose another output"),
        ("pair/frame0.png/out.flo", "cannot be written"),
        ("x" * 300 + ".flo", "name too long"),
        ("out.gif", ".gif is not a flow format"),
        ("results/.flo", "is only a suffix; give a name such as flow.flo"),
        ("pair/frame0.png/", "is a file"),
        ("out.xyz", ".xyz is not a flow format; use .exr, .flo, .flo5, .npy, .npz, .pfm, .png"),
    ],
)
def test_outputs_that_cannot_be_are_refused(
    output: str, complaint: str, run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    before = pair[0].read_bytes()
    outcome = run("flow", *pair, "-o", f"{tmp_path}/{output}", *fast, "--overwrite")
    assert outcome.code == 2
    assert complaint in outcome.err.replace("File name", "name")
    assert pair[0].read_bytes() == before


def test_a_slash_makes_a_folder(run: Run, pair: Pair, fast: list[str], tmp_path: Path) -> None:
    assert run("flow", *pair, "-o", f"{tmp_path}/out.v2/", *fast).code == 0
    assert (tmp_path / "out.v2" / "flow.flo").is_file()


@pytest.mark.parametrize("args", [("-o", "-"), ("--output=-",)])
@pytest.mark.parametrize("verb", ["flow", "video", "evaluate"])
def test_a_dash_is_no_folder(
    verb: str, args: tuple[str, ...], run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair[0].parent)
    outcome = run(verb, *pair, *args)
    assert "cannot write to standard output" in outcome.complaint
    assert set(pair[0].parent.iterdir()) == set(pair)


@pytest.mark.parametrize("verb", ["flow", "video", "track", "score"])
def test_standard_input_is_no_file(verb: str, run: Run, tmp_path: Path) -> None:
    outcome = run(verb, "-", "-o", tmp_path / "out.csv")
    assert "cannot read standard input" in outcome.complaint


@pytest.mark.parametrize("args", [("-o", ""), ("--output", ""), ("--output=",)])
@pytest.mark.parametrize("verb", ["flow", "video", "evaluate"])
def test_an_empty_name_is_not_the_working_folder(
    verb: str, args: tuple[str, ...], run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair[0].parent)
    outcome = run(verb, *pair, *args)
    assert "the output is empty" in outcome.complaint
    assert set(pair[0].parent.iterdir()) == set(pair)


def test_a_pair_can_have_several_outputs(
    run: Run, pair: Pair, fast: list[str], tmp_path: Path
) -> None:
    names = ["a.flo", "a.png", "a.npz"]
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    outcome = run("flow", *pair, *outputs, "--backward", "--json", *fast)
    result = json.loads(outcome.out)["outputs"]
    assert {"flow", "picture", "flow-2", "backward", "occlusion"} <= result.keys()
    assert len(result.values()) == len(set(result.values()))
    assert all(Path(path).is_file() for path in result.values())
    assert read_flow_arrays(tmp_path / "a.flo").array.shape == (40, 56, 2)
    assert is_picture(tmp_path / "a.png", (40, 56))
    assert run("flow", *pair, *outputs, "--backward", *fast).code == 2
    assert run("flow", *pair, *outputs, "--backward", "-y", *fast).code == 0


def test_without_an_output_it_asks_for_one(run: Run, pair: Pair) -> None:
    outcome = run("flow", *pair)
    assert (outcome.code, outcome.err) == (2, "gmaflow: there is no output; add -o PATH\n")

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from PIL import Image
from torch import nn
from torch.export import Dim

from gmaflow.errors import FlowError
from gmaflow.export import ExportConfig, as_text, export, exporting
from gmaflow.export.export_report import Port
from gmaflow.export.exporting import (
    CHECKED_SIZES,
    check_flow,
    check_memory,
    example_batch,
    example_previous,
    runs_to_check,
)
from gmaflow.export.formats import FORMATS, Contract, Inputs, Run
from gmaflow.inference import FlowEstimator
from gmaflow.model import MODELS, AttentionWeights, FlowNetwork
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint
from tests.export.conftest import MakeCheckpoint, byte_images, estimated

GUIDE = Path(__file__).parent.parent.parent / "docs" / "export.md"
RUN_ALONE = """
import sys
sys.modules["gmaflow"] = None  # importing it fails
import numpy, torch
images = numpy.load("images.npz")
program = torch.export.load("flow.pt2").module()
flow = program(*(torch.from_numpy(images[name]) for name in ("image1", "image2")))
numpy.save("flow.npy", flow.detach().numpy())
"""


def run_onnx(session: onnxruntime.InferenceSession, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    names = ("image1", "image2", "previous")[: len(inputs)]
    return np.asarray(session.run(["flow"], dict(zip(names, inputs, strict=True)))[0])


@pytest.fixture
def dynamic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Export dynamic sizes, which the hook that checks annotations does not take for ints."""
    monkeypatch.setattr(exporting, "CHECKED_SIZES", ((128, 160), (133, 203)))
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def no_flow(batch: int, height: int, width: int) -> np.ndarray:
    return np.zeros((batch, 2, height, width), np.float32)


def test_a_batch_of_a_fixed_size_by_onnx_runtime(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    path = tmp_path / "flow.onnx"
    checkpoint = make_checkpoint("raft-small")
    report = export(checkpoint, path, ExportConfig(size="44x60", iters=1, batch=2))
    assert report.bytes == path.stat().st_size
    assert report.checked_with == f"onnxruntime {onnxruntime.__version__}"
    assert report.largest_difference < 1e-3
    text = as_text(report)
    assert f"wrote {path}: raft-small, 1 iteration, fp32, ONNX" in text
    assert "in   image1: uint8 [2, 3, 44, 60]" in text
    assert "on 2 pairs at 44x60: differs from the estimator by" in text
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    images = byte_images(2, 44, 60)
    np.testing.assert_allclose(
        run_onnx(session, images), estimated(checkpoint, images, 1), atol=1e-3
    )
    assert list(tmp_path.iterdir()) == [path]

    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert {(entry.domain, entry.version) for entry in model.opset_import} == {("", 18)}
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["made_by"] == f"gmaflow {__version__}"
    assert (about["model"], about["iterations"]) == ("raft-small", "1")
    assert (about["precision"], about["licence"]) == ("fp32", checkpoint.card.licence)
    assert "uint8" in about["use"]
    assert "RGB in 0..255" in model.graph.input[0].doc_string
    assert (model.producer_name, model.producer_version) == ("gmaflow", __version__)
    assert b".py" not in path.read_bytes()  # no traces of the machine that wrote it


def test_half_precision_by_onnx_runtime(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> None:
    half = tmp_path / "half.onnx"
    checkpoint = make_checkpoint("raft-small")
    report = export(checkpoint, half, ExportConfig(size="44x60", iters=2, precision="fp16"))
    assert 2 < report.bytes / checkpoint.num_parameters < 3  # in float32 it would be four and more
    kinds = {tensor.name: tensor.data_type for tensor in onnx.load(half).graph.initializer}
    assert kinds["network.features.conv_in.weight"] == onnx.TensorProto.FLOAT16
    # Half precision knows 11 bits, and is not what float32 computes; but near it.
    assert 1e-5 < report.differences[0].mean < 1e-2
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    images = byte_images(1, 44, 60)
    session = onnxruntime.InferenceSession(half, options, providers=["CPUExecutionProvider"])
    found = run_onnx(session, images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, estimated(checkpoint, images, 2), atol=0.1)


def test_dynamic_sizes_and_batches_are_checked_twice() -> None:
    size, other = CHECKED_SIZES
    assert runs_to_check((44, 60), 2) == [((44, 60), 2)]
    assert runs_to_check((44, 60), None) == [((44, 60), 1), ((44, 60), 3)]
    assert runs_to_check(None, 2) == [(size, 2), (other, 2)]
    assert runs_to_check(None, None) == [(size, 1), (other, 3)]


def test_half_precision_is_for_onnx(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(FlowError, match=r"give an \.onnx file, or fp32"):
        export(
            make_checkpoint("raft-small"),
            tmp_path / "flow.pt2",
            ExportConfig(size="44x60", precision="fp16"),
        )


def test_the_guide_is_true(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> None:
    """Its program runs as it stands, on a file of gma and two images."""
    export(make_checkpoint("gma"), tmp_path / "gma.onnx", ExportConfig(size="40x57", iters=1))
    for name, image in zip(("frame1.png", "frame2.png"), byte_images(1, 40, 57), strict=True):
        Image.fromarray(image[0].transpose(1, 2, 0)).save(tmp_path / name)
    program = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "(1, 2, 40, 57)" in done.stdout


@pytest.mark.usefixtures("dynamic")
def test_a_dynamic_size_and_batch_by_onnx_runtime(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    path = tmp_path / "flow.onnx"
    checkpoint = make_checkpoint("raft-small")
    export(checkpoint, path, ExportConfig(dynamic=True, batch="any", warm_start=True, iters=1))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch, size in ((1, (128, 128)), (2, (131, 205)), (3, (152, 136))):
        images = byte_images(batch, *size)
        found = run_onnx(session, (*images, no_flow(batch, *size)))
        assert found.shape == (batch, 2, *size)
        np.testing.assert_allclose(found, estimated(checkpoint, images, 1), atol=1e-3)
    ports = (*session.get_inputs(), *session.get_outputs())
    assert [[port.shape[0], *port.shape[2:]] for port in ports] == [
        ["batch", "height", "width"]
    ] * 4
    image, other = (1, 128, 128), ((1, 128, 136), (2, 128, 128))
    for second, flow in ((other[0], image), (other[1], image), (image, other[0])):
        with pytest.raises(Fail):
            run_onnx(session, (byte_images(*image)[0], byte_images(*second)[1], no_flow(*flow)))


class Borrowing(nn.Module):
    """What a gma network adds to raft: each pixel borrows from all, by look and by offset."""

    def __init__(self, network: FlowNetwork) -> None:
        super().__init__()
        self.attention = network.attention

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        assert self.attention is not None
        weights: AttentionWeights = self.attention(context)
        return weights.aggregate(context.flatten(2).mT[:, None])


@pytest.mark.usefixtures("dynamic")
def test_attention_of_a_dynamic_size_by_onnx_runtime(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    """The part that an open size is hard for, on its own: a whole network takes a minute."""
    borrowing = Borrowing(make_checkpoint("gma-p").build())
    sides = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC(min=2), 3: Dim.DYNAMIC(min=2)}
    traced = torch.export.export(borrowing, (torch.rand(2, 128, 5, 7),), dynamic_shapes=(sides,))
    seen = Port("context", "float32", ("batch", 128, "height", "width"), "what pixels look like")
    given = Port("flow", "float32", ("batch", 1, "pixels", 128), "what they borrow")
    onnx_format = FORMATS[".onnx"]
    about = {"model": "gma-p", "use": "a test"}
    run = onnx_format.load(onnx_format.encode(traced, Contract([seen], [given], about)))
    for shape in ((1, 128, 4, 6), (3, 128, 9, 5)):
        context = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        found = run([context.numpy()])
        np.testing.assert_allclose(found, borrowing(context).numpy(), atol=1e-4)


@pytest.mark.usefixtures("dynamic")
def test_a_dynamic_batch_and_a_warm_start_by_torch(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    path = tmp_path / "flow.pt2"
    checkpoint = make_checkpoint("raft-small")
    config = ExportConfig(size="40x57", batch="any", warm_start=True, iters=1)
    report = export(checkpoint, path, config)
    assert [found.batch for found in report.differences] == [1, 3]
    assert report.inputs[2].name == "previous"
    assert report.inputs[2].shape == ("batch", 2, 40, 57)
    run = FORMATS[".pt2"].load(path.read_bytes())
    for batch in (1, 2, 3):
        images = byte_images(batch, 40, 57)
        found = run((*images, no_flow(batch, 40, 57)))
        np.testing.assert_allclose(found, estimated(checkpoint, images, 1), atol=1e-3)


def test_torch_runs_it_without_gmaflow(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> None:
    path = tmp_path / "flow.pt2"
    checkpoint = make_checkpoint("gma")
    report = export(checkpoint, path, ExportConfig(size="40x57", iters=1))
    assert report.checked_with.startswith("torch ")
    image1, image2 = byte_images(1, 40, 57)
    np.savez(tmp_path / "images.npz", image1=image1, image2=image2)
    subprocess.run([sys.executable, "-c", RUN_ALONE], cwd=tmp_path, check=True)
    wanted = estimated(checkpoint, (image1, image2), 1)
    np.testing.assert_allclose(np.load(tmp_path / "flow.npy"), wanted, atol=1e-3)

    extra = {"about.json": ""}
    torch.export.load(path, extra_files=extra)
    about = json.loads(extra["about.json"])
    assert about["model"] == "gma"
    assert about["image1"].startswith("image1: uint8 [1, 3, 40, 57]")


def test_a_program_with_wrong_flow_is_not_saved(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    good = make_checkpoint("raft-small")
    tensors = {name: torch.full_like(value, float("nan")) for name, value in good.tensors.items()}
    with pytest.raises(FlowError, match="flow that is not finite"):
        export(
            Checkpoint(config=good.config, tensors=tensors),
            tmp_path / "flow.pt2",
            ExportConfig(size="40x56", iters=1),
        )
    assert not list(tmp_path.iterdir())


SIZE = (40, 56)


@pytest.fixture
def estimator(make_checkpoint: MakeCheckpoint) -> FlowEstimator:
    return FlowEstimator(make_checkpoint("raft-small"), iters=1, device="cpu")


def off_by(wrong: np.ndarray | float, estimator: FlowEstimator) -> Run:
    """A program whose flow is wrong by that."""

    def run(inputs: Inputs) -> np.ndarray:
        flow = estimated(estimator.checkpoint, (inputs[0], inputs[1]), 1)
        return flow + np.asarray(wrong, np.float32)

    return run


def test_the_difference_is_a_length_in_pixels(estimator: FlowEstimator) -> None:
    wrong = np.zeros((2, *SIZE))
    wrong[:, 7, 5] = 3, 4
    found = check_flow(off_by(wrong, estimator), estimator, batch=1, size=SIZE)
    assert (found.height, found.width, found.batch) == (*SIZE, 1)
    assert found.largest == pytest.approx(5, abs=1e-3)
    assert found.mean == pytest.approx(5 / (40 * 56), abs=1e-5)


@pytest.mark.parametrize("wrong", [0.02, float("nan")])
def test_another_flow_is_refused(wrong: float, estimator: FlowEstimator) -> None:
    with pytest.raises(FlowError, match="px on average from the estimator's at 40x56"):
        check_flow(off_by(wrong, estimator), estimator, batch=1, size=SIZE)


def test_half_precision_may_be_a_little_further_off(estimator: FlowEstimator) -> None:
    run = off_by(0.02, estimator)
    assert check_flow(run, estimator, batch=1, size=SIZE, precision="fp16").mean > 0.02


def test_only_the_first_pair_of_the_example_has_a_previous_flow() -> None:
    flow = example_previous(3, SIZE)
    assert np.abs(flow[0]).max() > 5
    assert not flow[1:].any()


def test_pairs_of_a_batch_differ() -> None:
    first, second = example_batch(3, SIZE)
    assert first.shape == (3, 3, *SIZE)
    assert (first[0] == second[1]).all()
    assert (first[0] != first[1]).any()


def test_a_size_that_cannot_be_checked_is_refused() -> None:
    with pytest.raises(FlowError, match=r"at 9000x9000 takes about .* GB.* smaller --size"):
        check_memory(MODELS["gma"], batch=1, size=(9000, 9000))
    check_memory(MODELS["gma"], batch=1, size=(64, 64), warm_start=True)


def test_sizes() -> None:
    assert ExportConfig().fixed_size == (440, 1024)
    assert ExportConfig(size=(100, 140)).fixed_size == (100, 140)
    assert ExportConfig(size="100x140").fixed_size == (100, 140)
    assert ExportConfig(dynamic=True).fixed_size is None


def test_batches() -> None:
    assert ExportConfig().fixed_batch == 1
    assert ExportConfig(batch=4).fixed_batch == 4
    assert ExportConfig(batch="any").fixed_batch is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": "440"}, "'440' is not a size; give height x width such as 440x1024"),
        ({"size": "axb"}, "'axb' is not a size"),
        ({"size": "8x64"}, "8x64 is too small; give at least 16x16"),
        ({"size": (8, 64)}, "8x64 is too small; give at least 16x16"),
        ({"size": "64x99999"}, "64x99999 is too large"),
        ({"size": "64x64", "dynamic": True}, "exclude each other; give --size or --dynamic"),
        ({"iters": 0}, "iters is 0; give at least 1"),
        ({"batch": -1}, "batch is -1; give at least 1, or any"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        ExportConfig(**wrong)  # type: ignore[arg-type]

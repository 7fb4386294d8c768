"""The two kinds of file: how each is written, and run again by what knows nothing of gmaflow."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch.export import ExportedProgram

from gmaflow.errors import FlowError, OutputError
from gmaflow.export.config import ExportPrecision
from gmaflow.export.report import Port
from gmaflow.version import __version__

OPSET = 18
"""ONNX operators of 2022: new enough for the exporter, old enough for most runtimes."""
ABOUT_FILE = "about.json"
"""The extra file of a .pt2 that tells what it is."""

Images = UInt8[np.ndarray, "b 3 H W"]
FlowMap = Float32[np.ndarray, "b 2 H W"]
Inputs = Sequence[Images | FlowMap]
"""Two images and, for a warm start, the flow of the pair before."""
Run = Callable[[Inputs], FlowMap]


@dataclass(frozen=True)
class Contract:
    """What a file tells of itself."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]
    about: dict[str, str]


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    name: str
    encode: Callable[[ExportedProgram, Contract], bytes]
    load: Callable[[Path], Run]
    runtime: str
    """The distribution that runs it."""
    needs: tuple[str, ...] = ()
    """What the base install does not bring."""
    precisions: tuple[ExportPrecision, ...] = ("fp32",)
    """In which it can be run, and so checked, on a CPU."""


def encode_onnx(program: ExportedProgram, contract: Contract) -> bytes:
    """Return a program as an ONNX model."""
    with quiet_exporters():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=[port.name for port in contract.inputs],
            output_names=[port.name for port in contract.outputs],
            verbose=False,
        )
    assert exported is not None
    model = exported.model_proto
    for value, port in zip(
        (*model.graph.input, *model.graph.output),
        (*contract.inputs, *contract.outputs),
        strict=True,
    ):
        value.doc_string = port.told()
        for dimension, side in zip(value.type.tensor_type.shape.dim, port.shape, strict=True):
            if isinstance(side, str):
                dimension.dim_param = side
    # Sides in between go by the tracer's own names, and every runtime infers them again. What the
    # exporter tells of each node is as long as a small network, and names files of this machine.
    del model.graph.value_info[:], model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
    model.producer_name, model.producer_version = "gmaflow", __version__
    model.graph.name, model.doc_string = contract.about["model"], contract.about["use"]
    for key, text in contract.about.items():
        model.metadata_props.add(key=key, value=text)
    return model.SerializeToString()


def load_onnx(path: Path) -> Run:
    """Let ONNX Runtime run a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Errors alone: of half precision it says that a CPU computes some of it in float32.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(inputs: Inputs) -> FlowMap:
        return session.run(["flow"], dict(zip(names, inputs, strict=True)))[0]

    return run


def encode_torch(program: ExportedProgram, contract: Contract) -> bytes:
    """Return a program as torch.export saves it."""
    ports = {port.name: port.told() for port in (*contract.inputs, *contract.outputs)}
    content = io.BytesIO()
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of this machine
    with quiet_exporters():
        about = json.dumps({**contract.about, **ports}, indent=2)
        torch.export.save(program, content, extra_files={ABOUT_FILE: about})
    return content.getvalue()


def load_torch(path: Path) -> Run:
    """Let torch run a file."""
    with quiet_exporters():
        module = torch.export.load(path).module()

    def run(inputs: Inputs) -> FlowMap:
        with torch.inference_mode():
            return module(*map(torch.from_numpy, inputs)).numpy()

    return run


FORMATS = {
    ".onnx": Format(
        "ONNX",
        encode_onnx,
        load_onnx,
        "onnxruntime",
        needs=("onnx", "onnxscript", "onnxruntime"),
        precisions=("fp32", "fp16"),
    ),
    ".pt2": Format("torch.export", encode_torch, load_torch, "torch"),
}
"""By the suffix of the file."""


def format_of(path: Path, precision: ExportPrecision) -> Format:
    """Return the format that a file's name asks for.

    Raises:
        FlowError: There is none of that name or none in that precision, or packages for it are
            missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"{path}: networks are exported as .onnx or .pt2; choose one")
    wanted = FORMATS[path.suffix.lower()]
    if precision not in wanted.precisions:
        # torch has no fast half convolutions for CPUs: a check would take minutes to hours.
        raise FlowError(
            f"{path}: {precision} cannot be checked in this format, since torch is far too slow at "
            "it on a CPU; give an .onnx file, or fp32"
        )
    for module in wanted.needs:
        try:
            import_module(module)
        except ModuleNotFoundError as err:
            raise FlowError(
                f"exporting {wanted.name} needs {err.name}, which is not installed: "
                "pip install 'gmaflow[export]'"
            ) from err
    return wanted


def runtime_of(wanted: Format) -> str:
    """Name what runs a format, with its version."""
    return f"{wanted.runtime} {version(wanted.runtime)}"


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silence what exporters tell of their own insides; what goes wrong is still raised."""
    exporter = logging.getLogger("torch.onnx")
    before = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(before)

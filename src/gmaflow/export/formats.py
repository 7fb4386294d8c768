"""The two file formats: how each is written, and run without gmaflow."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch.export import ExportedProgram

from gmaflow.errors import FlowError, OutputError, import_extra
from gmaflow.export.export_report import Port
from gmaflow.io import ensure_can_write
from gmaflow.version import __version__

OPSET = 18
"""ONNX operators of 2022: supported by the exporter and by most runtimes."""
ABOUT_FILE = "about.json"
"""The extra file of a .pt2 with its metadata."""

ExportPrecision = Literal["fp32", "fp16"]
Images = UInt8[np.ndarray, "b 3 H W"]
FlowMap = Float32[np.ndarray, "b 2 H W"]
Inputs = Sequence[Images | FlowMap]
"""Two images and, for a warm start, the flow of the previous pair."""
Run = Callable[[Inputs], FlowMap]


@dataclass(frozen=True)
class Contract:
    """Inputs, outputs and metadata of a file."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]
    metadata: dict[str, str]


@dataclass(frozen=True)
class Format:
    """A file format."""

    name: str
    encode: Callable[[ExportedProgram, Contract], bytes]
    load: Callable[[bytes], Run]
    runtime: str
    """The package that runs it."""
    needs: tuple[str, ...] = ()
    """Packages that the base install lacks."""
    precisions: tuple[ExportPrecision, ...] = ("fp32",)
    """Precisions in which it can be run, and so checked, on a CPU."""


def encode_onnx(program: ExportedProgram, contract: Contract) -> bytes:
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
        value.doc_string = port.describe()
        for dimension, side in zip(value.type.tensor_type.shape.dim, port.shape, strict=True):
            if isinstance(side, str):
                dimension.dim_param = side
    # Runtimes infer intermediate shapes again. The exporter's notes on each node are as large as a
    # small network and name files of this machine.
    del model.graph.value_info[:], model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
    model.producer_name, model.producer_version = "gmaflow", __version__
    model.graph.name, model.doc_string = contract.metadata["model"], contract.metadata["use"]
    for key, text in contract.metadata.items():
        model.metadata_props.add(key=key, value=text)
    return model.SerializeToString()


def load_onnx(content: bytes) -> Run:
    """Load a file's content with ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Only errors: with half precision it warns that a CPU computes parts in float32.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(inputs: Inputs) -> FlowMap:
        return session.run(["flow"], dict(zip(names, inputs, strict=True)))[0]

    return run


def encode_torch(program: ExportedProgram, contract: Contract) -> bytes:
    ports = {port.name: port.describe() for port in (*contract.inputs, *contract.outputs)}
    content = io.BytesIO()
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of this machine
    with quiet_exporters():
        metadata = json.dumps({**contract.metadata, **ports}, indent=2)
        torch.export.save(program, content, extra_files={ABOUT_FILE: metadata})
    return content.getvalue()


def load_torch(content: bytes) -> Run:
    with quiet_exporters():
        module = torch.export.load(io.BytesIO(content)).module()

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
"""Formats by file suffix."""


def check_output(path: Path, *, precision: ExportPrecision, overwrite: bool) -> Format:
    """Return the format of a file by its name, after checking that it can be written.

    Raises:
        FlowError: its format is unknown, not installed or does not support the precision, or it
            exists.
    """
    file_format = FORMATS.get(path.suffix.lower())
    if file_format is None:
        raise OutputError(f"{path}: unknown format; give a name that ends in .onnx or .pt2")
    if precision not in file_format.precisions:
        # torch has no fast half convolutions for CPUs: a check would take minutes to hours.
        raise FlowError(
            f"{path}: {precision} is supported only for .onnx, since torch is too slow at it on a "
            "CPU for a check; give an .onnx file, or fp32"
        )
    for module in file_format.needs:
        import_extra(module, f"exporting {file_format.name}", extra="export")
    ensure_can_write(path, overwrite)
    return file_format


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silence warnings and log messages of the exporters; errors are still raised."""
    exporter = logging.getLogger("torch.onnx")
    previous_level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(previous_level)

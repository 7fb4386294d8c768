"""Exports networks as files that run without gmaflow: ONNX, or a program of torch.export.

`program` is the network with scaling and padding inside, `formats` writes and runs the files,
`exporting` puts it together and verifies the result, and `export_report` describes it.

from gmaflow.export import ExportConfig, export
from gmaflow.weights import find_checkpoint

report = export(find_checkpoint("gma"), "gma.onnx", ExportConfig(size=(440, 1024)))
print(report.largest_difference)
"""

from gmaflow.export.export_report import Difference, ExportReport, Port, as_json, as_text
from gmaflow.export.exporting import ExportConfig, export
from gmaflow.export.formats import check_output

__all__ = [
    "Difference",
    "ExportConfig",
    "ExportReport",
    "Port",
    "as_json",
    "as_text",
    "check_output",
    "export",
]

"""The network as a file that other programs run: ONNX, or a program of torch.export.

from gmaflow.exporting import ExportConfig, export
from gmaflow.weights import find_checkpoint

report = export(find_checkpoint("gma"), "gma.onnx", ExportConfig(size="440x1024"))
print(report.largest_difference)
"""

from gmaflow.exporting.config import ExportConfig
from gmaflow.exporting.report import Difference, ExportReport, Port, as_json, as_text
from gmaflow.exporting.running import check_output, export

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

"""The network as a file that other programs run: ONNX, or a program of torch.export.

from gmaflow.export import ExportConfig, export
from gmaflow.weights import find_checkpoint

report = export(find_checkpoint("gma"), "gma.onnx", ExportConfig(size="440x1024"))
print(report.largest_difference)
"""

from gmaflow.export.config import ExportConfig
from gmaflow.export.report import Difference, ExportReport, Port, as_json, as_text
from gmaflow.export.running import check_output, export

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

"""Flow, and what belongs to it, as pictures to look at.

Numpy arrays in, `uint8` RGB pictures out; every function is pure and leaves its inputs alone.
"""

from gmaflow.viz.arrows import flow_arrows
from gmaflow.viz.attention import attention_overlay, attention_panel, attention_pictures
from gmaflow.viz.color import color_wheel, flow_to_image, largest_length
from gmaflow.viz.legend import add_legend, flow_with_legend
from gmaflow.viz.maps import confidence_map, error_legend, error_map
from gmaflow.viz.occlusion import occlusion_layer, occlusion_overlay
from gmaflow.viz.pair import pair_panel
from gmaflow.viz.panels import panel
from gmaflow.viz.plot import Series, line_plot
from gmaflow.viz.warp import sample_bilinear, warp_back

__all__ = [
    "Series",
    "add_legend",
    "attention_overlay",
    "attention_panel",
    "attention_pictures",
    "color_wheel",
    "confidence_map",
    "error_legend",
    "error_map",
    "flow_arrows",
    "flow_to_image",
    "flow_with_legend",
    "largest_length",
    "line_plot",
    "occlusion_layer",
    "occlusion_overlay",
    "pair_panel",
    "panel",
    "sample_bilinear",
    "warp_back",
]

"""Pictures of flow: numpy arrays in, `uint8` RGB pictures out. All functions are pure.

`flow_colors` draws flow in the usual colour code, `arrows` as arrows, `trails`
draws tracks, and `warp` warps frames back.
`maps` draws errors, confidence, occlusion and attention; `panels` arranges pictures in a grid.
`plots` draws curves with matplotlib.
"""

from gmaflow.viz.arrows import flow_arrows
from gmaflow.viz.flow_colors import (
    add_legend,
    color_wheel,
    flow_to_image,
    flow_with_legend,
    largest_length,
)
from gmaflow.viz.maps import (
    attention_overlay,
    attention_pictures,
    confidence_map,
    error_map,
    moving_overlay,
    occlusion_layer,
    occlusion_overlay,
)
from gmaflow.viz.panels import attention_panel, pair_panel, panel
from gmaflow.viz.plots import Series, line_plot, save_plot
from gmaflow.viz.trails import draw_trails, position_colors
from gmaflow.viz.warp import sample_bilinear, warp_back

__all__ = [
    "Series",
    "add_legend",
    "attention_overlay",
    "attention_panel",
    "attention_pictures",
    "color_wheel",
    "confidence_map",
    "draw_trails",
    "error_map",
    "flow_arrows",
    "flow_to_image",
    "flow_with_legend",
    "largest_length",
    "line_plot",
    "moving_overlay",
    "occlusion_layer",
    "occlusion_overlay",
    "pair_panel",
    "panel",
    "position_colors",
    "sample_bilinear",
    "save_plot",
    "warp_back",
]

"""What a frame of a flow video looks like."""

from typing import TYPE_CHECKING

from gmaflow.cli.video_options import Show

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import VideoStep


def draw_step(
    step: "VideoStep", show: Show, *, max_length: float, legend: bool = False
) -> "np.ndarray":
    """Draw one frame and its motion; before a cut, the frame alone and black for its flow."""
    import numpy as np

    from gmaflow import viz

    match show:
        case "flow":
            return draw_flow(step, max_length=max_length, legend=legend)
        case "side-by-side":
            colours = draw_flow(step, max_length=max_length, legend=legend)
            return np.concatenate([step.image, colours], axis=1)
        case "arrows":
            height, width, _ = step.image.shape
            flow = (
                np.zeros((height, width, 2), np.float32) if step.flow is None else step.flow.array
            )
            known = np.full((height, width), step.flow is not None)
            picture = viz.flow_arrows(step.image, flow, max_length=max_length, valid=known)
            return viz.add_legend(picture, max_length) if legend else picture
        case "occlusion":
            if step.both is None:
                return step.image
            return viz.occlusion_overlay(step.image, step.both.occluded_in, step.both.occluded_out)


def draw_flow(step: "VideoStep", *, max_length: float, legend: bool) -> "np.ndarray":
    """Draw the flow as colour, black where there is none."""
    import numpy as np

    from gmaflow import viz

    if step.flow is None:
        colours = np.zeros_like(step.image)
    else:
        colours = viz.flow_to_image(step.flow.array, max_length=max_length)
    return viz.add_legend(colours, max_length) if legend else colours

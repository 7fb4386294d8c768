"""Flow as arrows drawn over the first frame."""

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.io.images import check_flow, check_image, check_positive, check_same_size
from gmaflow.viz.flow_colors import INK, flow_to_image, valid_mask
from gmaflow.viz.maps import blend, paste_reduced


def flow_arrows(
    image: UInt8[np.ndarray, "h w 3"],
    flow: Float32[np.ndarray, "h w 2"],
    *,
    spacing: int | None = None,
    max_length: float | None = None,
    valid: Bool[np.ndarray, "h w"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the motion on a regular grid of pixels; each arrow starts at its pixel.

    Arrow lengths are proportional to the motion but not to scale: the 90th percentile fills the
    space to the next arrow, and longer arrows are limited to 1.25 times that. Very small motions
    are dots. The colour shows the direction, as in `flow_to_image`.

    Args:
        image: the first frame, which is dimmed.
        flow: motion in pixels.
        spacing: pixels from one arrow to the next; by default it depends on the image size.
        max_length: the motion whose arrow fills the space to the next one; by default the 90th
            percentile. Set it to compare flows, or for the frames of a video.
        valid: where the flow is known; other pixels have no arrows.
    """
    check_image(image)
    check_flow(flow)
    check_same_size({"the image": image, "the flow": flow, "the valid mask": valid})
    check_positive("max_length", max_length)
    if spacing is None:
        spacing = max(14, round(min(image.shape[:2]) / 17))
    if spacing < 4:
        raise FlowError(f"a spacing of {spacing} is too small for arrows; give 4 or more")

    ground = blend(image, np.zeros((1, 1, 3), np.uint8), 0.3)
    height, width = flow.shape[:2]
    starts = grid_points(height, width, spacing, mask=valid_mask(flow, valid))
    if not len(starts):
        return ground

    x, y = starts.T.astype(int)
    motions = flow[y, x].astype(np.float32, copy=False)
    lengths = np.hypot(motions[:, 0], motions[:, 1])
    unit = max_length or float(np.percentile(lengths, 90)) or float(lengths.max()) or 1.0
    reach = np.minimum(lengths * (0.9 * spacing / unit), 1.25 * spacing)
    turns = motions / np.where(lengths > 0, lengths, 1)[:, None]
    hues = flow_to_image(turns[None], max_length=1.0)[0]
    colors = np.rint(255 - 0.75 * (255.0 - hues)).astype(np.uint8)  # pure blue is too dark
    return _draw_arrows(ground, starts, turns * reach[:, None], colors, scale=spacing / 20)


def grid_points(
    height: int, width: int, spacing: int, *, mask: Bool[np.ndarray, "h w"] | None = None
) -> Float32[np.ndarray, "k 2"]:
    """Return the points of a regular grid, centred in the frame; with a mask, those inside it."""
    rows, columns = (
        np.arange((side - 1) % spacing // 2, side, spacing) for side in (height, width)
    )
    x, y = (axis.ravel() for axis in np.meshgrid(columns, rows))
    selected = np.ones(len(x), bool) if mask is None else mask[y, x]
    return np.stack([x, y], axis=1)[selected].astype(np.float32)


def _draw_arrows(
    ground: UInt8[np.ndarray, "h w 3"],
    starts: Float32[np.ndarray, "n 2"],
    vectors: Float32[np.ndarray, "n 2"],
    colors: UInt8[np.ndarray, "n 3"],
    *,
    scale: float,
) -> UInt8[np.ndarray, "h w 3"]:
    height, width = ground.shape[:2]
    # Large images need less anti-aliasing.
    sharp = 4 if height * width < 1_000_000 else 2
    # The transparent background has the outline's colour, so that reduced edges do not change hue.
    layer = Image.new("RGBA", (width * sharp, height * sharp), (*INK, 0))
    draw = ImageDraw.Draw(layer)
    edges = _outline(vectors, scale=scale, margin=max(0.9, scale))
    bodies = _outline(vectors, scale=scale, margin=0.0)
    offsets = (starts[:, None] + 0.5) * sharp - 0.5
    for shapes, tints in ((edges, np.broadcast_to(INK, colors.shape)), (bodies, colors)):
        for shape, tint in zip(shapes * sharp + offsets, tints.tolist(), strict=True):
            draw.polygon(shape.ravel().tolist(), fill=tuple(tint))
    return paste_reduced(ground, layer, sharp)


def _outline(
    vectors: Float32[np.ndarray, "n 2"], *, scale: float, margin: float
) -> Float32[np.ndarray, "n 7 2"]:
    """Corners of each arrow relative to its start, enlarged by `margin` pixels on all sides."""
    length = np.hypot(vectors[:, 0], vectors[:, 1])
    ahead = np.where(length[:, None] > 0, vectors / np.maximum(length, 1e-6)[:, None], (1, 0))
    aside = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1)

    # Short arrows are also thinner, down to a dot of one or two pixels.
    size = scale * np.clip(length / (12 * scale), 0.35, 1)
    shaft, wing, head = 1.1 * size, 3.4 * size, 7.5 * size
    tip = np.maximum(length, head)
    slope = np.hypot(wing, head) / wing  # lets the slanted sides grow evenly
    tip_out, base, tail = tip + margin * slope, tip - head - margin, np.full_like(tip, -margin)
    wing_out = (tip_out - base) * wing / head
    shaft_out = shaft + margin

    along = np.stack([tail, base, base, tip_out, base, base, tail], axis=1)
    across = np.stack(
        [shaft_out, shaft_out, wing_out, 0 * tip, -wing_out, -shaft_out, -shaft_out], axis=1
    )
    corners = along[..., None] * ahead[:, None] + across[..., None] * aside[:, None]
    return corners.astype(np.float32)

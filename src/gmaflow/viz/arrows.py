"""Flow as arrows over the image that moves."""

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.io.sizes import check_same_size
from gmaflow.viz._checks import check_flow, check_image
from gmaflow.viz._draw import INK, blend
from gmaflow.viz.color import flow_to_image, known_pixels


def flow_arrows(
    image: UInt8[np.ndarray, "h w 3"],
    flow: Float32[np.ndarray, "h w 2"],
    *,
    spacing: int | None = None,
    valid: Bool[np.ndarray, "h w"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the motion of every so many pixels as an arrow that starts at its pixel.

    Lengths are in proportion to each other, not to the image: most of them fill the space to the
    next arrow, and the few much longer ones are held to a quarter more than that. What hardly
    moves is a dot. Colours are those of `flow_to_image`, by direction alone.

    Args:
        image: the first frame; it is dimmed a little.
        flow: motion in pixels.
        spacing: pixels from one arrow to the next; by default it suits the size of the image.
        valid: where the flow is known; elsewhere there are no arrows.

    Returns:
        The picture.
    """
    check_image(image)
    check_flow(flow)
    check_same_size({"the image": image, "the flow": flow, "the valid mask": valid})
    if spacing is None:
        spacing = max(14, round(min(image.shape[:2]) / 17))
    if spacing < 4:
        raise FlowError(f"a spacing of {spacing} leaves no room for arrows; give 4 or more")

    ground = blend(image, np.zeros((1, 1, 3), np.uint8), 0.3)
    starts, motions = _sample(flow, known_pixels(flow, valid), spacing)
    if not len(starts):
        return ground

    lengths = np.hypot(motions[:, 0], motions[:, 1])
    unit = float(np.percentile(lengths, 90)) or float(lengths.max()) or 1.0
    reach = np.minimum(lengths * (0.9 * spacing / unit), 1.25 * spacing)
    turns = motions / np.where(lengths > 0, lengths, 1)[:, None]
    hues = flow_to_image(turns[None], max_length=1.0)[0]
    colors = np.rint(255 - 0.75 * (255.0 - hues)).astype(np.uint8)  # pure blue is too dark to see
    return _draw_arrows(ground, starts, turns * reach[:, None], colors, scale=spacing / 20)


def _sample(
    flow: Float32[np.ndarray, "h w 2"], known: Bool[np.ndarray, "h w"], spacing: int
) -> tuple[Float32[np.ndarray, "n 2"], Float32[np.ndarray, "n 2"]]:
    """Where the arrows start, x and y, and the motions there: a grid centred in the image."""
    rows, columns = (np.arange((side - 1) % spacing // 2, side, spacing) for side in flow.shape[:2])
    x, y = (axis.ravel() for axis in np.meshgrid(columns, rows))
    shown = known[y, x]
    starts = np.stack([x, y], axis=1).astype(np.float32)
    return starts[shown], flow[y, x][shown]


def _draw_arrows(
    ground: UInt8[np.ndarray, "h w 3"],
    starts: Float32[np.ndarray, "n 2"],
    vectors: Float32[np.ndarray, "n 2"],
    colors: UInt8[np.ndarray, "n 3"],
    *,
    scale: float,
) -> UInt8[np.ndarray, "h w 3"]:
    height, width = ground.shape[:2]
    # Pillow draws without anti-aliasing, so we draw larger and reduce. Large images need it less.
    sharp = 4 if height * width < 1_000_000 else 2
    # The clear ground has the colour of the outlines: the reduced edges then mix with nothing else.
    layer = Image.new("RGBA", (width * sharp, height * sharp), (*INK, 0))
    draw = ImageDraw.Draw(layer)
    edges = _outline(vectors, scale=scale, margin=max(0.9, scale))
    bodies = _outline(vectors, scale=scale, margin=0.0)
    offsets = (starts[:, None] + 0.5) * sharp - 0.5
    for shapes, tints in ((edges, np.broadcast_to(INK, colors.shape)), (bodies, colors)):
        for shape, tint in zip(shapes * sharp + offsets, tints.tolist(), strict=True):
            draw.polygon(shape.ravel().tolist(), fill=tuple(tint))
    small = layer.reduce(sharp)
    result = Image.fromarray(ground)
    result.paste(small, (0, 0), small)
    return np.array(result)


def _outline(
    vectors: Float32[np.ndarray, "n 2"], *, scale: float, margin: float
) -> Float32[np.ndarray, "n 7 2"]:
    """The corners of each arrow, from its start; grown on all sides by `margin` pixels."""
    length = np.hypot(vectors[:, 0], vectors[:, 1])
    ahead = np.where(length[:, None] > 0, vectors / np.maximum(length, 1e-6)[:, None], (1, 0))
    aside = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1)

    # A short arrow is a small one, down to a dot of a pixel or two.
    size = scale * np.clip(length / (12 * scale), 0.35, 1)
    shaft, wing, head = 1.1 * size, 3.4 * size, 7.5 * size
    tip = np.maximum(length, head)
    slope = np.hypot(wing, head) / wing  # moves the tip so that the slanted sides grow evenly
    tip_out, base, tail = tip + margin * slope, tip - head - margin, np.full_like(tip, -margin)
    wing_out = (tip_out - base) * wing / head
    shaft_out = shaft + margin

    along = np.stack([tail, base, base, tip_out, base, base, tail], axis=1)
    across = np.stack(
        [shaft_out, shaft_out, wing_out, 0 * tip, -wing_out, -shaft_out, -shaft_out], axis=1
    )
    corners = along[..., None] * ahead[:, None] + across[..., None] * aside[:, None]
    return corners.astype(np.float32)

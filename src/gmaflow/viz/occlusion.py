"""What of the first frame cannot be seen in the second."""

import numpy as np
from jaxtyping import Bool, UInt8

from gmaflow.io.sizes import check_same_size
from gmaflow.viz._checks import check_image
from gmaflow.viz._draw import blend

# Orange and blue are told apart by nearly everyone, with any colour vision.
_IN_FRAME = (255, 140, 0)
_OUT_OF_FRAME = (30, 120, 255)
_OPACITY = 0.6


def occlusion_overlay(
    image: UInt8[np.ndarray, "h w 3"],
    occluded_in: Bool[np.ndarray, "h w"],
    occluded_out: Bool[np.ndarray, "h w"],
) -> UInt8[np.ndarray, "h w 3"]:
    """Tint the occluded pixels: orange in frame, blue where they leave it.

    Args:
        image: the first frame.
        occluded_in: hidden behind something in the second frame.
        occluded_out: gone out of the second frame; this wins where a pixel is in both masks.

    Returns:
        The picture.
    """
    check_image(image)
    check_same_size(
        {
            "the image": image,
            "the occluded-in mask": occluded_in,
            "the occluded-out mask": occluded_out,
        }
    )
    tints = np.zeros_like(image)
    tints[occluded_in] = _IN_FRAME
    tints[occluded_out] = _OUT_OF_FRAME
    hidden = (occluded_in | occluded_out)[..., None]
    return blend(image, tints, hidden * np.float32(_OPACITY))


def occlusion_layer(
    occluded_in: Bool[np.ndarray, "h w"], occluded_out: Bool[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 4"]:
    """The same tints as a picture of their own, transparent elsewhere, to lay over anything.

    Args:
        occluded_in: hidden behind something in the second frame.
        occluded_out: gone out of the second frame; this wins where a pixel is in both masks.

    Returns:
        The picture, with alpha.
    """
    check_same_size({"occluded-in mask": occluded_in, "occluded-out mask": occluded_out})
    layer = np.zeros((*occluded_in.shape, 4), np.uint8)
    opacity = round(255 * _OPACITY)
    layer[occluded_in] = (*_IN_FRAME, opacity)
    layer[occluded_out] = (*_OUT_OF_FRAME, opacity)
    return layer

"""Colours for one quantity: from 0 to 1 they only get lighter, so that more looks like more."""

import numpy as np
from jaxtyping import Float32, UInt8

# Both begin well above black, which means unknown. They turn through hues besides, so that
# neighbours differ in colour too, and blue to yellow stays apart for any kind of colour vision.
_EMBER = (
    (38, 34, 98),
    (102, 36, 130),
    (178, 48, 118),
    (232, 86, 78),
    (250, 160, 56),
    (255, 246, 178),
)
_REEF = (
    (52, 24, 72),
    (56, 70, 132),
    (34, 118, 142),
    (44, 164, 130),
    (138, 206, 92),
    (250, 242, 130),
)


def _table(stops: tuple[tuple[int, int, int], ...]) -> UInt8[np.ndarray, "256 3"]:
    at = np.linspace(0, 1, 256)
    where = np.linspace(0, 1, len(stops))
    channels = [np.interp(at, where, channel) for channel in zip(*stops, strict=True)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)


EMBER = _table(_EMBER)
REEF = _table(_REEF)


def colorize(
    values: Float32[np.ndarray, "*shape"], ramp: UInt8[np.ndarray, "256 3"]
) -> UInt8[np.ndarray, "*shape 3"]:
    """Colour values from 0 to 1; what lies outside is clipped, and what is NaN is black."""
    known = ~np.isnan(values)
    index = np.rint(np.clip(np.where(known, values, 0), 0, 1) * 255).astype(np.intp)
    picture = ramp.take(index, axis=0)
    picture[~known] = 0
    return picture

"""What has to be done for a batch: a GPU always does everything, a CPU only what is asked for.

A step that is left out would have changed nothing, to the last bit. So a GPU can record the whole
work once and repeat it, and a CPU need not search empty layers.
"""

from dataclasses import dataclass

from gmaflow.scenes.dice import Array
from gmaflow.scenes.looks import EMPTY, LAYERS


@dataclass(frozen=True)
class Plan:
    """The layers to look at, from far to near, and the costly effects to apply."""

    layers: tuple[int, ...] = tuple(range(LAYERS))
    shadow: bool = True
    fog: bool = True
    defocus: bool = True
    motion_blur: bool = True
    noise: bool = True
    compression: bool = True

    @classmethod
    def for_scenes(cls, arrays: dict[str, Array]) -> "Plan":
        """Only what the scenes with these parameters show."""
        there = (arrays["place"][:, 0] != EMPTY).max(axis=0)
        air = arrays["air"].max(axis=0) > 0
        return cls(
            layers=tuple(layer for layer in range(LAYERS) if there[layer]),
            shadow=bool(arrays["shadow"][:, :, 6].max() > 0),
            fog=bool(air[0]),
            defocus=bool(air[5] or air[6]),
            motion_blur=bool(air[7]),
            noise=bool(air[8]),
            compression=bool(air[9]),
        )

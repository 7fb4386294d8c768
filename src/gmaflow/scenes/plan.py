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
        there = (arrays["silhouette"] != EMPTY).any(axis=0)

        def shown(*effects: str) -> bool:
            return any(bool(arrays[effect].max() > 0) for effect in effects)

        return cls(
            layers=tuple(layer for layer in range(LAYERS) if there[layer]),
            shadow=shown("shadow_strength"),
            fog=shown("fog"),
            defocus=shown("aperture", "lens_blur"),
            motion_blur=shown("shutter"),
            noise=shown("noise"),
            compression=shown("compression"),
        )

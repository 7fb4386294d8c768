"""What each preset is, for people."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PresetInfo:
    """A preset in words.

    Attributes:
        about: one line.
        size: height and width of the frames that it imitates; any other can be rendered.
    """

    about: str
    size: tuple[int, int]


CATALOG = {
    "chairs": PresetInfo("cut-outs that move over one picture, like FlyingChairs", (384, 512)),
    "things": PresetInfo("many objects, fast, turning and near, like FlyingThings3D", (540, 960)),
    "film": PresetInfo("characters and sets with blur, fog and defocus, like Sintel", (436, 1024)),
    "chase": PresetInfo("film with large things that move fast, in fog and blur", (436, 1024)),
    "drive": PresetInfo("streets from a moving car, like KITTI", (375, 1242)),
    "mix": PresetInfo(
        "chairs, things, film, drive as 15 : 25 : 35 : 25; what to train on", (368, 496)
    ),
    "fast-mix": PresetInfo("all five as 15 : 20 : 25 : 20 : 20; what to finish on", (368, 768)),
    "deep-film": PresetInfo("film with many moving objects that hide large areas", (436, 1024)),
    "deep-chase": PresetInfo("chase with a calm camera; hides the largest areas", (436, 1024)),
    "deep-mix": PresetInfo(
        "chairs, things, deep-film, deep-chase, drive as 10 : 10 : 35 : 35 : 10; to learn "
        "hidden motion",
        (368, 768),
    ),
}

"""The data sets that are known: what they hold, how they lie, where they are had."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data.pairs import FlowPair
from gmaflow.data.sets.chairs import list_chairs
from gmaflow.data.sets.folder import list_folder
from gmaflow.data.sets.hd1k import list_hd1k
from gmaflow.data.sets.kitti import list_kitti_2012, list_kitti_2015
from gmaflow.data.sets.middlebury import list_middlebury
from gmaflow.data.sets.sintel import list_sintel
from gmaflow.data.sets.slowflow import list_slowflow
from gmaflow.data.sets.spring import list_spring
from gmaflow.data.sets.things import list_things
from gmaflow.data.shelf import Shelf
from gmaflow.errors import DatasetError, suggest

ListPairs = Callable[[Shelf, Path, str, str], Iterable[FlowPair]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a data set that was published with a number of pairs.

    Attributes:
        split: training, validation, test or all.
        variant: the pass, or the kind of truth; empty where there is but one.
        camera: left, right, or None for both.
        direction: forward, backward, or None for both.
        count: the published number of pairs, None where none was found.
        required: whether training or evaluation needs it; others may be absent as a whole.
    """

    split: str
    variant: str = ""
    camera: str | None = None
    direction: str | None = None
    count: int | None = None
    required: bool = True

    def __str__(self) -> str:
        words = (self.split, self.variant, self.camera, self.direction)
        return " ".join(word for word in words if word)

    def holds(self, pair: FlowPair) -> bool:
        """Tell whether a pair of this split and variant belongs here."""
        return self.camera in (None, pair.camera) and self.direction in (None, pair.direction)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A data set that is known.

    Attributes:
        name: how it is called here.
        title: how its authors call it.
        source: where it is had; nothing for what everyone has.
        looks_like: a file that must be found below the root.
        test_looks_like: one that is there with the test split, where that is another.
        folders: names under which it is looked for in a folder of data sets.
        parts: its pieces, the default split and pass first.
        list_pairs: lists the pairs of a split and variant.
        cameras: the cameras that are taken unless others are asked for; all if empty.
    """

    name: str
    title: str
    source: str
    looks_like: str
    folders: tuple[str, ...]
    parts: tuple[Part, ...]
    list_pairs: ListPairs
    cameras: tuple[str, ...] = ()
    test_looks_like: str = ""

    @property
    def had_from(self) -> str:
        """Where it is had, as the end of a sentence."""
        return f"; it is had from {self.source}" if self.source else ""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits there are."""
        return tuple(dict.fromkeys(part.split for part in self.parts))

    @property
    def variants(self) -> tuple[str, ...]:
        """The passes, or kinds of truth, there are."""
        return tuple(dict.fromkeys(part.variant for part in self.parts))


def dataset_info(name: str) -> DatasetInfo:
    """Find a data set by its name.

    Raises:
        DatasetError: none has this name.
    """
    if name in DATASETS:
        return DATASETS[name]
    raise DatasetError(f"there is no data set {name!r}; {suggest(name, DATASETS)}")


_ALL = (
    DatasetInfo(
        name="chairs",
        title="FlyingChairs",
        source="https://lmb.informatik.uni-freiburg.de/resources/datasets/FlyingChairs.en.html",
        looks_like="data/00001_img1.ppm",
        folders=("FlyingChairs_release", "FlyingChairs"),
        parts=(
            Part(split="training", count=22_232),
            Part(split="validation", count=640),
            Part(split="all", count=22_872),
        ),
        list_pairs=list_chairs,
    ),
    DatasetInfo(
        name="things",
        title="FlyingThings3D",
        source="https://lmb.informatik.uni-freiburg.de/resources/datasets/SceneFlowDatasets.en.html",
        looks_like="frames_cleanpass/TRAIN/A/0000/left/0006.png",
        test_looks_like="frames_cleanpass/TEST/A/0000/left/0006.png",
        folders=("FlyingThings3D", "flyingthings3d"),
        # 2239 and 437 scenes of ten frames, both directions; the right camera is not trained on.
        parts=(
            Part(split="training", variant="clean", camera="left", count=40_302),
            Part(split="training", variant="final", camera="left", count=40_302),
            Part(split="test", variant="clean", camera="left", count=7_866, required=False),
            Part(split="test", variant="final", camera="left", count=7_866, required=False),
            # Those of them that the paper's figures are of.
            Part(split="validation", variant="clean", camera="left", count=764, required=False),
            Part(split="validation", variant="final", camera="left", count=764, required=False),
        ),
        list_pairs=list_things,
        cameras=("left",),
    ),
    DatasetInfo(
        name="sintel",
        title="MPI Sintel",
        source="http://sintel.is.tue.mpg.de/downloads",
        looks_like="training/clean/alley_1/frame_0001.png",
        test_looks_like="test/clean/ambush_1/frame_0001.png",
        folders=("MPI-Sintel-complete", "MPI-Sintel", "MPI_Sintel", "Sintel"),
        parts=(
            Part(split="training", variant="clean", count=1041),
            Part(split="training", variant="final", count=1041),
            Part(split="training", variant="albedo", count=1041, required=False),
            Part(split="test", variant="clean", count=552, required=False),
            Part(split="test", variant="final", count=552, required=False),
        ),
        list_pairs=list_sintel,
    ),
    DatasetInfo(
        name="kitti-2012",
        title="KITTI 2012",
        source="https://www.cvlibs.net/datasets/kitti/eval_stereo_flow.php?benchmark=flow",
        looks_like="training/colored_0/000000_10.png",
        test_looks_like="testing/colored_0/000000_10.png",
        folders=("KITTI-2012", "KITTI2012", "KITTI_2012", "data_stereo_flow"),
        parts=(
            Part(split="training", variant="occ", count=194),
            Part(split="training", variant="noc", count=194, required=False),
            Part(split="test", variant="occ", count=195, required=False),
        ),
        list_pairs=list_kitti_2012,
    ),
    DatasetInfo(
        name="kitti-2015",
        title="KITTI 2015",
        source="https://www.cvlibs.net/datasets/kitti/eval_scene_flow.php?benchmark=flow",
        looks_like="training/image_2/000000_10.png",
        test_looks_like="testing/image_2/000000_10.png",
        folders=("KITTI-2015", "KITTI2015", "KITTI_2015", "data_scene_flow", "KITTI"),
        parts=(
            Part(split="training", variant="occ", count=200),
            Part(split="training", variant="noc", count=200, required=False),
            Part(split="test", variant="occ", count=200, required=False),
        ),
        list_pairs=list_kitti_2015,
    ),
    DatasetInfo(
        name="hd1k",
        title="HD1K",
        source="http://hci-benchmark.iwr.uni-heidelberg.de",
        looks_like="hd1k_input/image_2/000000_0001.png",
        test_looks_like="hd1k_challenge/image_2",
        folders=("HD1K", "HD1k"),
        # 1083 frames in 36 sequences, and the last of each has no second frame.
        parts=(Part(split="training", count=1047), Part(split="test", required=False)),
        list_pairs=list_hd1k,
    ),
    DatasetInfo(
        name="spring",
        title="Spring",
        source="https://spring-benchmark.org",
        looks_like="train/0001/frame_left/frame_left_0001.png",
        test_looks_like="test/0003/frame_left/frame_left_0001.png",
        folders=("Spring",),
        # 5000 and 1000 stereo frames in 37 and 10 scenes; each camera and direction by itself.
        parts=tuple(
            Part(
                split=split,
                camera=camera,
                direction=direction,
                count=count,
                required=(split, camera, direction) == ("training", "left", "forward"),
            )
            for split, count in (("training", 4963), ("test", 990))
            for camera in ("left", "right")
            for direction in ("forward", "backward")
        ),
        list_pairs=list_spring,
    ),
    DatasetInfo(
        name="middlebury",
        title="Middlebury",
        source="https://vision.middlebury.edu/flow/data",
        looks_like="other-data/Venus/frame10.png",
        test_looks_like="eval-data/Army/frame10.png",
        folders=("Middlebury",),
        parts=(Part(split="training", count=8), Part(split="test", count=12, required=False)),
        list_pairs=list_middlebury,
    ),
    DatasetInfo(
        name="slowflow",
        title="Slow Flow",
        source="https://www.cvlibs.net/projects/slow_flow",
        looks_like="100/sequence/Animals/seq1_0000000.png",
        folders=("SlowFlow", "slow_flow"),
        parts=tuple(
            Part(split="test", variant=pixels, required=False) for pixels in ("100", "200", "300")
        ),
        list_pairs=list_slowflow,
    ),
    DatasetInfo(
        name="folder",
        title="a folder of one's own",
        source="",
        looks_like="two images or more, or folders of them",
        folders=(),
        parts=(Part(split="all", required=False),),
        list_pairs=list_folder,
    ),
)
DATASETS = {info.name: info for info in _ALL}
"""All data sets by name."""

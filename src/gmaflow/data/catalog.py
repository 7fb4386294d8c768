"""The known data sets: their parts, layouts and download pages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data.layouts import (
    DirectoryCache,
    list_chairs,
    list_folder,
    list_hd1k,
    list_kitti_2012,
    list_kitti_2015,
    list_middlebury,
    list_sintel,
    list_slowflow,
    list_spring,
    list_things,
)
from gmaflow.data.pairs import FlowPair
from gmaflow.errors import DatasetError, look_up

ListPairs = Callable[[DirectoryCache, Path, str, str], Iterable[FlowPair]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a data set with a published number of pairs."""

    split: str
    """`training`, `validation`, `test` or `all`."""
    pass_name: str = ""
    """Clean, final ...; for KITTI the kind of ground truth; empty if there is only one."""
    camera: str | None = None
    """`left`, `right`, or None for both."""
    direction: str | None = None
    """`forward`, `backward`, or None for both."""
    count: int | None = None
    """The published number of pairs, or None."""
    required: bool = True
    """Whether training or evaluation needs it; optional parts may be absent."""

    def __str__(self) -> str:
        words = (self.split, self.pass_name, self.camera, self.direction)
        return " ".join(word for word in words if word)

    def holds(self, pair: FlowPair) -> bool:
        """Return whether a pair of this split and pass belongs to this part."""
        return self.camera in (None, pair.camera) and self.direction in (None, pair.direction)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A known data set."""

    name: str
    title: str
    """Its published name."""
    example: str
    """A file below its root."""
    parts: tuple[Part, ...]
    """Its parts, the default split and pass first."""
    list_pairs: ListPairs
    """Lists the pairs of a split and pass."""
    source: str = ""
    """Its download page, if it has one."""
    folders: tuple[str, ...] = ()
    """Possible names of its folder inside a folder of data sets, besides its own name."""
    cameras: tuple[str, ...] = ()
    """The cameras used by default; all if empty."""
    test_example: str = ""
    """A file of the test split, if different."""

    @property
    def download_hint(self) -> str:
        """The end of an error message: where to download the data set."""
        return f"; download it from {self.source}" if self.source else ""

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.split for part in self.parts))

    @property
    def passes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.pass_name for part in self.parts))


def dataset_info(name: str) -> DatasetInfo:
    return look_up("data set", name, DATASETS, DatasetError)


_ALL = (
    DatasetInfo(
        name="chairs",
        title="FlyingChairs",
        source="https://lmb.informatik.uni-freiburg.de/resources/datasets/FlyingChairs.en.html",
        example="data/00001_img1.ppm",
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
        example="frames_cleanpass/TRAIN/A/0000/left/0006.png",
        test_example="frames_cleanpass/TEST/A/0000/left/0006.png",
        folders=("FlyingThings3D", "flyingthings3d"),
        # 2239 and 437 scenes of ten frames, both directions; training uses the left camera only.
        parts=(
            Part(split="training", pass_name="clean", camera="left", count=40_302),
            Part(split="training", pass_name="final", camera="left", count=40_302),
            Part(split="test", pass_name="clean", camera="left", count=7_866, required=False),
            Part(split="test", pass_name="final", camera="left", count=7_866, required=False),
            # The subset that the paper reports on.
            Part(split="validation", pass_name="clean", camera="left", count=764, required=False),
            Part(split="validation", pass_name="final", camera="left", count=764, required=False),
        ),
        list_pairs=list_things,
        cameras=("left",),
    ),
    DatasetInfo(
        name="sintel",
        title="MPI Sintel",
        source="http://sintel.is.tue.mpg.de/downloads",
        example="training/clean/alley_1/frame_0001.png",
        test_example="test/clean/ambush_1/frame_0001.png",
        folders=("MPI-Sintel-complete", "MPI-Sintel", "MPI_Sintel", "Sintel"),
        parts=(
            Part(split="training", pass_name="clean", count=1041),
            Part(split="training", pass_name="final", count=1041),
            Part(split="training", pass_name="albedo", count=1041, required=False),
            Part(split="test", pass_name="clean", count=552, required=False),
            Part(split="test", pass_name="final", count=552, required=False),
        ),
        list_pairs=list_sintel,
    ),
    DatasetInfo(
        name="kitti-2012",
        title="KITTI 2012",
        source="https://www.cvlibs.net/datasets/kitti/eval_stereo_flow.php?benchmark=flow",
        example="training/colored_0/000000_10.png",
        test_example="testing/colored_0/000000_10.png",
        folders=("KITTI-2012", "KITTI2012", "KITTI_2012", "data_stereo_flow"),
        parts=(
            Part(split="training", pass_name="occ", count=194),
            Part(split="training", pass_name="noc", count=194, required=False),
            Part(split="test", pass_name="occ", count=195, required=False),
        ),
        list_pairs=list_kitti_2012,
    ),
    DatasetInfo(
        name="kitti-2015",
        title="KITTI 2015",
        source="https://www.cvlibs.net/datasets/kitti/eval_scene_flow.php?benchmark=flow",
        example="training/image_2/000000_10.png",
        test_example="testing/image_2/000000_10.png",
        folders=("KITTI-2015", "KITTI2015", "KITTI_2015", "data_scene_flow", "KITTI"),
        parts=(
            Part(split="training", pass_name="occ", count=200),
            Part(split="training", pass_name="noc", count=200, required=False),
            Part(split="test", pass_name="occ", count=200, required=False),
        ),
        list_pairs=list_kitti_2015,
    ),
    DatasetInfo(
        name="hd1k",
        title="HD1K",
        source="http://hci-benchmark.iwr.uni-heidelberg.de",
        example="hd1k_input/image_2/000000_0001.png",
        test_example="hd1k_challenge/image_2",
        folders=("HD1K", "HD1k"),
        # 1083 frames in 36 sequences; the last frame of each has no second frame.
        parts=(Part(split="training", count=1047), Part(split="test", required=False)),
        list_pairs=list_hd1k,
    ),
    DatasetInfo(
        name="spring",
        title="Spring",
        source="https://spring-benchmark.org",
        example="train/0001/frame_left/frame_left_0001.png",
        test_example="test/0003/frame_left/frame_left_0001.png",
        folders=("Spring",),
        # 5000 and 1000 stereo frames in 37 and 10 scenes; listed for each camera and direction.
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
        example="other-data/Venus/frame10.png",
        test_example="eval-data/Army/frame10.png",
        folders=("Middlebury",),
        parts=(Part(split="training", count=8), Part(split="test", count=12, required=False)),
        list_pairs=list_middlebury,
    ),
    DatasetInfo(
        name="slowflow",
        title="Slow Flow",
        source="https://www.cvlibs.net/projects/slow_flow",
        example="100/sequence/Animals/seq1_0000000.png",
        folders=("SlowFlow", "slow_flow"),
        parts=tuple(
            Part(split="test", pass_name=pixels, required=False) for pixels in ("100", "200", "300")
        ),
        list_pairs=list_slowflow,
    ),
    DatasetInfo(
        name="folder",
        title="your own folder",
        example="two or more images, or folders of images",
        parts=(Part(split="all", required=False),),
        list_pairs=list_folder,
    ),
)
DATASETS = {info.name: info for info in _ALL}
"""All data sets by name."""

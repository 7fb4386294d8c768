"""True flow that others measured: every flow file below a folder, whatever data set it is of."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Bool
from numpy import ndarray

from gmaflow.errors import DatasetError, FlowFileError, ImageError
from gmaflow.io import FlowArrays, read_flow_arrays, read_image
from gmaflow.io.sizes import check_same_size
from gmaflow.scenes.statistics import MotionStatistics, MotionTally

log = logging.getLogger(__name__)

MOST = 2000
"""Of more files than this every n-th is read; that many tell as much."""


@dataclass(frozen=True)
class TruthFile:
    """A file of true flow.

    Attributes:
        flow: the file.
        occlusion: a mask of occluded pixels (Sintel's).
        visible_flow: the flow of the visible pixels alone (KITTI's flow_noc).
    """

    flow: Path
    occlusion: Path | None = None
    visible_flow: Path | None = None

    def read(self) -> tuple[FlowArrays, Bool[ndarray, "h w"] | None]:
        """Read the flow, and where it is known to be occluded, if anything tells."""
        flow = read_flow_arrays(self.flow)
        if self.flow.suffix == ".flo5":
            # Spring's truth has twice the resolution of its frames.
            flow = FlowArrays(flow.array[::2, ::2], flow.valid[::2, ::2])
        if self.occlusion is not None:
            mask = read_image(self.occlusion).max(axis=2) > 0
        elif self.visible_flow is not None:
            mask = ~read_flow_arrays(self.visible_flow).valid
        else:
            return flow, None
        check_same_size(
            {str(self.flow): flow.valid, "its mask": mask},
            error=FlowFileError,
            remedy="get both again",
        )
        return flow, mask


def find_truths(root: Path) -> list[TruthFile]:
    """Find the flow files below a folder.

    Those are .flo and .flo5, .pfm below a folder `optical_flow`, and .png in KITTI's folders
    `flow_occ` and `flow_noc`.

    Raises:
        DatasetError: there is no such folder, or no such file in it.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder; give one with true flow in it")
    found = [t for path in sorted(root.rglob("*")) if (t := _as_truth(path)) is not None]
    if not found:
        raise DatasetError(
            f"{root} holds no true flow; .flo, .flo5, .pfm below optical_flow, and .png in "
            "flow_occ or flow_noc are looked for"
        )
    return found


def real_statistics(
    root: Path, *, progress: Callable[[int, int], None] = lambda done, total: None
) -> MotionStatistics:
    """Count the true flow below a folder; files that cannot be read are logged and left out.

    Args:
        root: the folder; its name becomes the statistics' name.
        progress: called with the number of files that are read, and of all.

    Raises:
        DatasetError: there is no such folder, or no flow in it that can be read.
    """
    truths = find_truths(root)
    truths = truths[:: -(-len(truths) // MOST)]
    tally = MotionTally()
    for done, truth in enumerate(truths, start=1):
        try:
            flow, occluded = truth.read()
        except (FlowFileError, ImageError) as err:
            log.warning("left out: %s", err)
            continue
        tally.add(flow.array, flow.valid, occluded)
        progress(done, len(truths))
    if tally.pairs == 0:
        raise DatasetError(f"{root}: none of {len(truths)} flow files can be read")
    return tally.statistics(root.resolve().name)


def _as_truth(path: Path) -> TruthFile | None:
    suffix, folder = path.suffix.lower(), path.parent
    if path.name.startswith(".") or not path.is_file():
        return None
    if suffix == ".flo":
        mask = folder.parent.parent / "occlusions" / folder.name / f"{path.stem}.png"
        in_sintel = folder.parent.name == "flow" and mask.is_file()
        return TruthFile(path, occlusion=mask if in_sintel else None)
    if suffix == ".png" and folder.name == "flow_occ":
        visible = folder.parent / "flow_noc" / path.name
        return TruthFile(path, visible_flow=visible if visible.is_file() else None)
    if suffix == ".png" and folder.name == "flow_noc":
        everywhere = folder.parent / "flow_occ" / path.name
        return None if everywhere.is_file() else TruthFile(path)
    if suffix == ".flo5" or (suffix == ".pfm" and "optical_flow" in path.parts):
        return TruthFile(path)
    return None

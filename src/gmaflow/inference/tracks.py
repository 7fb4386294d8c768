"""Tracks: where points of one frame are in every other frame, and whether they are visible there.

Legend: n frames, k points. A dense track has the axes h w instead of k.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Bool, Float, Float32

from gmaflow.errors import FlowError, FlowFileError, OutputError, counted
from gmaflow.io import atomic_write
from gmaflow.io.flow_files import read_npz_arrays
from gmaflow.io.paths import TRACK_SUFFIXES, PathLike, require_file

POINTS_ACROSS = 24
"""Points of the default grid along the shorter side of a frame."""
MIN_SPACING = 8
"""Pixels between them in small frames, where dots would cover the picture."""
_DESCRIPTOR_LENGTH = 128  # what COLMAP expects
_NO_DESCRIPTOR = " 0" * _DESCRIPTOR_LENGTH


@dataclass(frozen=True, eq=False)
class TrackedFrame:
    """The tracked points in one frame."""

    number: int
    """The number of the frame, from 0."""
    reference: int
    """The number of the frame that the points are given in."""
    positions: Float32[np.ndarray, "*points 2"]
    """In pixels: x, then y; NaN beyond a cut. The position of a hidden point is a guess."""
    visible: Bool[np.ndarray, "*points"]
    """False if the point is hidden or out of the frame."""
    confidence: Float32[np.ndarray, "*points"]
    """How consistent the flows to the point and back are, at the weakest link: 1 exactly, 0.5 just
    enough."""
    cut: bool = False
    """Whether there is a cut between this frame and the reference."""
    in_tiles: bool = False
    """Whether a flow until here was estimated in tiles to save memory; see `Flow.in_tiles`."""

    def __repr__(self) -> str:
        return (
            f"<Frame {self.number} with {counted(self.visible.size, 'point')} of frame "
            f"{self.reference}, {self.visible.mean():.1%} visible>"
        )


@dataclass(frozen=True, eq=False)
class Tracks:
    """The tracks of k points through n frames."""

    points: Float32[np.ndarray, "k 2"]
    """The points in the reference frame: x, then y."""
    reference: int
    """The number of that frame."""
    positions: Float32[np.ndarray, "n k 2"]
    visible: Bool[np.ndarray, "n k"]
    confidence: Float32[np.ndarray, "n k"]

    def __repr__(self) -> str:
        frames, points = self.visible.shape
        return (
            f"<Tracks of {counted(points, 'point')} through {counted(frames, 'frame')}, "
            f"reference {self.reference}, "
            f"{self.visible.mean():.1%} visible>"
        )

    @classmethod
    def collect(cls, frames: Iterable[TrackedFrame]) -> "Tracks":
        """Collect tracked frames, in any order; points of dense tracks are in row-major order.

        Raises:
            FlowError: There are none, or a frame is missing.
        """
        ordered = sorted(frames, key=lambda frame: frame.number)
        numbers = [frame.number for frame in ordered]
        if not numbers or numbers != list(range(len(numbers))):
            raise FlowError(
                f"tracks need every frame from 0 on, once; got {numbers[:8]}; collect all frames "
                "of a track"
            )
        positions, visible, confidence = (
            np.stack([getattr(frame, name) for frame in ordered])
            for name in ("positions", "visible", "confidence")
        )
        count, reference = len(ordered), ordered[0].reference
        positions = positions.reshape(count, -1, 2)
        return cls(
            positions[reference],
            reference,
            positions,
            visible.reshape(count, -1),
            confidence.reshape(count, -1),
        )

    def save(self, path: PathLike) -> None:
        """Write an .npz with an array for each attribute, or a .csv with a row for each position.

        Raises:
            OutputError: The suffix is another one, or the file cannot be written.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in TRACK_SUFFIXES:
            raise OutputError(f"{path}: tracks are written as .npz or .csv")
        with atomic_write(path) as file:
            if suffix == ".npz":
                np.savez_compressed(
                    file,
                    points=self.points,
                    reference=np.int64(self.reference),
                    positions=self.positions,
                    visible=self.visible,
                    confidence=self.confidence,
                )
            else:
                self._write_csv(file)

    def save_colmap(self, folder: PathLike, names: Sequence[PathLike]) -> None:
        """Write the tracks as features and matches that COLMAP imports, into a folder.

        `features/NAME.txt` lists the points that are visible in a frame, `matches.txt` which of
        them are the same, for pairs of frames that are 1, 2, 4, 8, ... apart.

        Args:
            folder: The folder; created if needed.
            names: The file names of the frames' images, relative to the folder of all images.

        Raises:
            FlowError: There is not one name for each frame, or COLMAP cannot use one.
        """
        files = [str(name) for name in names]
        if len(files) != len(self.positions):
            raise FlowError(
                f"there are {counted(len(files), 'name')} for "
                f"{counted(len(self.positions), 'frame')}; give one for each"
            )
        if spaced := [name for name in files if name.split() != [name]]:
            raise FlowError(f"COLMAP cannot match {spaced[0]!r}; give file names without spaces")
        if outside := [n for n in files if Path(n).is_absolute() or ".." in Path(n).parts]:
            raise FlowError(f"{outside[0]!r} is outside the folder; give names relative to it")
        if len(set(files)) < len(files):
            raise FlowError("two frames have the same name; give each its own")
        numbers = np.cumsum(self.visible, axis=1) - 1  # index of a point among the visible ones
        for name, positions, visible in zip(files, self.positions, self.visible, strict=True):
            # In COLMAP the centre of the first pixel is (0.5, 0.5). There are no descriptors.
            rows = [f"{x:.3f} {y:.3f} 1 0{_NO_DESCRIPTOR}\n" for x, y in positions[visible] + 0.5]
            with atomic_write(Path(folder) / "features" / f"{name}.txt") as file:
                file.write(f"{len(rows)} {_DESCRIPTOR_LENGTH}\n{''.join(rows)}".encode())
        with atomic_write(Path(folder) / "matches.txt") as file:
            for first, second in _pairs_apart(len(files)):
                both = self.visible[first] & self.visible[second]
                if both.any():
                    matches = zip(numbers[first, both], numbers[second, both], strict=True)
                    rows = [f"{files[first]} {files[second]}", *(f"{a} {b}" for a, b in matches)]
                    file.write(("\n".join(rows) + "\n\n").encode())

    def _write_csv(self, raw: IO[bytes]) -> None:
        with TextIOWrapper(raw, "utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("frame", "point", "x", "y", "visible", "confidence"))
            for frame, values in enumerate(
                zip(self.positions, self.visible, self.confidence, strict=True)
            ):
                for point, ((x, y), visible, confidence) in enumerate(zip(*values, strict=True)):
                    row = (f"{x:.3f}", f"{y:.3f}", int(visible), f"{confidence:.3f}")
                    writer.writerow((frame, point, *row))


def _pairs_apart(count: int) -> Iterable[tuple[int, int]]:
    """Pairs of frames that are a power of two apart."""
    for first in range(count):
        gap = 1
        while first + gap < count:
            yield first, first + gap
            gap *= 2


def read_tracks(path: PathLike) -> Tracks:
    """Read an .npz that `Tracks.save` wrote.

    Raises:
        FlowFileError: It is not such a file, or is damaged.
    """
    path = require_file(path, FlowFileError, "a file of tracks")
    names = ("points", "reference", "positions", "visible", "confidence")
    points, reference, positions, visible, confidence = read_npz_arrays(path, names).values()
    frames, count = visible.shape if visible.ndim == 2 else (0, 0)
    if not (
        points.shape == (count, 2)
        and positions.shape == (frames, count, 2)
        and visible.dtype == np.bool_
        and confidence.shape == (frames, count)
        and reference.shape == ()
        and reference.dtype.kind == "i"
        and 0 <= reference < frames
    ):
        raise FlowFileError(f"{path}: its arrays are not those of tracks")
    floats = (array.astype(np.float32) for array in (points, positions, confidence))
    points, positions, confidence = floats
    return Tracks(points, int(reference), positions, visible, confidence)


def default_spacing(height: int, width: int) -> int:
    """Return the distance between the points of the default grid."""
    return max(MIN_SPACING, round(min(height, width) / POINTS_ACROSS))


def st_map(frame: TrackedFrame) -> Float[np.ndarray, "h w 3"]:
    """Return a dense track as an STMap: where in the frame each reference pixel is.

    The first two channels run from 0 to 1, right and up, as compositing programs expect; the third
    is 1 where the pixel is visible.
    """
    height, width = frame.visible.shape
    x, y = frame.positions[..., 0], frame.positions[..., 1]
    visible = frame.visible.astype(np.float32)
    return np.stack([(x + 0.5) / width, 1 - (y + 0.5) / height, visible], axis=2)

"""The flow of a whole clip in one place: an .h5, a .tar, or a folder.

    with create_clip("clip.h5") as clip:
        clip.add(0, flow)

    clip = open_clip("clip.h5")
    len(clip), clip.frames, clip[0].array, clip.at_frame(0)

An .h5 keeps float16 exactly, a .tar holds pairs of 8-bit JPEGs, and a folder holds a flow file for
each frame. A clip appears under its name when it is complete. Readers hold only an index: they can
be pickled, and used in many threads or processes at once.
"""

import re
import secrets
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32

from gmaflow.errors import FlowError, FlowFileError, OutputError, os_reason
from gmaflow.io.flow_files import (
    FLOW_ENDINGS,
    FlowArrays,
    check_arrays,
    ensure_can_encode,
    import_h5py,
    known_part,
    name_file,
    read_flow_arrays,
    stem_in,
    stem_of,
    write_flow,
)
from gmaflow.io.folders import list_flows
from gmaflow.io.hdf5_clip import Hdf5Output, read_index
from gmaflow.io.images import check_bound
from gmaflow.io.paths import (
    XY_ENDING,
    PathLike,
    atomic_write,
    ensure_can_fill,
    is_clip,
    is_xy,
    require_file,
    xy_paths,
)
from gmaflow.io.tar_shard import Member, list_samples, read_member
from gmaflow.io.xy_jpeg import USUAL_BOUND, decode_xy, encode_xy

_BACKWARD = "-backward"


def create_clip(
    path: PathLike, *, ending: str = XY_ENDING, bound: float = USUAL_BOUND, key: str | None = None
) -> "ClipWriter":
    """Start a clip; use it in a `with` block, at whose end the clip appears.

    Args:
        path: A file that ends in .h5 or .tar, or a folder. An existing clip is replaced; a folder
            that holds anything else is refused.
        ending: Folders: the format of the files, one of `FLOW_ENDINGS`.
        bound: Pairs of JPEGs: the longest motion in x and in y; longer ones are clipped.
        key: .tar: what the names of its files begin with; by default the name of the clip.

    Raises:
        FlowError: The format needs a package that is not installed, or the bound is out of range.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_bound(bound)
    if suffix == ".h5":
        return _Hdf5Writer(path)
    if suffix == ".tar":
        return _TarWriter(path, bound, path.stem if key is None else key)
    return _FolderWriter(path, ending, bound)


def open_clip(path: PathLike) -> "ClipReader":
    """Open a clip: an .h5 or .tar, or any folder of flow files.

    Raises:
        FlowFileError: It does not exist, is damaged, or is not a clip.
    """
    path = Path(path)
    if path.is_dir():
        return _FolderReader(path)
    require_file(path, FlowFileError, "a clip (.h5, .tar) or a folder of flow files")
    if not is_clip(path):
        raise FlowFileError(f"{path} is not a clip; give an .h5, a .tar or a folder of flow files")
    try:
        return _Hdf5Reader(path) if path.suffix.lower() == ".h5" else _TarReader(path)
    except (OSError, MemoryError) as err:
        raise FlowFileError(f"{path} cannot be read: {err}") from err


class ClipWriter(ABC):
    """A clip that is being written. Without an error in the `with` block, it appears at its end.

    Attributes:
        path: Where the clip appears.
        frames: The numbers of the frames that were added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames: list[int] = []
        self._size: tuple[int, ...] | None = None

    def __enter__(self) -> "ClipWriter":
        with ExitStack() as stack:
            self._open(stack)
            stack.push(self._finish)  # an error in it is one of the block
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self._stack.__exit__(*error)

    def add(
        self,
        frame: int,
        array: Float[np.ndarray, "h w 2"],
        valid: Bool[np.ndarray, "h w"] | None = None,
    ) -> None:
        """Add the flow that begins at a frame.

        Args:
            frame: The number of the frame, higher than the last one.
            array: The flow in pixels; NaN and infinity mean unknown.
            valid: Where it is known; None: everywhere.

        Raises:
            FlowFileError: The flow does not fit the format, or the clip.
            OutputError: The disk is full.
        """
        check_arrays(self.path, array, valid)
        if frame < 0 or (self.frames and frame <= self.frames[-1]):
            last = f" after frame {self.frames[-1]}" if self.frames else ""
            raise FlowFileError(
                f"{self.path}: got frame {frame}{last}; add frames in order, starting at 0"
            )
        if self._size not in (None, array.shape):
            raise FlowFileError(
                f"{self.path}: frame {frame} has a flow of shape {array.shape}, others have "
                f"{self._size}; a clip has one size"
            )
        try:
            self._write(frame, known_part(array, valid))
        except FlowFileError as err:  # the formats do not know the name
            text = str(err)
            raise FlowFileError(text if str(self.path) in text else f"{self.path}: {text}") from err
        self.frames.append(frame)
        self._size = array.shape

    def _finish(self, kind: object, *_error: object) -> None:
        if kind is not None:
            return
        if not self.frames:
            raise FlowFileError(f"{self.path}: no flow was added; a clip needs at least one")
        self._end()

    @abstractmethod
    def _open(self, stack: ExitStack) -> None:
        """Begin the clip under a temporary name, which the exit stack renames or removes."""

    @abstractmethod
    def _write(self, frame: int, flow: FlowArrays) -> None:
        """Write one flow."""

    @abstractmethod
    def _end(self) -> None:
        """Write what comes after the last flow."""


class ClipReader(ABC, Sequence[FlowArrays]):
    """The flow of a clip, in the order of its frames.

    Attributes:
        path: Where the clip is.
        frames: The number of the frame at which each flow begins. Frames without flow, such as the
            last one before a cut, are left out.
    """

    def __init__(self, path: Path, frames: Sequence[int]) -> None:
        self.path = path
        self.frames = tuple(frames)

    @property
    def name(self) -> str:
        """The name of the clip, without its suffix."""
        return self.path.stem if is_clip(self.path) else self.path.name

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> FlowArrays:  # type: ignore[override]  # no slices
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{self.path} holds {len(self)} flows, not one of index {index}")
        try:
            return self._read(place)
        except (OSError, MemoryError) as err:
            raise FlowFileError(f"{self.path} cannot be read: {err}") from err

    def __iter__(self) -> Iterator[FlowArrays]:
        return (self[index] for index in range(len(self)))

    def at_frame(self, frame: int) -> FlowArrays:
        """Return the flow that begins at a frame.

        Raises:
            FlowFileError: There is none, or it is damaged.
        """
        if frame not in self.frames:
            raise FlowFileError(
                f"{self.path} has no flow of frame {frame}; its frames are {self.frames[0]} to "
                f"{self.frames[-1]}"
            )
        return self[self.frames.index(frame)]

    @abstractmethod
    def _read(self, index: int) -> FlowArrays:
        """Read one flow."""


# --- .h5: see hdf5_clip.py ------------------------------------------------------------------------


class _Hdf5Writer(ClipWriter):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import_h5py("writing", ".h5")

    def _open(self, stack: ExitStack) -> None:
        self._file = stack.enter_context(atomic_write(self.path))
        self._output = Hdf5Output(self._file)
        stack.callback(self._output.close)

    def _write(self, frame: int, flow: FlowArrays) -> None:
        self._output.append(flow.marked())

    def _end(self) -> None:
        self._output.finish(self.frames)


class _Hdf5Reader(ClipReader):
    def __init__(self, path: Path) -> None:
        self._index = read_index(path)
        super().__init__(path, self._index.frames)

    def _read(self, index: int) -> FlowArrays:
        return known_part(self._index.read(self.path, index))


# --- .tar: pairs of JPEGs, named as WebDataset wants it -------------------------------------------
# KEY/000012.flow_x.jpg, KEY/000012.flow_y.jpg: a sample is what files of one name up to the dot
# hold, so such a clip is also a shard of WebDataset.


class _TarWriter(ClipWriter):
    def __init__(self, path: Path, bound: float, key: str) -> None:
        super().__init__(path)
        self._bound, self._key = bound, key

    def _open(self, stack: ExitStack) -> None:
        self._file = stack.enter_context(atomic_write(self.path))
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)

    def _write(self, frame: int, flow: FlowArrays) -> None:
        images = encode_xy(*flow[:2], self._bound)
        for component, image in zip("xy", images, strict=True):
            # Without time and owner, so that the same flow gives the same bytes.
            member = tarfile.TarInfo(f"{self._key}/{frame:06d}.flow_{component}.jpg")
            member.size = len(image)
            self._tar.addfile(member, BytesIO(image))

    def _end(self) -> None:
        self._tar.close()
        self._file.flush()


class _TarReader(ClipReader):
    def __init__(self, path: Path) -> None:
        members: dict[int, tuple[Member, Member]] = {}
        for key, files in list_samples(path):
            if not {"flow_x.jpg", "flow_y.jpg"} <= files.keys():
                continue
            number = _number_in(key)
            if number is None or number in members:
                raise FlowFileError(
                    f"{path}: {key} is not the number of a frame of one clip; open a file of many "
                    "clips as a shard"
                )
            members[number] = files["flow_x.jpg"], files["flow_y.jpg"]
        if not members:
            raise FlowFileError(f"{path}: holds no flow_x.jpg and flow_y.jpg")
        super().__init__(path, sorted(members))
        self._members = [members[number] for number in self.frames]

    def _read(self, index: int) -> FlowArrays:
        return known_part(read_xy_members(self.path, *self._members[index]))


def read_xy_members(path: Path, x: Member, y: Member) -> Float32[np.ndarray, "h w 2"]:
    """Read the flow of two JPEGs in a .tar."""
    return decode_xy(
        (read_member(path, x), f"{path}: {x.name}"), (read_member(path, y), f"{path}: {y.name}")
    )


# --- Folders: a flow file for each frame ----------------------------------------------------------


class _FolderWriter(ClipWriter):
    def __init__(self, path: Path, ending: str, bound: float) -> None:
        super().__init__(path)
        ensure_can_encode(name_file("0", ending))
        self._ending, self._bound = ending, bound

    def _open(self, stack: ExitStack) -> None:
        ensure_can_fill(self.path)
        for old in sorted(self.path.glob("*")):
            if not _is_frame(old):
                raise OutputError(
                    f"{self.path} holds {old.name}, which is not the flow of a frame; choose "
                    "another folder, since this one would be replaced"
                )
        self._place = self.path.resolve()  # what a link leads to, and the link stays
        self._folder = self._place.with_name(f".{secrets.token_hex(8)}.partial")
        stack.callback(shutil.rmtree, self._folder, ignore_errors=True)

    def _write(self, frame: int, flow: FlowArrays) -> None:
        path = self._folder / name_file(f"{frame:06d}", self._ending)
        try:
            write_flow(path, *flow[:2], bound=self._bound)
        except FlowError as err:  # the folder has a temporary name
            raise type(err)(str(err).replace(str(self._folder), str(self.path))) from err

    def _end(self) -> None:
        old = self._folder.with_name(f"{self._folder.name}-old")
        try:
            if self._place.is_dir():  # a rename does not replace a folder
                self._place.rename(old)
            try:
                self._folder.rename(self._place)
            except BaseException:
                if old.exists():
                    old.rename(self._place)
                raise
        except OSError as err:
            raise OutputError(f"{self.path} cannot be written: {os_reason(err)}") from err
        shutil.rmtree(old, ignore_errors=True)


class _FolderReader(ClipReader):
    def __init__(self, path: Path) -> None:
        flows = [file for file in list_flows(path) if not stem_of(file).endswith(_BACKWARD)]
        if not flows:
            raise FlowFileError(f"{path} holds only backward flow; give a folder of forward flow")
        numbers = [number for file in flows if (number := _number_in(stem_of(file))) is not None]
        counted = len(numbers) == len(flows) and numbers == sorted(set(numbers))
        super().__init__(path, numbers if counted else range(len(flows)))
        self._files = flows

    def _read(self, index: int) -> FlowArrays:
        return read_flow_arrays(self._files[index])


def _is_frame(path: Path) -> bool:
    """Whether a file has a name that `_FolderWriter` gives."""
    name = xy_paths(path)[0].name if is_xy(path) else path.name
    stems = (stem_in(name, ending) for ending in FLOW_ENDINGS.values())
    return path.is_file() and any(stem is not None and stem.isdecimal() for stem in stems)


def _number_in(stem: str) -> int | None:
    """Return the last number of a name."""
    match = re.search(r"(\d{1,15})\D*$", stem, re.ASCII)
    return int(match[1]) if match else None

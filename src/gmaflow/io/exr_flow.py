"""Flow as OpenEXR, with the channels and the directions that Nuke has: `v` points up.

Nuke counts y from the bottom up, so that the second channel is the downward motion of our arrays
with its sign changed. That holds for every .exr, whatever its channels are called.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from gmaflow.errors import FlowFileError
from gmaflow.io.exr import (
    MOST_VALUES,
    Planes,
    count_values,
    import_openexr,
    in_display_window,
    read_planes,
)
from gmaflow.io.exr_header import DamagedError, Part, read_parts
from gmaflow.io.flow_arrays import FlowArrays, check_ratio, check_size, known_part

_FORWARD, _BACKWARD, _VALID = "forward.", "backward.", "valid.a"
_NAMES = [
    tuple(f"{layer}{axis}" for axis in axes)
    for layer in (_FORWARD, "motion.", "flow.", "", _BACKWARD)
    for axes in ("uv", "xy")
]
_COLORS = ("r", "g")
# Above it the compressions are those of pictures and pack without bound.
_LAST_BOUND_COMPRESSION = 7
_SMALLEST_SAMPLE = 2
_MOST_EMPTY = 1000


def read_exr(path: Path) -> FlowArrays:
    """Read flow of the channels forward.u and forward.v, or others in common use.

    Backward flow is read where there is no other. What lies outside the data window is unknown, and
    so is NaN.
    """
    openexr = import_openexr("reading", FlowFileError)
    try:
        with path.open("rb") as file:
            parts = read_parts(file)
            part, names = _find_flow(path, parts)
            _check_claims(path, parts, part)
            planes = read_planes(openexr, file, part)
    except DamagedError as err:
        raise FlowFileError(f"{path}: not a sound .exr file ({err})") from err
    with np.errstate(invalid="ignore"):  # NaN is unknown
        _refuse_a_picture(path, names, planes)
        right, up = (planes[name].astype(np.float32) for name in names)
        known = planes[_VALID] > 0.5 if _VALID in planes else None
        flow = known_part(np.stack([right, -up], axis=2), known)
    array, valid = (in_display_window(part, plane) for plane in (flow.array, flow.valid))
    return FlowArrays(array, valid, backward=names[0].lower().startswith(_BACKWARD))


def write_exr(path: Path, flow: FlowArrays) -> None:
    """Write 32-bit floats without loss; `valid.a` is 0 where the flow is unknown, else 1."""
    openexr = import_openexr("writing", FlowFileError)
    layer, target = (_BACKWARD, "previous") if flow.backward else (_FORWARD, "next")
    header = {
        "type": openexr.scanlineimage,
        "compression": openexr.ZIP_COMPRESSION,
        "comments": f"optical flow to the {target} frame in pixels: u right, v up; valid.a: known",
    }
    channels = {
        f"{layer}u": flow.array[..., 0],
        f"{layer}v": -flow.array[..., 1],
        # Always there: the frames of a sequence must have the same channels.
        _VALID: flow.valid.astype(np.float32),
    }
    # The library takes no notice of strides.
    channels = {name: np.ascontiguousarray(plane) for name, plane in channels.items()}
    packed = BytesIO()
    openexr.File(header, channels).write(packed)
    path.write_bytes(packed.getbuffer())


def _find_flow(path: Path, parts: list[Part]) -> tuple[Part, tuple[str, str]]:
    for part in parts:
        by_name = {name.lower(): name for name in part.channels}
        for right, up in (*_NAMES, _COLORS):
            if right in by_name and up in by_name and not part.deep:
                return part, (by_name[right], by_name[up])
    found = ", ".join([name for part in parts for name in part.channels][:8])
    raise FlowFileError(
        f"{path}: holds no flow, but {found or 'nothing'}; its channels must be called "
        "forward.u and forward.v, backward.u and backward.v, motion.x and motion.y, or R and G"
    )


def _check_claims(path: Path, parts: list[Part], part: Part) -> None:
    check_size(path, *part.display.size)
    check_size(path, *part.data.size)
    if count_values(parts) > MOST_VALUES:
        raise FlowFileError(f"{path}: more channels than is safe to unpack; save its flow alone")
    for one in parts:
        if one.compression <= _LAST_BOUND_COMPRESSION:
            check_ratio(path, one.samples * _SMALLEST_SAMPLE, path.stat().st_size)
    if part.display.pixels > _MOST_EMPTY * part.data.pixels:
        height, width = part.display.size
        raise FlowFileError(
            f"{path}: of its {height} x {width} pixels no more than {part.data.pixels} are stored; "
            "the file is broken or not a flow file"
        )


def _refuse_a_picture(path: Path, names: tuple[str, str], planes: Planes) -> None:
    blue: Float32[np.ndarray, "h w"] | None = planes.get("B", planes.get("b"))
    if names[0].lower() == "r" and blue is not None and blue.any():
        raise FlowFileError(
            f"{path}: this is a picture; flow has the channels forward.u and forward.v, or R and "
            "G and no B other than 0"
        )

"""Flow as two grey 8-bit JPEGs, `flow_x` and `flow_y`, as action recognition stores it.

A component between -bound and bound becomes `255 * (v + bound) / (2 * bound)`, rounded; longer
motions are clipped. The bound stands in the comment of the JPEG. Files of other programs have none
and are taken to use the usual 20 pixels.
"""

import re
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32

from gmaflow.errors import FlowError, FlowFileError
from gmaflow.io.images import BROKEN, check_bound, check_header_size, is_bomb
from gmaflow.io.paths import PathLike

USUAL_BOUND = 20.0

# Above 95 the files grow faster than the error shrinks, which is mostly that of 8 bits.
_QUALITY = 95
_COMMENT = re.compile(rb"gmaflow bound=([0-9.e+-]{1,24})")


def encode_xy(
    array: Float32[np.ndarray, "h w 2"], valid: Bool[np.ndarray, "h w"], bound: float
) -> tuple[bytes, bytes]:
    """Return the JPEGs of x and y.

    Raises:
        FlowError: The bound is out of range, the flow is too large for JPEG, or some of it is
            unknown, which JPEGs cannot represent.
    """
    check_bound(bound)
    if not valid.all():
        raise FlowFileError(
            "JPEGs cannot mark unknown pixels; use .f16.npz or another format for sparse flow"
        )
    return _encode_plane(array[..., 0], bound), _encode_plane(array[..., 1], bound)


def decode_xy(
    x_file: tuple[bytes, PathLike], y_file: tuple[bytes, PathLike]
) -> Float32[np.ndarray, "h w 2"]:
    """Return the flow of two JPEGs, each given with its name for errors."""
    x, y = _decode_plane(*x_file), _decode_plane(*y_file)
    if x.shape != y.shape:
        raise FlowFileError(
            f"{x_file[1]} and {y_file[1]} differ in size: {x.shape[0]} x {x.shape[1]} and "
            f"{y.shape[0]} x {y.shape[1]}"
        )
    return np.stack([x, y], axis=2)


def _encode_plane(plane: Float32[np.ndarray, "h w"], bound: float) -> bytes:
    from PIL import Image

    codes = np.rint((plane + bound) * (255 / (2 * bound))).clip(0, 255).astype(np.uint8)
    buffer = BytesIO()
    try:
        Image.fromarray(codes).save(
            buffer, "JPEG", quality=_QUALITY, comment=f"gmaflow bound={bound:.9g}".encode()
        )
    except (OSError, ValueError) as err:
        raise FlowFileError(f"JPEG cannot hold this flow ({err}); use another format") from err
    return buffer.getvalue()


def _decode_plane(data: bytes, name: PathLike) -> Float32[np.ndarray, "h w"]:
    from PIL import Image

    path = Path(name)
    try:
        with Image.open(BytesIO(data), formats=("JPEG",)) as image:
            check_header_size(path, image.height, image.width)
            if is_bomb(8 * image.height * image.width, len(data)):
                raise FlowFileError(
                    f"{path}: its {len(data)} bytes unpack to {image.height} x {image.width} "
                    "pixels, more than is safe"
                )
            if image.mode not in ("L", "RGB"):
                raise FlowFileError(f"{path}: a JPEG of mode {image.mode}; flow is stored as grey")
            comment = image.info.get("comment", b"")
            codes = np.asarray(image if image.mode == "L" else image.convert("L"))
    except FlowFileError:
        raise
    except (*BROKEN, MemoryError, Image.DecompressionBombError) as err:
        raise FlowFileError(f"{path}: not a valid JPEG ({err})") from err
    bound = np.float32(_bound_of(path, comment))
    return codes.astype(np.float32) * (2 * bound / np.float32(255)) - bound


def _bound_of(path: Path, comment: object) -> float:
    match = _COMMENT.fullmatch(comment) if isinstance(comment, bytes) else None
    if match is None:
        return USUAL_BOUND
    try:
        bound = float(match[1])
        check_bound(bound)
    except (ValueError, FlowError) as err:
        raise FlowFileError(f"{path}: its comment gives a bound of {match[1]!r}") from err
    return bound

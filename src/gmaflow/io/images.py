"""Images: files <-> uint8 arrays, their sizes, and limits on what is decoded."""

import logging
import math
import re
import struct
import zlib
from collections.abc import Mapping
from io import SEEK_CUR, SEEK_END, BytesIO, IOBase
from numbers import Real
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from jaxtyping import Int, UInt8, UInt16

from gmaflow.errors import FlowError, FlowFileError, ImageError, ImageTooLargeError, OutputError
from gmaflow.io.exr_header import MAGIC as EXR_MAGIC
from gmaflow.io.paths import PathLike, as_path, atomic_write, require_file

if TYPE_CHECKING:
    import PIL.Image

log = logging.getLogger(__name__)

DECODERS = ("PNG", "JPEG", "PPM", "WEBP", "TIFF", "BMP", "GIF")
"""Only these are tried: Pillow knows forty, and some start other programs (EPS)."""
IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pbm", ".webp", ".tif", ".tiff", ".bmp", ".gif"}
    | {".exr"}
)

PNG_LEVEL = 4
"""Takes a quarter to half of the time of zlib's default, 6, for files that are 5 to 15 % larger."""

# Not GIF: 256 colours would silently change the picture.
_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".png": ("PNG", {"compress_level": PNG_LEVEL}),
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".webp": ("WEBP", {"lossless": True}),
    ".tif": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ".tiff": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ".bmp": ("BMP", {}),
    ".ppm": ("PPM", {}),
}

PICTURE_SUFFIXES = frozenset(_ENCODERS)
"""Formats that pictures can be written in."""

BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    Warning,
)
"""What Pillow, zipfile and h5py raise on damaged files, found by trying some. Warnings are raised
if the filters of the program say so."""

Sized = npt.NDArray[Any] | tuple[int, ...] | None
"""An array, or its shape; None is ignored."""

MIN_SIDE, MAX_SIDE = 16, 16384
"""The network takes no smaller images, and no camera takes larger ones."""
MAX_PIXELS = 2**28
"""Of a flow file: 16,384 squared, 2 GiB of flow."""
MAX_DEFLATE_RATIO = 1032
"""Deflate packs at most that many bytes into one; a header that claims more is wrong."""
SAFE_UNPACKED, SAFE_RATIO = 2**28, 64
"""Files may unpack to this many bytes, and to more only if compressed no further than real data. A
megabyte of deflated zeros would otherwise take gigabytes."""
TOO_LARGE = (
    "{name} has more pixels than is safe to decode; shrink it, "
    "or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
)

_ORIENTATION = 0x0112  # the EXIF tag
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF
_LONGEST_PPM_HEADER = _LONGEST_COMMENT = 2**16
# Peak memory of Pillow's image, its RGB copy and the array; libwebp keeps canvases too.
_BYTES_OF_A_PIXEL, _BYTES_OF_A_WEBP_PIXEL = 18, 26
_MOST_DECODED = 10**9
_LARGEST_BOUND = 1e4
_LARGEST_TILE = 2**22  # small images may be stored in one tile of usual size
_TOP_OF_12_BITS = 16  # 4095 of 65535, as 8 bits
_warned_folders: set[Path] = set()


def read_image(path: PathLike) -> UInt8[np.ndarray, "h w 3"]:
    """Read an image as upright 8-bit RGB.

    Grey is repeated, palettes are looked up and the EXIF orientation is applied. Alpha is dropped,
    not composited. 16-bit grey is scaled by 1/257 and rounded; of 16-bit colour Pillow keeps the
    high byte, which differs by at most one. 16-bit images with empty upper bits cause a warning,
    once per folder. Of an animation the first frame is read. OpenEXR goes through the sRGB curve
    and is clipped (see `decode_exr`). The format is detected by content, not by suffix.

    Raises:
        ImageError: The image does not exist, is damaged, or is too large to be safe.
    """
    path = require_file(path, ImageError, "an image file")
    with path.open("rb") as file:
        return decode_image(file, name=str(path))


def decode_image(
    file: IOBase, *, name: str = "the image", max_pixels: int | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    """Read an image from an open file, as `read_image` does.

    Args:
        file: A seekable file with the image at its start.
        name: Its name in errors.
        max_pixels: Refuse larger images before they are decoded; Pillow's own limit also applies.

    Raises:
        ImageTooLargeError: It has more pixels.
        ImageError: It is damaged, or of an unknown format.
    """
    from PIL import Image, UnidentifiedImageError

    if file.seek(0, SEEK_END) == 0:
        raise ImageError(f"{name} is empty; give an image file")
    file.seek(0)
    magic = file.read(len(EXR_MAGIC))
    file.seek(0)
    if magic == EXR_MAGIC:
        from gmaflow.io.exr import decode_exr

        return decode_exr(file, name=name, max_pixels=max_pixels)
    _check_ppm_header(file, name)
    _check_gif_comments(file, name)
    packed = file.seek(0, SEEK_END)
    file.seek(0)
    try:
        with Image.open(cast("IO[bytes]", file), formats=DECODERS) as image:
            check_pixels(image.width, image.height, name, max_pixels)
            _check_ratio(image, packed, name)
            _check_tiles(image, name)
            has_16_bits = any(";16" in str(tile[3]) for tile in image.tile)
            image.load()
            rgb = _to_rgb(image, Path(name))
            if has_16_bits and 0 < rgb.max() <= _TOP_OF_12_BITS:
                _warn_about_empty_bits(name)
            return _upright(rgb, _orientation(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as err:
        raise ImageTooLargeError(TOO_LARGE.format(name=name)) from err
    except ImageError:
        raise
    except UnidentifiedImageError as err:
        raise ImageError(
            f"{name} is not an image in a supported format; give one of {', '.join(DECODERS)}, EXR"
        ) from err
    except BROKEN as err:
        raise ImageError(f"{name} cannot be read ({err}); save it again or leave it out") from err


def _check_ppm_header(file: IOBase, name: str) -> None:
    """Refuse a PPM with a comment of megabytes, which Pillow reads byte by byte."""
    head: bytes = file.read(_LONGEST_PPM_HEADER)
    file.seek(0)
    if not re.match(rb"P[0-7fy]", head) or len(head) < _LONGEST_PPM_HEADER:
        return
    words = re.sub(rb"#[^\r\n]*", b"", head).split(None, 3)
    if len(words) < 3:  # the format, width and height
        raise ImageError(f"{name} begins with a comment that is too long; save it again")


def _check_gif_comments(file: IOBase, name: str) -> None:
    """Refuse a GIF with megabytes of comments, which Pillow copies at every 255 bytes."""
    head: bytes = file.read(13)
    if head.startswith(b"GIF8") and len(head) == 13:
        palette = 3 << (head[10] & 7) + 1 if head[10] & 128 else 0
        file.seek(palette, SEEK_CUR)
        length = 0
        while file.read(1) == b"!":
            is_comment = file.read(1) == b"\xfe"
            while size := ord(file.read(1) or b"\0"):
                file.seek(size, SEEK_CUR)
                length += size * is_comment
        if length > _LONGEST_COMMENT:
            raise ImageError(f"{name} begins with a comment that is too long; save it again")
    file.seek(0)


def _check_ratio(image: "PIL.Image.Image", packed: int, name: str) -> None:
    """Refuse a file of few bytes that takes more than a gigabyte while it is decoded."""
    pixels = image.width * image.height
    cost = _BYTES_OF_A_WEBP_PIXEL if image.format == "WEBP" else _BYTES_OF_A_PIXEL
    if cost * pixels > _MOST_DECODED and 4 * pixels > SAFE_RATIO * packed:
        raise ImageTooLargeError(TOO_LARGE.format(name=name))


def _check_tiles(image: "PIL.Image.Image", name: str) -> None:
    """Refuse a TIFF of tiles larger than itself: libtiff unpacks whole tiles."""
    tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
    width, height = tags.get(_TILE_WIDTH, 0), tags.get(_TILE_HEIGHT, 0)
    if width * height > max(_LARGEST_TILE, image.width * image.height):
        raise ImageTooLargeError(
            f"{name} is stored in tiles of {width} x {height} pixels, more than the image has; "
            "save it again"
        )


def image_to_array(
    image: "PIL.Image.Image", *, name: str = "the image"
) -> UInt8[np.ndarray, "h w 3"]:
    """Return a PIL image as upright 8-bit RGB, as `read_image` would."""
    try:
        return _upright(_to_rgb(image, Path(name)), _orientation(image))
    except ImageError:
        raise
    except BROKEN as err:
        raise ImageError(f"{name} cannot be read ({err})") from err


def scale_image(image: UInt8[np.ndarray, "h1 w1 3"], scale: float) -> UInt8[np.ndarray, "h2 w2 3"]:
    """Return an image scaled up or, below 1, down."""
    from PIL import Image

    if scale == 1:
        return image
    height, width = (max(1, round(scale * side)) for side in image.shape[:2])
    # Two steps, a coarse one first, are a few times faster and look the same.
    sized = Image.fromarray(image).resize(
        (width, height), Image.Resampling.LANCZOS, reducing_gap=3.0
    )
    return np.asarray(sized)


def write_image(
    path: PathLike,
    image: UInt8[np.ndarray, "h w"] | UInt8[np.ndarray, "h w 3"] | UInt8[np.ndarray, "h w 4"],
) -> None:
    """Write a grey, RGB or RGBA picture; the suffix of `path` chooses the format.

    All formats but JPEG keep every value. Alpha goes into PNG only.

    Raises:
        OutputError: The suffix is unknown, the picture does not fit the format, or the place cannot
            be written to.
    """
    from PIL import Image

    path = as_path(path)
    encoder, options = _ENCODERS.get(path.suffix.lower(), ("", {}))
    if not encoder:
        raise OutputError(
            f"{path}: {path.suffix!r} is not an image format; use one of {', '.join(_ENCODERS)}"
        )
    check_picture(path, image, alpha=encoder == "PNG")
    with atomic_write(path) as file:
        try:
            Image.fromarray(np.ascontiguousarray(image)).save(file, encoder, **options)
        except (ValueError, struct.error, OSError) as err:
            if isinstance(err, OSError) and err.errno is not None:
                raise  # an error of the disk, which atomic_write reports
            raise OutputError(f"{path}: {encoder} cannot hold this picture: {err}") from err


def encode_png(image: UInt8[np.ndarray, "h w *channels"]) -> bytes:
    """Return a picture as the bytes of a PNG, encoded for speed rather than size."""
    from PIL import Image

    check_picture(Path("the picture"), image, alpha=True)
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG", compress_level=2)
    return buffer.getvalue()


def check_picture(path: Path, image: np.ndarray, *, alpha: bool) -> None:
    """Refuse arrays that are not pictures, or whose alpha the format would drop."""
    if not isinstance(image, np.ndarray):
        raise OutputError(f"{path}: got a picture of type {type(image).__name__}; use an array")
    shaped = image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
    if image.dtype != np.uint8 or not shaped or 0 in image.shape:
        raise OutputError(
            f"{path}: got an array of {image.dtype} and shape {image.shape}; "
            "a picture is uint8 of height x width, or with 3 or 4 channels"
        )
    if image.shape[2:] == (4,) and not alpha:
        raise OutputError(f"{path}: only PNG keeps alpha; use .png or drop the fourth channel")


def _to_rgb(image: "PIL.Image.Image", path: Path) -> UInt8[np.ndarray, "h w 3"]:
    if image.mode == "F":
        raise ImageError(f"{path} holds floating-point values; save it with 8 or 16 bits a channel")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return np.repeat(_to_8_bit(np.asarray(image), path)[..., None], 3, axis=2)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        # By way of RGBA, since Pillow's direct conversion warns about palettes with alpha.
        return np.asarray(image.convert("RGBA"))[..., :3].copy()
    # A copy, because Pillow's memory is read-only.
    return np.array(image.convert("RGB"))


def _warn_about_empty_bits(name: str) -> None:
    # Once for each folder: the other frames of a sequence are the same.
    folder = Path(name).parent
    if folder not in _warned_folders:
        _warned_folders.add(folder)
        log.warning(
            "%s has 16 bits, but its brightest value needs only 12; as 8 bits, few levels remain: "
            "scale all frames by one factor to the full range first",
            name,
        )


def _to_8_bit(
    grey: UInt16[np.ndarray, "h w"] | Int[np.ndarray, "h w"], path: Path
) -> UInt8[np.ndarray, "h w"]:
    if grey.min() < 0 or grey.max() > 65535:
        raise ImageError(f"{path} holds 32-bit values; save it with 8 or 16 bits a channel")
    table = ((np.arange(65536) + 128) // 257).astype(np.uint8)
    rounded: np.ndarray = table[grey]
    return rounded


def _orientation(image: "PIL.Image.Image") -> int:
    # After load(): Pillow turns TIFFs itself while loading, and then takes the tag away.
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except BROKEN:
        return 1  # damaged EXIF data is no reason to refuse the image


def _upright(image: UInt8[np.ndarray, "h1 w1 3"], orientation: int) -> UInt8[np.ndarray, "h2 w2 3"]:
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


# --- Sizes: reading them from text, comparing them, and limits on what is decoded -----------------


def read_size(text: str) -> tuple[int, int]:
    """Read a height and width such as 440x1024."""
    match = re.fullmatch(r"(\d{1,9})[x×](\d{1,9})", text.strip().lower())  # noqa: RUF001
    if match is None:
        raise FlowError(f"{text!r} is not a size; give height x width such as 440x1024")
    height, width = int(match[1]), int(match[2])
    if max(height, width) > MAX_SIDE:
        raise FlowError(f"{text} is too large; give at most {MAX_SIDE}x{MAX_SIDE}")
    return height, width


def check_smallest(size: tuple[int, int], smallest: int = MIN_SIDE) -> None:
    """Refuse a height or width below a limit, by default that of the network."""
    if min(size) < smallest:
        raise FlowError(f"{shape_text(size)} is too small; give at least {smallest}x{smallest}")


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape, such as 440x1024."""
    return "x".join(map(str, shape)) or "a single number"


def check_same_size(
    things: Mapping[str, Sized],
    *,
    error: type[FlowError] = FlowError,
    remedy: str = "crop or resize one of them so that they match",
) -> None:
    """Refuse arrays that differ in height or width, which come first; `remedy` says what to do."""
    sizes = {
        name: (thing if isinstance(thing, tuple) else thing.shape)[:2]
        for name, thing in things.items()
        if thing is not None
    }
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise error(
                f"{first} and {name} differ in size: {shape_text(size)} and {shape_text(other)} "
                f"(height x width); {remedy}"
            )


def check_image(image: npt.NDArray[Any]) -> None:
    """Refuse anything but a (height, width, 3) image of uint8."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ImageError(
            f"got an image of {image.dtype} {image.shape}; "
            "give an RGB image as uint8 (height, width, 3)"
        )


def check_flow(flow: object, *, name: str = "flow") -> None:
    """Refuse anything but (height, width, 2), such as a flow with its channels first."""
    if not isinstance(flow, np.ndarray):
        raise FlowError(f"got a {name} of type {type(flow).__name__}; give a numpy array")
    if flow.dtype.kind not in "fiu":
        raise FlowError(f"got a {name} of {flow.dtype}; give it as float32, in pixels")
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise FlowError(
            f"got a {name} of shape {flow.shape}; give it as (height, width, 2), x before y"
        )


def check_positive(name: str, value: float | None) -> None:
    """Refuse a scale or length that is zero, negative or not a number; None is the default."""
    if value is not None and not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        raise FlowError(f"{name} is {shown}; give a number above 0, or omit it")


def check_bound(bound: float) -> None:
    """Refuse a bound of 8-bit flow that is not a length in pixels."""
    if not (isinstance(bound, Real) and 0 < bound <= _LARGEST_BOUND):
        raise FlowError(
            f"a bound of {bound} pixels is out of range; give more than 0 and at most "
            f"{_LARGEST_BOUND:g}, usually 20"
        )


def check_pixels(width: int, height: int, name: str, max_pixels: int | None) -> None:
    """Refuse images of more than `max_pixels`, or more than Pillow considers safe."""
    from PIL import Image

    if max_pixels is not None and width * height > max_pixels:
        raise ImageTooLargeError(
            f"{name} has {width} x {height} pixels, more than the {max_pixels:,} that are allowed; "
            "shrink it"
        )
    # Between once and twice its own limit Pillow only warns.
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise ImageTooLargeError(TOO_LARGE.format(name=name))


def check_header_size(path: Path, height: int, width: int) -> None:
    """Refuse a size that no flow file has, before memory is allocated for it."""
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise FlowFileError(
            f"{path}: its header gives a size of {height} x {width}; "
            "the file is damaged or not a flow file"
        )


def check_ratio(path: Path, unpacked: int, packed: int) -> None:
    """Refuse a flow file that claims more data than its compressed bytes can hold."""
    if unpacked > MAX_DEFLATE_RATIO * packed + 1024:
        raise FlowFileError(
            f"{path}: its header asks for {unpacked} bytes, more than {packed} compressed bytes "
            "can hold; the file is truncated or damaged"
        )
    if is_bomb(unpacked, packed):
        raise FlowFileError(
            f"{path}: its {packed} bytes unpack to {unpacked}, more than is safe; if you trust it, "
            "save it without compression"
        )


def is_bomb(unpacked: int, packed: int) -> bool:
    """Return whether a file would take much memory, and is small for what it holds."""
    return unpacked > max(SAFE_UNPACKED, SAFE_RATIO * packed)

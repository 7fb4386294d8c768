"""How many pixels are decoded at all, known before anything is allocated for them."""

from gmaflow.errors import ImageTooLargeError

TOO_LARGE = (
    "{name} has more pixels than is safe to decode; shrink it, "
    "or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
)


def check_pixels(width: int, height: int, name: str, max_pixels: int | None) -> None:
    """Refuse pictures of more than `max_pixels`, or than Pillow takes for safe.

    Raises:
        ImageTooLargeError: it has more.
    """
    from PIL import Image

    if max_pixels is not None and width * height > max_pixels:
        raise ImageTooLargeError(
            f"{name} has {width} x {height} pixels, more than the {max_pixels:,} that are allowed; "
            "shrink it"
        )
    # Between once and twice its own limit Pillow only warns.
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise ImageTooLargeError(TOO_LARGE.format(name=name))

"""A picture in a terminal, as coloured half blocks."""

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    import numpy as np

COLUMNS = 96


def show_in_terminal(picture: "np.ndarray", console: Console | None = None) -> None:
    """Show a picture where a person is looking: not in pipes, files or without colour."""
    console = console or Console(file=sys.stderr)
    if console.is_terminal and console.color_system in ("truecolor", "256"):
        console.print(half_blocks(picture, min(COLUMNS, console.width)))


def half_blocks(picture: "np.ndarray", columns: int) -> Text:
    """Draw a picture as text: each character shows two pixels, one above the other."""
    import numpy as np
    from PIL import Image

    height, width = picture.shape[:2]
    rows = max(2, 2 * round(columns * height / width / 2))
    small = Image.fromarray(picture).resize((columns, rows), Image.Resampling.BOX)
    pixels = np.asarray(small).tolist()
    text = Text()
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        for top, bottom in zip(upper, lower, strict=True):
            text.append(
                "▀", style=f"rgb({','.join(map(str, top))}) on rgb({','.join(map(str, bottom))})"
            )
        text.append("\n")
    return text

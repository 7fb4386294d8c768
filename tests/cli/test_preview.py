import io

import numpy as np
from rich.console import Console

from gmaflow.cli.preview import half_blocks, show_in_terminal

PICTURE = np.zeros((40, 80, 3), np.uint8)
PICTURE[:20] = (255, 0, 0)


def test_each_character_shows_two_pixels() -> None:
    text = half_blocks(PICTURE, columns=20)
    lines = text.plain.splitlines()
    assert [len(line) for line in lines] == [20] * 5
    styles = [str(span.style) for span in text.spans]
    assert styles[0] == "rgb(255,0,0) on rgb(255,0,0)"
    assert styles[-1] == "rgb(0,0,0) on rgb(0,0,0)"


def test_pictures_are_for_terminals_only() -> None:
    plain, terminal = io.StringIO(), io.StringIO()
    show_in_terminal(PICTURE, Console(file=plain))
    show_in_terminal(PICTURE, Console(file=terminal, force_terminal=True, color_system="truecolor"))
    assert plain.getvalue() == ""
    assert "▀" in terminal.getvalue()

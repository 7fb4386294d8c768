"""Pieces of a page that needs nothing but itself: tables, bars, pictures as data."""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image

_WIDEST = 560
COLOURS = ("var(--one)", "var(--two)", "var(--three)", "var(--four)")


@dataclass(frozen=True)
class Toned:
    """A table's cell that is good or bad news."""

    text: str
    tone: Literal["good", "bad", ""]

    def __str__(self) -> str:
        return self.text


def page(title: str, body: str) -> str:
    """Return a whole document with our style inside; it asks for nothing from elsewhere."""
    style = resources.files("gmaflow.evaluation").joinpath("report.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def escape(text: object) -> str:
    """Write any text so that a browser shows it as it is."""
    return html.escape(str(text))


def section(title: str, *parts: str, lead: str = "") -> str:
    """Return a part of the page under a heading."""
    told = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(title)}</h2>{told}{''.join(parts)}</section>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    text_columns: Sequence[int] = (0,),
    strong: int = 0,
) -> str:
    """Return a table; columns hold numbers unless they are named as text.

    Args:
        header: titles of the columns.
        rows: their cells.
        text_columns: which columns hold text.
        strong: how many of the first rows stand out.
    """

    def cells(tag: str, values: Sequence[object]) -> str:
        parts = []
        for i, value in enumerate(values):
            kinds = [] if i in text_columns else ["number"]
            kinds += [value.tone] if isinstance(value, Toned) and value.tone else []
            named = f' class="{" ".join(kinds)}"' if kinds else ""
            parts.append(f"<{tag}{named}>{escape(value)}</{tag}>")
        return "".join(parts)

    body = "".join(
        f"<tr{' class=strong' if i < strong else ''}>{cells('td', row)}</tr>"
        for i, row in enumerate(rows)
    )
    head = f"<thead><tr>{cells('th', header)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def notes(texts: Sequence[str]) -> str:
    """Return what a reader should know, as a part of the page; nothing if there is nothing."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return section("What to know", f"<ul>{items}</ul>") if items else ""


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return figures to be seen at once: each a name, a number and what it is."""
    return '<div class="tiles">{}</div>'.format(
        "".join(
            f'<div class="tile"><span>{escape(name)}</span><strong>{escape(number)}</strong>'
            f"<small>{escape(unit)}</small></div>"
            for name, number, unit in entries
        )
    )


def bars(labels: Sequence[str], series: dict[str, Sequence[float]], *, axis: str) -> str:
    """Draw grouped bars; values are in percent."""
    width, height, left, bottom, top = 860, 250, 40, 44, 14
    highest = max((value for values in series.values() for value in values), default=1) or 1
    step = next((s for s in (1, 2, 5, 10, 20) if highest / s <= 5), 20)
    ceiling = step * -(-highest // step)
    room, scale = (width - left) / len(labels), (height - bottom - top) / ceiling
    parts = []
    for i in range(int(ceiling // step) + 1):
        y = height - bottom - scale * i * step
        parts.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{left - 8}" y="{y + 4:.1f}">{i * step:g} %</text>')
    thick = 0.72 * room / max(1, len(series))
    for j, label in enumerate(labels):
        middle = left + (j + 0.5) * room
        parts.append(f'<text class="x" x="{middle:.1f}" y="{height - 24}">{escape(label)}</text>')
        for i, (name, values) in enumerate(series.items()):
            x = middle + (i - len(series) / 2) * thick
            tall = scale * values[j]
            parts.append(
                f'<rect x="{x:.1f}" y="{height - bottom - tall:.1f}" width="{thick - 1:.1f}" '
                f'height="{tall:.1f}" rx="2" fill="{COLOURS[i % len(COLOURS)]}">'
                f"<title>{escape(name)}: {escape(label)} px, {values[j]:.2f} %</title></rect>"
            )
    parts.append(f'<text class="x" x="{(left + width) / 2}" y="{height - 5}">{escape(axis)}</text>')
    keys = "".join(
        f'<span><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(name)}</span>'
        for i, name in enumerate(series)
    )
    chart = f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'
    return f'<div class="keys">{keys}</div>{chart}'


def figure(picture: UInt8[np.ndarray, "h w 3"], caption: str) -> str:
    """Return a picture, as data inside the page, with a caption."""
    image = Image.fromarray(picture)
    image.thumbnail((_WIDEST, _WIDEST), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90, subsampling=0)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><img alt="{escape(caption)}" width="{image.width}" height="{image.height}" '
        f'src="data:image/jpeg;base64,{data}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


def card(title: str, told: str, *groups: Sequence[str]) -> str:
    """Return a pair: its name, a line about it, and groups of pictures, each in even rows."""
    rows = "".join(panels(group) for group in groups if group)
    return (
        f"<article><header><h3>{escape(title)}</h3><p>{escape(told)}</p></header>{rows}</article>"
    )


def panels(figures: Sequence[str]) -> str:
    """Return pictures side by side, in as few columns as leave no gap where that can be had."""
    columns = next((n for n in (5, 4, 3) if len(figures) % n == 0), 3)
    return f'<div class="panels" style="--columns:{columns}">{"".join(figures)}</div>'

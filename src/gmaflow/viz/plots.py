"""Line plots, drawn with matplotlib, which the extra `plots` installs."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from gmaflow.errors import FlowError
from gmaflow.io import write_image

logger = logging.getLogger(__name__)
Color = tuple[int, int, int]

# Okabe and Ito's palette, safe for every kind of colour vision, without its yellow, which is
# invisible on white. The last colour is an addition.
_COLORS: tuple[Color, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (230, 159, 0),
    (110, 110, 110),
    (90, 50, 150),
)
_SMALLEST = (160, 240)
_DPI = 100
_FEW = 12  # curves with at most so many points show them as dots, since only those were measured


@dataclass(frozen=True, eq=False)
class Series:
    """One curve.

    Attributes:
        label: its name in the legend.
        x: horizontal coordinates of its points, in order.
        y: vertical coordinates.
        dashed: draw a dashed line.
        color: RGB; by default the next colour of the palette.
    """

    label: str
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " m"]
    dashed: bool = False
    color: Color | None = None


class MissingMatplotlibError(FlowError):
    """matplotlib is not installed."""


def require_matplotlib() -> None:
    """Raise an error if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as err:
        raise MissingMatplotlibError(
            "plots need matplotlib, which is not installed: pip install 'gmaflow[plots]'"
        ) from err


def line_plot(
    series: Sequence[Series],
    *,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
    size: tuple[int, int] = (420, 840),
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Draw curves with axes and a legend.

    The vertical axis starts at 0 unless a value is negative.

    Args:
        series: one or more curves.
        x_label: what the horizontal axis shows.
        y_label: what the vertical axis shows.
        title: written at the top.
        log_x: use a logarithmic horizontal axis; every x must then be above 0.
        size: height and width of the picture in pixels.

    Raises:
        FlowError: matplotlib is not installed, or the series cannot be plotted.
    """
    _check(series, log_x, size)
    require_matplotlib()
    # Without pyplot: no global state, no window system, and safe in threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height, width = size
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, one in enumerate(series):
        color = one.color or _COLORS[i % len(_COLORS)]
        axes.plot(
            one.x,
            one.y,
            label=one.label,
            color=tuple(channel / 255 for channel in color),
            linestyle="--" if one.dashed else "-",
            linewidth=2,
            marker="o" if len(one.x) <= _FEW else "",
            markersize=5,
        )
    if log_x:
        axes.set_xscale("log")
    if all(one.y.min() >= 0 for one in series):
        axes.set_ylim(bottom=0)
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    axes.grid(color="#e2e2e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()


def save_plot(
    path: Path, series: Sequence[Series], *, title: str = "", x_label: str = "", y_label: str = ""
) -> bool:
    """Write a `line_plot` as a by-product; returns whether it was written.

    Without matplotlib, the log says that it is left out.
    """
    try:
        picture = line_plot(series, title=title, x_label=x_label, y_label=y_label)
    except MissingMatplotlibError as err:
        logger.info("%s is left out: %s", path.name, err)
        return False
    write_image(path, picture)
    return True


def _check(series: Sequence[Series], log_x: bool, size: tuple[int, int]) -> None:
    if not series:
        raise FlowError("got no series to plot; give at least one")
    if size[0] < _SMALLEST[0] or size[1] < _SMALLEST[1]:
        raise FlowError(
            f"a plot of {size[0]}x{size[1]} is not readable; give at least "
            f"{_SMALLEST[0]}x{_SMALLEST[1]} (height x width)"
        )
    for one in series:
        if len(one.x) != len(one.y) or len(one.x) < 2:
            raise FlowError(
                f"series {one.label!r} has {len(one.x)} x and {len(one.y)} y values; "
                "give the same number of each, at least two"
            )
        if not (np.isfinite(one.x).all() and np.isfinite(one.y).all()):
            raise FlowError(f"series {one.label!r} contains values that are not finite")
        if log_x and one.x.min() <= 0:
            raise FlowError(
                f"series {one.label!r} has an x of {one.x.min():g}; a log axis needs values above 0"
            )

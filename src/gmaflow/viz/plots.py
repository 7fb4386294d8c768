"""Line plots, drawn with matplotlib, which the extra `plots` installs."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from gmaflow.errors import FlowError, import_extra
from gmaflow.io import write_image

logger = logging.getLogger(__name__)

# Okabe and Ito's palette, safe for every kind of colour vision, without its yellow, which is
# invisible on white. The last colour is an addition.
_COLORS = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (230, 159, 0),
    (110, 110, 110),
    (90, 50, 150),
)
_SIZE, _DPI = (420, 840), 100  # height and width of the picture in pixels
_FEW = 12  # curves with at most so many points show them as dots, since only those were measured


@dataclass(frozen=True, eq=False)
class Series:
    """One curve: its name in the legend, and the coordinates of its points, at least two."""

    label: str
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " m"]
    dashed: bool = False


class MissingMatplotlibError(FlowError):
    """matplotlib is not installed."""


def require_matplotlib() -> None:
    """Raise an error if matplotlib is not installed."""
    import_extra("matplotlib", "a plot", extra="plots", error=MissingMatplotlibError)


def line_plot(
    series: Sequence[Series],
    *,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Draw curves with axes and a legend.

    The vertical axis starts at 0 unless a value is negative. With `log_x`, the horizontal axis is
    logarithmic and every x must be above 0.
    """
    require_matplotlib()
    # Without pyplot: no global state, no window system, and safe in threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height, width = _SIZE
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, one in enumerate(series):
        axes.plot(
            one.x,
            one.y,
            label=one.label,
            color=tuple(channel / 255 for channel in _COLORS[i % len(_COLORS)]),
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

    Without matplotlib, the plot is skipped and a message is logged.
    """
    try:
        picture = line_plot(series, title=title, x_label=x_label, y_label=y_label)
    except MissingMatplotlibError as err:
        logger.info("%s is left out: %s", path.name, err)
        return False
    write_image(path, picture)
    return True

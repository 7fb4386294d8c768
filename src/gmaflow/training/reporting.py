"""Progress of a run: a progress bar in a terminal, plain lines elsewhere, TensorBoard, a plot."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gmaflow.errors import counted
from gmaflow.io import write_image
from gmaflow.training.config import TrainConfig
from gmaflow.training.run_folder import RunFolder
from gmaflow.viz import Series, line_plot


class Reporter:
    """Shows and records measurements. Only the first process prints."""

    def __init__(
        self, folder: RunFolder, config: TrainConfig, *, start: int, show: bool, record: bool
    ) -> None:
        self.folder, self.config, self.record = folder, config, record
        self.console = Console(stderr=True, quiet=not show)
        self.events = open_events(folder.path / "tensorboard") if record else None
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not (show and self.console.is_terminal),
        )
        self.task = self.progress.add_task(config.model, total=config.steps, completed=start)
        self.first, self.started = start, time.monotonic()

    def __enter__(self) -> "Reporter":
        self.progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.progress.stop()
        if self.events is not None:
            self.events.close()

    def advance(self, step: int) -> None:
        """Update the progress bar, if any."""
        self.progress.update(self.task, completed=step)

    def log(self, step: int, values: Mapping[str, float], *, name: str = "") -> None:
        """Show and record measurements; `name` is the validation set, if any."""
        line = {"step": step, **({"set": name} if name else {}), **values}
        if self.record:
            self.folder.append_log(line)
        if self.events is not None:
            for key, value in values.items():
                self.events.add_scalar(f"{name or 'training'}/{key}", value, step)
        text = format_values(values)
        if not self.progress.disable and not name:
            self.progress.update(self.task, description=text)
            return
        left = "" if name else f", {self.time_left(step)} left"
        shown = f"step {step}: {name + ': ' if name else ''}{text}{left}"
        # Always one line: a log file has no width.
        self.console.print(shown, markup=False, soft_wrap=True)

    def time_left(self, step: int) -> str:
        """Return the estimated remaining time as hours, minutes and seconds."""
        each = (time.monotonic() - self.started) / max(step - self.first, 1)
        seconds = round(each * (self.config.steps - step))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def introduce(config: TrainConfig, device: torch.device, *, compiling: bool) -> str:
    """Describe the run in one line; shown first, since the start can take a while."""
    height, width = config.crop
    pairs = counted(config.batch, "pair")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    wait = "; the first start compiles for a few minutes" if compiling else ""
    return (
        f"training {config.model} on {config.data}, {config.steps} steps of {pairs} "
        f"at {height}x{width}, on {name}{wait}"
    )


def format_values(values: Mapping[str, float]) -> str:
    """Return the most important measurements as text."""
    forms = {
        "loss": "loss {:.3f}",
        "epe": "EPE {:.2f} px",
        "epe-noc": "noc {:.2f}",
        "epe-occ": "occ {:.2f}",
        "pairs/s": "{:.1f} pairs/s",
    }
    return ", ".join(form.format(values[key]) for key, form in forms.items() if key in values)


def open_events(folder: Path) -> Any:  # noqa: ANN401  SummaryWriter, if tensorboard is installed
    """Return a writer of TensorBoard events, or None if tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        return None
    return SummaryWriter(str(folder))


def draw_curve(folder: RunFolder, config: TrainConfig) -> None:
    """Plot the end-point errors of the log as curve.png."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in folder.read_log():
        if math.isfinite(line.get("epe", math.nan)):
            name = f"EPE on {line['set']}" if "set" in line else "EPE in training"
            curves.setdefault(name, []).append((float(line["step"]), line["epe"]))
    title = f"{config.model} on {config.data}: end-point error in pixels"
    series = [Series(name, *np.array(p).T) for name, p in curves.items() if len(p) > 1]
    if series:
        plot = line_plot(series, title=title, x_label="step", y_label="pixels")
        write_image(folder.path / "curve.png", plot)

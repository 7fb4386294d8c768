"""Progress of a run: a progress bar in a terminal, plain lines elsewhere, TensorBoard, a plot."""

import math
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gmaflow.errors import counted
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import World
from gmaflow.training.loss import SUMS, mean_errors
from gmaflow.training.run_folder import RunFolder
from gmaflow.training.step import StepResult
from gmaflow.viz import Series, save_plot


class Meter:
    """Means over the steps since the last reading, accumulated on the device."""

    def __init__(self, device: torch.device, world: World) -> None:
        self.world = world
        # Loss, gradient norm, number of steps, then the sums of errors.
        self.sums = torch.zeros(3 + SUMS, device=device)
        self.pairs = 0
        self.started = time.monotonic()

    def add(self, result: StepResult, pairs: int) -> None:
        """Add a step; skipped steps do not count."""
        counted = (~result.skipped).float()
        head = torch.stack([result.loss, result.gradient_norm, counted])
        self.sums += torch.cat([head, result.errors]).masked_fill(result.skipped, 0.0)
        self.pairs += pairs

    def read(self) -> dict[str, float]:
        """Return the means by name and start again. Waits for the device."""
        values = self.world.sum(self.sums.clone()).cpu()
        means = mean_errors(values[3:])
        if counted := float(values[2]):
            means |= {"loss": float(values[0]) / counted, "gradient": float(values[1]) / counted}
        means["pairs/s"] = self.pairs / max(time.monotonic() - self.started, 1e-9)
        self.sums.zero_()
        self.pairs, self.started = 0, time.monotonic()
        return means


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
        message = f"step {step}: {name + ': ' if name else ''}{text}{left}"
        # Always one line: a log file has no width to wrap at.
        self.console.print(message, markup=False, soft_wrap=True)

    def time_left(self, step: int) -> str:
        """Return the estimated remaining time as hours, minutes and seconds."""
        each = (time.monotonic() - self.started) / max(step - self.first, 1)
        return str(timedelta(seconds=round(each * (self.config.steps - step))))


def introduce(config: TrainConfig, device: torch.device, *, compiling: bool) -> str:
    """Describe the run in one line; shown first, since the start can take a while."""
    height, width = config.crop
    pairs = counted(config.batch, "pair")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    wait = "; the first start compiles for a few minutes" if compiling else ""
    return (
        f"training {config.model} on {config.data}, {counted(config.steps, 'step')} of {pairs} "
        f"at {height}x{width}, on {name}{wait}"
    )


def format_values(values: Mapping[str, float]) -> str:
    """Return the most important measurements as text."""
    templates = {
        "loss": "loss {:.3f}",
        "epe": "EPE {:.2f} px",
        "epe-noc": "noc {:.2f}",
        "epe-occ": "occ {:.2f}",
        "pairs/s": "{:.1f} pairs/s",
    }
    return ", ".join(
        template.format(values[key]) for key, template in templates.items() if key in values
    )


def open_events(folder: Path) -> Any:  # noqa: ANN401  SummaryWriter, if tensorboard is installed
    """Return a writer of TensorBoard events, or None if tensorboard is not installed.

    Tensorboard opens no folder whose name is not UTF-8.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))
    except (ModuleNotFoundError, UnicodeEncodeError):
        return None


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
        path = folder.path / "curve.png"
        save_plot(path, series, title=title, x_label="step", y_label="pixels")

"""Checkpoints of a run: all that is needed to go on, written whole or not at all.

A file holds tensors and plain values only and is read with torch's `weights_only`.
"""

import logging
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gmaflow.errors import TrainingError, WeightsError
from gmaflow.io import atomic_write
from gmaflow.training.config import TrainConfig
from gmaflow.training.overrides import from_json, to_json
from gmaflow.weights.checkpoint import load_tensors_only

log = logging.getLogger(__name__)

VERSION = 1
_NAME = re.compile(r"step-(\d{8})\.pt")


@dataclass(frozen=True, kw_only=True)
class TrainState:
    """A run between two steps."""

    config: TrainConfig
    step: int
    """Steps done; also the position in the data."""
    tensors: dict[str, Tensor]
    """What `TrainStep.state` returns."""
    best: float | None = None
    """The lowest validation error so far."""
    random: dict[str, Tensor]
    """States of torch's random number generators, by device."""


def random_states() -> dict[str, Tensor]:
    """Return the states of torch's random number generators."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, Tensor]) -> None:
    """Put the random number generators back."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


class Checkpoints:
    """The numbered checkpoints of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """List the checkpoints, the oldest first."""
        return sorted(path for path in self.folder.glob("step-*.pt") if _NAME.fullmatch(path.name))

    def save(self, state: TrainState, *, keep: int) -> Path:
        """Write a checkpoint, then remove all but the newest.

        Raises:
            OutputError: It cannot be written; those there before are untouched.
        """
        path = self.folder / f"step-{state.step:08d}.pt"
        content = {
            "version": VERSION,
            "config": to_json(state.config),
            "step": state.step,
            "best": state.best,
            "tensors": {name: value.detach().cpu() for name, value in state.tensors.items()},
            "random": state.random,
        }
        with atomic_write(path) as temporary:
            torch.save(content, temporary)
        for old in self.paths()[:-keep]:
            old.unlink()
        return path

    def newest(self) -> TrainState:
        """Read the newest checkpoint that can be read; say so where it is not the last.

        Raises:
            TrainingError: There is none.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return read_state(path)
            except WeightsError as err:
                log.warning("%s: %s; going on from the checkpoint before", path, err)
        found = f"none of {len(paths)} checkpoints can be read" if paths else "no checkpoint"
        raise TrainingError(
            f"{self.folder}: {found}; start anew with --overwrite, or in another folder"
        )

    def clear(self) -> None:
        """Remove all checkpoints."""
        for path in self.paths():
            path.unlink()


def check_sums(path: Path) -> None:
    """Refuse a file that is not what was written; torch itself does not look at the check sums.

    Raises:
        WeightsError: It is truncated or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError):
        raise WeightsError("truncated or damaged") from None
    if damaged is not None:
        raise WeightsError(f"damaged in {damaged}")


def read_state(path: Path) -> TrainState:
    """Read a checkpoint.

    Raises:
        WeightsError: It is broken, or not one of ours.
    """
    check_sums(path)
    content: Any = load_tensors_only(path)
    try:
        if content["version"] != VERSION:
            raise WeightsError(f"it is of version {content['version']}, this gmaflow's {VERSION}")
        return TrainState(
            config=from_json(content["config"]),
            step=content["step"],
            best=content["best"],
            tensors=content["tensors"],
            random=content["random"],
        )
    except (KeyError, TypeError) as err:
        raise WeightsError(f"not a checkpoint of a run ({err} is missing)") from None

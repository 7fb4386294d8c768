"""The folder of a run.

config.json             the configuration
log.jsonl               one JSON object per line: losses, errors, speed, validations
checkpoints/            the newest states, to resume from
weights.safetensors     the weights of the newest checkpoint, half precision
best.safetensors        the weights with the lowest validation error
tensorboard/            the log as TensorBoard events, if tensorboard is installed
curve.png               the log as a plot, written at the end

Checkpoints contain only tensors and plain values, and are loaded with `weights_only=True`.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gmaflow.errors import OutputError, TrainingError, WeightsError, counted, os_reason
from gmaflow.io import atomic_write
from gmaflow.io.paths import write_text
from gmaflow.io.resumable import ResultRecord, lock_folder, read_json_lines
from gmaflow.training.config import TrainConfig, differences, from_json, to_json
from gmaflow.training.step import weights_in
from gmaflow.weights import Checkpoint, ModelCard, save_checkpoint
from gmaflow.weights.checkpoint import load_tensors_only

log = logging.getLogger(__name__)

VERSION = 1
FILE_NAMES = ("config.json", "log.jsonl", "weights.safetensors", "best.safetensors", "curve.png")
CHECKSUM_MARK = b"sha256:"
"""Precedes the checksum at the end of a checkpoint."""
COMMENT_BYTES = len(CHECKSUM_MARK) + 64
_NAME = re.compile(r"step-(\d{8})\.pt")


@dataclass(frozen=True, kw_only=True)
class TrainState:
    """The state of a run between two steps."""

    config: TrainConfig
    step: int
    """Number of finished steps; also the position in the data."""
    tensors: dict[str, Tensor]
    """The result of `TrainStep.state`."""
    best: float | None = None
    """The lowest validation error so far."""
    random: dict[str, Tensor]
    """States of torch's random number generators, by device."""


def random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


class Checkpoints:
    """The numbered checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob("step-*.pt") if _NAME.fullmatch(path.name))

    def save(self, state: TrainState, *, keep: int) -> Path:
        """Write a checkpoint, then delete all but this and the `keep - 1` before it.

        Later ones could not be read, or the run would have continued from them.
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
        with atomic_write(path) as file:
            try:
                torch.save(content, file)
            except RuntimeError as err:
                # On a full disk torch fails again when it closes the archive, and hides why.
                if isinstance(err.__context__, OSError):
                    raise err.__context__ from None
                raise
            append_checksum(file)
        for old in [other for other in self.paths() if other <= path][:-keep]:
            old.unlink()
        return path

    def newest(self) -> TrainState:
        """Read the newest intact checkpoint; broken ones are skipped with a warning."""
        paths = self.paths()
        for path in reversed(paths):
            try:
                return read_state(path)
            except WeightsError as err:
                log.warning("%s: %s; using the previous checkpoint", path, err)
        raise TrainingError(
            f"{self.folder}: no checkpoint of {len(paths)} can be read; start again "
            "with --overwrite, or in another folder"
        )

    def clear(self) -> None:
        for path in self.paths():
            path.unlink()


def append_checksum(file: BufferedRandom) -> None:
    """Append a checksum of all bytes as the comment of a checkpoint, which is a ZIP archive.

    The archive's own checksums do not cover its headers, and torch ignores them.
    """
    file.seek(-2, os.SEEK_END)
    file.write(COMMENT_BYTES.to_bytes(2, "little"))
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0, os.SEEK_END)
    file.write(CHECKSUM_MARK + digest.encode())


def verify_checksum(path: Path) -> None:
    """Verify the checksum at the end of a checkpoint."""
    raw = memoryview(path.read_bytes())
    content, comment = raw[:-COMMENT_BYTES], raw[-COMMENT_BYTES:].tobytes()
    if CHECKSUM_MARK + hashlib.sha256(content).hexdigest().encode() != comment:
        raise WeightsError("truncated or damaged: its checksum is missing or wrong")


def read_state(path: Path) -> TrainState:
    """Read a checkpoint."""
    verify_checksum(path)
    content: Any = load_tensors_only(path)
    try:
        if content["version"] != VERSION:
            raise WeightsError(f"version {content['version']} is not supported, only {VERSION}")
        return TrainState(
            config=from_json(content["config"]),
            step=content["step"],
            best=content["best"],
            tensors=content["tensors"],
            random=content["random"],
        )
    except (KeyError, TypeError) as err:
        raise WeightsError(f"not a checkpoint of a run ({err} is missing)") from None
    except TrainingError as err:
        raise WeightsError(str(err)) from None


class RunFolder:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = ResultRecord(path, "config.json", what="a run")
        self.checkpoints = Checkpoints(path / "checkpoints")

    def check(self, config: TrainConfig, *, resume: bool, overwrite: bool) -> None:
        """Check that the folder can be used for this run. Nothing is changed."""
        self.record.check_start(resume=resume, overwrite=overwrite)
        if not resume:
            return
        if not self.record.exists():
            raise TrainingError(f"{self.path} has no run to resume; start one without --resume")
        stored = json.dumps(self.record.read())
        try:
            different = differences(from_json(stored), config)
        except TrainingError as err:
            raise TrainingError(f"{self.record.path}: {err}") from None
        if different:
            raise TrainingError(
                f"{self.path} was started with {'; with '.join(different)}; resume with the same "
                "settings, or choose another folder"
            )

    def begin(self, config: TrainConfig) -> None:
        """Create the folder, or delete the files of an earlier run."""
        lock_folder(self.path)  # before anything of another process could be deleted
        self.checkpoints.clear()
        for name in FILE_NAMES:
            (self.path / name).unlink(missing_ok=True)
        for events in self.path.glob("tensorboard/events.*"):
            events.unlink()
        self.write_config(config)

    def write_config(self, config: TrainConfig) -> None:
        self.record.write(asdict(config))

    def rewind(self, step: int) -> None:
        """Remove log lines of steps that will be repeated."""
        lines = [line for line in self.read_log() if line["step"] <= step]
        write_text(self.path / "log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def append_log(self, line: Mapping[str, object]) -> None:
        """Append a line to the log; on a full disk only the line is lost."""
        try:
            with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as err:
            log.warning("%s: could not write to the log: %s", self.path, os_reason(err))

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        return list(read_json_lines(path.read_bytes())) if path.exists() else []

    def save(self, state: TrainState, *, last: bool) -> None:
        """Write a checkpoint and the weights.

        On a full disk the run continues, and the previous checkpoint stays the newest.

        Raises:
            OutputError: the last checkpoint cannot be written.
        """
        try:
            self.checkpoints.save(state, keep=state.config.keep)
            self.save_weights("weights.safetensors", state)
        except OutputError as err:
            if last:
                raise
            log.warning("%s; the run continues, and the previous checkpoint is kept", err)

    def save_best(self, state: TrainState) -> None:
        """Write the weights with the lowest error so far; on a full disk the run continues."""
        try:
            self.save_weights("best.safetensors", state)
        except OutputError as err:
            log.warning("%s; the run continues without saving the best weights", err)

    def save_weights(self, name: str, state: TrainState) -> None:
        """Write weights in half precision, for estimation or as initial weights."""
        config = state.config
        card = ModelCard(
            title=f"{config.model}, {config.data}, {counted(state.step, 'step')}",
            trained_on=config.data,
            notes=f"without {', '.join(config.without)}" if config.without else "",
            figures={} if state.best is None else {config.validate_on[0]: state.best},
        )
        checkpoint = Checkpoint(config=config.network, tensors=weights_in(state.tensors), card=card)
        save_checkpoint(self.path / name, checkpoint, half=True)

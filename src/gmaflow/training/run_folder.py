"""Everything about a run in one folder.

config.json             what was asked for
log.jsonl               one JSON object a line: losses, errors, speed, validations
checkpoints/            the newest states to go on from
weights.safetensors     the weights of the newest checkpoint, half precision
best.safetensors        those with the lowest validation error
tensorboard/            the log as TensorBoard events, where tensorboard is installed
curve.png               the log as a picture, at the end
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gmaflow.errors import OutputError, TrainingError
from gmaflow.io import atomic_write, ensure_can_fill
from gmaflow.training.checkpoints import Checkpoints, TrainState
from gmaflow.training.config import TrainConfig
from gmaflow.training.overrides import differences, from_json, to_json
from gmaflow.weights import Checkpoint, ModelCard, save_checkpoint

log = logging.getLogger(__name__)

OURS = ("config.json", "log.jsonl", "weights.safetensors", "best.safetensors", "curve.png")


class RunFolder:
    """A run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    def check(self, config: TrainConfig, *, resume: bool, overwrite: bool) -> None:
        """Refuse a folder that is not this run's, before anything is done.

        Raises:
            OutputError: Something else is there, or nothing can be written.
            TrainingError: A run to resume is not there, or is another one.
        """
        ensure_can_fill(self.path)
        if resume and overwrite:
            raise TrainingError("resume goes on and overwrite starts anew; give one of them")
        if resume:
            self._check_same(config)
        elif self.is_run():
            if not overwrite:
                raise OutputError(
                    f"{self.path} holds a run; add --resume to go on with it, --overwrite to "
                    "start anew, or choose another folder"
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise OutputError(f"{self.path} holds other files; choose a new or empty folder")

    def is_run(self) -> bool:
        """Whether a run is here."""
        return (self.path / "config.json").is_file()

    def find_weights(self) -> Path:
        """Return the best weights of the run, or its newest where none was validated.

        Raises:
            TrainingError: There are none yet.
        """
        for name in ("best.safetensors", "weights.safetensors"):
            if (self.path / name).is_file():
                return self.path / name
        raise TrainingError(f"{self.path} holds no weights of a run; name a folder that has some")

    def begin(self, config: TrainConfig) -> None:
        """Make the folder, or empty it of an earlier run."""
        self.checkpoints.clear()
        for name in OURS:
            (self.path / name).unlink(missing_ok=True)
        for events in self.path.glob("tensorboard/events.*"):
            events.unlink()
        self.write_config(config)

    def write_config(self, config: TrainConfig) -> None:
        """Write down what was asked for."""
        with atomic_write(self.path / "config.json") as temporary:
            temporary.write_text(to_json(config), "utf-8")

    def rewind(self, step: int) -> None:
        """Drop what the log says of steps that will be done again."""
        kept = [line for line in self.read_log() if line["step"] <= step]
        with atomic_write(self.path / "log.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")

    def append_log(self, line: Mapping[str, object]) -> None:
        """Add a line to the log; a full disk loses it, not the run."""
        try:
            with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as err:
            log.warning("%s: a line of the log was lost: %s", self.path, err.strerror)

    def read_log(self) -> list[dict[str, Any]]:
        """Return the log; a last line that was cut off is left out."""
        path = self.path / "log.jsonl"
        lines = []
        for text in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
        return lines

    def save(self, state: TrainState, weights: dict[str, Tensor], *, last: bool) -> None:
        """Write a checkpoint and the weights alone.

        Where the disk is full, the run goes on and the checkpoint before stays the newest.

        Raises:
            OutputError: The last one cannot be written.
        """
        try:
            self.checkpoints.save(state, keep=state.config.keep)
            self.save_weights("weights.safetensors", state, weights)
        except OutputError as err:
            if last:
                raise
            log.warning("%s; the run goes on, the checkpoint before stays", err)

    def save_best(self, state: TrainState, weights: dict[str, Tensor]) -> None:
        """Write the weights with the lowest error yet; a full disk loses them, not the run."""
        try:
            self.save_weights("best.safetensors", state, weights)
        except OutputError as err:
            log.warning("%s; the run goes on without these best weights", err)

    def save_weights(self, name: str, state: TrainState, weights: dict[str, Tensor]) -> None:
        """Write weights in half precision, to estimate with or to start from."""
        config = state.config
        card = ModelCard(
            title=f"{config.model}, {config.data}, {state.step} steps",
            trained_on=config.data,
            figures={} if state.best is None else {config.validate_on[0]: state.best},
        )
        checkpoint = Checkpoint(config=config.network, tensors=weights, card=card)
        save_checkpoint(self.path / name, checkpoint, half=True)

    def _check_same(self, config: TrainConfig) -> None:
        if not self.is_run():
            raise TrainingError(f"{self.path} holds no run to resume; start one without --resume")
        try:
            stored = from_json((self.path / "config.json").read_text("utf-8"))
        except (TrainingError, OSError, UnicodeDecodeError) as err:
            raise TrainingError(f"{self.path / 'config.json'}: {err}") from None
        if different := differences(stored, config):
            raise TrainingError(
                f"{self.path} is another run: its {'; its '.join(different)}; resume with its own "
                "settings, or choose another folder"
            )

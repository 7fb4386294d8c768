"""The models a server offers, each loaded when it is first asked for."""

import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch

from gmaflow.errors import FlowError, suggest
from gmaflow.inference import Backend, FlowEstimator, Precision
from gmaflow.runtime.device import pick_device
from gmaflow.runtime.memory import as_bytes
from gmaflow.weights import Checkpoint, describe, find_checkpoint, shipped_weights


@dataclass(frozen=True)
class Model:
    """What a client is told of a model."""

    name: str
    title: str
    default: bool
    attention: bool
    """Whether there are attention maps to look at."""


class ModelShelf:
    """Networks by name, on one device.

    Args:
        weights: Files or names of shipped weights to offer besides the shipped ones, first of all.
        model: What the files hold where they do not say; without files, the model to begin with.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        precision: `auto`, `fp32`, `fp16`, `bf16`.
        backend: `auto`, `fast`, `reference`.
        max_memory: How much to plan with, as `FlowEstimator` takes it; by default what is free.

    Raises:
        FlowError: There is no such device or amount, or weights cannot be read.
    """

    def __init__(
        self,
        weights: tuple[str, ...] = (),
        *,
        model: str | None = None,
        device: str = "auto",
        precision: Precision = "auto",
        backend: Backend = "auto",
        max_memory: str | None = None,
    ) -> None:
        self.device: torch.device = pick_device(device)
        self._precision: Precision = precision
        self._backend: Backend = backend
        self._max_memory = None if max_memory is None else as_bytes(max_memory)
        self._estimators: dict[str, FlowEstimator] = {}
        self._lock = Lock()
        # What was given is read at once, so that a wrong file is told before anything is served.
        chosen = weights or ((model,) if model else ())
        self._checkpoints = {
            name_of(source): find_checkpoint(source, model=model) for source in chosen
        }
        for name in shipped_weights():
            if name not in self._checkpoints:
                self._checkpoints[name] = find_checkpoint(name)
        if not self._checkpoints:
            raise FlowError("no weights ship with gmaflow; give a file of weights (--weights)")
        self.default = next(iter(self._checkpoints))

    def models(self) -> list[Model]:
        """Return what there is, the default first."""
        return [
            Model(name, self._title(checkpoint), name == self.default, checkpoint.config.aggregates)
            for name, checkpoint in self._checkpoints.items()
        ]

    def check(self, name: str) -> str:
        """Refuse a name that is not on the shelf.

        Raises:
            FlowError: It is not.
        """
        if name not in self._checkpoints:
            raise FlowError(f"no model is called {name!r}; {suggest(name, self._checkpoints)}")
        return name

    def estimator(self, name: str) -> FlowEstimator:
        """Return the estimator of a model, which any thread may use."""
        checkpoint = self._checkpoints[self.check(name)]
        with self._lock:
            if name not in self._estimators:
                self._estimators[name] = FlowEstimator(
                    checkpoint,
                    device=self.device,
                    precision=self._precision,
                    backend=self._backend,
                    max_memory=self._max_memory,
                )
            return self._estimators[name]

    def has_attention(self, name: str) -> bool:
        """Tell whether a model has attention maps."""
        return self._checkpoints[name].config.aggregates

    @staticmethod
    def _title(checkpoint: Checkpoint) -> str:
        return checkpoint.card.title or describe(checkpoint.config)


def name_of(source: str) -> str:
    """Return the name under which weights are offered, fit for an address."""
    if source in shipped_weights():
        return source
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-.") or "model"

"""The models a server offers, each loaded when it is first used."""

import re
from dataclasses import dataclass
from functools import partial
from threading import Lock

import torch

from gmaflow.errors import FlowError, look_up
from gmaflow.inference import FlowEstimator, device_arguments
from gmaflow.runtime.device import pick_device
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.weights import Checkpoint, describe, find_checkpoint, name_weights, shipped_weights


@dataclass(frozen=True)
class Model:
    """A model as clients see it."""

    name: str
    title: str
    default: bool
    attention: bool
    """Whether the model has attention maps."""


class ModelRegistry:
    """Models by name, on one device.

    Args:
        weights: Files or names of shipped weights, offered before the other shipped ones. The first
            is the default.
        model: The model that the files hold if they do not say; without files, the default model.
        options: Where and how they run.
    """

    def __init__(
        self,
        weights: tuple[str, ...] = (),
        *,
        model: str | None = None,
        options: DeviceOptions,
    ) -> None:
        self.device: torch.device = pick_device(options.device)
        self._open = partial(FlowEstimator, **device_arguments(options))
        self._estimators: dict[str, FlowEstimator] = {}
        self._lock = Lock()
        # Files are read now, so that a wrong one is reported before the server starts.
        self._checkpoints: dict[str, Checkpoint] = {}
        for source in weights or ((model,) if model else ()):
            name = name_of(source)
            if name in self._checkpoints:
                raise FlowError(f"two files of weights are named {name}; rename {source}")
            self._checkpoints[name] = find_checkpoint(source, model=model)
        for name in shipped_weights():
            if name not in self._checkpoints:
                self._checkpoints[name] = find_checkpoint(name)
        if not self._checkpoints:
            raise FlowError("gmaflow was installed without weights; give a file with --weights")
        self.default = next(iter(self._checkpoints))

    def models(self) -> list[Model]:
        """Return all models, the default first."""
        return [
            Model(
                name,
                checkpoint.card.title or describe(checkpoint.config),
                name == self.default,
                checkpoint.config.aggregates,
            )
            for name, checkpoint in self._checkpoints.items()
        ]

    def check(self, name: str) -> None:
        """Raise `FlowError` if there is no model of this name."""
        look_up("model", name, self._checkpoints)

    def estimator(self, name: str) -> FlowEstimator:
        """Return the estimator of a model. It may be used from any thread."""
        self.check(name)
        with self._lock:
            if name not in self._estimators:
                self._estimators[name] = self._open(self._checkpoints[name])
            return self._estimators[name]

    def has_attention(self, name: str) -> bool:
        return self._checkpoints[name].config.aggregates


def name_of(source: str) -> str:
    """Return the name under which weights are offered. It is safe in a URL."""
    if source in shipped_weights():
        return source
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name_weights(source)).strip("-.") or "model"

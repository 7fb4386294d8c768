"""The configuration of a training run, checked when it is created, the schedule and the presets.

The string under a field is its documentation, in `--help` and in `gmaflow train PRESET --show`.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from gmaflow.data import MIXTURES
from gmaflow.errors import TrainingError, check_known, look_up, suggest
from gmaflow.model import MIN_SIDE, MODELS, STRIDE, NetworkConfig
from gmaflow.model.config import Combination
from gmaflow.model.continuation import FIRST_ITERATION
from gmaflow.runtime.device import as_precision
from gmaflow.scenes import PRESETS as SCENE_PRESETS

CHANGEABLE = {"log_every", "save_every", "keep", "validate_every", "validate_on"}
CHANGEABLE |= {"validate_pairs", "workers", "max_skipped", "root", "textures"}
"""Settings that a resumed run may change: they do not affect the weights, or name a folder that may
have moved."""

SOURCE_KINDS = ("scenes", "stage", "set", "folder")
STAGES = tuple(MIXTURES)
TEXTURE_SPLITS = ("train", "all")

# The published one-cycle schedule: torch's OneCycleLR with linear annealing, 100 steps longer than
# the training, so that it never reaches its end.
EXTRA_STEPS = 100
RISING_SHARE = 0.05
FIRST_DIVISOR = 25.0
LAST_DIVISOR = 1e4

AHEAD_UNIT = 6
"""Iterations ahead are drawn in multiples of this, because each number needs its own CUDA graph."""


@dataclass(frozen=True)
class DataSource:
    """Where pairs come from: scenes:mix, stage:chairs, set:sintel:final or folder:PATH."""

    kind: str
    """scenes: rendered; stage: a mixture of the paper; set: one data set; folder: your own."""
    name: str
    """The scene preset, the stage, the data set, or the path of the folder."""
    variant: str = ""
    """The pass of a data set: clean, final ..."""

    @classmethod
    def parse(cls, text: str) -> "DataSource":
        """Parse a source as written in a config."""
        kind, _, name = text.partition(":")
        if kind not in SOURCE_KINDS or not name:
            if Path(text).is_dir():
                raise TrainingError(f"unknown data source {text!r}; did you mean folder:{text}?")
            raise TrainingError(
                f"unknown data source {text!r}; give scenes:mix, stage:chairs, set:NAME, "
                "set:NAME:PASS or folder:PATH"
            )
        if kind == "set":
            name, _, variant = name.partition(":")
            return cls(kind, name, variant)
        choices = {"scenes": SCENE_PRESETS, "stage": STAGES}.get(kind)
        if choices is not None:
            check_known(kind, name, choices, TrainingError)
        return cls(kind, name)

    def __str__(self) -> str:
        return ":".join(part for part in (self.kind, self.name, self.variant) if part)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines the trained weights."""

    # The network.
    model: str = "gma"
    """gma, gma-affine, gma-p, gma-p-only, raft or raft-small."""
    num_heads: int = 1
    """Attention heads of a gma model."""
    learned_alpha: bool = True
    """Whether a learned scalar scales aggregated motion, as in the paper."""
    combination: str = "concatenate"
    """Input of the recurrent unit: local and global motion (concatenate), or global only
    (replace)."""
    residual: bool = True
    """Whether aggregated motion is added to local motion, as in the paper."""

    # The data.
    data: str = "scenes:mix"
    """Training data: scenes:PRESET, stage:STAGE (the paper's mixtures), set:NAME[:PASS] or
    folder:PATH."""
    without: tuple[str, ...] = ()
    """Data sets to leave out of a stage, such as hd1k."""
    root: str = ""
    """Folder of the data set, or of several; by default from the environment."""
    textures: str = ""
    """Folder of images to use as textures of scenes; by default the built-in patterns."""
    textures_split: str = "train"
    """train: hold one texture in ten out, and validate on those; all: use every texture."""
    crop: tuple[int, int] = (368, 496)
    """Height and width of the training crops, multiples of 8."""
    batch: int = 16
    """Pairs in a step, over all processes and accumulated parts."""
    pairs: int = 0
    """Scenes: repeat this many pairs, to test whether the network learns; 0: endless."""
    seed: int = 1234
    """Determines the initial weights, the scenes, the order of files and their augmentation."""

    # The optimisation.
    steps: int = 100_000
    """Optimisation steps."""
    iters: int = 12
    """Refinement iterations of the network in a step."""
    lr: float = 4e-4
    """Peak of the one-cycle learning rate."""
    decay: float = 0.0
    """Keep the learning rate at its peak after the warm-up, and let it fall to 0 over this share of
    the steps at the end; 0: one cycle."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    gamma: float = 0.8
    """Weight of each earlier iteration in the loss, relative to the next."""
    clip: float = 1.0
    """Maximum norm of the gradient."""
    precision: str = "auto"
    """fp32, fp16 (with loss scaling) or bf16; auto is fp16 on CUDA, fp32 elsewhere."""

    # Options that are off by default.
    occluded_from: float = 0.0
    """Ignore occluded pixels in the loss for this share of the steps."""
    robust: float = 0.0
    """Let the loss grow only logarithmically for errors beyond about this many pixels, so that
    pixels that cannot be matched count less; 0: off, the L1 loss as published."""
    iters_growth: str = ""
    """Use fewer iterations at first, as in "0:4 0.5:8 0.8:8+12": share of the steps, iterations,
    and how many more may run ahead of them without a gradient (drawn for each step)."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, such as 0.999, which is then saved;
    0: off."""
    both_ways: bool = False
    """Scenes: a batch contains half as many pairs, forward and backward: fewer scenes are rendered,
    and each frame is encoded once."""
    exposure: float = 0.0
    """Scenes: share of the pairs whose frames are both made darker or brighter, by a gamma from 0.4
    to 2.5; 0: off."""
    erase: float = 0.0
    """Share of the pairs in which 1 or 2 boxes (48 to 96 px) of the second frame's features are
    replaced by their mean: motion there must come from elsewhere; 0: off."""
    disturbed: float = 0.0
    """Share of the pairs that start from a disturbed true flow instead of zero, as a warm start
    does; 0: off."""
    disturbed_from: float = 0.0
    """Start all pairs from zero for this share of the steps."""
    continued: float = 1.0
    """gma-affine: share of the pairs whose motion is continued. With 0.5 the weights also serve
    gma, which is the same network without the continuation."""
    accumulate: int = 0
    """Compute the gradient of a batch in this many parts, to save memory; 0: as few as fit."""

    # The start.
    init: str = ""
    """Initial weights: a file, the folder of a run, or the name of shipped weights; by default
    random."""
    start_step: int = 0
    """Start at this step of the schedule and the data, from the weights given with --init."""
    warm_up: int = 200
    """Steps over which the learning rate rises after --start-step, or with --decay, while Adam's
    moments refill."""

    # Logging, checkpoints and validation.
    log_every: int = 100
    """Steps between two lines of the log."""
    save_every: int = 1000
    """Steps between two checkpoints."""
    keep: int = 3
    """Number of checkpoints to keep."""
    validate_every: int = 0
    """Steps between two validations; 0: off."""
    validate_on: tuple[str, ...] = ("scenes:mix",)
    """Validation data, as in --data (not stage:), from the validation split if there is one; the
    first one decides which weights are best."""
    validate_pairs: int = 64
    """Maximum number of pairs of each validation set."""
    max_skipped: int = 50
    """Stop after this many consecutive steps with a loss or gradient that is not finite."""
    workers: int = 4
    """Processes that read files; scenes need none."""

    def __post_init__(self) -> None:
        _ = self.network  # raises if the fields describe no network
        as_precision(self.precision)
        check_known("textures_split", self.textures_split, TEXTURE_SPLITS, TrainingError)
        for name in (*filter(None, [self.data]), *self.validate_on):
            DataSource.parse(name)
        self._check_without()
        if self.validate_every and not self.validate_on:
            raise TrainingError("validate_every needs data; give validate_on, or validate_every=0")
        if any(name.startswith("stage:") for name in self.validate_on):
            raise TrainingError("stage: is for training only; validate on set:NAME instead")
        self._check_sizes()
        self._check_shares()
        if self.continued < 1 and not self.network.continues:
            raise TrainingError(
                f"continued={self.continued:g} is for gma-affine; {self.model} does not continue "
                "motion"
            )
        fewest = min(phase.iters for phase in self.growth)
        if self.network.continues and fewest <= FIRST_ITERATION:
            raise TrainingError(
                f"{self.model} continues motion from iteration {FIRST_ITERATION + 1} on, so "
                f"{fewest} iterations would not train all of it; give more"
            )

    @property
    def network(self) -> NetworkConfig:
        """The network that the fields describe."""
        base = look_up("model", self.model, MODELS, TrainingError)
        check_known("combination", self.combination, get_args(Combination), TrainingError)
        changes: dict[str, Any] = {
            "num_heads": self.num_heads,
            "learned_alpha": self.learned_alpha,
            "combination": self.combination,
            "residual": self.residual,
        }
        try:
            return replace(base, **changes)
        except ValueError as err:
            raise TrainingError(f"{self.model}: {err}") from None

    @property
    def ways(self) -> int:
        """Directions of each pair in a batch: 1, or 2 with `both_ways`."""
        return 2 if self.both_ways else 1

    @property
    def parts(self) -> int:
        """Number of parts in which the gradient of a batch is computed."""
        return max(1, self.accumulate)

    @property
    def growth(self) -> tuple["Phase", ...]:
        """The schedule of iterations."""
        if not self.iters_growth.strip():
            return (Phase(0.0, self.iters, 0),)
        try:
            schedule = tuple(Phase.parse(part) for part in self.iters_growth.split())
        except ValueError:
            schedule = ()
        shares = [phase.share for phase in schedule]
        valid = bool(shares) and shares[0] == 0 and sorted(set(shares)) == shares
        valid = valid and all(phase.iters >= 1 and phase.ahead >= 0 for phase in schedule)
        if not valid or shares[-1] >= 1:
            raise TrainingError(
                f"invalid iters_growth={self.iters_growth!r}; give rising shares starting at 0, "
                'with iterations, as in "0:4 0.5:8 0.8:8+12"'
            )
        return schedule

    def _check_without(self) -> None:
        if not self.without:
            return
        if not self.data.startswith("stage:"):
            raise TrainingError(
                f"without={as_text(self.without)} leaves data sets out of a stage, but the data is "
                f"{self.data or 'not given'}"
            )
        mixture = MIXTURES[DataSource.parse(self.data).name]
        names = [part.dataset for part in mixture.ingredients]
        for dataset in self.without:
            if dataset not in names:
                raise TrainingError(f"{self.data} has no {dataset!r}; {suggest(dataset, names)}")
        mixture.without(*self.without)  # raises if none is left

    def _check_sizes(self) -> None:
        if any(side % STRIDE or side < MIN_SIDE for side in self.crop):
            height, width = self.crop
            raise TrainingError(
                f"invalid crop={height}x{width}; give multiples of {STRIDE}, at least {MIN_SIDE}"
            )
        minimums = {"log_every": 1, "save_every": 1, "keep": 1, "max_skipped": 1, "workers": 0}
        minimums |= {"steps": 1, "batch": 1, "iters": 1, "accumulate": 0, "warm_up": 1, "seed": 0}
        minimums |= {"validate_every": 0, "validate_pairs": 1, "start_step": 0, "pairs": 0}
        for name, minimum in minimums.items():
            if getattr(self, name) < minimum:
                raise TrainingError(f"{name}={getattr(self, name)} must be at least {minimum}")
        if self.batch % (self.parts * self.ways):
            raise TrainingError(
                f"batch={self.batch} cannot be split into {self.parts} equal parts"
                f"{', each forward and backward' if self.both_ways else ''}; choose a multiple of "
                f"{self.parts * self.ways}"
            )
        if self.both_ways and self.data and DataSource.parse(self.data).kind != "scenes":
            raise TrainingError(
                f"both_ways needs backward ground truth, which {self.data} does not have; "
                "train on scenes, or omit both_ways"
            )
        if self.start_step >= self.steps:
            raise TrainingError(
                f"start_step={self.start_step} must be less than steps={self.steps}"
            )
        if self.start_step and not self.init:
            raise TrainingError("start_step needs initial weights; give init")

    def _check_shares(self) -> None:
        bounds = {
            "lr": (0 < self.lr < 1, "more than 0 and less than 1"),
            "weight_decay": (0 <= self.weight_decay < 1, "at least 0 and less than 1"),
            "gamma": (0 < self.gamma <= 1, "more than 0 and at most 1"),
            "clip": (self.clip > 0, "more than 0"),
            "occluded_from": (0 <= self.occluded_from < 1, "at least 0 and less than 1"),
            "robust": (0 <= self.robust < math.inf, "0 or a number of pixels"),
            "exposure": (0 <= self.exposure <= 1, "at least 0 and at most 1"),
            "erase": (0 <= self.erase <= 1, "at least 0 and at most 1"),
            "disturbed": (0 <= self.disturbed <= 1, "at least 0 and at most 1"),
            "disturbed_from": (0 <= self.disturbed_from < 1, "at least 0 and less than 1"),
            "continued": (0 < self.continued <= 1, "more than 0 and at most 1"),
            "decay": (0 <= self.decay <= 1, "at least 0 and at most 1"),
            "ema": (0 <= self.ema < 1, "at least 0 and less than 1"),
        }
        for name, (valid, range_text) in bounds.items():
            if not valid:
                raise TrainingError(
                    f"{name}={getattr(self, name)} is out of range; give {range_text}"
                )


def to_json(config: TrainConfig) -> str:
    return json.dumps(asdict(config), indent=2) + "\n"


def from_json(text: str) -> TrainConfig:
    """Parse a config written by `to_json`."""
    try:
        values: dict[str, Any] = json.loads(text)
        names = {field.name for field in fields(TrainConfig)}
        if unknown := sorted(values.keys() - names):
            raise TrainingError(
                f"unknown setting {unknown[0]!r}; the run may be from a newer gmaflow"
            )
        if values.get("textures"):  # a run from before there was a split used every texture
            values.setdefault("textures_split", "all")
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return TrainConfig(**(values | lists))
    except (json.JSONDecodeError, AttributeError, TypeError, RecursionError) as err:
        raise TrainingError(f"not a training config ({err})") from None


def differences(stored: TrainConfig, requested: TrainConfig) -> list[str]:
    """Describe the differences between two configs that prevent a resume."""
    old, new = asdict(stored), asdict(requested)
    fixed = old.keys() - CHANGEABLE
    # The texture folder may move, but not appear or vanish.
    if not (stored.textures and requested.textures):
        fixed |= {"textures"}
    if not requested.textures:
        fixed -= {"textures_split"}
    if not requested.accumulate:  # taken from the stored config
        fixed -= {"accumulate"}
    if requested.steps > stored.steps:  # `check_extension` decides
        fixed -= {"steps"}
    return [
        f"{name} {as_text(old[name])}, not {as_text(new[name])}"
        for name in old
        if name in fixed and old[name] != new[name]
    ]


def as_text(value: object) -> str:
    """Return a value as it is written in `key=value`."""
    if isinstance(value, tuple):
        is_size = bool(value) and isinstance(value[0], int)
        return ("x" if is_size else ",").join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


# The schedule: settings that change during training.


class Phase(NamedTuple):
    """The number of iterations, starting at a share of the steps."""

    share: float
    iters: int
    ahead: int
    """How many more may run ahead, without a gradient."""

    @classmethod
    def parse(cls, text: str) -> "Phase":
        """Parse "0.5:8" or "0.5:8+12"."""
        share, iters = text.split(":")
        iters, _, ahead = iters.partition("+")
        return cls(float(share), int(iters), int(ahead or 0))


class StepPlan(NamedTuple):
    """The settings of one step."""

    lr: float
    iters: int
    occluded: bool
    """Whether occluded pixels count in the loss."""
    ahead: int = 0
    """Iterations that run ahead of the others, without a gradient."""
    disturbed: bool = True
    """Whether a share of the pairs starts from a disturbed flow."""


def plan_at(step: int, config: TrainConfig) -> StepPlan:
    """Return the settings of a step, counted from 0."""
    phase = [phase for phase in config.growth if step >= phase.share * config.steps][-1]
    # Drawn from the step's number, so that a resumed run draws the same.
    max_units = phase.ahead // AHEAD_UNIT
    ahead = AHEAD_UNIT * int(np.random.default_rng([config.seed, step]).integers(max_units + 1))
    return StepPlan(
        lr=lr_at(step, config),
        iters=phase.iters,
        occluded=step >= config.occluded_from * config.steps,
        ahead=ahead,
        disturbed=step >= config.disturbed_from * config.steps,
    )


def lr_at(step: int, config: TrainConfig) -> float:
    """Return the learning rate of a step, including the warm-up."""
    warm_up = min(1.0, (step - config.start_step + 1) / config.warm_up)
    if config.decay:
        left = (config.steps - step) / (config.decay * config.steps)
        return config.lr * warm_up * min(1.0, left)
    rate = one_cycle(step, steps=config.steps, peak=config.lr)
    return rate * warm_up if config.start_step else rate


def one_cycle(step: int, *, steps: int, peak: float) -> float:
    """Rise linearly from 1/25 of the peak during the first 5 %, then fall to almost zero."""
    total = steps + EXTRA_STEPS
    turn, end = RISING_SHARE * total - 1, total - 1
    first = peak / FIRST_DIVISOR
    if step <= turn:
        return first + (peak - first) * step / turn
    last = first / LAST_DIVISOR
    return peak + (last - peak) * (step - turn) / (end - turn)


def check_extension(step: int, old: TrainConfig, new: TrainConfig) -> str:
    """Describe what happens when a run gets more steps after `step` of them.

    Raises:
        TrainingError: the run has already used more iterations, or counted occluded pixels, where
            the longer schedule would not yet.
    """
    if step:
        before, after = plan_at(step - 1, old), plan_at(step, new)
        setting = ""
        if after.iters < before.iters:
            setting = f"iters_growth would go back from {before.iters} to {after.iters} iterations"
        elif before.occluded and not after.occluded:
            setting = "occluded_from would ignore occluded pixels again"
        if setting:
            raise TrainingError(
                f"the run cannot be extended from {old.steps} to {new.steps} steps after step "
                f"{step}: {setting}; start a new run with the weights as --init"
            )
    rates = f"{lr_at(max(step - 1, 0), old):.2g} to {lr_at(step, new):.2g}"
    return (
        f"extended from {old.steps} to {new.steps} steps: the schedule is now that of {new.steps} "
        f"steps, and at step {step} the learning rate goes from {rates}"
    )


# Presets: the paper's four stages, and training on rendered scenes or your own data.


def chairs() -> TrainConfig:
    """Stage 1 of the paper: FlyingChairs, from random weights."""
    return TrainConfig(
        data="stage:chairs",
        steps=120_000,
        batch=8,
        crop=(368, 496),
        lr=2.5e-4,
        weight_decay=1e-4,
        gamma=0.8,
        save_every=5000,
    )


def things() -> TrainConfig:
    """Stage 2 of the paper: FlyingThings3D; use --init with the weights of stage 1."""
    return replace(chairs(), data="stage:things", batch=6, crop=(400, 720), lr=1.25e-4)


def sintel() -> TrainConfig:
    """Stage 3 of the paper: Sintel, KITTI, HD1K and FlyingThings3D; --init from stage 2."""
    return replace(things(), data="stage:sintel", crop=(368, 768), weight_decay=1e-5, gamma=0.85)


def kitti() -> TrainConfig:
    """Stage 4 of the paper: KITTI 2015; --init from stage 3."""
    return replace(sintel(), data="stage:kitti", steps=50_000, crop=(288, 960))


def scenes_pretrain() -> TrainConfig:
    """Rendered scenes of all kinds, from random weights; needs no files."""
    return TrainConfig(
        data="scenes:mix",
        steps=100_000,
        batch=16,
        crop=(368, 496),
        lr=4e-4,
        weight_decay=1e-4,
        gamma=0.8,
        validate_every=5000,
    )


def scenes_finetune() -> TrainConfig:
    """Rendered scenes: larger crops, faster motion, lower rate; --init from the pretraining."""
    return replace(
        scenes_pretrain(),
        data="scenes:fast-mix",
        steps=30_000,
        batch=8,
        crop=(368, 768),
        lr=1.25e-4,
        weight_decay=1e-5,
        gamma=0.85,
    )


def finetune() -> TrainConfig:
    """Your own pairs: give --data folder:PATH, and --init with the initial weights."""
    return TrainConfig(
        data="",  # the user must give the folder
        steps=5000,
        batch=6,
        crop=(320, 448),
        lr=1e-4,
        weight_decay=1e-5,
        gamma=0.85,
        log_every=50,
        save_every=500,
    )


PRESETS: Mapping[str, Callable[[], TrainConfig]] = {
    "chairs": chairs,
    "things": things,
    "sintel": sintel,
    "kitti": kitti,
    "scenes-pretrain": scenes_pretrain,
    "scenes-finetune": scenes_finetune,
    "finetune": finetune,
}


def preset(name: str) -> TrainConfig:
    return look_up("preset", name, PRESETS, TrainingError)()


def summary(name: str) -> str:
    """Return a one-line description of a preset."""
    # Python has no docstrings with -OO.
    return (PRESETS[name].__doc__ or "").strip().partition("\n")[0]

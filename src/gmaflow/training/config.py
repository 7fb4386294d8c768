"""What a training run is: one frozen config that refuses nonsense.

The string under a field is its documentation, in `--help` and in `gmaflow train PRESET --show`.
"""

from dataclasses import dataclass
from typing import Any, get_args

from gmaflow.errors import TrainingError, suggest
from gmaflow.model import MIN_SIDE, MODELS, STRIDE, NetworkConfig
from gmaflow.model.config import Combination
from gmaflow.runtime.device import as_precision
from gmaflow.training.places import Place

CHANGEABLE = {"log_every", "save_every", "keep", "validate_every", "validate_on"}
CHANGEABLE |= {"validate_pairs", "workers", "max_skipped", "root", "textures"}
"""What a resumed run may change: the weights do not depend on it, or a folder has moved."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All that decides which weights come out."""

    # The network.
    model: str = "gma"
    """gma, gma-p, gma-p-only, raft or raft-small."""
    num_heads: int = 1
    """Attention heads of a gma model."""
    learned_alpha: bool = True
    """Scale aggregated motion by a learned scalar (the paper's), or not at all."""
    combination: str = "concatenate"
    """Show the recurrent unit local and global motion (concatenate), or global alone (replace)."""
    residual: bool = True
    """Add aggregated motion to local motion, or use it as it is."""

    # What it learns from.
    data: str = "scenes:mix"
    """scenes:PRESET, stage:STAGE (the paper's mixtures), set:NAME[:PASS] or folder:PATH; a run
    does not start without."""
    root: str = ""
    """Folder of the data set, or of several; by default what the environment says."""
    textures: str = ""
    """Folder of pictures for scenes; by default the built-in patterns."""
    crop: tuple[int, int] = (368, 496)
    """Height and width that the network sees, multiples of 8."""
    batch: int = 16
    """Pairs of one step, all processes and accumulated parts together."""
    pairs: int = 0
    """Scenes: learn from so many pairs again and again, to see whether it learns; 0: no end."""
    seed: int = 1234
    """Decides the first weights, the scenes, the order of files and their augmentation."""

    # How it learns.
    steps: int = 100_000
    """Optimisation steps."""
    iters: int = 12
    """Refinements of the network in a step."""
    lr: float = 4e-4
    """Peak of the one-cycle learning rate."""
    weight_decay: float = 1e-4
    """AdamW's."""
    gamma: float = 0.8
    """Each earlier iteration counts this much less in the loss."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    precision: str = "auto"
    """fp32, fp16 (with loss scaling) or bf16; auto is fp16 on CUDA, fp32 elsewhere."""

    # Options that are off by default.
    occluded_from: float = 0.0
    """Share of the steps before which occluded pixels bear no loss."""
    iters_growth: str = ""
    """Fewer iterations at first, as "0:4 0.5:8 0.8:12": from that share of the steps, so many."""
    ema: float = 0.0
    """Decay of a running mean of the weights, such as 0.999; it is then what is kept; 0: none."""
    both_ways: bool = False
    """Scenes: a batch is half as many pairs, forward and backward: half as many are rendered, and
    each frame is encoded once."""
    accumulate: int = 1
    """Compute the gradient of a batch in so many parts, for less memory."""

    # Where it starts.
    init: str = ""
    """Weights to start from: a file, or the name of shipped ones; by default random."""
    start_step: int = 0
    """Go on in the schedule and the data from here, with the weights of --init alone."""
    warm_up: int = 200
    """Steps over which the learning rate rises after such a start, as Adam's moments refill."""

    # What is kept and told.
    log_every: int = 100
    """Steps between two lines of the log."""
    save_every: int = 1000
    """Steps between two checkpoints."""
    keep: int = 3
    """Checkpoints that are kept, the newest."""
    validate_every: int = 0
    """Steps between two validations; 0: none."""
    validate_on: tuple[str, ...] = ("scenes:mix",)
    """What to validate on, as in --data (not stage:); the first decides which weights are best."""
    validate_pairs: int = 64
    """Pairs of each of those that are used, at most."""
    max_skipped: int = 50
    """Stop when so many steps in a row had a loss or gradient that was not finite."""
    workers: int = 4
    """Processes that read files; scenes need none."""

    def __post_init__(self) -> None:
        _ = self.network  # refuses what cannot be a network
        as_precision(self.precision)
        for name in (*filter(None, [self.data]), *self.validate_on):
            Place.parse(name)
        if self.validate_every and not self.validate_on:
            raise TrainingError("nothing to validate on is named; give validate_on, or no interval")
        if any(name.startswith("stage:") for name in self.validate_on):
            raise TrainingError("a stage's mixture is for training; validate on set:NAME instead")
        self._check_sizes()
        self._check_shares()
        _ = self.growth

    @property
    def network(self) -> NetworkConfig:
        """The network that the fields describe."""
        if self.model not in MODELS:
            raise TrainingError(f"no model is called {self.model!r}; {suggest(self.model, MODELS)}")
        if self.combination not in get_args(Combination):
            raise TrainingError(
                f"combination={self.combination!r} is not known; "
                f"{suggest(self.combination, get_args(Combination))}"
            )
        base = MODELS[self.model]
        varied: dict[str, Any] = {
            "num_heads": self.num_heads,
            "learned_alpha": self.learned_alpha,
            "combination": self.combination,
            "residual": self.residual,
        }
        try:
            return NetworkConfig(small=base.small, attention=base.attention, **varied)
        except ValueError as err:
            raise TrainingError(f"{self.model}: {err}") from None

    @property
    def ways(self) -> int:
        """How often each pair of a batch is in it: forward, or backward as well."""
        return 2 if self.both_ways else 1

    @property
    def growth(self) -> tuple[tuple[float, int], ...]:
        """The schedule of iterations: from which share of the steps, how many."""
        if not self.iters_growth.strip():
            return ((0.0, self.iters),)
        try:
            parts = [part.split(":") for part in self.iters_growth.split()]
            schedule = tuple((float(share), int(iters)) for share, iters in parts)
        except ValueError:
            schedule = ()
        shares = [share for share, _ in schedule]
        sound = bool(shares) and shares[0] == 0 and sorted(set(shares)) == shares
        if not sound or shares[-1] >= 1 or min(iters for _, iters in schedule) < 1:
            raise TrainingError(
                f"iters_growth={self.iters_growth!r} is no schedule; give rising shares from 0 on "
                'with iterations, as "0:4 0.5:8 0.8:12"'
            )
        return schedule

    def _check_sizes(self) -> None:
        if any(side % STRIDE or side < MIN_SIDE for side in self.crop):
            height, width = self.crop
            raise TrainingError(
                f"crop={height}x{width} does not suit the network; give multiples of {STRIDE} from "
                f"{MIN_SIDE} on"
            )
        least = {"log_every": 1, "save_every": 1, "keep": 1, "max_skipped": 1, "workers": 0}
        least |= {"steps": 1, "batch": 1, "iters": 1, "accumulate": 1, "warm_up": 1, "seed": 0}
        least |= {"validate_every": 0, "validate_pairs": 1, "start_step": 0, "pairs": 0}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise TrainingError(f"{name}={getattr(self, name)} must be at least {smallest}")
        if self.batch % (self.accumulate * self.ways):
            raise TrainingError(
                f"batch={self.batch} cannot be learned in {self.accumulate} equal parts"
                f"{', each forward and backward' if self.both_ways else ''}; choose a multiple of "
                f"{self.accumulate * self.ways}"
            )
        if self.both_ways and self.data and Place.parse(self.data).kind != "scenes":
            raise TrainingError(
                f"both_ways needs truth that is known backward too, and {self.data} has none; "
                "learn from scenes, or leave it out"
            )
        if self.start_step >= self.steps:
            raise TrainingError(
                f"start_step={self.start_step} leaves nothing of steps={self.steps} to do"
            )
        if self.start_step and not self.init:
            raise TrainingError("start_step goes on from weights; name them with init")

    def _check_shares(self) -> None:
        bounds = {
            "lr": (0 < self.lr < 1, "more than 0, less than 1"),
            "weight_decay": (0 <= self.weight_decay < 1, "0 or more, less than 1"),
            "gamma": (0 < self.gamma <= 1, "more than 0, at most 1"),
            "clip": (self.clip > 0, "more than 0"),
            "occluded_from": (0 <= self.occluded_from < 1, "0 or more, less than 1"),
            "ema": (0 <= self.ema < 1, "0 or more, less than 1"),
        }
        for name, (within, wanted) in bounds.items():
            if not within:
                raise TrainingError(f"{name}={getattr(self, name)} is out of range; give {wanted}")

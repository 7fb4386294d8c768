"""Which row of the paper's tables a network belongs to, read from what its weights say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gmaflow.data import dataset_info, look_up_root
from gmaflow.errors import DatasetError, FlowError
from gmaflow.evaluation.evaluating import evaluate
from gmaflow.evaluation.examples import ExampleSet, open_examples, published_padding, thin
from gmaflow.evaluation.judging import Judged
from gmaflow.evaluation.metrics import Figures
from gmaflow.inference import FlowEstimator, PaddingKind
from gmaflow.io.paths import PathLike
from gmaflow.model import MODELS, NetworkConfig
from gmaflow.weights import Checkpoint, describe

METHODS = {
    "RAFT": MODELS["raft"],
    "GMA (p only)": MODELS["gma-p-only"],
    "GMA (+p)": MODELS["gma-p"],
    "GMA": MODELS["gma"],
}
"""The methods of table 2 that are ours to train."""

_ABLATED = {
    "1": replace(MODELS["gma"], learned_alpha=False),
    "replace": replace(MODELS["gma"], combination="replace"),
    "w/o residual": replace(MODELS["gma"], residual=False),
}
FINAL_COMPONENTS = ("alpha", "concatenate", "w/ residual")
"""The rows of table 3 that are the final model itself."""

OTHER_DATA = "other data"
_STAGES = {"chairs": "C", "things": "C+T", "sintel": "C+T+S/K", "kitti": "C+T+S/K"}

Measured = Mapping[tuple[str, str], Figures]
"""Figures of whole frames, by data set and pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A network that is to have its row.

    Attributes:
        name: what to call it.
        checkpoint: its weights, with what they say of themselves.
    """

    name: str
    checkpoint: Checkpoint

    @property
    def method(self) -> str | None:
        """Its method in table 2; None if it is in none of that table's rows."""
        config = self.checkpoint.config
        return next((name for name, known in METHODS.items() if known == config), None)

    @property
    def components(self) -> tuple[str, ...]:
        """Its rows in table 3: those of the final model, the one that it ablates, or none."""
        return components_of(self.checkpoint.config)

    @property
    def training(self) -> str:
        """What it was trained on, as table 2 groups it."""
        told = self.checkpoint.card.trained_on
        if self.checkpoint.origin == "published":
            # The authors' files say nothing, but for their names: gma-things.pth.
            told = f"stage:{self.checkpoint.card.title.rpartition('-')[2]}"
        return _STAGES.get(told.removeprefix("stage:"), OTHER_DATA)

    @property
    def about(self) -> str:
        """What a reader should know of it."""
        told = f"{self.name} is {describe(self.checkpoint.config)}"
        if self.method is None and not self.components:
            return f"{told}, which is no row of either table: it was not measured"
        if self.training == OTHER_DATA:
            return f"{told}, trained on {self.checkpoint.card.trained_on}"
        return f"{told}, trained on {self.training}"


def components_of(config: NetworkConfig) -> tuple[str, ...]:
    """Return the rows of table 3 that a network belongs to."""
    if config == MODELS["gma"]:
        return FINAL_COMPONENTS
    return tuple(name for name, ablated in _ABLATED.items() if config == ablated)


@dataclass(frozen=True)
class Trial:
    """A data set that the tables have columns for."""

    dataset: str
    split: str
    passes: tuple[str, ...]
    instead: str = ""
    """The split to take, with a note, where the pairs of that split cannot be told."""


TRIALS = (
    Trial("sintel", "training", ("clean", "final")),
    Trial("kitti-2015", "training", ("occ",)),
    Trial("chairs", "validation", ("",)),
    Trial("things", "validation", ("clean", "final"), instead="test"),
)


def open_trials(
    roots: Mapping[str, PathLike], *, limit: int | None = None
) -> tuple[list[ExampleSet], list[str]]:
    """Open the data sets of the tables as far as they are there.

    Args:
        roots: folders by data set; of the others, what the environment or the config file says.
        limit: take at most so many pairs of each pass, spread over it.

    Returns:
        The sets, and a sentence for each that is not there, or not whole.

    Raises:
        DatasetError: one whose folder was named is not there.
    """
    opened, notes = [], []
    for trial in TRIALS:
        root, info = roots.get(trial.dataset), dataset_info(trial.dataset)
        if look_up_root(info, root) is None:
            notes.append(f"{info.title} is not set up; `gmaflow data list` tells how")
            continue
        try:
            data, note = open_trial(trial, root)
        except DatasetError as err:
            if root is not None:
                raise
            notes.append(f"{info.title} is left out: {err}")
            continue
        data = data if limit is None else thin(data, limit)
        published = sum(
            part.count or 0
            for part in info.parts
            if part.split == trial.split and part.variant in trial.passes
        )
        if note:
            notes.append(note)
        elif len(data.examples) != published:
            notes.append(
                f"{info.title} {trial.split}: {len(data.examples)} of the {published} published "
                "pairs, so its figures do not compare with the paper's"
            )
        opened.append(data)
    return opened, notes


def open_trial(trial: Trial, root: PathLike | None) -> tuple[ExampleSet, str]:
    """Open what the paper's figures are of, or what serves instead; then a note says so.

    Raises:
        DatasetError: there is neither.
    """
    try:
        return open_examples(trial.dataset, root, split=trial.split, passes=trial.passes), ""
    except DatasetError as err:
        if not trial.instead:
            raise
        data = open_examples(trial.dataset, root, split=trial.instead, passes=trial.passes)
        return data, f"{data.title}: its figures do not compare with the paper's, since {err}"


def measure_runs(
    runs: Sequence[Run],
    trials: Sequence[ExampleSet],
    folder: Path,
    *,
    open_estimator: Callable[[Checkpoint, PaddingKind], FlowEstimator],
    progress: Callable[[Judged], None] = lambda _judged: None,
) -> dict[str, Measured]:
    """Evaluate each run that has a row on each set; results are kept as `evaluate` keeps them.

    Raises:
        FlowError: no run has a row, there is no set, or a pair cannot be read.
    """
    wanted = [run for run in runs if run.method or run.components]
    if not wanted:
        raise FlowError(f"no run is a row of the tables: {'; '.join(run.about for run in runs)}")
    if not trials:
        raise FlowError(
            "none of the tables' data sets is there; name the folder of one (--sintel FOLDER), or "
            "judge by rendered scenes (--scenes 50)"
        )
    measured: dict[str, Measured] = {}
    for run in wanted:
        figures: dict[tuple[str, str], Figures] = {}
        for data in trials:
            evaluation = evaluate(
                open_estimator(run.checkpoint, published_padding(data.name)),
                data,
                folder / run.name / data.name,
                weights=run.name,
                progress=progress,
            )
            for (group, _), sums in evaluation.summary.totals.items():
                figures[data.name, group] = sums.figures(evaluation.averaging)["all"]
        measured[run.name] = figures
    return measured

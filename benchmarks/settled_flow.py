"""How many iterations pairs need: errors and changes of the flow, iteration by iteration.

PYTHONPATH=src python benchmarks/settled_flow.py trace real.json --material FOLDER
PYTHONPATH=src python benchmarks/settled_flow.py trace scenes.json --scenes 200
PYTHONPATH=src python benchmarks/settled_flow.py table real.json scenes.json

`trace` refines every pair of the real sets or of rendered scenes 32 times, and writes the error of
each iteration and the change that it made. `table` prints what stopping at several thresholds would
save and cost; the one that `iters="auto"` uses is marked.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from gmaflow import FlowEstimator
from gmaflow.evaluation.examples import (
    Example,
    open_examples,
    published_padding,
    render_examples,
)
from gmaflow.inference.engine import Refinement
from gmaflow.inference.images import PaddingKind
from gmaflow.model.settling import CHECK_EVERY, MIN_ITERS, SETTLED_THRESHOLD

ITERS = 32
SETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "chairs": ("flyingchairs", ()),
    "middlebury": ("middlebury", ()),
    "sintel": ("sintel", ("clean", "final")),
    "kitti-2012": ("kitti2012", ("noc",)),
    "kitti-2015": ("kitti2015", ()),
}
"""Folder and passes of the real sets."""
SIZE = (160, 224)
CELL = 8.0
THRESHOLDS = (0.2, 0.1, SETTLED_THRESHOLD, 0.02, 0.01)
"""Pixels."""


def trace(estimator: FlowEstimator, example: Example) -> dict[str, object]:
    """Return errors and changes of a pair, an entry for each iteration."""
    sample = example.load()
    assert sample.flow is not None
    assert sample.valid is not None
    errors: list[float] = []
    changes: list[dict[str, float]] = []
    before = [0.0]

    def watch(refinement: Refinement) -> None:
        flow, state = refinement.flow(), refinement.state
        assert flow is not None
        assert state is not None
        errors.append(float(np.linalg.norm(flow - sample.flow, axis=2)[sample.valid].mean()))
        coarse = state[0][0].numpy().copy()
        moved = CELL * np.linalg.norm(coarse - before[0], axis=0)
        before[0] = coarse
        spread = {f"p{part}": float(np.percentile(moved, part)) for part in (50, 90, 99)}
        changes.append({"mean": float(moved.mean()), **spread})

    estimator(sample.image1, sample.image2, watch=watch)
    return {"name": example.title, "errors": errors, "changes": changes}


def real_pairs(material: Path) -> list[tuple[PaddingKind, Example]]:
    """List the real pairs with the padding of their set."""
    pairs = []
    for name, (folder, passes) in SETS.items():
        root = material / "realflow" / folder
        split = "all" if name == "chairs" else None
        data = open_examples(name, root, split=split, passes=passes)
        pairs += [(published_padding(name), example) for example in data.examples]
    return pairs


def scenes(count: int) -> list[tuple[PaddingKind, Example]]:
    """List rendered scenes."""
    rendered = render_examples("mix", seed=1234, count=count, size=SIZE, device="cpu")
    return [("sintel", example) for example in rendered.examples]


def stopped_at(changes: list[float], threshold: float) -> int:
    """Return the iteration after which a pair stops."""
    checks = range(MIN_ITERS, ITERS + 1, CHECK_EVERY)
    return next((check for check in checks if changes[check - 1] < threshold), ITERS)


def print_table(files: list[Path]) -> None:
    """Print what stopping saves, and the errors relative to those after all iterations."""
    print(f"{'':<14}{'pairs, px':>6}{'iterations':>12}{'fewer':>8}{'error':>9}{'worst pair':>12}")
    for file in files:
        traces = json.loads(file.read_text())
        errors = np.array([trace["errors"] for trace in traces])
        full, fixed = errors[:, ITERS - 1], errors[:, 11]
        print(f"{file.stem:<14}{len(traces):>6}{ITERS:>12}{'':>8}{full.mean():9.4f}  px")
        print(f"{'':<14}{'':>6}{'12':>12}{'':>8}{fixed.mean() / full.mean():9.4f}")
        for threshold in THRESHOLDS:
            used = np.array(
                [
                    stopped_at([change["mean"] for change in trace["changes"]], threshold)
                    for trace in traces
                ]
            )
            final_errors = errors[np.arange(len(traces)), used - 1]
            print(
                f"{'  iters=auto' if threshold == SETTLED_THRESHOLD else '':<14}{threshold:6.2f}"
                f"{used.mean():12.1f}{1 - used.mean() / ITERS:8.0%}"
                f"{final_errors.mean() / full.mean():9.4f}{(final_errors / full).max():12.3f}"
            )


def main() -> None:
    """Trace pairs, or print the table of traces."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=("trace", "table"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--material", type=Path, default=Path())
    parser.add_argument("--scenes", type=int, default=0)
    options = parser.parse_args()
    if options.what == "trace":
        estimators = {
            padding: FlowEstimator("gma", iters=ITERS, device="cpu", padding=padding)
            for padding in ("sintel", "kitti")
        }
        traces = []
        chosen = scenes(options.scenes) if options.scenes else real_pairs(options.material)
        for padding, example in chosen:
            begun = time.process_time()
            traces.append(trace(estimators[padding], example))
            print(example.title, f"{time.process_time() - begun:.1f} CPU-s", flush=True)
            options.files[0].write_text(json.dumps(traces))
        return
    print_table(options.files)


if __name__ == "__main__":
    main()

"""Plot the error of a run that continues from weights without the optimizer's state.

A small network is trained on the same 16 scenes on a CPU, which takes minutes.

PYTHONPATH=src python benchmarks/start_step.py docs/images/start-step.png

One run is uninterrupted. Two others continue from the half-precision weights of its middle, as
`--init WEIGHTS --start-step N` does: with a warm-up of the learning rate, and without.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gmaflow.io import ensure_can_write, write_image
from gmaflow.training import RunOptions, TrainConfig, train
from gmaflow.training.run_folder import RunFolder, read_state
from gmaflow.viz import Series, line_plot

STEPS = 600
MIDDLE = STEPS // 2
WARM_UPS = (30, 1)
STRAIGHT = TrainConfig(
    model="raft-small",
    data="scenes:things",
    crop=(64, 96),
    pairs=16,
    batch=4,
    iters=3,
    lr=2e-3,
    steps=STEPS,
    save_every=MIDDLE,
    log_every=12,  # a line of the log covers all scenes, three times each
)


def weights_of_the_middle(folder: RunFolder) -> Path:
    """Write the weights of the run's middle, as if it had been stopped there."""
    state = read_state(folder.checkpoints.paths()[0])
    tensors = {
        name.removeprefix("network."): value
        for name, value in state.tensors.items()
        if name.startswith("network.")
    }
    folder.save_weights("middle.safetensors", state, tensors)
    return folder.path / "middle.safetensors"


def error_curve(folder: RunFolder, label: str, *, dashed: bool) -> Series:
    """Return the training error over the steps."""
    points = np.array([(line["step"], line["epe"]) for line in folder.read_log()])
    return Series(label, points[:, 0].astype(float), points[:, 1], dashed=dashed)


def main(picture: Path) -> None:
    """Train three times and plot the errors."""
    ensure_can_write(picture, overwrite=True)  # checked first, since training takes minutes
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as parent:

        def trained(name: str, config: TrainConfig) -> RunFolder:
            train(config, RunOptions(output=Path(parent) / name, device="cpu"))
            return RunFolder(Path(parent) / name)

        straight = trained("straight", STRAIGHT)
        middle = replace(STRAIGHT, init=str(weights_of_the_middle(straight)), start_step=MIDDLE)
        curves = [error_curve(straight, "uninterrupted", dashed=False)]
        for warm_up in WARM_UPS:
            config = replace(middle, warm_up=warm_up)
            label = f"--start-step {MIDDLE} --warm-up {warm_up}"
            folder = trained(f"warm-up-{warm_up}", config)
            curves.append(error_curve(folder, label, dashed=True))
    for curve in curves:
        print(curve.label, *(f"{x:.0f}:{y:.2f}" for x, y in zip(curve.x, curve.y, strict=True)))
    title = "Continuing from weights only: training error"
    plot = line_plot(curves, title=title, x_label="step", y_label="end-point error, pixels")
    write_image(picture, plot)


if __name__ == "__main__":
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path, help="the plot to write, a .png")
    main(parser.parse_args().picture)

"""A real run, from random weights on rendered scenes, that learns."""

import json
from pathlib import Path

import pytest
import torch

from gmaflow.training import RunOptions, train
from gmaflow.training.sources import open_source
from tests.training.conftest import tiny_config


@pytest.mark.usefixtures("few_textures")
def test_the_error_falls_well_below_predicting_zero(tmp_path: Path) -> None:
    config = tiny_config(
        data="scenes:things",
        crop=(40, 48),
        batch=1,
        pairs=1,
        steps=40,
        iters=2,
        lr=3e-3,
        log_every=10,
        save_every=40,
    )
    done = train(config, RunOptions(output=tmp_path / "run", device="cpu", quiet=True))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    batch = next(open_source(config, torch.device("cpu")).batches(0))
    zero = float(batch.flow.norm(dim=1)[batch.valid].mean())
    assert lines[0]["epe"] > 0.6 * zero
    assert done.last["epe"] < 0.5 * zero

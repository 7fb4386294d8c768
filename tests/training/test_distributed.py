"""Two processes under torchrun do what one does with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmaflow.training import RunOptions, train
from gmaflow.training.run_folder import Checkpoints
from tests.training.conftest import assert_same_training, tiny_config, write_pairs

SETTINGS = {"model": "raft-small", "crop": "32x40", "batch": "4", "workers": "0"}
SETTINGS |= {"steps": "4", "iters": "2", "lr": "2e-5", "log_every": "2", "save_every": "2"}
SETTINGS |= {"validate_every": "4", "validate_pairs": "3", "accumulate": "2"}


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_whole_batch(tmp_path: Path) -> None:
    data = f"folder:{write_pairs(tmp_path / 'pairs')}"
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    settings += [f"data={data}", f"validate_on={data}"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "gmaflow", "train", "scenes-pretrain", *settings]
    command += [f"output={tmp_path / 'two'}", "device=cpu"]
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    config = tiny_config(
        data=data,
        workers=0,
        batch=4,
        steps=4,
        lr=2e-5,
        validate_every=4,
        validate_on=(data,),
        validate_pairs=3,
    )
    alone = train(config, RunOptions(output=tmp_path / "one", device="cpu", quiet=True))
    one, two = (Checkpoints(tmp_path / name / "checkpoints").newest() for name in ("one", "two"))
    assert one.step == two.step == 4
    assert_same_training(one.tensors, two.tensors)
    assert alone.best is not None
    assert two.best == pytest.approx(alone.best, rel=1e-3)
    # Only the first process speaks.
    assert done.stdout.count("done after 4 steps") == 1
    assert done.stderr.count("step 2:") == 1

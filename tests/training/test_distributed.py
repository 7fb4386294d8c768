"""Processes under torchrun do what one does with the whole batch, also if some are lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gmaflow.training import RunOptions, train
from gmaflow.training.run_folder import Checkpoints, TrainState
from tests.training.conftest import assert_same_training, same, tiny_config, write_pairs

SETTINGS = {"model": "raft-small", "crop": "32x40", "batch": "4", "workers": "0"}
SETTINGS |= {"steps": "4", "iters": "4", "lr": "2e-5", "log_every": "2", "save_every": "1"}
SETTINGS |= {"validate_every": "4", "validate_pairs": "3", "accumulate": "2"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
ENVIRONMENT |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # see docs/training.md
NODES = 2


def training(data: str, output: Path) -> list[str]:
    """What torchrun runs."""
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    settings += [f"data={data}", f"validate_on={data}", f"output={output}", "device=cpu"]
    return ["-m", "gmaflow", "train", "scenes-pretrain", *settings]


@pytest.mark.slow
def test_two_processes_train_as_one_even_if_one_is_lost(tmp_path: Path) -> None:
    """Two processes agree with one; two nodes that lose a process, with the two, bit for bit."""
    data = f"folder:{write_pairs(tmp_path / 'pairs')}"
    command = [
        *TORCHRUN,
        "--standalone",
        "--nproc-per-node",
        "2",
        *training(data, tmp_path / "two"),
    ]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Only the first process speaks.
    assert done.stdout.count("done after 4 steps") == 1
    assert done.stderr.count("step 2:") == 1

    config = tiny_config(
        data=data,
        workers=0,
        batch=4,
        steps=4,
        iters=4,
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

    lost = lose_a_process(data, tmp_path / "lost")
    assert lost.step == 4
    assert same(lost.tensors, two.tensors)


def lose_a_process(data: str, run: Path) -> TrainState:
    """Train on two nodes, kill a process of one after the first checkpoint; return the end."""
    node = [*TORCHRUN, "--nnodes", f"{NODES}", "--rdzv-backend", "c10d", "--max-restarts", "2"]
    node += ["--rdzv-endpoint", f"localhost:{free_port()}", *training(data, run), "resume=True"]
    nodes = [
        subprocess.Popen(
            node, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(NODES)
    ]
    try:
        wait_for(run / "checkpoints" / "step-00000001.pt", nodes)
        os.kill(worker_of(nodes[1].pid), signal.SIGKILL)
        output = [process.communicate(timeout=180)[0].decode() for process in nodes]
    finally:
        for process in nodes:
            process.kill()
    assert [process.returncode for process in nodes] == [0, 0], output
    assert "exitcode: -9" in output[1]
    assert "".join(output).count("done after 4 steps") == 1
    return Checkpoints(run / "checkpoints").newest()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def wait_for(path: Path, nodes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until a file is there, as long as the processes run."""
    deadline = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < deadline
        assert all(node.poll() is None for node in nodes), [node.communicate() for node in nodes]
        time.sleep(0.02)


def worker_of(launcher: int) -> int:
    """Return the process that a launcher of torchrun has started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return int(children[-1])

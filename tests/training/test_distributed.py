"""Processes under torchrun do what one does with the whole batch, also if some are lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gmaflow.training import RunOptions, train
from gmaflow.training.run_folder import Checkpoints, TrainState
from tests.training.conftest import assert_same_training, same, tiny_config, write_pairs

SETTINGS = {"model": "raft-small", "crop": "32x40", "batch": "4", "workers": "0"}
SETTINGS |= {"steps": "4", "iters": "4", "lr": "2e-5", "log_every": "2", "save_every": "1"}
SETTINGS |= {"validate_every": "4", "validate_pairs": "3", "accumulate": "2"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SCRIPT = Path(__file__).parents[2] / "examples" / "slurm_train.sh"


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
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
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


SRUN = """#!{python}
import subprocess, sys
nodes = [subprocess.Popen(sys.argv[1:]) for _ in range(2)]
sys.exit(max(abs(node.wait()) for node in nodes))
"""


def lose_a_process(data: str, run: Path) -> TrainState:
    """Train on two nodes of SLURM, kill a process after the first checkpoint; return the end.

    The script is the one that users have. What SLURM would do, start its command on each node, is
    done here on one machine.
    """
    programs = {
        "srun": SRUN.format(python=sys.executable),
        "scontrol": "#!/bin/sh\necho localhost\n",
        "torchrun": f'#!/bin/sh\nexec {" ".join(TORCHRUN)} "$@"\n',
    }
    for name, text in programs.items():
        path = run.parent / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    variables = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7"}
    variables |= {"PORT": f"{free_port()}", "OMP_NUM_THREADS": "1"}
    variables["PATH"] = f"{run.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        [SCRIPT, *training(data, run)[3:]],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(run / "checkpoints" / "step-00000001.pt", job)
        os.kill(workers_of(job.pid)[1], signal.SIGKILL)
        output = job.communicate(timeout=180)[0].decode()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, output
    assert output.count("exitcode: -9") == 1
    assert output.count("done after 4 steps") == 1
    return Checkpoints(run / "checkpoints").newest()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def wait_for(path: Path, job: subprocess.Popen[bytes]) -> None:
    """Wait until a file is there, as long as a job runs."""
    deadline = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < deadline
        assert job.poll() is None, job.communicate()
        time.sleep(0.02)


def workers_of(pid: int) -> list[int]:
    """Return the processes that train, among those that a process has started."""
    children = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    below = [worker for child in children for worker in workers_of(child)]
    trains = b"-m\0gmaflow\0train" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return below or ([pid] if trains else [])

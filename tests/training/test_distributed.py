"""Processes that train together do what one does with the whole batch, also if some are lost."""

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from gmaflow.data import Batch
from gmaflow.training import RunOptions, train
from gmaflow.training.config import StepPlan
from gmaflow.training.distributed import World
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.run_folder import Checkpoints, TrainState
from gmaflow.training.setup import make_network
from gmaflow.training.step import TrainStep
from tests.training.conftest import (
    assert_same_training,
    same,
    tiny_batch,
    tiny_config,
    write_pairs,
)

PLAN = StepPlan(lr=2e-5, iters=2, occluded=True)
SIZES = {"cpu": (32, 40), "cuda": (128, 160)}
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


# --- Gradients that processes average -------------------------------------------------------------


@pytest.fixture
def group_of_one(tmp_path: Path) -> Iterator[World]:
    place = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    yield World(grouped=True)
    dist.destroy_process_group()


@pytest.mark.parametrize("changes", [{}, {"model": "gma", "precision": "bf16"}, {"accumulate": 2}])
def test_one_process_that_exchanges_does_the_same_bit_for_bit(
    group_of_one: World, changes: dict[str, object]
) -> None:
    config = tiny_config(**changes)
    plain = TrainStep(make_network(config), config)
    shared = TrainStep(make_network(config), config, world=group_of_one)
    for number in range(3):
        batch = tiny_batch(seed=number)
        if number == 1:
            batch.image1[0] = torch.nan  # a step that is skipped
        expected, found = plain(batch, PLAN), shared(batch, PLAN)
        assert bool(found.skipped) == bool(expected.skipped) == (number == 1)
    assert same(plain.state(), shared.state())


@pytest.mark.slow
def test_two_processes_do_what_one_does_with_the_whole_batch(tmp_path: Path) -> None:
    found = train_in_two_processes(tmp_path, "cpu")
    torch.set_num_threads(1)
    assert_same_training(train_alone("cpu").state(), found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_processes_on_one_gpu_learn_by_recorded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums on a GPU have no fixed order: a single process differs from itself by 2 %.

    In TF32 it would be 9 %.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    found = train_in_two_processes(tmp_path, "cuda")
    expected = train_alone("cuda").state()
    distances = {
        name: float((value.cpu() - found[name].cpu()).norm() / value.norm().cpu())
        for name, value in expected.items()
        if name.startswith("adam.exp_avg.") and not name.endswith(".bias")
    }
    assert max(distances.values()) < 0.1
    assert statistics.median(distances.values()) < 0.005


def train_in_two_processes(folder: Path, device: str) -> dict[str, torch.Tensor]:
    """Return the state of raft-small, which must be the same in both."""
    command = [sys.executable, "-m", __name__, str(folder), device]
    # Compiled parts have their own tests, and two processes would compile for minutes.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    processes = [
        subprocess.Popen([*command, f"{rank}"], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    found = [torch.load(folder / f"{rank}.pt") for rank in range(2)]
    # Networks with batch norm, and a step that only one process has to skip, stay the same in both.
    for name in ("raft-small", "gma"):
        assert same(found[0][name], found[1][name])
    assert found[0]["skipped"] == found[1]["skipped"] == [False, False, True, False]
    state: dict[str, torch.Tensor] = found[0]["raft-small"]
    return state


def train_alone(device: str) -> TrainStep:
    config = tiny_config(batch=4, crop=SIZES[device], precision="fp32")
    step = TrainStep(make_network(config).to(device), config)
    for number in range(4):
        step(whole_batch(number, device), PLAN)
    return step


def whole_batch(number: int, device: str) -> Batch:
    batch = tiny_batch(4, seed=number, size=SIZES[device])
    if number == 2:
        batch.image1[3] = torch.nan
    return Batch(*(tensor.to(device) for tensor in batch))


def run_one_of_two(folder: Path, device: str, rank: int) -> None:
    """Train as one of two processes on half of each batch, and save the result."""
    torch.backends.cudnn.allow_tf32 = False
    place = f"file://{folder / 'processes'}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    world = World(dist.get_rank(), dist.get_world_size())
    found: dict[str, object] = {}
    for model in ("raft-small", "gma"):
        config = tiny_config(batch=4, model=model, crop=SIZES[device], precision="fp32")
        step = TrainStep(make_network(config).to(device), config, world=world)
        learn = RecordedStep(step) if device == "cuda" else step
        half = slice(2 * world.rank, 2 * world.rank + 2)
        found["skipped"] = [
            bool(learn(Batch(*(x[half] for x in whole_batch(number, device))), PLAN).skipped)
            for number in range(4)
        ]
        found[model] = {name: value.cpu() for name, value in step.state().items()}
    torch.save(found, folder / f"{world.rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_one_of_two(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

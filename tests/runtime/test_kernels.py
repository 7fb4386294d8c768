"""Kernels are compiled ahead, once for each specialization, and launched otherwise."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gmaflow.runtime.kernels import OPTIONS, Kernel, compiling_ahead, warm_up_triton


class Compiled:
    """Creates its launcher lazily, as Triton does."""

    def __init__(self, threads: set[int]) -> None:
        self.threads = threads

    @property
    def run(self) -> None:
        self.threads.add(threading.get_ident())


class Jit:
    """Does what Triton's compiled functions do, without a GPU."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.launched: list[tuple[object, ...]] = []
        self.compiled: list[tuple[object, ...]] = []
        self.threads: set[int] = set()
        self.launchers: set[int] = set()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **options: self.launched.append((grid, args, options))

    def warmup(self, *args: object, grid: tuple[int, ...], **options: object) -> Compiled:
        if self.broken:
            raise RuntimeError("does not compile")
        self.threads.add(threading.get_ident())
        self.compiled.append((grid, args, options))
        return Compiled(self.launchers)


def test_compiling_ahead_compiles_each_specialization_once_and_launches_nothing() -> None:
    jit = Jit()
    kernel = Kernel(jit)
    x, y = torch.zeros(4), torch.zeros(4, dtype=torch.float16)
    with compiling_ahead():
        for tensor in (x, y, x.clone()):
            for number in (3, 4):
                kernel[(1, 2)](tensor, number, LANES=8)
    assert not jit.launched
    assert len(jit.compiled) == 4
    assert threading.get_ident() not in jit.threads
    assert jit.launchers == jit.threads
    kernel[(1, 2)](x, 3, LANES=8)
    assert jit.launched == [((1, 2), (x, 3), {"LANES": 8} | OPTIONS)]


def test_compile_errors_are_raised_and_other_threads_are_not_affected() -> None:
    jit = Jit()
    other = threading.Thread(target=Kernel(jit)[(1,)])

    def compile_ahead() -> None:
        with compiling_ahead():
            Kernel(Jit(broken=True))[(1,)]()
            other.start()
            other.join()

    with pytest.raises(RuntimeError, match="does not compile"):
        compile_ahead()
    assert len(jit.launched) == 1
    Kernel(jit)[(1,)]()
    assert len(jit.launched) == 2


def test_compiling_ahead_waits_for_tritons_cache_key() -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    thread = warm_up_triton()
    with compiling_ahead():
        assert not thread.is_alive()
        # Otherwise every thread that compiles would compute it.
        assert cache.triton_key.cache_info().currsize == 1
    assert warm_up_triton() is thread


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "available"), [(75, 64), (86, 99), (120, 99)])
def test_kernels_fit_into_gpus_that_are_not_here(
    capability: int, available: int, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.runtime.compile_for", str(capability)],
        cwd=Path(__file__).parents[2],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout)
    assert len(taken) == 4
    too_large = {name: size for name, size in taken.items() if size > 1024 * available}
    assert not too_large

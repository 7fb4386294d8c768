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

from gmaflow.runtime.kernels import (
    KEY_FILE,
    OPTIONS,
    Kernel,
    compiling_ahead,
    stored_key,
    warm_up_triton,
)


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
        assert cache.triton_key.__module__ == Kernel.__module__
    assert warm_up_triton() is thread


def test_the_key_is_that_of_triton() -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    code = "from triton.runtime.cache import triton_key; print(triton_key(), end='')"
    own = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    warm_up_triton().join()
    assert cache.triton_key() == own.stdout


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package laid out as Triton is."""
    for name in ("triton/compiler/code.py", "triton/_C/libtriton.so"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("1")
    return tmp_path / "triton"


def test_a_key_is_computed_once(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    assert stored_key(lambda: "first", package, folder) == "first"
    assert stored_key(lambda: "second", package, folder) == "first"
    assert [file.name for file in folder.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("name", ["compiler/code.py", "_C/libtriton.so"])
def test_a_key_is_computed_again_if_a_file_has_changed(
    name: str, package: Path, tmp_path: Path
) -> None:
    stored_key(lambda: "first", package, tmp_path)
    (package / name).write_text("2")
    os.utime(package / name, ns=(1, 1))
    assert stored_key(lambda: "second", package, tmp_path) == "second"
    (package / "more.py").touch()
    assert stored_key(lambda: "third", package, tmp_path) == "third"


def test_a_linked_backend_is_followed(package: Path, tmp_path: Path) -> None:
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia" / "compiler.py").write_text("1")
    (package / "backends").mkdir()
    (package / "backends" / "nvidia").symlink_to(tmp_path / "nvidia")
    stored_key(lambda: "first", package, tmp_path)
    (tmp_path / "nvidia" / "compiler.py").write_text("22")
    assert stored_key(lambda: "second", package, tmp_path) == "second"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"key":'])
def test_a_damaged_file_of_the_key_is_replaced(content: str, package: Path, tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text(content)
    assert stored_key(lambda: "first", package, tmp_path) == "first"
    assert stored_key(lambda: "second", package, tmp_path) == "first"


def test_a_stored_file_without_a_key_is_replaced(package: Path, tmp_path: Path) -> None:
    stored_key(lambda: "first", package, tmp_path)
    stored = json.loads((tmp_path / KEY_FILE).read_text())
    (tmp_path / KEY_FILE).write_text(json.dumps({"files": stored["files"]}))
    assert stored_key(lambda: "second", package, tmp_path) == "second"


def test_a_file_of_triton_that_cannot_be_read_leaves_the_key_to_triton(
    package: Path, tmp_path: Path
) -> None:
    (package / ".#code.py").symlink_to("nothing")  # an editor's lock
    assert stored_key(lambda: "first", package, tmp_path / "cache") == "first"
    assert stored_key(lambda: "second", package, tmp_path / "cache") == "second"


def test_a_key_that_cannot_be_stored_leaves_nothing(package: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / KEY_FILE).mkdir(parents=True)
    assert stored_key(lambda: "first", package, tmp_path / "cache") == "first"
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [KEY_FILE]


def test_a_key_need_not_be_stored(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert stored_key(lambda: "first", package, tmp_path / "file" / "cache") == "first"


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

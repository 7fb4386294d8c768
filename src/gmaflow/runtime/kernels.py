"""Triton kernels that are compiled in parallel, before the first call that launches them.

A call launches about twenty kernels, and Triton compiles each one when it is first launched, which
takes a quarter of a second. `compiling_ahead` is a dry run of the call: kernels are compiled on
threads instead of being launched.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

MAX_THREADS = 8
OPTIONS = {"enable_fp_fusion": True}
"""What all kernels are compiled with: a product and a sum in one instruction, whatever Triton's
default, which changes with its versions."""

KEY_FILE = "gmaflow-key.json"
"""Where the key of Triton's cache is stored, in the cache's folder."""

_compilers = threading.local()


class Kernel:
    """A Triton kernel; `kernel[grid](...)` launches it, or compiles it within `compiling_ahead`."""

    def __init__(self, jit: Any) -> None:  # noqa: ANN401  (Triton has no type for it)
        self.jit = jit

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: object, **options: object) -> None:
            options |= OPTIONS
            compiler: KernelCompiler | None = getattr(_compilers, "current", None)
            if compiler is None:
                self.jit[grid](*args, **options)
            else:
                key = (self.jit, *map(_specialization, args), *sorted(options.items()))
                compiler.compile(key, partial(self._compile, grid, args, options))

        return launch

    def _compile(
        self, grid: tuple[int, ...], args: tuple[object, ...], options: dict[str, object]
    ) -> None:
        compiled = self.jit.warmup(*args, grid=grid, **options)
        # Accessing the launcher loads the kernel. Triton 3.6 also calls a C compiler for it.
        getattr(compiled, "run", None)


def kernel(jit: Any) -> Kernel:  # noqa: ANN401
    """Decorate a `triton.jit` function that is launched rather than called by other kernels."""
    return Kernel(jit)


class KernelCompiler:
    """Compiles the kernels that a call would launch, on threads."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.pending: dict[tuple[object, ...], Future[None]] = {}

    def compile(self, key: tuple[object, ...], prepare: Callable[[], None]) -> None:
        """Compile a kernel for one specialization, unless that has already begun."""
        if key not in self.pending:
            self.pending[key] = self.threads.submit(prepare)


@cache
def warm_up_triton() -> threading.Thread:
    """Start a thread, once, that imports Triton and finds the key of its cache.

    Meanwhile the caller starts the GPU and loads weights. Threads that need the key at the same
    time would all compute it.
    """
    thread = threading.Thread(target=_find_key, name="gmaflow-triton", daemon=True)
    thread.start()
    return thread


def _find_key() -> None:
    with suppress(Exception):  # Triton raises the error when it needs the key
        import triton
        from triton.runtime import cache as kernel_cache

        package, folder = Path(triton.__file__).parent, Path(triton.knobs.cache.dir)
        key = stored_key(kernel_cache.triton_key, package, folder)
        kernel_cache.triton_key = lambda: key


def stored_key(compute: Callable[[], str], package: Path, folder: Path) -> str:
    """Return the key of Triton's cache, computed only if a file of Triton has changed.

    The key is a hash of all of Triton's files, 0.4 GB, and computing it slows the rest of the start
    down. So it is stored in the cache's folder, with the sizes and times of these files.
    """
    store = folder / KEY_FILE
    try:
        state = state_of(package)
    except OSError:
        return compute()
    with suppress(OSError, ValueError):
        stored = json.loads(store.read_text(encoding="utf-8"))
        if isinstance(stored, dict) and stored.get("files") == state and "key" in stored:
            return str(stored["key"])
    key = compute()
    with suppress(OSError):  # the folder may be read-only
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / KEY_FILE
            new.write_text(json.dumps({"key": key, "files": state}), encoding="utf-8")
            new.replace(store)
    return key


def state_of(package: Path) -> list[list[object]]:
    """Return the names, sizes and times of the files of which Triton computes its key."""
    # Where Triton is developed, the folders of its backends are links, which rglob does not follow.
    folders = [package, *(link for link in package.glob("backends/*") if link.is_symlink())]
    sources = [file for folder in folders for file in folder.resolve().rglob("*.py")]
    files = sorted([*sources, *package.glob("_C/libtriton*")])
    stats = [(str(file), file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Compile the kernels of the calls inside instead of launching them; wait for all of them."""
    warm_up_triton().join()
    previous = getattr(_compilers, "current", None)
    num_threads = min(MAX_THREADS, os.cpu_count() or 1)
    # Each thread has a current device.
    set_device = None
    if torch.cuda.is_available():
        set_device = partial(torch.cuda.set_device, torch.cuda.current_device())
    with ThreadPoolExecutor(num_threads, "gmaflow-compile", set_device) as threads:
        compiler = _compilers.current = KernelCompiler(threads)
        try:
            yield
        finally:
            _compilers.current = previous
        for compiled in compiler.pending.values():
            compiled.result()


def _specialization(arg: object) -> object:
    """Return what Triton specializes on: dtype and alignment of tensors, and other values."""
    if isinstance(arg, torch.Tensor):
        return arg.dtype, arg.data_ptr() % 16 == 0
    return arg

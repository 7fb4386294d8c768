"""Triton kernels that are compiled in parallel, before the first call that launches them.

A call launches about twenty kernels, and Triton compiles each one when it is first launched, which
takes a quarter of a second. `compiling_ahead` is a dry run of the call: kernels are compiled on
threads instead of being launched.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import torch

MAX_THREADS = 8
OPTIONS = {"enable_fp_fusion": True}
"""What all kernels are compiled with: a product and a sum in one instruction, whatever Triton's
default, which changes with its versions."""

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
    """Start a thread, once, that imports Triton and computes the key of its cache.

    The key is a hash of all of Triton's files, which takes most of a second, and threads that need
    it at the same time would all compute it. Meanwhile the caller starts the GPU and loads weights.
    """
    thread = threading.Thread(target=_compute_key, name="gmaflow-triton", daemon=True)
    thread.start()
    return thread


def _compute_key() -> None:
    with suppress(Exception):  # Triton raises the error when it needs the key
        from triton.runtime.cache import triton_key

        triton_key()


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

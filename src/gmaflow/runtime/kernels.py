"""Triton kernels that are compiled at the same time, before the first call that launches them.

A call launches some twenty kernels, and each is compiled when it is first launched, in a quarter of
a second. A rehearsal goes through the call without launching them: they are compiled on threads.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import torch

MOST_THREADS = 8

_rehearsals = threading.local()


class Kernel:
    """A Triton kernel; `kernel[grid](...)` launches it, or compiles it in a rehearsal."""

    def __init__(self, jit: Any) -> None:  # noqa: ANN401  (Triton has no type for it)
        self.jit = jit

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: object, **options: object) -> None:
            rehearsal: Rehearsal | None = getattr(_rehearsals, "current", None)
            if rehearsal is None:
                self.jit[grid](*args, **options)
            else:
                kind = (self.jit, *map(_kind, args), *sorted(options.items()))
                rehearsal.compile(kind, partial(self._prepare, grid, args, options))

        return launch

    def _prepare(
        self, grid: tuple[int, ...], args: tuple[object, ...], options: dict[str, object]
    ) -> None:
        compiled = self.jit.warmup(*args, grid=grid, **options)
        # Asking for the launcher loads the kernel. Until 3.6 Triton also calls a C compiler for it,
        # which takes as long as the kernel.
        getattr(compiled, "run", None)


def kernel(jit: Any) -> Kernel:  # noqa: ANN401
    """Decorate what `triton.jit` made, if it is launched rather than called by other kernels."""
    return Kernel(jit)


class Rehearsal:
    """Compiles the kernels that a call would launch."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.pending: dict[tuple[object, ...], Future[None]] = {}

    def compile(self, kind: tuple[object, ...], prepare: Callable[[], None]) -> None:
        """Compile a kernel for one kind of arguments, unless that has begun already."""
        if kind not in self.pending:
            self.pending[kind] = self.threads.submit(prepare)


@cache
def waking_triton() -> threading.Thread:
    """Start a thread, the first time, that imports Triton and computes the key of its cache.

    The key is a hash of all of Triton's files, which takes most of a second, and threads that need
    it at the same time would all compute it. Meanwhile the caller starts the GPU and loads weights.
    """
    thread = threading.Thread(target=_compute_key, name="gmaflow-triton", daemon=True)
    thread.start()
    return thread


def _compute_key() -> None:
    with suppress(Exception):  # Triton computes it again when it is needed, and tells what is wrong
        from triton.runtime.cache import triton_key

        triton_key()


@contextmanager
def rehearsing() -> Iterator[None]:
    """Compile the kernels of the calls within instead of launching them; ends when all are."""
    waking_triton().join()
    before = getattr(_rehearsals, "current", None)
    count = min(MOST_THREADS, os.cpu_count() or 1)
    # Each thread has a current device.
    start = None
    if torch.cuda.is_available():
        start = partial(torch.cuda.set_device, torch.cuda.current_device())
    with ThreadPoolExecutor(count, "gmaflow-compile", start) as threads:
        rehearsal = _rehearsals.current = Rehearsal(threads)
        try:
            yield
        finally:
            _rehearsals.current = before
        for compiled in rehearsal.pending.values():
            compiled.result()


def _kind(arg: object) -> object:
    """Return what a kernel may be compiled for: tensors by type and alignment, numbers as such."""
    if isinstance(arg, torch.Tensor):
        return arg.dtype, arg.data_ptr() % 16 == 0
    return arg

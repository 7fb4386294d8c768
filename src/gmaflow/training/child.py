"""Processes that do a part of the work, and end when the one that started them does."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

Child = subprocess.Popen[bytes]


def start_child(
    command: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    hears_interrupts: bool = False,
) -> Child:
    """Start a Python process; it is to call `end_with_parent` first.

    Args:
        command: The program, as for `python -c`.
        arguments: Its `sys.argv[1:]`.
        environment: Variables that differ from this process's.
        hears_interrupts: Whether Ctrl-C ends it; if not, its parent must.
    """
    # It imports what this process would, not what happens to lie in the current folder.
    search = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | search | dict(environment or {}),
        start_new_session=not hears_interrupts,
    )


def usable_cores() -> int:
    """Return how many cores this process may use, which a scheduler may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent(clean_up: Callable[[], object] = lambda: None) -> None:
    """From now on, end when the process at the other end of the input does, however that ends.

    Args:
        clean_up: Called then, since the parent no longer can.
    """

    def wait_for_the_end() -> None:
        # Not by sys.stdin: its lock, still held here, would make an abort of this process's own
        # end.
        os.read(0, 1)
        clean_up()
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()

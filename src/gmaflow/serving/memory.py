"""Giving memory back."""

import ctypes
import sys


def return_free_memory() -> None:
    """Let the allocator give back to the system what nobody uses.

    The C library keeps freed memory for the next time, which for a server that idles after a burst
    may be gigabytes for hours.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if trim is not None:
            trim(0)

"""Many small pieces of work at once."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Thing = TypeVar("Thing")
Made = TypeVar("Made")


def in_threads(make: Callable[[Thing], Made], things: Iterable[Thing]) -> Iterator[Made]:
    """Yield what is made of each thing, in their order, by a thread for each core.

    Each thread lets torch use that core alone: many threads that each want all cores are slower
    than one.
    """
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(initializer=torch.set_num_threads, initargs=(1,)) as threads:
            yield from threads.map(make, things)
    finally:
        torch.set_num_threads(cores)

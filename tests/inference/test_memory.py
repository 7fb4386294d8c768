import sys
from pathlib import Path

import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference.memory import (
    as_bytes,
    free_memory,
    give_back_freed,
    memory_budget,
    out_of_memory_as_sentence,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1.5GB", 1.5e9),
        ("800 MB", 8e8),
        ("2GiB", 2 * 2**30),
        ("512k", 512e3),
        ("3g", 3e9),
        (123456, 123456),
    ],
)
def test_amounts_of_memory(text: str | int, amount: float) -> None:
    assert as_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "1.5.2GB", "5 i", "GB", "1e9x"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="no amount of memory; give one such as"):
        as_bytes(text)


def test_a_limit_is_the_budget() -> None:
    assert memory_budget(torch.device("cpu"), 1e6) == 1e6
    assert memory_budget(torch.device("cpu")) > 1e6


def test_some_memory_is_free_here() -> None:
    assert 1e8 < free_memory(torch.device("cpu")) < 1e14


def test_running_out_of_memory_is_a_sentence() -> None:
    with (
        pytest.raises(FlowError, match=r"not enough memory for 1 pair\(s\) of 4000x4000"),
        out_of_memory_as_sentence((1, 3, 4000, 4000)),
    ):
        torch.empty(2**56)
    with pytest.raises(RuntimeError, match="something else"), out_of_memory_as_sentence((1,)):
        raise RuntimeError("something else")


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_what_was_freed_between_what_is_kept_is_given_back() -> None:
    blocks = [torch.ones(2**14) for _ in range(1600)]  # too small to be mapped one by one
    kept = blocks[::16]
    full = resident()
    del blocks
    give_back_freed()
    assert full - resident() > 80e6
    assert sum(float(block.sum()) for block in kept) == 100 * 2**14


def resident() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024.0 * int(line.split()[1])
    raise AssertionError("no VmRSS")

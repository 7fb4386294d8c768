import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gmaflow.serving.results import ResultFolder


@pytest.fixture
def threads_change_often() -> Iterator[None]:
    """Collect garbage all the time, and let other threads go on in the middle of it."""
    thresholds = gc.get_threshold()

    def give_way(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(give_way)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("threads_change_often")
def test_threads_read_results_at_once(tmp_path: Path) -> None:
    wanted = np.arange(6, dtype=np.float32).reshape(2, 3)
    folder = ResultFolder(tmp_path / "job")
    folder.save("a", wanted)
    read: list[np.ndarray] = []

    def work() -> None:
        read.extend(folder.load("a") for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 8 * 50
    assert all(np.array_equal(array, wanted) for array in read)

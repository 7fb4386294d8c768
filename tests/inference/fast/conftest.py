"""What the tests of the fast back end share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield

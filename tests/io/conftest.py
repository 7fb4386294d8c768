"""What the tests of reading and writing share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples that Hypothesis draws."""
    return tmp_path_factory.mktemp("files")

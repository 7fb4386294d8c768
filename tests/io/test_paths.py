import os
from pathlib import Path

import pytest

from gmaflow.errors import ImageError
from gmaflow.io.paths import require_file


def test_a_file_is_taken_as_text_or_path(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    assert require_file(file, ImageError, "a file") == file
    assert require_file(str(file), ImageError, "a file") == file


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    wrong = {
        tmp_path: "is a folder",
        tmp_path / "none": "does not exist",
        pipe: "not a regular file",
        tmp_path / ("x" * 300): "cannot be looked at",
    }
    for path, reason in wrong.items():
        with pytest.raises(ImageError, match=reason) as caught:
            require_file(path, ImageError, "an image file")
        assert str(path) in str(caught.value)

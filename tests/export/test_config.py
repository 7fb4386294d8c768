import pytest

from gmaflow.errors import FlowError
from gmaflow.export import ExportConfig


def test_sizes() -> None:
    assert ExportConfig().fixed_size == (440, 1024)
    assert ExportConfig(size="100x140").fixed_size == (100, 140)
    assert ExportConfig(dynamic=True).fixed_size is None


def test_batches() -> None:
    assert ExportConfig().fixed_batch == 1
    assert ExportConfig(batch=4).fixed_batch == 4
    assert ExportConfig(batch="any").fixed_batch is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": "440"}, "'440' is not a size; give height x width such as 440x1024"),
        ({"size": "axb"}, "'axb' is not a size"),
        ({"size": "8x64"}, "8x64 is too small; give at least 16x16"),
        ({"size": "64x99999"}, "64x99999 is too large"),
        ({"size": "64x64", "dynamic": True}, "exclude each other; give --size or --dynamic"),
        ({"iters": 0}, "iters is 0; give at least 1"),
        ({"batch": -1}, "batch is -1; give at least 1, or any"),
    ],
)
def test_nonsense_is_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        ExportConfig(**wrong)  # type: ignore[arg-type]

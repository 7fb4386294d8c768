from hypothesis import given
from hypothesis import strategies as st

from gmaflow.viz._strips import strips


@given(st.integers(0, 3000), st.integers(0, 200_000))
def test_every_row_is_met_once_and_in_order(height: int, width: int) -> None:
    rows = list(range(height))
    assert [row for part in strips(height, width) for row in rows[part]] == rows

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.io.exr_deep import flatten
from tests.io.exrs import deep


def over(samples: list[tuple[float, float, float]]) -> float:
    """Depth, colour and alpha of one pixel, laid over one another from the back."""
    seen = 0.0
    for _, color, alpha in sorted(samples, key=lambda sample: -sample[0]):
        seen = color + (1 - alpha) * seen
    return seen


@given(st.integers(0, 2**32 - 1), st.sampled_from(["", "beauty."]))
def test_what_is_near_lies_over_what_is_far(seed: int, layer: str) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, (3, 4))
    depth, color, alpha = rng.permutation(60)[: counts.sum()], *rng.random((2, counts.sum()))
    values = {"Z": depth, f"{layer}Y": color, f"{layer}A": alpha}
    got = flatten({name: deep(counts, one) for name, one in values.items()}, (f"{layer}Y",))
    ends = np.cumsum(counts)
    wanted = [
        over(list(zip(*(one[end - count : end] for one in (depth, color, alpha)), strict=True)))
        for count, end in zip(counts.flat, ends, strict=True)
    ]
    np.testing.assert_allclose(got[f"{layer}Y"].ravel(), wanted, atol=1e-5)


def test_without_alpha_the_nearest_hides_the_others() -> None:
    counts = np.array([[3, 0]])
    planes = {"Z": deep(counts, np.array([3, 1, 2])), "Y": deep(counts, np.array([0.3, 0.1, 0.2]))}
    np.testing.assert_allclose(flatten(planes, ("Y",))["Y"], [[0.1, 0]], rtol=1e-6)
    del planes["Z"]
    np.testing.assert_allclose(flatten(planes, ("Y",))["Y"], [[0.3, 0]], rtol=1e-6)


def test_a_part_without_any_value_is_black() -> None:
    empty = deep(np.zeros((2, 3), int), np.zeros(0))
    assert not flatten({"Y": empty, "Z": empty, "A": empty}, ("Y",))["Y"].any()

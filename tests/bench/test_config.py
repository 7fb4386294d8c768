from itertools import pairwise

import pytest

from gmaflow.bench import BenchConfig
from gmaflow.errors import FlowError


def test_sizes_and_models_come_with_commas_or_one_by_one() -> None:
    config = BenchConfig(sizes=("440x1024,64x80", "100x200"), models=("raft", "gma,gma-p"))
    assert config.measured_sizes == [(440, 1024), (64, 80), (100, 200)]
    assert config.model_names == ["raft", "gma", "gma-p"]


@pytest.mark.parametrize("name", ["published", "reference"])
def test_a_comparison_measures_both_ways_of_every_model(name: str) -> None:
    config = BenchConfig(models=("raft", "gma"), against=name, batch=2)
    cases = list(config.cases((440, 1024)))
    assert [(case.model, case.way) for case in cases] == [
        ("raft", "gmaflow"),
        ("raft", "published"),
        ("gma", "gmaflow"),
        ("gma", "published"),
    ]
    assert {(case.height, case.width, case.batch) for case in cases} == {(440, 1024, 2)}


def test_a_sweep_doubles_the_pixels() -> None:
    sizes = BenchConfig(sizes=("1088x1920",), sweep=True).measured_sizes
    areas = [height * width for height, width in sizes]
    assert sizes[-1] == (1088, 1920)
    for before, after in pairwise(areas):
        assert after / before == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": ("440",)}, "'440' is no size; give height x width such as 440x1024"),
        ({"sizes": ("8x8",)}, "8x8 is too small; give at least 16x16"),
        ({"sizes": ("99999x440",)}, "99999x440 is too large; give at most 16384x16384"),
        ({"sizes": ()}, "nothing to measure"),
        ({"models": ("gam",)}, "no model is called 'gam'"),
        ({"against": "torchvision"}, "against 'torchvision' is not known; give published"),
        ({"precision": "int8"}, "precision 'int8' is not known"),
        ({"backend": "quick"}, "back end 'quick' is not known"),
        ({"max_memory": "lots"}, "'lots' is not an amount of memory"),
        ({"batch": 0}, "batch is 0; give at least 1"),
        ({"rounds": -1}, "cannot be below 0"),
        ({"sizes": ("128x128",), "sweep": True}, "give at least 256x256"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        BenchConfig(**settings)  # type: ignore[arg-type]

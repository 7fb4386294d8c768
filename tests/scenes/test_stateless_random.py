import numpy as np

from gmaflow.scenes.stateless_random import StatelessRandom


def test_numbers_are_uniform_independent_and_stateless() -> None:
    many = StatelessRandom(7, np.arange(4000))
    uniform = many.uniform(5)
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(uniform[:-1, 0], uniform[1:, 0])[0, 1]) < 0.05
    assert abs(np.corrcoef(uniform[:, 0], uniform[:, 1])[0, 1]) < 0.05
    normal = many.normal(3)
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    single = StatelessRandom(7, np.array([17]))
    assert np.array_equal(single.uniform(5)[0], uniform[17])
    for _ in range(3):  # past the end of a block
        assert many.uniform(700).shape == (4000, 700)

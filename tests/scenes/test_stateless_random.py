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


def test_a_branch_is_independent_and_leaves_the_stream_as_it_is() -> None:
    plain, branching = (StatelessRandom(7, np.arange(4000)) for _ in range(2))
    branch = branching.branch(1)
    drawn = branch.uniform(2)
    uniform = plain.uniform(2)
    assert np.array_equal(branching.uniform(2), uniform)
    assert abs(np.corrcoef(drawn[:, 0], uniform[:, 0])[0, 1]) < 0.05
    assert not np.array_equal(branching.branch(2).uniform(2), drawn)
    assert np.array_equal(StatelessRandom(7, np.array([17])).branch(1).uniform(2)[0], drawn[17])

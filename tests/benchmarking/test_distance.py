from gmaflow.benchmarking.cases import Case
from gmaflow.benchmarking.distance import distance_from_float32


def test_half_precision_is_further_away_than_the_fast_back_end() -> None:
    case = Case(model="raft-small", height=64, width=72, iters=2, device="cpu")
    half = Case(**{**vars(case), "precision": "bf16"})
    near, far = distance_from_float32(case), distance_from_float32(half)
    assert 0 < near.mean <= near.largest < 1e-3
    assert far.mean > 10 * near.mean

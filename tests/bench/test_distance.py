from dataclasses import replace

from gmaflow.bench.cases import Case
from gmaflow.bench.distance import distance_from_float32
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.model import MODELS, MemoryPlan


def test_half_precision_is_further_away_than_the_fast_back_end() -> None:
    case = Case(model="raft-small", height=64, width=72, iters=2, device="cpu")
    half = Case(**{**vars(case), "precision": "bf16"})
    near, far = distance_from_float32(case), distance_from_float32(half)
    assert 0 < near.mean <= near.largest < 1e-3
    assert far.mean > 10 * near.mean


def test_a_limit_of_memory_is_for_what_is_measured_alone() -> None:
    case = Case(model="raft-small", height=384, width=520, iters=1, device="cpu")
    streamed = MemoryPlan(store_correlation=False, store_attention=False)
    computation = Computation(MODELS[case.model], fast=True)
    enough = bytes_needed(computation, streamed, batch=1, height=case.height, width=case.width)
    within = distance_from_float32(replace(case, max_memory=str(enough)))
    assert within.largest < 1e-3

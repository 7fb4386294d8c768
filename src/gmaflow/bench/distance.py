"""How far the flow is from that of the network as it is written, in float32."""

from dataclasses import dataclass, replace

from gmaflow.bench.cases import Case
from gmaflow.inference import BatchEstimate


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Of all pixels, in pixels."""

    mean: float
    largest: float


def distance_from_float32(case: Case) -> Distance:
    """Estimate the same images both ways, on the same device.

    The exact way needs more memory: within the same limit it could need tiles, which change flow.
    """
    exact = replace(case, precision="fp32", backend="reference", max_memory="")
    found, expected = (one.prepare()() for one in (case, exact))
    assert isinstance(found, BatchEstimate)
    assert isinstance(expected, BatchEstimate)
    away = (found.flow - expected.flow).norm(dim=1)
    return Distance(mean=float(away.mean()), largest=float(away.max()))

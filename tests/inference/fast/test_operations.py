import torch

from gmaflow.inference.fast.operations import EPSILON, SUMMED_ROWS, measure, normalize


def features(rows: int) -> torch.Tensor:
    """Channels as they come out of a ReLU: far from 0 on average, so that sums grow large."""
    torch.manual_seed(0)
    return (torch.randn(rows, 6) * torch.linspace(0.1, 3, 6) + 2).relu()


def test_statistics_of_many_rows_lose_no_digits() -> None:
    rows = features(100 * SUMMED_ROWS + 17)
    exact = rows.double()
    mean, variance = measure(rows)
    torch.testing.assert_close(mean.double(), exact.mean(dim=0), rtol=2e-6, atol=0)
    torch.testing.assert_close(
        variance.double(), exact.var(dim=0, correction=0), rtol=2e-6, atol=1e-9
    )


def test_rows_are_normalized_as_by_instance_norm() -> None:
    rows = features(3 * SUMMED_ROWS + 5)
    expected = torch.nn.functional.instance_norm(rows.T[None].double(), eps=EPSILON)[0].T
    normalize(rows)
    torch.testing.assert_close(rows.double(), expected, rtol=0, atol=1e-5)

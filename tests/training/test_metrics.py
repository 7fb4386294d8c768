import pytest
import torch

from gmaflow.training.metrics import SUMS, error_sums, mean_errors


def test_errors_by_region_and_threshold() -> None:
    # Five pixels in a row: one unknown, two seen, one covered, one that leaves to the right.
    truth = torch.zeros(1, 2, 1, 5)
    truth[0, 0, 0, 4] = 3
    off = torch.tensor([100.0, 0.5, 2.0, 4.0, 6.0])
    estimate = truth.clone()
    estimate[0, 1, 0] = off
    valid = torch.tensor([[[False, True, True, True, True]]])
    occluded = torch.tensor([[[True, False, False, True, True]]])
    means = mean_errors(error_sums(estimate, truth, valid, occluded))
    assert means == pytest.approx(
        {
            "epe": 12.5 / 4,
            "epe-noc": 1.25,
            "epe-occ": 5,
            "epe-occ-in": 4,
            "epe-occ-out": 6,
            "1px": 0.25,
            "3px": 0.5,
            "5px": 0.75,
        }
    )


def test_sums_of_halves_are_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    estimate, truth = torch.randn(2, 4, 2, 8, 9, generator=generator).unbind()
    valid, occluded = (torch.rand(2, 4, 8, 9, generator=generator) > 0.5).unbind()
    parts = [
        error_sums(estimate[i], truth[i], valid[i], occluded[i]) for i in (slice(2), slice(2, 4))
    ]
    torch.testing.assert_close(sum(parts), error_sums(estimate, truth, valid, occluded))


def test_a_region_without_pixels_has_no_mean() -> None:
    assert mean_errors(torch.zeros(SUMS)) == {}

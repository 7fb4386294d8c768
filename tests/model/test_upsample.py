import torch

from gmaflow.model.correlation import pixel_grid
from gmaflow.model.update import BilinearUpsampler, convex_upsample


def test_a_constant_flow_stays_constant_away_from_the_border() -> None:
    fine = convex_upsample(torch.ones(1, 2, 4, 5), torch.randn(1, 576, 4, 5))
    assert fine.shape == (1, 2, 32, 40)
    torch.testing.assert_close(fine[..., 8:-8, 8:-8], torch.full((1, 2, 16, 24), 8.0))


def test_all_weight_on_the_centre_repeats_each_cell() -> None:
    flow = torch.randn(1, 2, 3, 4)
    weights = torch.zeros(1, 9, 64, 3, 4)
    weights[:, 4] = 400
    fine = convex_upsample(flow, weights.flatten(1, 2))
    expected = 8 * flow.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    torch.testing.assert_close(fine, expected)


def test_all_weight_on_the_right_neighbour_moves_the_cells() -> None:
    flow = torch.randn(1, 2, 3, 4)
    weights = torch.zeros(1, 9, 64, 3, 4)
    weights[:, 5] = 400
    fine = convex_upsample(flow, weights.flatten(1, 2))
    torch.testing.assert_close(
        fine[..., :24], 8 * flow[..., 1:].repeat_interleave(8, 2).repeat_interleave(8, 3)
    )
    assert fine[..., 24:].abs().max() < 1e-30


def test_fine_pixels_have_weights_of_their_own() -> None:
    flow = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2).repeat(1, 2, 1, 1)
    weights = torch.zeros(1, 9, 8, 8, 1, 2)
    weights[:, 4] = 400
    weights[:, 4, 3, 6], weights[:, 5, 3, 6] = 0, 400  # row 3, column 6 looks to the right
    fine = convex_upsample(flow, weights.reshape(1, 576, 1, 2))
    assert fine[0, 0, 3, 6] == 16
    assert fine[0, 0, 6, 3] == 8


def test_bilinear_keeps_corners_and_scales() -> None:
    flow = torch.randn(1, 2, 3, 4)
    fine = BilinearUpsampler()(flow, torch.zeros(1, 1, 3, 4))
    assert fine.shape == (1, 2, 24, 32)
    torch.testing.assert_close(fine[..., ::23, ::31], 8 * flow[..., ::2, ::3])


def test_the_grid_counts_x_then_y() -> None:
    grid = pixel_grid(torch.zeros(5, 1, 3, 4))
    assert grid[0, :, 2, 1].tolist() == [1, 2]

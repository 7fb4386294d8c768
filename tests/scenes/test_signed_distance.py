import torch

from gmaflow.scenes.signed_distance import outline_distance, outline_texels


def test_outlines_are_distances() -> None:
    axis = torch.arange(64) + 0.5
    mask = (axis < 40)[None, None].expand(1, 64, 64)
    distance = outline_distance(outline_texels(mask))[0, 16]
    expected = 20 - (torch.arange(32) + 0.5)
    assert (distance - expected.clamp(-8, 8))[1:].abs().max() < 0.3
    assert distance[0] == -8, "the rim is outside"
    near = expected.abs() < 7
    torch.testing.assert_close(distance[near], expected[near], atol=0.07, rtol=0)


def test_outlines_are_distances_in_all_directions() -> None:
    cells = torch.rand(64, 64, generator=torch.Generator().manual_seed(3)) > 0.98
    distance = outline_distance(outline_texels(cells[None]))[0]
    places = torch.cartesian_prod(torch.arange(64.0), torch.arange(64.0))
    gap = torch.cdist(places, places[cells.flatten()]).amin(dim=1).view(64, 64)
    # Four cells are a texel, and two of them its side.
    expected = -torch.nn.functional.avg_pool2d((gap - 0.5)[None], 2)[0] / 2
    outside = torch.nn.functional.max_pool2d(cells[None].float(), 2)[0] == 0
    inner = outside[1:-1, 1:-1]
    torch.testing.assert_close(
        distance[1:-1, 1:-1][inner], expected[1:-1, 1:-1][inner], atol=0.04, rtol=0
    )

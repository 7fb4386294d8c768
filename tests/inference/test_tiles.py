"""Laws of tiles: nothing is lost, nothing is counted twice, there is no visible seam."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmaflow.inference import FlowEstimator
from gmaflow.inference.tiles import (
    OVERLAP,
    blend_weights,
    count_parts,
    estimate_in_parts,
    estimate_in_tiles,
    tile_sizes,
    tile_starts,
)
from gmaflow.model import STRIDE, Prediction
from tests.conftest import random_images

LENGTHS = st.integers(48, 500).map(lambda cells: STRIDE * cells)


def colours_as_flow(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
    """Estimate nothing: give back what the images show, which no tiling may change."""
    low = image2[:, :2, ::STRIDE, ::STRIDE]
    return Prediction([image1[:, :2]], low if start is None else low + start)


@given(length=LENGTHS, count=st.integers(1, 8))
def test_weights_sum_to_one_and_tiles_cover_everything(length: int, count: int) -> None:
    sides = sorted({side for side, _ in tile_sizes(length, 384)})
    tile = sides[count % len(sides)] if sides else length
    starts = tile_starts(length, tile)
    assert starts[0] == 0
    assert starts[-1] == length - tile
    assert all(start % STRIDE == 0 for start in starts)
    assert all(before + tile - after >= OVERLAP - STRIDE for before, after in pairwise(starts))
    total = torch.zeros(length)
    for start, weights in zip(starts, blend_weights(length, tile, starts), strict=True):
        assert (weights > 0).all()
        total[start : start + tile] += weights
    torch.testing.assert_close(total, torch.ones(length))


@given(length=LENGTHS)
def test_tiles_come_from_large_to_small(length: int) -> None:
    sizes = list(tile_sizes(length, 1080))
    areas = [len(tile_starts(length, h)) * len(tile_starts(1080, w)) for h, w in sizes]
    assert areas == sorted(areas)
    assert all(h % STRIDE == 0 and w % STRIDE == 0 for h, w in sizes)
    assert all(h <= length and w <= 1080 for h, w in sizes)


@pytest.mark.parametrize("tile", [(384, 384), (520, 400), (600, 384)])
def test_pointwise_flow_is_not_changed_by_tiles(tile: tuple[int, int]) -> None:
    images = random_images(2, 600, 808)
    start = torch.randn(2, 2, 75, 101, generator=torch.Generator().manual_seed(0))
    expected = colours_as_flow(*images, start)
    actual = estimate_in_tiles(colours_as_flow, *images, start, tile)
    torch.testing.assert_close(actual.flow, expected.flow)
    torch.testing.assert_close(actual.low, expected.low)


def test_a_tile_as_large_as_the_image_is_the_image() -> None:
    images = random_images(1, 400, 408)
    expected = colours_as_flow(*images, None)
    actual = estimate_in_tiles(colours_as_flow, *images, None, (400, 408))
    assert torch.equal(actual.flow, expected.flow)
    assert torch.equal(actual.low, expected.low)


def test_parts_of_a_batch_are_the_batch() -> None:
    images = random_images(5, 64, 72)
    start = torch.randn(5, 2, 8, 9, generator=torch.Generator().manual_seed(0))
    actual = estimate_in_parts(colours_as_flow, *images, start, pairs=2, tile=(64, 72))
    expected = colours_as_flow(*images, start)
    assert torch.equal(actual.flow, expected.flow)
    assert torch.equal(actual.low, expected.low)


def test_a_constant_flow_has_no_seam() -> None:
    def constant(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
        flow = torch.full_like(image1[:, :2], 3.25)
        return Prediction([flow], flow[..., ::STRIDE, ::STRIDE] / STRIDE)

    found = estimate_in_tiles(constant, *random_images(1, 640, 640), None, (384, 384))
    torch.testing.assert_close(found.flow, torch.full_like(found.flow, 3.25), atol=1e-5, rtol=0)


def test_a_moved_picture_has_no_seam() -> None:
    """With trained weights: two tiles see a shift as the whole image does."""
    network = FlowEstimator(device="cpu").network
    images = moved_picture(128, 456, shift=(6, -4))

    def estimate(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
        return network(image1, image2, iters=6, flow_init=start)

    with torch.inference_mode():
        whole = estimate(*images, None).flow[0, :, 16:-16, 16:-16]
        tiled = estimate_in_tiles(estimate, *images, None, (128, 384)).flow[0, :, 16:-16, 16:-16]
    truth = torch.tensor([6.0, -4.0])[:, None, None]
    assert (tiled - truth).abs().mean() < 0.5
    assert (tiled - whole).abs().mean() < 0.1
    step, whole_step = ((flow[..., 1:] - flow[..., :-1]).abs().max() for flow in (tiled, whole))
    assert step < 1.5 * whole_step


def moved_picture(height: int, width: int, *, shift: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return a picture of many scales, and the same moved by whole pixels (x, y)."""
    generator = torch.Generator().manual_seed(3)
    margin = 16
    size = (height + 2 * margin, width + 2 * margin)
    picture = torch.zeros(1, 3, *size)
    for cells in (6, 12, 24, 48, 96):
        noise = torch.rand(1, 3, cells, cells, generator=generator)
        picture += torch.nn.functional.interpolate(noise, size, mode="bicubic") / 5
    picture = picture.clamp(0, 1)
    x, y = shift
    first = picture[..., margin : margin + height, margin : margin + width]
    second = picture[..., margin - y : margin - y + height, margin - x : margin - x + width]
    return first.contiguous(), second.contiguous()


@pytest.mark.parametrize("pairs", [1, 2, 3])
@pytest.mark.parametrize("tile", [(600, 808), (384, 384), (520, 400)])
def test_parts_are_counted_before_they_are_estimated(pairs: int, tile: tuple[int, int]) -> None:
    images = random_images(3, 600, 808)
    calls = []

    def estimate(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
        calls.append(len(image1))
        return colours_as_flow(image1, image2, start)

    estimate_in_parts(estimate, *images, None, pairs=pairs, tile=tile)
    assert len(calls) == count_parts(images[0].shape, pairs=pairs, tile=tile)

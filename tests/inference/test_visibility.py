import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.inference.visibility import check_visibility
from gmaflow.io import scale_image
from gmaflow.scenes import SceneRenderer, TextureBank


def shift(x: float, y: float, height: int = 10, width: int = 12) -> torch.Tensor:
    return torch.tensor([float(x), float(y)]).view(1, 2, 1, 1).expand(1, 2, height, width).clone()


def test_consistent_flow_is_visible() -> None:
    visibility = check_visibility(shift(2, 0), shift(-2, 0))
    assert not visibility.occluded_in.any()
    assert visibility.occluded_out[0, :, -2:].all()
    assert not visibility.occluded_out[0, :, :-2].any()
    assert visibility.confidence[0, :, :-2].eq(1).all()
    assert visibility.confidence[0, :, -2:].eq(0).all()


def test_inconsistent_flow_is_occluded() -> None:
    visibility = check_visibility(shift(2, 0), shift(3, 0))
    assert visibility.occluded_in[0, :, :-2].all()
    assert visibility.confidence.max() < 0.5


def test_confidence_is_one_half_at_the_threshold() -> None:
    # Forward 0, backward d: |d|^2 = 0.01 |d|^2 + 0.5 at the threshold.
    at = (0.5 / 0.99) ** 0.5
    below = check_visibility(shift(0, 0), shift(at - 1e-3, 0))
    above = check_visibility(shift(0, 0), shift(at + 1e-3, 0))
    assert not below.occluded_in.any()
    assert above.occluded_in.all()
    assert abs(below.confidence.mean() - 0.5) < 0.01


def test_half_a_pixel_beyond_the_border_is_still_inside() -> None:
    inside, outside = check_visibility(shift(0.4, 0), shift(-0.4, 0)), shift(0.6, 0)
    assert not inside.occluded_out.any()
    assert check_visibility(outside, -outside).occluded_out[0, :, -1].all()


def test_occlusion_covers_the_same_share_at_every_size() -> None:
    """A box moves in front of a static background; at half the size, by half the distance."""
    shares = []
    for size in (1, 2, 4):
        forward, backward = torch.zeros(2, 1, 2, 24 * size, 32 * size)
        box = slice(8 * size, 16 * size)
        forward[:, 0, box, 6 * size : 14 * size] = 5 * size
        backward[:, 0, box, 11 * size : 19 * size] = -5 * size
        visibility = check_visibility(forward, backward)
        shares.append(visibility.occluded_in.float().mean().item())
    assert shares == [pytest.approx(5 * 8 / (24 * 32))] * 3


def test_at_half_the_size_the_tolerance_is_doubled() -> None:
    at = (1 / 0.98) ** 0.5  # |d|^2 = 2 (0.01 |d|^2 + 0.5)
    below, above = (
        check_visibility(shift(0, 0), shift(at + by, 0), scale=0.5) for by in (-1e-3, 1e-3)
    )
    assert not below.occluded_in.any()
    assert above.occluded_in.all()
    assert abs(below.confidence.mean() - 0.5) < 0.01
    full, double = (check_visibility(shift(0, 0), shift(0.6, 0), scale=s) for s in (1.0, 2.0))
    assert full.confidence.equal(double.confidence)


def test_smaller_images_do_not_inflate_occlusion() -> None:
    """With flow as it is estimated, whose errors are as many pixels wide in a small image.

    Without the scale it would be 17 % more; where motion is not found, single scenes differ.
    """
    estimator = FlowEstimator(device="cpu")
    renderer = SceneRenderer("mix", (192, 256), 5, TextureBank.procedural())
    scenes = renderer.render_pairs(np.arange(8))
    shares = []
    for scale in (1.0, 0.5):
        hidden = []
        for pair in zip(scenes.clean1, scenes.clean2, strict=True):
            images = [(255 * x).round().byte().permute(1, 2, 0).contiguous().numpy() for x in pair]
            small = [scale_image(image, scale) for image in images]
            both = estimator.bidirectional(*small, scale=scale)
            hidden.append((both.occluded_in | both.occluded_out).mean())
        shares.append(np.mean(hidden))
    assert 0.85 < shares[1] / shares[0] < 1.05

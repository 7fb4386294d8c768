import inspect
from collections.abc import Callable

import numpy as np
import pytest

from gmaflow import viz
from gmaflow.errors import FlowError, ImageError
from gmaflow.viz._checks import check_flow, check_image, check_positive

IMAGE = np.zeros((4, 5, 3), np.uint8)
FLOW = np.zeros((4, 5, 2), np.float32)
WIDE = np.zeros((4, 6, 2), np.float32)
MASK = np.zeros((4, 5), np.bool_)
WIDE_MASK = np.zeros((4, 6), np.bool_)
MAP = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("function", "arguments", "options"),
    [
        (viz.flow_to_image, (FLOW,), {"valid": WIDE_MASK}),
        (viz.largest_length, (FLOW,), {"valid": WIDE_MASK}),
        (viz.flow_arrows, (IMAGE, WIDE), {}),
        (viz.flow_arrows, (IMAGE, FLOW), {"valid": WIDE_MASK}),
        (viz.warp_back, (IMAGE, WIDE), {}),
        (viz.error_map, (FLOW, WIDE), {}),
        (viz.error_map, (FLOW, FLOW), {"valid": WIDE_MASK}),
        (viz.occlusion_overlay, (IMAGE, MASK, WIDE_MASK), {}),
        (viz.attention_panel, (IMAGE, [MAP], [(0.0, 0.0)]), {"flow": WIDE}),
    ],
)
def test_sizes_that_differ_are_refused_with_both_of_them(
    function: Callable[..., object], arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    # Unwrapped, as users call it: the shape checks of the test run would speak up first.
    with pytest.raises(FlowError, match=r"4x5 .* 4x6 .*height x width.*crop or resize"):
        inspect.unwrap(function)(*arguments, **options)


@pytest.mark.parametrize("function", [viz.flow_to_image, viz.largest_length])
def test_a_flow_with_its_channels_in_front_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(FlowError, match=r"\(2, 4, 5\)"):
        inspect.unwrap(function)(FLOW.transpose(2, 0, 1))


def test_check_flow_says_what_it_wants() -> None:
    check_flow(FLOW)
    with pytest.raises(
        FlowError, match=r"a truth of shape \(2, 4, 5\); give it as \(height, width"
    ):
        check_flow(FLOW.transpose(2, 0, 1), name="truth")


@pytest.mark.parametrize("image", [IMAGE[..., 0], IMAGE[..., :2], IMAGE.astype(np.float32)])
def test_only_rgb_bytes_are_images(image: np.ndarray) -> None:
    with pytest.raises(ImageError, match=r"give an RGB image as uint8"):
        check_image(image)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_are_above_zero(value: float) -> None:
    with pytest.raises(FlowError, match=r"max_length is .*; give a number above 0"):
        check_positive("max_length", value)

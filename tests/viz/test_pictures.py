import numpy as np

from gmaflow import viz


def test_pictures_can_be_drawn_on() -> None:
    image, flow = np.zeros((80, 90, 3), np.uint8), np.ones((80, 90, 2), np.float32)
    attention = np.ones((10, 12), np.float32)
    pictures = [
        viz.flow_to_image(flow),
        viz.add_legend(image, 1.0),
        viz.flow_arrows(image, flow),
        viz.warp_back(image, flow),
        viz.attention_overlay(image, attention, (4.0, 4.0)),
        viz.panel([image]),
    ]
    assert all(picture.flags.writeable for picture in pictures)

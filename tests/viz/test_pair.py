import numpy as np

from gmaflow.viz import error_map, pair_panel, panel


def test_the_panel_grows_with_what_is_known() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.integers(0, 256, (2, 40, 60, 3), np.uint8)
    flow = generator.normal(size=(40, 60, 2)).astype(np.float32)
    hidden = generator.random((40, 60)) < 0.2
    confidence = generator.random((40, 60)).astype(np.float32)
    plain = pair_panel(one, two, flow)
    everything = pair_panel(
        one,
        two,
        flow,
        occlusion=(hidden, ~hidden),
        confidence=confidence,
        error=error_map(flow, flow * 2),
        max_length=5.0,
    )
    rows = [panel([one] * count, [""] * count, columns=2).shape for count in (4, 7)]
    assert [plain.shape, everything.shape] == rows


def test_a_pair_without_motion_has_a_panel_too() -> None:
    still = np.zeros((40, 60, 3), np.uint8)
    assert pair_panel(still, still, np.zeros((40, 60, 2), np.float32)).size

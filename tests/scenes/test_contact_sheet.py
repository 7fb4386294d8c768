import pytest

from gmaflow.errors import FlowError
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.contact_sheet import contact_sheet, motion_chart
from gmaflow.scenes.motion_statistics import MotionTally
from gmaflow.scenes.renderer import pair_arrays


def test_sheets_and_charts_show_everything(bank: TextureBank) -> None:
    renderer = SceneRenderer("film", (80, 96), 3, bank)
    pairs = pair_arrays(renderer.render(0, 5))
    few = contact_sheet(pairs[:2], ["film 0", "film 1"])
    many = contact_sheet(pairs, [f"film {n}" for n in range(5)])
    assert few.shape[1] < many.shape[1]
    assert few.shape[0] < many.shape[0] < 2 * few.shape[0]
    with pytest.raises(FlowError, match="no pairs"):
        contact_sheet([], [])
    tally = MotionTally()
    for pair in pairs:
        tally.add(pair.flow, pair.valid)
    found = tally.statistics("film")
    assert (motion_chart([found]) != motion_chart([found], [found])).any()

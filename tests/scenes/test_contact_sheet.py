import pytest

from gmaflow.errors import FlowError
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.contact_sheet import contact_sheet, motion_chart
from gmaflow.scenes.motion_statistics import MotionTally
from gmaflow.scenes.renderer import pair_arrays
from gmaflow.viz.flow_colors import format_length


def test_caption_and_wheel_show_the_same_scale(
    bank: TextureBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels: list[str] = []

    def add_legend(colours: object, scale: float) -> object:
        labels.append(f"{format_length(scale)} px")
        return colours

    def panel(pictures: list[object], captions: list[str], **_: object) -> object:
        labels.append(captions[2])
        return pictures[0]

    monkeypatch.setattr("gmaflow.scenes.contact_sheet.add_legend", add_legend)
    monkeypatch.setattr("gmaflow.scenes.contact_sheet.panel", panel)
    contact_sheet(pair_arrays(SceneRenderer("film", (80, 96), 3, bank).render(0, 1)), ["film 0"])
    wheel, caption = labels
    assert caption.endswith(f"below {wheel}")


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

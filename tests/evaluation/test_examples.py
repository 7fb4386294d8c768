from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import FlowPair
from gmaflow.errors import DatasetError, FlowError
from gmaflow.evaluation import examples, open_examples, render_examples
from gmaflow.evaluation.examples import HELD_OUT_SEEDS, as_examples, ignoring, incomplete
from gmaflow.io import write_image
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.renderer import SceneBatch
from gmaflow.scenes.texture_bank import is_held_out
from tests.data.trees import put_flows, put_images
from tests.evaluation.conftest import SIZE, write_sintel


def test_each_pass_is_a_group_and_sequences_are_known(tmp_path: Path) -> None:
    root = write_sintel(tmp_path, scenes=("alley_1", "cave_2"))
    data = open_examples("sintel", root, passes=("clean", "final"))
    assert [example.group for example in data.examples] == ["clean"] * 4 + ["final"] * 4
    assert [example.follows for example in data.examples] == [False, True] * 4
    assert data.examples[1].title == "clean alley_1 0002"
    assert data.has_sequences


def test_backward_pairs_do_not_follow_forward_ones() -> None:
    frames = [Path(f"{number}.png") for number in range(3)]

    def pair(first: int, second: int, direction: str) -> FlowPair:
        return FlowPair(
            dataset="things",
            scene="A",
            frame=str(first),
            image1=frames[first],
            image2=frames[second],
            direction=direction,
        )

    forward = [pair(0, 1, "forward"), pair(1, 2, "forward")]
    listed = as_examples([*forward, pair(2, 1, "backward"), pair(1, 0, "backward")], group="clean")
    assert [example.follows for example in listed] == [False, True, False, True]


def test_a_set_without_truth_suggests_submit(tmp_path: Path) -> None:
    root = write_sintel(tmp_path, split="test")
    with pytest.raises(DatasetError, match="`gmaflow submit`"):
        open_examples("sintel", root, split="test")


def test_pairs_of_a_folder_without_truth_are_counted(tmp_path: Path) -> None:
    put_images(tmp_path, "a.png", "b.png", "c.png")
    put_flows(tmp_path, "a.flo")
    data = open_examples("folder", tmp_path)
    assert [example.frame for example in data.examples] == ["a"]
    assert data.notes == ("left out, without ground truth: 1 pair",)


def test_ignored_pixels_are_not_valid(tmp_path: Path) -> None:
    root = write_sintel(tmp_path / "sintel")
    data = open_examples("sintel", root, passes=("clean", "final"))
    masks = [np.zeros(SIZE, np.uint8) for _ in range(2)]
    for number, mask in enumerate(masks):
        mask[: 10 + number] = 255
        write_image(tmp_path / "masks" / f"{number}.png", mask)
    one, each = ignoring(data, tmp_path / "masks" / "0.png"), ignoring(data, tmp_path / "masks")
    for number, example in enumerate(data.examples):
        whole = example.load()
        for masked, rows in ((one, 10), (each, 10 + number % 2)):
            sample = masked.examples[number].load()
            assert whole.valid is not None
            assert sample.valid is not None
            assert not sample.valid[:rows].any()
            np.testing.assert_array_equal(sample.valid[rows:], whole.valid[rows:])
    known = {e.identity() for some in (data, one, each) for e in some.examples}
    assert len(known) == 3 * len(data.examples)
    write_image(tmp_path / "masks" / "2.png", masks[0])
    with pytest.raises(FlowError, match="has 3 masks for 2 frames"):
        ignoring(data, tmp_path / "masks")


def test_ignored_pixels_do_not_compare_with_the_paper(sintel: Path, tmp_path: Path) -> None:
    data = open_examples("sintel", sintel)
    assert "2 of the 1041 published pairs" in incomplete(data)
    whole = replace(data, examples=data.examples[:1] * 1041)
    assert not incomplete(whole)
    write_image(tmp_path / "mask.png", np.eye(*SIZE, dtype=np.uint8) * 255)
    masked = ignoring(whole, tmp_path / "mask.png")
    assert "without its ignored pixels, so its figures do not compare" in incomplete(masked)


@pytest.mark.usefixtures("few_textures")
def test_scenes_are_the_same_each_time_and_have_all_masks() -> None:
    data = render_examples("mix", seed=3, count=2, size=(48, 64), passes=("clean", "final"))
    again = render_examples("mix", seed=3, count=2, size=(48, 64), passes=("clean", "final"))
    assert len({example.identity() for example in data.examples}) == 4
    first, same = data.examples[1].load(), again.examples[1].load()
    assert (first.image1 == same.image1).all()
    assert first.image1.shape == (48, 64, 3)
    assert first.occluded_in is not None


@pytest.mark.parametrize(
    ("preset", "count", "passes", "message"),
    [
        ("mixx", 1, (), "unknown preset 'mixx'"),
        ("mix", 0, (), "at least 1"),
        ("mix", 1, ("albedo",), "unknown pass 'albedo'"),
    ],
)
def test_scenes_that_are_not_there_are_refused(
    preset: str, count: int, passes: tuple[str, ...], message: str
) -> None:
    with pytest.raises(FlowError, match=message):
        render_examples(preset, seed=0, count=count, size=(48, 64), passes=passes)


@pytest.mark.usefixtures("few_textures")
def test_scenes_rendered_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    make = partial(render_examples, "mix", seed=1, count=4, size=(48, 64), device="cpu")
    apart = [example.load() for example in make().examples]
    starts: list[int] = []
    render = SceneRenderer.render

    def note(renderer: SceneRenderer, start: int, count: int) -> SceneBatch:
        starts.append(start)
        return render(renderer, start, count)

    monkeypatch.setattr(SceneRenderer, "render", note)
    monkeypatch.setitem(examples._PAIRS_AT_ONCE, "cpu", 3)
    together = [example.load() for example in make().examples]
    assert starts == [0, 3]
    for one, other in zip(apart, together, strict=True):
        assert (one.image1 == other.image1).all()
        assert np.array_equal(np.asarray(one.flow), np.asarray(other.flow))


def test_held_out_textures_and_seeds_are_those_of_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.png" for number in range(30)]
    put_images(tmp_path, *names)
    held_out = [name for name in names if is_held_out(name)]
    used: list[SceneRenderer] = []

    def note(renderer: SceneRenderer, start: int, count: int) -> SceneBatch:
        used.append(renderer)
        return render(renderer, start, count)

    render = SceneRenderer.render
    monkeypatch.setattr(SceneRenderer, "render", note)
    load = TextureBank.load
    monkeypatch.setattr(
        TextureBank, "load", lambda folder, split: load(folder, size=32, split=split)
    )
    make = partial(render_examples, "mix", seed=0, count=1, size=(48, 64), device="cpu")
    (example,) = make(textures=tmp_path).examples
    sample = example.load()
    assert sample.image1.shape == (48, 64, 3)
    assert used[0].bank.textures["photo"] == range(len(held_out))
    assert used[0].seed == HELD_OUT_SEEDS
    assert example.identity() != make().examples[0].identity()
    (tmp_path / names[names.index(held_out[0]) - 1]).unlink()
    assert example.identity() == make(textures=tmp_path).examples[0].identity()
    (tmp_path / held_out[0]).unlink()
    assert example.identity() != make(textures=tmp_path).examples[0].identity()


def test_a_folder_without_held_out_textures_is_refused(tmp_path: Path) -> None:
    put_images(tmp_path, next(f"{n}.png" for n in range(9) if not is_held_out(f"{n}.png")))
    with pytest.raises(DatasetError, match="none of its images is held out"):
        render_examples("mix", seed=0, count=1, size=(48, 64), textures=tmp_path)

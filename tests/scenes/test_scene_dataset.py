"""What is written is what was rendered, whole or not at all."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gmaflow.data import check_dataset, open_dataset
from gmaflow.errors import OutputError
from gmaflow.inference import read_tracks
from gmaflow.io import read_image, write_flow
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes import scene_dataset as writing_module
from gmaflow.scenes.renderer import PairArrays, clip_arrays, pair_arrays
from gmaflow.scenes.scene_dataset import clip_tracks, write_dataset
from tests.conftest import contents

SIZE = (40, 56)


@pytest.fixture(scope="module")
def renderer(bank: TextureBank) -> SceneRenderer:
    return SceneRenderer("mix", SIZE, 3, bank)


def test_our_own_reader_gives_back_what_was_rendered(
    renderer: SceneRenderer, tmp_path: Path
) -> None:
    write_dataset(renderer, tmp_path, start=5, count=3)
    rendered = pair_arrays(renderer.render(5, 3))
    for variant in ("clean", "final"):
        dataset = open_dataset("sintel", tmp_path, passes=variant)
        assert [pair.scene for pair in dataset] == ["mix_000005", "mix_000006", "mix_000007"]
        for number, pair in enumerate(rendered):
            sample = dataset.load(number)
            first, second = (getattr(pair, f"{variant}{i}") for i in (1, 2))
            np.testing.assert_array_equal(sample.image1, first)
            np.testing.assert_array_equal(sample.image2, second)
            np.testing.assert_array_equal(sample.valid, pair.valid)
            np.testing.assert_array_equal(sample.flow, pair.flow)
            np.testing.assert_array_equal(sample.invalid, ~pair.valid)
            known = pair.valid
            assert sample.occluded_in is not None
            np.testing.assert_array_equal(sample.occluded_out, pair.occluded_out & known)
            np.testing.assert_array_equal(sample.occluded_in[known], pair.occluded_in[known])


def test_unknown_pixels_are_marked_as_in_sintel_and_flo(tmp_path: Path) -> None:
    grey = np.full((8, 9, 3), 90, np.uint8)
    known = np.ones((8, 9), bool)
    known[2, 3] = False
    gone = np.zeros((8, 9), bool)
    gone[2, 3:5] = True
    pair = PairArrays(
        grey, grey, grey, grey, np.ones((8, 9, 2), np.float32), known, np.zeros_like(gone), gone
    )
    writing_module.write_pair(tmp_path, "mix_000000", pair)
    sample = open_dataset("sintel", tmp_path).load(0)
    np.testing.assert_array_equal(sample.valid, known)
    top = tmp_path / "training"
    for part, mask in (("invalid", ~known), ("occlusions", gone)):
        picture = read_image(top / part / "mix_000000" / "frame_0001.png")
        np.testing.assert_array_equal(picture[..., 0], mask * 255)


def test_the_same_seed_gives_the_same_bytes(
    renderer: SceneRenderer, bank: TextureBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(renderer, tmp_path / "a", count=4)
    monkeypatch.setattr(writing_module, "_PIXELS_AT_ONCE", 1)
    write_dataset(SceneRenderer("mix", SIZE, 3, bank), tmp_path / "b", count=4)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_an_interrupted_run_leaves_no_half_pair_and_resumes(
    renderer: SceneRenderer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(renderer, tmp_path / "whole", count=4)
    monkeypatch.setattr(writing_module, "_PIXELS_AT_ONCE", 1)

    def write_twice(path: Path, array: np.ndarray, valid: np.ndarray) -> None:
        if "mix_000002" in str(path):
            raise KeyboardInterrupt
        write_flow(path, array, valid)

    monkeypatch.setattr(writing_module, "write_flow", write_twice)
    begun = tmp_path / "begun"
    with pytest.raises(KeyboardInterrupt):
        write_dataset(renderer, begun, count=4)
    assert len(open_dataset("sintel", begun)) == 2
    assert not list(begun.rglob("mix_000002*"))
    assert json.loads((begun / "scenes.json").read_text())["complete"] is False

    monkeypatch.setattr(writing_module, "write_flow", write_flow)
    # As if killed in the middle of a pair: no flow, a file that is not whole.
    half = begun / "training" / "final" / "mix_000003"
    half.mkdir(parents=True)
    (half / ".0123.partial.png").write_bytes(b"\x89PNG")
    (half / "frame_0001.png").write_bytes(b"\x89PNG")
    steps: list[tuple[int, int]] = []
    before = {path: path.stat().st_mtime_ns for path in begun.rglob("mix_00000[01]/*")}
    rendered = write_dataset(
        renderer, begun, count=4, resume=True, progress=lambda *step: steps.append(step)
    )
    assert (rendered, steps) == (2, [(2, 4), (3, 4), (4, 4)])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(begun) == contents(tmp_path / "whole")


def test_more_pairs_can_be_added(renderer: SceneRenderer, tmp_path: Path) -> None:
    write_dataset(renderer, tmp_path, count=1)
    assert write_dataset(renderer, tmp_path, count=2, resume=True) == 1
    with pytest.raises(OutputError, match="count 2; resume with at least as many"):
        write_dataset(renderer, tmp_path, count=1, resume=True)


def test_other_scenes_are_not_mixed_in(
    renderer: SceneRenderer, bank: TextureBank, tmp_path: Path
) -> None:
    write_dataset(renderer, tmp_path, count=1)
    before = contents(tmp_path)
    for other, key in (
        (SceneRenderer("film", SIZE, 3, bank), "preset mix, not film"),
        (SceneRenderer("mix", SIZE, 4, bank), "seed 3, not 4"),
        (SceneRenderer("mix", (48, 56), 3, bank), r"size \[40, 56\], not \[48, 56\]"),
    ):
        with pytest.raises(OutputError, match=key):
            write_dataset(other, tmp_path, count=1, resume=True)
    with pytest.raises(OutputError, match="start 0, not 1"):
        write_dataset(renderer, tmp_path, start=1, count=1, resume=True)
    assert contents(tmp_path) == before


def test_overwriting_replaces_our_scenes_and_nothing_else(
    renderer: SceneRenderer, bank: TextureBank, tmp_path: Path
) -> None:
    write_dataset(renderer, tmp_path, count=2)
    note = tmp_path / "training" / "clean" / "my_scene" / "frame_0001.png"
    note.parent.mkdir()
    note.write_bytes(b"mine")
    with pytest.raises(OutputError, match="--resume to continue, --overwrite"):
        write_dataset(renderer, tmp_path, count=1)
    write_dataset(SceneRenderer("film", SIZE, 3, bank), tmp_path, count=1, overwrite=True)
    assert {path.name for path in tmp_path.glob("training/flow/*")} == {"film_000000"}
    assert note.read_bytes() == b"mine"


def test_a_foreign_folder_is_not_changed(renderer: SceneRenderer, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for resume, overwrite in ((False, False), (True, False), (False, True)):
        with pytest.raises(OutputError, match=r"not empty and has no scenes\.json"):
            write_dataset(renderer, tmp_path, count=1, resume=resume, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(OutputError, match="give only one"):
        write_dataset(renderer, tmp_path / "new", count=1, resume=True, overwrite=True)
    with pytest.raises(OutputError, match=r"thesis.txt is a file"):
        write_dataset(renderer, tmp_path / "thesis.txt" / "in", count=1)


def test_a_damaged_record_can_be_overwritten(renderer: SceneRenderer, tmp_path: Path) -> None:
    (tmp_path / "scenes.json").write_text("{")
    with pytest.raises(OutputError, match="is damaged; add --overwrite"):
        write_dataset(renderer, tmp_path, count=1, resume=True)
    write_dataset(renderer, tmp_path, count=1, overwrite=True)
    assert len(open_dataset("sintel", tmp_path)) == 1


def test_a_clip_is_a_scene_of_many_frames_with_tracks(
    renderer: SceneRenderer, tmp_path: Path
) -> None:
    write_dataset(renderer, tmp_path, start=5, count=2, frames=3)
    clip = renderer.render_clip(6, 3)
    dataset = open_dataset("sintel", tmp_path, passes="final")
    assert [(pair.scene, pair.frame) for pair in dataset] == [
        (f"mix_00000{scene}", f"000{frame}") for scene in (5, 6) for frame in (1, 2)
    ]
    for number, pair in enumerate(clip_arrays(clip)):
        sample = dataset.load(2 + number)
        np.testing.assert_array_equal(sample.image1, pair.final1)
        np.testing.assert_array_equal(sample.image2, pair.final2)
        np.testing.assert_array_equal(sample.flow, pair.flow)
    tracks = read_tracks(tmp_path / "training" / "tracks" / "mix_000006" / "frame_0001.npz")
    x, y = tracks.points.astype(int).T
    np.testing.assert_array_equal(tracks.visible, clip.visible[:, y, x].numpy())
    known = clip.known[2, y, x].numpy()
    moved = clip.tracks[2][:, y, x].T.numpy()
    np.testing.assert_allclose(tracks.positions[2][known], (tracks.points + moved)[known])
    report = check_dataset("sintel", tmp_path)
    assert report.complete
    before = contents(tmp_path)
    (tmp_path / "training" / "flow" / "mix_000006" / "frame_0002.flo").unlink()
    assert not check_dataset("sintel", tmp_path).complete
    assert write_dataset(renderer, tmp_path, start=5, count=2, frames=3, resume=True) == 1
    assert contents(tmp_path) == before
    with pytest.raises(OutputError, match="with --frames 3, not without"):
        write_dataset(renderer, tmp_path, start=5, count=2, resume=True)


def test_a_point_behind_the_camera_has_no_position(renderer: SceneRenderer) -> None:
    clip = renderer.render_clip(6, 3)
    known = clip.known.clone()
    known[1] = False
    tracks = clip_tracks(replace(clip, known=known))
    assert np.isnan(tracks.positions[1]).all()
    assert not tracks.confidence[1].any()
    np.testing.assert_array_equal(tracks.positions[0], tracks.points)

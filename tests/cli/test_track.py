"""`gmaflow track`: points, outputs and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmaflow.cli import track as verb
from gmaflow.inference import read_tracks
from gmaflow.io import VideoReader, read_image, write_image
from tests.cli.conftest import Run
from tests.io.clips import frame_times, write_clip
from tests.io.frames import moving


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames of 48x64; after the fourth another shot begins."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    return write_clip(path, [*moving(4, seed=1), *moving(2, seed=2)])


def report(run: Run, *args: str | Path) -> dict[str, Any]:
    outcome = run("track", *args, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_arrays_rows_and_trails_of_one_run(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    outputs = [tmp_path / name for name in ("t.npz", "t.csv", "t.mp4")]
    targets = [part for path in outputs for part in ("-o", path)]
    result = report(run, clip, *targets, "--grid", "12", "--reference", "1", *fast)
    assert (result["frames"], result["cuts"], result["points"]) == (6, [4], 24)
    tracks = read_tracks(outputs[0])
    assert tracks.reference == 1
    assert tracks.positions.shape == (6, 24, 2)
    assert np.isnan(tracks.positions[4:]).all()
    assert len(outputs[1].read_text().splitlines()) == 1 + 6 * 24
    assert [frame.image.shape for frame in VideoReader(outputs[2])] == [(48, 64, 3)] * 6
    assert frame_times(outputs[2]) == frame_times(clip)
    assert sorted(tmp_path.iterdir()) == sorted(outputs)


def test_the_sentence_names_the_cut(run: Run, fast: list[str], clip: Path, tmp_path: Path) -> None:
    outcome = run("track", clip, "-o", tmp_path / "t.npz", "--points", "9,9", *fast)
    assert outcome.code == 0, outcome.err
    assert "1 point of frame 0 through 6 frames" in outcome.out
    assert "a cut ends the tracks at frame 4" in outcome.out


def test_points_from_options_a_file_and_a_mask(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "points.csv"
    listed.write_text("x,y\n10,20\n30.5,4\n")
    report(run, clip, "-o", tmp_path / "a.npz", "--points", "5,6", "--points-file", listed, *fast)
    assert read_tracks(tmp_path / "a.npz").points.tolist() == [[5, 6], [10, 20], [30.5, 4]]
    mask = np.zeros((48, 64, 3), np.uint8)
    mask[8:24, 16:40, 0] = 255  # red is bright, as for --ignore
    write_image(tmp_path / "mask.png", mask)
    options = ("--mask", tmp_path / "mask.png", "--grid", "4", "--end", "0.1")
    report(run, clip, "-o", tmp_path / "b.npz", *options, *fast)
    x, y = read_tracks(tmp_path / "b.npz").points.T
    assert len(x) == 24
    assert ((x >= 16) & (x < 40) & (y >= 8) & (y < 24)).all()


def test_a_folder_gets_a_map_for_each_frame(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    openexr = pytest.importorskip("OpenEXR")
    result = report(run, clip, "-o", f"{tmp_path}/maps/", *fast)
    assert result["points"] == "every pixel"
    names = [path.name for path in sorted((tmp_path / "maps").glob("*.exr"))]
    assert names == [f"{number:06d}.exr" for number in range(4)]  # none beyond the cut
    with openexr.File(str(tmp_path / "maps" / "000000.exr"), separate_channels=True) as file:
        planes = {name: channel.pixels for name, channel in file.channels().items()}
    np.testing.assert_allclose(planes["R"][5], (np.arange(64) + 0.5) / 64, atol=1e-6)
    np.testing.assert_allclose(planes["G"][:, 3], 1 - (np.arange(48) + 0.5) / 48, atol=1e-6)
    assert (planes["B"] == 1).all()


def test_ignored_pixels_are_not_tracked_and_hide_points(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    left = np.zeros((48, 64, 3), np.uint8)
    left[:, :32] = 255
    write_image(tmp_path / "left.png", left)
    options = ("--grid", "8", "--end", "0.15", *fast)
    report(run, clip, "-o", tmp_path / "a.npz", "--ignore", tmp_path / "left.png", *options)
    tracks = read_tracks(tmp_path / "a.npz")
    assert (tracks.points[:, 0] >= 32).all()
    assert not tracks.visible[np.rint(tracks.positions[..., 0]) < 32].any()

    # A mask for each frame, and frames before the reference: of the first only a corner is seen,
    # of the second nothing.
    masks = tmp_path / "masks"
    for number in range(6):
        mask = np.full((48, 64, 3), 255 if number in (0, 1) else 0, np.uint8)
        mask[:8, :8] = 255 * (number == 1)
        write_image(masks / f"{number}.png", mask)
    options = (*options, "--reference", "2")
    report(run, clip, "-o", tmp_path / "b.npz", "--ignore", masks, *options)
    report(run, clip, "-o", tmp_path / "c.npz", *options)
    found, plain = (read_tracks(tmp_path / name) for name in ("b.npz", "c.npz"))
    np.testing.assert_array_equal(found.positions, plain.positions)
    np.testing.assert_array_equal(found.visible[2:], plain.visible[2:])
    assert not found.visible[1].any()
    assert not found.confidence[1].any()
    corner = (np.rint(found.positions[0]) < 8).all(axis=1)
    assert plain.visible[0].sum() > 3
    np.testing.assert_array_equal(found.visible[0], plain.visible[0] & corner)


def test_colmap_gets_images_features_and_matches(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shot.colmap"
    result = report(run, clip, "-o", folder, "-o", tmp_path / "t.npz", "--grid", "12", *fast)
    assert result["frames"] == 6
    tracks = read_tracks(tmp_path / "t.npz")
    names = [f"{number:06d}.png" for number in range(6)]
    assert [path.name for path in sorted((folder / "images").iterdir())] == names
    assert read_image(folder / "images" / names[0]).shape == (48, 64, 3)
    features = {}
    for number, name in enumerate(names):
        head, *rows = (folder / "features" / f"{name}.txt").read_text().splitlines()
        values = np.array([row.split() for row in rows], float).reshape(-1, 4 + 128)
        assert head == f"{len(rows)} 128"
        # The centre of the first pixel is (0.5, 0.5), not (0, 0).
        seen = tracks.positions[number][tracks.visible[number]] + 0.5
        np.testing.assert_allclose(values[:, :2], seen, atol=1e-3)
        features[name] = values
    pairs = (folder / "matches.txt").read_text().rstrip("\n").split("\n\n")
    assert [pair.split("\n")[0] for pair in pairs] == [
        f"{names[first]} {names[second]}"
        for first, second in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]  # none beyond the cut
    ]
    for pair in pairs:
        head, *rows = pair.split("\n")
        first, second = (features[name] for name in head.split())
        a, b = np.array([row.split() for row in rows], int).T
        # The texture moves by whole pixels; a match leads to the same point.
        assert len(a) == len(set(a)) == len(set(b))
        ends = [tracks.positions[names.index(name)] + 0.5 for name in head.split()]
        for k in np.flatnonzero(tracks.visible[[names.index(n) for n in head.split()]].all(axis=0)):
            match = np.flatnonzero(np.abs(first[a, :2] - ends[0][k]).max(axis=1) < 2e-3)
            assert (np.abs(second[b[match], :2] - ends[1][k]).max(axis=1) < 2e-3).any()
    assert run("track", clip, "-o", folder, *fast).code == 2  # not empty


@pytest.mark.parametrize(
    ("name", "kinds"), [("maps", [".exr"]), ("m.colmap", ["images/*.png", "features/*.png.txt"])]
)
def test_a_folder_that_is_written_again_keeps_nothing_of_a_longer_run_but_other_files(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, name: str, kinds: list[str]
) -> None:
    if name == "maps":
        pytest.importorskip("OpenEXR")
    folder = tmp_path / name
    report(run, clip, "-o", folder, *fast)
    (folder / "notes.txt").write_text("mine")
    refused = run("track", clip, "-o", folder, "-f", "--end", "0.04", *fast)
    assert "one frame" in refused.complaint

    def count(kind: str) -> int:
        return len(list(folder.glob(f"*{kind}" if kind[0] == "." else kind)))

    assert min(map(count, kinds)) > 2  # a refused run changes nothing
    report(run, clip, "-o", folder, "-f", "--end", "0.09", *fast)
    assert set(map(count, kinds)) == {2}
    assert (folder / "notes.txt").read_text() == "mine"

    places = {(folder / kind).parent for kind in kinds if kind[0] != "."} or {folder}
    for place in places:
        assert "is an input" in run("track", place, "-o", folder, "-f", *fast).complaint
    (folder / "flow.json").unlink()
    refused = run("track", clip, "-o", folder, "-f", *fast)
    assert "which gmaflow track did not write: there is no flow.json; remove" in refused.complaint
    assert set(map(count, kinds)) == {2}


def test_a_record_from_elsewhere_deletes_no_other_files(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    folder, photo = tmp_path / "shot.colmap", tmp_path / "photos" / "000000.jpg"
    photo.parent.mkdir()
    photo.touch()
    folder.mkdir()
    endings = ["images/*.png", "../photos/*.jpg", f"{photo.parent}/*.jpg"]
    (folder / "flow.json").write_text(json.dumps({"verb": "track", "files": endings}))
    report(run, clip, "-o", folder, "-f", *fast)
    assert photo.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "t.txt"), "not written as .txt"),
        ((), "no output"),
        (("-o", "t.npz", "--points", "5"), "'5' is not a point; give x,y"),
        (("-o", "t.npz", "--points", "99,5"), "point 99,5 lies outside the frame of 48x64"),
        (("-o", "t.npz", "--points", "5,5", "--grid", "4"), "drop one"),
        (("-o", "t.npz", "--grid", "0"), "--grid 0 is too small"),
        (("-o", "t.mp4", "--trail", "0"), "--trail 0 is too short"),
        (("-o", "t.npz", "--reference", "6"), "no frame 6: the shot has 6 frames"),
        (
            ("-o", "t.npz", "--end", "0.04"),
            "clip.mp4: there is one frame; tracks need at least two",
        ),
        (
            ("-o", "t.npz", "--mask", "small.png"),
            "the mask small.png and the frames differ in size",
        ),
        (("-o", "t.npz", "--mask", "black.png"), "selects no point of a grid"),
        (("-o", "t.npz", "--points-file", "empty.csv"), "has no points"),
        (("-o", "t.npz", "--points-file", "one.csv"), "one.csv, line 4: '7' is not a point"),
        (
            ("-o", "t.npz", "--points-file", "none.csv"),
            "none.csv does not exist; give a file with x,y",
        ),
        (
            ("-o", "t.npz", "--points-file", "few"),
            "few cannot be read (is a directory); give a file with x,y in each line",
        ),
        (("-o", "maps/", "--grid", "4"), "a folder gets STMaps of every pixel"),
        (("-o", "t.npz", "--cut-threshold", "9"), "--cut-threshold 9 is out of range"),
        (("-o", "t.npz", "--fps", "9"), "--fps is for folders"),
        (("-o", "t.npz", "--ignore", "small.png"), "the mask small.png and the frames differ"),
        (("-o", "t.npz", "--ignore", "white.png"), "ignores every pixel of frame 0"),
        (("-o", "t.npz", "--ignore", "few"), "few has 2 masks for 6 frames"),
        (
            ("-o", "t.npz", "--ignore", "part.png", "--points", "5,5"),
            "the point 5,5 is in an ignored pixel",
        ),
        (
            ("-o", "t.npz", "--ignore", "part.png", "--mask", "part.png"),
            "part.png without part.png selects",
        ),
        (("-o", "maps.colmap", "--reference", "9"), "no frame 9"),
        (("-o", "t.npz", "--ignore", "each", "--reference", "6"), "no frame 6: the shot has 6"),
        (
            ("-o", "t.npz", "--ignore", "each", "--reference", "-1"),
            "no frame -1; frames count from 0",
        ),
        (("-o", "there.npz"), "exists"),
    ],
)
def test_bad_input_gives_one_clear_error_and_leaves_no_files(
    run: Run,
    fast: list[str],
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "small.png", np.full((8, 8, 3), 255, np.uint8))
    write_image(tmp_path / "black.png", np.zeros((48, 64, 3), np.uint8))
    write_image(tmp_path / "white.png", np.full((48, 64, 3), 255, np.uint8))
    part = np.zeros((48, 64, 3), np.uint8)
    part[:20, :20] = 255
    write_image(tmp_path / "part.png", part)
    for number in range(2):
        write_image(tmp_path / "few" / f"{number}.png", part)
    for number in range(6):
        write_image(tmp_path / "each" / f"{number}.png", part)
    (tmp_path / "empty.csv").write_text("x,y\n")
    (tmp_path / "one.csv").write_text("x,y\n5,6\n\n7\n")
    (tmp_path / "there.npz").write_bytes(b"mine")
    before = sorted(tmp_path.iterdir())
    outcome = run("track", clip, *options, *fast)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_too_large_tracks_are_refused_and_memory_is_reported(
    run: Run, fast: list[str], clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "LARGEST", 1e4)
    monkeypatch.setattr(verb, "REPORTED_BYTES", 1e6)
    unusable = (
        (("--grid", "1", *fast), "tracks of 3072 points through 6 frames take"),
        (("--points", "9,9", "--weights", "none.safetensors"), "none.safetensors"),
    )
    for options, message in unusable:
        outcome = run("track", clip, "-o", tmp_path / "t.npz", *options)
        assert message in outcome.complaint
        assert outcome.err.count("\n") == 1  # nothing about the memory of a job that is refused
        assert not any(tmp_path.iterdir())
    outcome = run("track", clip, "-o", tmp_path / "t.npz", "--points", "9,9", *fast)
    assert outcome.code == 0
    report = "tracking 48x64 keeps up to 0.0 GB, in addition to the memory of the network"
    assert report in outcome.err
    monkeypatch.setattr(verb, "REPORTED_BYTES", 1.5e6)
    for views in (1, 2):  # which have features of their own
        outcome = run(
            *("track", clip, "-f", "-o", tmp_path / "t.npz", "--points", "9,9"),
            *(*fast, "--views", views),
        )
        assert outcome.code == 0
        assert (report in outcome.err) == (views == 2)


@pytest.mark.parametrize(
    ("verb_name", "output"), [("track", "t.npz"), ("track", "maps"), ("score", "s.csv")]
)
def test_a_second_frame_that_cannot_be_used_is_named(
    run: Run, fast: list[str], tmp_path: Path, verb_name: str, output: str
) -> None:
    if output == "maps":
        pytest.importorskip("OpenEXR")
    for number in range(3):
        write_image(tmp_path / "shot" / f"{number}.png", np.zeros((48, 64, 3), np.uint8))
    second = tmp_path / "shot" / "1.png"
    second.write_bytes(second.read_bytes()[:60])
    refused = run(verb_name, tmp_path / "shot", "-o", tmp_path / output, *fast)
    assert "1.png cannot be read" in refused.complaint
    write_image(second, np.zeros((48, 60, 3), np.uint8))
    refused = run(verb_name, tmp_path / "shot", "-o", tmp_path / output, *fast)
    assert "frame 1 is 48x60, those before it 48x64" in refused.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["shot"]


def test_a_damaged_reference_is_named(run: Run, fast: list[str], tmp_path: Path) -> None:
    for number in range(4):
        write_image(tmp_path / "shot" / f"{number}.png", np.zeros((48, 64, 3), np.uint8))
    damaged = tmp_path / "shot" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    refused = run("track", tmp_path / "shot", "-o", tmp_path / "t.npz", "--reference", "3", *fast)
    assert "3.png" in refused.complaint

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.data import open_dataset
from gmaflow.io import write_flow, write_image
from gmaflow.scenes import PRESETS, TextureBank
from tests.cli.conftest import Run, is_picture
from tests.conftest import contents

RENDER = ("scenes", "render", "--size", "64x96", "--count", "2", "--seed", "5")


@pytest.fixture(autouse=True)
def _small_textures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in textures at a size that takes no time."""
    load = TextureBank.load
    small = TextureBank.procedural(64)
    monkeypatch.setattr(TextureBank, "procedural", lambda: small)
    monkeypatch.setattr(TextureBank, "load", lambda folder, split: load(folder, 64, split))


def test_presets_are_listed(run: Run) -> None:
    lines = run("scenes", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(PRESETS)
    about = json.loads(run("scenes", "list", "--json").out)
    assert about["mix"]["kinds"] == PRESETS["mix"]


def test_a_data_set_is_rendered(run: Run, tmp_path: Path) -> None:
    outcome = run(*RENDER, "-o", tmp_path / "a")
    assert outcome.code == 0
    assert outcome.out.startswith(f"wrote {tmp_path / 'a'}: 2 pairs of mix at 64x96 (")
    pairs = open_dataset("sintel", tmp_path / "a", passes=("clean", "final"))
    assert len(pairs) == 4
    assert pairs.load(0).image1.shape == (64, 96, 3)
    card = json.loads((tmp_path / "a" / "scenes.json").read_text())
    assert (card["preset"], card["seed"], card["size"], card["count"], card["complete"]) == (
        "mix", 5, [64, 96], 2, True,
    )  # fmt: skip

    again = run(*RENDER, "-o", tmp_path / "b", "--json", "--device", "cpu")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    report = json.loads(again.out)
    assert (report["rendered"], report["kept"], report["device"]) == (2, 0, "cpu")


def test_a_data_set_is_resumed_or_replaced_only_when_asked(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "a"
    run(*RENDER, "-o", out)
    whole = contents(out)
    (out / "training" / "flow" / "mix_000001" / "frame_0001.flo").unlink()
    refused = run(*RENDER, "-o", out)
    assert "add --resume to continue" in refused.complaint
    resumed = run(*RENDER, "-o", out, "--resume")
    assert "1 pair of mix at 64x96, 1 kept" in resumed.out
    assert contents(out) == whole
    other = run(*RENDER, "-o", out, "--resume", "--preset", "film")
    assert "started with preset mix, not film" in other.complaint
    assert contents(out) == whole
    assert run(*RENDER, "-o", out, "--overwrite", "--start", "7").code == 0
    assert [pair.scene for pair in open_dataset("sintel", out)] == ["mix_000007", "mix_000008"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--preset", "flim"), "unknown preset 'flim'; did you mean film?"),
        (("--preset", "sintel"), "unknown preset 'sintel'; there are chairs, things"),
        (("--size", "368"), "'368' is not a size; give height x width"),
        (("--size", "axb"), "'axb' is not a size"),
        (("--size", "16x96"), "16x96 is too small; give at least 32x32"),
        (("--size", "99999x99999"), "99999x99999 is too large; give at most 16384x16384"),
        (("--count", "0"), "--count is 0; give 1 or more"),
        (("--start", "-1"), "--start is -1; give the number of a pair, 0 or more"),
        (("--device", "abacus"), "unknown device 'abacus'"),
        (("--textures", "nowhere"), "nowhere: not a folder"),
        (("--textures-split", "train"), "needs a folder of images; add --textures"),
        (("--resume", "--overwrite"), "give only one"),
    ],
)
def test_bad_options_are_one_sentence(
    options: tuple[str, ...], sentence: str, run: Run, tmp_path: Path
) -> None:
    outcome = run(*RENDER, "-o", tmp_path / "a", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert sentence in outcome.err
    assert outcome.err.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())


def test_bad_folders_are_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    outcome = run(*RENDER, "-o", tmp_path / "a", "--textures", tmp_path / "empty")
    assert "no readable image among 0" in outcome.complaint
    (tmp_path / "file").write_text("")
    outcome = run(*RENDER, "-o", tmp_path / "file")
    assert "is a file; choose another place" in outcome.complaint
    outcome = run(*RENDER, "-o", tmp_path, "--overwrite")
    assert "has no scenes.json" in outcome.complaint
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}
    outcome = run(*RENDER, "-o", "/proc/nothing/here")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)


def test_textures_change_the_pictures_and_not_the_motion(run: Run, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    write_image(tmp_path / "photos" / "noise.png", noise)
    run(*RENDER, "-o", tmp_path / "a")
    assert run(*RENDER, "-o", tmp_path / "b", "--textures", tmp_path / "photos").code == 0
    ours, other = (open_dataset("sintel", tmp_path / name).load(0) for name in "ab")
    assert (ours.image1 != other.image1).any()
    mixed = run(*RENDER, "-o", tmp_path / "a", "--resume", "--textures", tmp_path / "photos")
    assert "started with textures" in mixed.complaint


def test_a_contact_sheet_is_drawn(run: Run, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    call = ("scenes", "show", "--size", "80x96", "--count", "1", "-o")
    outcome = run(*call, sheet, "--preset", "all")
    assert outcome.out == f"wrote {sheet}: {len(PRESETS)} pairs of {', '.join(PRESETS)}\n"
    with Image.open(sheet) as image:
        assert is_picture(sheet, (image.height, image.width))
        assert image.width > 8 * 96
    again = run(*call, sheet)
    assert "add --overwrite" in again.complaint
    assert run(*call, tmp_path / "sheet.doc").code == 2
    assert run(*call, tmp_path / "small.jpg", "--preset", "drive").code == 0


def test_motion_is_counted_and_compared(run: Run, tmp_path: Path) -> None:
    flow = np.full((48, 64, 2), 3, np.float32)
    write_flow(tmp_path / "real" / "flow10.flo", flow)
    call = ("scenes", "stats", "--preset", "film", "--count", "2", "--size", "128x160")
    picture = tmp_path / "stats.png"
    outcome = run(*call, "--against", tmp_path / "real", "-o", picture)
    assert outcome.code == 0
    assert all(word in outcome.out for word in ("film", "real", "99 %", "hidden"))
    assert is_picture(picture, (420, 840))
    report = json.loads(run(*call, "--against", tmp_path / "real", "--json").out)
    assert report["sizes"] == {"film": [128, 160]}
    assert report["real"][0]["mean"] == pytest.approx(18**0.5)
    assert report["rendered"][0]["pairs"] == 2
    bad = run(*call, "--against", tmp_path / "nowhere")
    assert "nowhere is not a folder" in bad.complaint
    bad = run(*call, "--shrink", "5")
    assert "give an integer from 1 to 4" in bad.complaint


def test_clips_are_rendered(run: Run, tmp_path: Path) -> None:
    outcome = run(*RENDER, "--frames", "4", "-o", tmp_path / "clips")
    assert outcome.code == 0, outcome.err
    assert "2 4-frame clips of mix at 64x96" in outcome.out
    assert len(open_dataset("sintel", tmp_path / "clips")) == 2 * 3
    outcome = run(*RENDER, "--frames", "1", "-o", tmp_path / "none")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--frames is 1; give 2 for pairs" in outcome.err

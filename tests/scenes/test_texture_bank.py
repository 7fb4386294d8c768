import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gmaflow.errors import ImageError
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.texture_bank import (
    is_held_out,
    list_pictures,
    spread_colours,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    (tmp_path / "materials").mkdir()
    Image.fromarray(random.integers(0, 255, (80, 100, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.full((70, 70, 3), 90, np.uint8)).save(tmp_path / "materials" / "b.jpg")
    cutout = np.zeros((60, 40, 4), np.uint8)
    cutout[10:50, 10:30] = (200, 10, 10, 255)
    Image.fromarray(cutout).save(tmp_path / "c.webp", lossless=True)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_a_folder_is_sorted_by_kind(folder: Path) -> None:
    bank = TextureBank.load(folder, size=64)
    assert [len(bank.textures[k]) for k in ("photo", "material", "cutout")] == [1, 1, 1]
    assert len(bank.shapes["cutout"]) == 1
    assert len(bank.textures["pattern"]) > 50
    assert len(bank.texels) == bank.texels_each * sum(map(len, bank.textures.values()))
    assert bank.skipped == ()
    batch = SceneRenderer("mix", (48, 64), 1, bank).render(0, 4)
    assert batch.clean1.std() > 0.05


def test_held_out_images_are_a_fixed_tenth(tmp_path: Path) -> None:
    names = [f"{number:04d}.jpg" for number in range(1000)]
    held_out = {name for name in names if is_held_out(name)}
    assert 70 < len(held_out) < 130
    # Decided once and for all: other choices would train on what earlier networks were judged by.
    assert sorted(held_out)[:3] == ["0005.jpg", "0029.jpg", "0044.jpg"]
    for name in names[:60]:
        (tmp_path / name).touch()
    whole, train, held = (
        {path.name for path in list_pictures(tmp_path, split)}
        for split in ("all", "train", "held-out")
    )
    assert (train | held, train & held) == (whole, set())
    assert held == held_out & whole
    for name in names[:60:2]:
        (tmp_path / name).unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / names[1]).rename(tmp_path / "sub" / names[1])
    fewer = {path.name for path in list_pictures(tmp_path, "held-out")}
    assert fewer == held & set(names[1:60:2])


def test_a_split_is_loaded(folder: Path) -> None:
    red = Image.new("RGB", (40, 40), (200, 0, 0))
    name = next(f"{number}.png" for number in range(100) if is_held_out(f"{number}.png"))
    red.save(folder / name)
    assert not any(is_held_out(other) for other in ("a.png", "b.jpg", "c.webp"))
    counts = {
        split: len(TextureBank.load(folder, 32, split).textures["photo"])
        for split in ("all", "train", "held-out")
    }
    assert counts == {"all": 2, "train": 1, "held-out": 1}
    (folder / name).unlink()
    with pytest.raises(ImageError, match="no readable image among 0 of the split held-out"):
        TextureBank.load(folder, 32, "held-out")


def with_size(png: bytes, side: int) -> bytes:
    """The same PNG with another height and width in its header."""
    header = b"IHDR" + side.to_bytes(4, "big") * 2 + png[24:29]
    return png[:12] + header + zlib.crc32(header).to_bytes(4, "big") + png[33:]


def test_broken_files_are_skipped_and_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "broken.jpg").write_bytes(b"\xff\xd8 not much of a JPEG")
    whole = (folder / "a.png").read_bytes()
    (folder / "half.png").write_bytes(whole[: len(whole) // 2])
    # Its header claims more pixels than any memory holds.
    (folder / "huge.png").write_bytes(with_size(whole, 60_000))
    bank = TextureBank.load(folder, size=32)
    names = [message.split(":")[0] for message in bank.skipped]
    assert names == ["broken.jpg", "half.png", "huge.png"]
    assert "broken.jpg" in caplog.text
    assert len(bank.textures["photo"]) == 1


def test_what_would_start_another_program_is_not_decoded(folder: Path) -> None:
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n"
    (folder / "drawing.png").write_bytes(eps)
    (skipped,) = TextureBank.load(folder, size=32).skipped
    assert "cannot identify image file" in skipped


def test_a_folder_without_images_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no readable image among 0"):
        TextureBank.load(tmp_path)
    with pytest.raises(ImageError, match="not a folder"):
        TextureBank.load(tmp_path / "missing")
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(ImageError, match="no readable image among 1"):
        TextureBank.load(tmp_path)


def test_colours_spread_beyond_a_cutout() -> None:
    colours = torch.zeros(3, 32, 32)
    alpha = torch.zeros(32, 32)
    alpha[8:20, 8:20] = 1
    colours[0, 8:20, 8:20] = 0.8
    spread = spread_colours(colours, alpha)
    torch.testing.assert_close(spread[0], torch.full((32, 32), 0.8), atol=0.01, rtol=0)
    assert spread[1:].max() == 0

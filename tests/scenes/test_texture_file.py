from pathlib import Path

import torch

from gmaflow.scenes import TextureBank
from gmaflow.scenes.texture_file import read_bank, write_bank


def assert_same(bank: TextureBank, other: TextureBank) -> None:
    assert torch.equal(bank.texels, other.texels)
    assert torch.equal(bank.outlines, other.outlines)
    assert (bank.size, bank.tileable, bank.skipped) == (other.size, other.tileable, other.skipped)
    assert (bank.textures, bank.shapes) == (other.textures, other.shapes)


def test_a_bank_comes_back_whole(tmp_path: Path) -> None:
    bank = TextureBank.procedural(64)
    write_bank(bank, tmp_path / "bank.safetensors")
    assert_same(read_bank(tmp_path / "bank.safetensors"), bank)

"""A texture bank as one file, for another process to take over."""

import json
from pathlib import Path

import torch

from gmaflow.scenes.textures import TextureBank


def write_bank(bank: TextureBank, path: Path) -> None:
    """Write a bank down, all of it."""
    from safetensors.torch import save_file

    facts = {
        "size": bank.size,
        "tileable": bank.tileable,
        "textures": {kind: [r.start, r.stop] for kind, r in bank.textures.items()},
        "shapes": {kind: [r.start, r.stop] for kind, r in bank.shapes.items()},
        "skipped": bank.skipped,
    }
    tensors = {"texels": bank.texels, "outlines": bank.outlines}
    save_file(tensors, path, metadata={"bank": json.dumps(facts)})


def read_bank(path: Path, device: torch.device | str = "cpu") -> TextureBank:
    """Read a bank that `write_bank` wrote."""
    from safetensors import safe_open

    with safe_open(path, framework="pt", device=str(device)) as file:
        facts = json.loads(file.metadata()["bank"])
        return TextureBank(
            texels=file.get_tensor("texels"),
            outlines=file.get_tensor("outlines"),
            size=facts["size"],
            tileable=tuple(facts["tileable"]),
            textures={kind: range(*ends) for kind, ends in facts["textures"].items()},
            shapes={kind: range(*ends) for kind, ends in facts["shapes"].items()},
            skipped=tuple(facts["skipped"]),
        )

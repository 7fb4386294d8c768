"""Textures read by a process of their own.

Reading them is half a minute of Python in as many threads as there are cores. Beside them in one
process, compiling would hardly ever have its turn, and take twice as long.
"""

import logging
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import torch

from gmaflow.errors import FlowError, ImageError
from gmaflow.scenes import TextureBank
from gmaflow.scenes.texture_bank import LOADED_SIZE, list_pictures, read_bank, write_bank
from gmaflow.training.child import end_with_parent, start_child

log = logging.getLogger(__name__)

BANK, REFUSAL = "bank.safetensors", "refusal.txt"
"""What the process leaves: the textures, or why there are none."""

_COMMAND = "from gmaflow.training.textures_apart import main; main()"


def load_apart(folder: str, device: torch.device, size: int = LOADED_SIZE) -> TextureBank:
    """Read a folder of textures; without the other process if that fails.

    Raises:
        ImageError: There is no such folder, or no image in it can be read.
    """
    list_pictures(Path(folder))  # the other process would take seconds to find that it is not there
    with suppress(OSError), TemporaryDirectory(prefix="gmaflow-") as temporary:
        with start_child(_COMMAND, folder, str(size), temporary, hears_interrupts=True) as child:
            code = child.wait()
        bank, refusal = Path(temporary, BANK), Path(temporary, REFUSAL)
        if refusal.exists():
            raise ImageError(refusal.read_text("utf-8"))
        if code == -signal.SIGINT:
            raise KeyboardInterrupt
        if code == 0:
            return tell_skipped(read_bank(bank, device))
        log.info("the process that reads textures ended with code %s", code)
    return TextureBank.load(folder, size).to(device)


def tell_skipped(bank: TextureBank) -> TextureBank:
    """Say of which files there are no textures, as reading them here would have."""
    for name in bank.skipped:
        log.warning("texture skipped: %s", name)
    return bank


def main() -> None:
    """Be that process, as the command line says."""
    folder, size, temporary = sys.argv[1:]
    end_with_parent(partial(rmtree, temporary, ignore_errors=True))
    try:
        write_bank(TextureBank.load(folder, int(size)), Path(temporary, BANK))
    except FlowError as err:
        Path(temporary, REFUSAL).write_text(str(err), "utf-8")

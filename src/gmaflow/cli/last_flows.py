"""The last flows of a folder, kept beside it, so that a warm start goes on as if never stopped.

Flow files will not do: a warm start begins from the network's own flow on its 1/8 grid, which none
of the formats holds, and pictures hold no flow at all.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.errors import OutputError
from gmaflow.io import atomic_write

if TYPE_CHECKING:
    from gmaflow.inference import Flow

FILE = ".warm-start.safetensors"
KEPT = 2
"""The last one, and the one before: it is kept before the files of its pair are, and if these never
come, that pair is what a run goes on with."""


class LastFlows:
    """Flows by the name of their pair."""

    def __init__(self, folder: Path) -> None:
        """Keep flows in a folder; what is kept there from another run waits for `load`."""
        self._path = folder / FILE
        self._flows: dict[str, Flow] = {}

    def load(self) -> "dict[str, Flow]":
        """Return the flows that another run kept, good for a warm start and nothing else.

        Raises:
            OutputError: The file is broken.
        """
        if self._path.is_file():
            self._flows = read_flows(self._path)
        return dict(self._flows)

    def keep(self, name: str, flow: "Flow") -> None:
        """Keep the flow of a pair, before the pair's own files are written."""
        self._flows.pop(name, None)
        self._flows = dict([*self._flows.items(), (name, flow)][-KEPT:])
        write_flows(self._path, self._flows)


def write_flows(path: Path, flows: "dict[str, Flow]") -> None:
    """Write the coarse flow of some pairs, and how large their frames are."""
    import numpy as np
    from safetensors.numpy import save

    arrays = {}
    for number, (name, flow) in enumerate(flows.items()):  # the file sorts, and order matters
        if flow.coarse is not None:
            key = os.fsencode(name).hex()  # not every name of a file is text
            arrays[f"{number}/coarse/{key}"] = np.ascontiguousarray(flow.coarse)
            arrays[f"{number}/size/{key}"] = np.array(flow.array.shape[:2])
    with atomic_write(path) as temporary:
        temporary.write_bytes(save(arrays))


def read_flows(path: Path) -> "dict[str, Flow]":
    """Read what `write_flows` wrote; all but the coarse flow is unknown.

    Raises:
        OutputError: It is broken.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from gmaflow.inference import Flow

    try:
        arrays = load(path.read_bytes())
        parts = sorted(name.split("/", 2) for name in arrays)
        return {
            os.fsdecode(bytes.fromhex(key)): Flow(
                np.full((*arrays[f"{number}/size/{key}"], 2), np.nan, np.float32),
                coarse=arrays[f"{number}/coarse/{key}"],
            )
            for number, part, key in parts
            if part == "size"
        }
    except (SafetensorError, LookupError, ValueError, TypeError) as err:
        raise OutputError(f"{path} is broken; add --overwrite to begin anew") from err

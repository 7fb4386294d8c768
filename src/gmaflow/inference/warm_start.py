"""Warm start: the flow of the previous pair, moved along itself, is the initial flow of the next.

Legend: b batch, h w rows and columns at 1/8.
"""

import os
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError, OutputError
from gmaflow.inference.flow import Flow
from gmaflow.inference.images import Padding
from gmaflow.io import atomic_write
from gmaflow.io.images import check_same_size
from gmaflow.model import STRIDE, pixel_grid

CHUNK = 2**24
"""Distances computed at once."""


def start_from(
    previous: Flow, shape: tuple[int, ...], padding: Padding, device: torch.device
) -> Float[Tensor, "1 2 h w"]:
    """Return the initial flow that the previous pair gives for images of this shape."""
    if not isinstance(previous, Flow):
        raise FlowError(
            f"the previous flow is a {type(previous).__name__}; give what an estimator returned, "
            "or Flow(array)"
        )
    check_same_size(
        {"the previous flow": previous.array, "the images": shape},
        remedy="a warm start needs the same size",
    )
    if previous.coarse is not None:
        coarse = torch.tensor(previous.coarse, device=device).permute(2, 0, 1)[None]
    else:
        full = torch.from_numpy(previous.array.astype(np.float32)).to(device)
        coarse = coarsen(padding.pad(full.permute(2, 0, 1)[None]))
    return forward_project(coarse)


def forward_project(flow: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b 2 h w"]:
    """Move every vector to where it points; each pixel takes the vector that landed nearest.

    As published (there with scipy's nearest-neighbour interpolation): vectors that leave the frame,
    or land on its very border, are dropped.
    """
    return torch.stack([project_one(single) for single in flow])


def project_one(flow: Float[Tensor, "2 h w"]) -> Float[Tensor, "2 h w"]:
    _, height, width = flow.shape
    grid = pixel_grid(flow[None])[0].flatten(1).T  # [h * w, 2]
    vectors = flow.flatten(1).T
    landed = grid + vectors
    limit = landed.new_tensor([width, height])
    inside = ((landed > 0) & (landed < limit)).all(dim=1)
    landed, vectors = landed[inside], vectors[inside]
    if len(landed) == 0:
        return torch.zeros_like(flow)
    nearest = [
        # Not with matrix products: their rounding picks wrong neighbours.
        torch.cdist(part, landed, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
        for part in grid.split(max(1, CHUNK // len(landed)))
    ]
    return vectors[torch.cat(nearest)].T.reshape(flow.shape)


def coarsen(flow: Float[Tensor, "b 2 H W"]) -> Float[Tensor, "b 2 h w"]:
    """Return a full-size flow on the 1/8 grid, in that grid's pixels."""
    return torch.nn.functional.avg_pool2d(flow, STRIDE) / STRIDE


class LastFlows:
    """The flows of the last pairs in a file, from which an interrupted warm start continues.

    Flow files do not suffice: a warm start begins from the network's own flow on its 1/8 grid,
    which none of the formats holds.
    """

    KEPT = 2
    """The last flow, and the one before: a flow is saved before the files of its pair are written,
    and if they are never written, a resumed run starts at that pair."""

    def __init__(self, path: Path) -> None:
        """Use a file, which need not exist."""
        self.path = path
        self._flows: dict[str, Flow] | None = None

    def save(self, name: str, flow: Flow) -> None:
        """Save the flow of a pair, before the pair's own files are written."""
        flows = dict(self._flows or {})
        flows.pop(name, None)
        self._flows = dict([*flows.items(), (name, flow)][-self.KEPT :])
        write_coarse_flows(self.path, self._flows)

    def load(self, name: str) -> Flow | None:
        """Return the flow of a pair if it was saved; only its coarse flow is known."""
        if self._flows is None:
            self._flows = read_coarse_flows(self.path) if self.path.is_file() else {}
        return self._flows.get(name)

    def remove(self) -> None:
        self._flows = {}
        self.path.unlink(missing_ok=True)


def write_coarse_flows(path: Path, flows: dict[str, Flow]) -> None:
    """Write the coarse flow of some pairs by name, and the size of their frames."""
    from safetensors.numpy import save

    arrays = {}
    for number, (name, flow) in enumerate(flows.items()):  # the file sorts, and order matters
        if flow.coarse is not None:
            key = os.fsencode(name).hex()  # not every file name is text
            arrays[f"{number}/coarse/{key}"] = np.ascontiguousarray(flow.coarse)
            arrays[f"{number}/size/{key}"] = np.array(flow.array.shape[:2])
    with atomic_write(path) as file:
        file.write(save(arrays))


def read_coarse_flows(path: Path) -> dict[str, Flow]:
    """Read what `write_coarse_flows` wrote; the full-size flow is NaN."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(path.read_bytes())
        parts = sorted(name.split("/", 2) for name in arrays)
        return {
            os.fsdecode(bytes.fromhex(key)): Flow(
                # Allocates nothing: a damaged file may claim any size.
                np.broadcast_to(np.float32(np.nan), (*arrays[f"{number}/size/{key}"], 2)),
                coarse=arrays[f"{number}/coarse/{key}"],
            )
            for number, part, key in parts
            if part == "size"
        }
    except (SafetensorError, LookupError, ValueError, TypeError) as err:
        raise OutputError(f"{path} is damaged; add --overwrite to start over") from err

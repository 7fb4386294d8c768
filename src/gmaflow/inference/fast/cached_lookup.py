"""The lookup of stored correlations on a CPU, some pixels at a time, so that caches hold them.

Legend: b batch, c channels, h w rows and columns at 1/8, n = h * w pixels of frame 1, m cells of
frame 2 on all levels together, l levels, k = 2 * radius + 1 the window's side, q some pixels.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.model.correlation import pyramid_rows

NOTHING = 16
"""Cells after the last level that correlate with nothing: what lies outside is read there. One
would do; so many keep rows aligned."""
PIXELS = 512
"""Looked up at once by each thread; their windows are some 2 MB."""


class CachedLookup:
    """All correlations, looked up as `StoredCorrelation` does.

    Args:
        features1: Of frame 1, channels last.
        features2: Of frame 2.
        num_levels: Levels of the pyramid.
        radius: Of the window.
    """

    def __init__(
        self,
        features1: Float[Tensor, "b h w c"],
        features2: Float[Tensor, "b h w c"],
        *,
        num_levels: int,
        radius: int,
    ) -> None:
        rows1 = (features1 / features1.shape[-1] ** 0.5).flatten(1, 2)
        rows2 = pyramid_rows(features2.permute(0, 3, 1, 2), num_levels=num_levels)
        rows2 = F.pad(rows2, (0, 0, 0, NOTHING))
        self.volume: Float[Tensor, "b n m"] = rows1 @ rows2.transpose(1, 2)
        height, width = features1.shape[1:3]
        level = torch.arange(num_levels, device=features1.device)
        self.scale = 2.0 ** -level.float()
        self.sides = torch.stack([width // 2**level, height // 2**level])  # x first, as in coords
        cells = self.sides.prod(dim=0)
        self.before = cells.cumsum(0) - cells
        self.radius = radius

    def __call__(self, coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
        """Return the correlations around `coords`, `[b, h, w, lkk]`."""
        batch, _, height, width = coords.shape
        side = 2 * self.radius + 1
        out = coords.new_empty(batch, height * width, len(self.scale), side, side)
        at_once = PIXELS * torch.get_num_threads()
        for item in range(batch):
            points = coords[item].flatten(1)
            for first in range(0, height * width, at_once):
                some = slice(first, first + at_once)
                self._look_up(self.volume[item, some], points[:, some], out[item, some])
        return out.view(batch, height, width, -1)

    def _look_up(
        self,
        volume: Float[Tensor, "q m"],
        coords: Float32[Tensor, "2 q"],
        out: Float32[Tensor, "q l k k"],
    ) -> None:
        points = coords[..., None] * self.scale
        corner = points.floor().nan_to_num()  # what is not a number must not become an index
        right, down = (points - corner)[..., None, None]
        steps = torch.arange(-self.radius, self.radius + 2, device=coords.device)
        whole = corner[..., None] + steps
        inside = (whole >= 0) & (whole < self.sides[:, None, :, None])
        column, row = torch.where(inside, whole, 0).long()
        outside_x, outside_y = ~inside
        # What lies outside on either axis comes to the last cell or beyond: the last is taken.
        nothing = volume.shape[1] - 1
        start = self.before[:, None] + row * self.sides[0][:, None]
        start.masked_fill_(outside_y, nothing)
        column.masked_fill_(outside_x, nothing)
        index = (start[..., None, :] + column[..., :, None]).clamp_(max=nothing)
        seen = volume.gather(1, index.flatten(1)).view(index.shape)
        # The first window axis moves x, the second y: RAFT's order, see `Window.around`.
        seen = torch.lerp(seen[..., :-1, :], seen[..., 1:, :], right)
        torch.lerp(seen[..., :-1], seen[..., 1:], down, out=out)

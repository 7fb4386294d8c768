import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes import SceneBatch, SceneRenderer, TextureBank

SIZE = (96, 128)
KINDS = ("chairs", "things", "film", "chase", "drive")


@pytest.fixture(scope="session")
def bank() -> TextureBank:
    return TextureBank.procedural(64)


@pytest.fixture(scope="session")
def batches(bank: TextureBank) -> dict[str, SceneBatch]:
    """Twelve pairs of each kind."""
    return {kind: SceneRenderer(kind, SIZE, 3, bank).render(0, 12) for kind in KINDS}


def sample(image: Float[Tensor, "b c h w"], flow: Float[Tensor, "b 2 h w"]) -> Tensor:
    """The image at every pixel's flow target, interpolated."""
    height, width = image.shape[-2:]
    x = torch.arange(width) + flow[:, 0]
    y = torch.arange(height)[:, None] + flow[:, 1]
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    return F.grid_sample(image, grid, padding_mode="border", align_corners=False)


def inner(identity: Tensor) -> Tensor:
    """Pixels at least three pixels away from any other object."""
    number = identity[:, None].float()
    most, least = F.max_pool2d(number, 5, 1, 2), -F.max_pool2d(-number, 5, 1, 2)
    return (most == least)[:, 0]


def comparable(batch: SceneBatch) -> Tensor:
    """Visible pixels that lie away from the edges of objects in both frames."""
    target_is_inner = sample(inner(batch.identity2)[:, None].float(), batch.flow)[:, 0] > 0.999
    return ~batch.occluded & batch.valid & inner(batch.identity1) & target_is_inner

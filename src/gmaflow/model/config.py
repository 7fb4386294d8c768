"""The config of a network, and the models by name."""

from dataclasses import dataclass
from typing import Literal, get_args

from gmaflow.errors import FlowError, check_known, look_up

AttentionKind = Literal["none", "content", "content+position", "position"]
"""What attention compares: nothing (RAFT), appearance, appearance and offset, or offset only."""

POSITIONAL: tuple[AttentionKind, ...] = ("content+position", "position")
"""The kinds that compare offsets, by learned tables."""

MAX_HEADS = 64
"""More heads are refused as a mistake."""

Combination = Literal["concatenate", "replace"]
"""What the recurrent unit sees: local and global motion, or global motion only."""

ContinuationKind = Literal["none", "affine"]
"""How motion is continued into hidden pixels: not at all, or by affine fits."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Everything that distinguishes networks; the defaults are the paper's final model."""

    small: bool = False
    """RAFT-small's narrow encoders, single 3x3 recurrent pass and bilinear upsampling."""
    attention: AttentionKind = "content"
    """What attention compares; `none` is RAFT."""
    num_heads: int = 1
    """Attention heads."""
    learned_alpha: bool = True
    """Scale the aggregated motion by a learned scalar that starts at 0; otherwise by 1."""
    combination: Combination = "concatenate"
    """Whether global motion is concatenated with local motion, or replaces it."""
    residual: bool = True
    """Add the aggregated motion to the local motion."""
    continuation: ContinuationKind = "none"
    """Whether the motion of related pixels is continued into hidden ones; `none` is the paper."""

    def __post_init__(self) -> None:
        kinds = {
            "attention": AttentionKind,
            "combination": Combination,
            "continuation": ContinuationKind,
        }
        for name, kind in kinds.items():
            check_known(name, getattr(self, name), get_args(kind))
        for name in ("small", "learned_alpha", "residual"):
            if not isinstance(getattr(self, name), bool):
                raise FlowError(f"{name}={getattr(self, name)!r} must be true or false")
        if not isinstance(self.num_heads, int) or not 1 <= self.num_heads <= MAX_HEADS:
            raise FlowError(f"num_heads={self.num_heads} must be from 1 to {MAX_HEADS}")
        if self.small and self.aggregates:
            raise FlowError("small=True is RAFT-small and has no attention: set attention='none'")
        varied = (self.num_heads, self.learned_alpha, self.combination, self.residual)
        if not self.aggregates and varied != (1, True, "concatenate", True):
            raise FlowError("without attention there are no heads, alpha, combination or residual")
        if self.continues and (not self.aggregates or self.num_heads > 1):
            raise FlowError("continuation='affine' needs attention with one head")

    @property
    def uses_position(self) -> bool:
        """Whether attention compares offsets, by the tables of `model/aggregation.py`."""
        return self.attention in POSITIONAL

    @property
    def aggregates(self) -> bool:
        """Whether motion is aggregated by attention (GMA) or not (RAFT)."""
        return self.attention != "none"

    @property
    def continues(self) -> bool:
        """Whether motion is continued into hidden pixels."""
        return self.continuation != "none"

    @property
    def feature_channels(self) -> int:
        """Channels of the features to match."""
        return 128 if self.small else 256

    @property
    def hidden_channels(self) -> int:
        """Channels of the recurrent state."""
        return 96 if self.small else 128

    @property
    def context_channels(self) -> int:
        """Channels of the context, which the recurrent unit and the attention read."""
        return 64 if self.small else 128

    @property
    def motion_channels(self) -> int:
        """Channels of the motion features, the flow's two included."""
        return 82 if self.small else 128

    @property
    def correlation_levels(self) -> int:
        return 4

    @property
    def correlation_radius(self) -> int:
        """The lookup sees a window of 2 * radius + 1 in each direction."""
        return 3 if self.small else 4

    @property
    def correlation_channels(self) -> int:
        """How many correlations a pixel looks up in one iteration."""
        return self.correlation_levels * (2 * self.correlation_radius + 1) ** 2


MODELS: dict[str, NetworkConfig] = {
    "gma": NetworkConfig(attention="content"),
    "gma-affine": NetworkConfig(attention="content", continuation="affine"),
    "gma-p": NetworkConfig(attention="content+position"),
    "gma-p-only": NetworkConfig(attention="position"),
    "raft": NetworkConfig(attention="none"),
    "raft-small": NetworkConfig(attention="none", small=True),
}
"""The models by name. Variants of one are `dataclasses.replace(MODELS["gma"], num_heads=2)`."""


def model_config(name: str) -> NetworkConfig:
    """Return the config of a model by its name.

    Raises:
        FlowError: There is no model of that name.
    """
    return look_up("model", name, MODELS)

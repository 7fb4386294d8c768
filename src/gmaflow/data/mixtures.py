"""The training data of the paper's stages: data sets, repeats and augmentation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gmaflow.data.augmentation import Augmentation, dense_augmentation, sparse_augmentation
from gmaflow.data.dataset import FlowDataset, open_dataset
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike


@dataclass(frozen=True, kw_only=True)
class Ingredient:
    """A data set's share of a mixture."""

    dataset: str
    augmentation: Augmentation
    passes: tuple[str, ...] = ()
    repeats: int = 1
    """How often each pair occurs in an epoch."""
    split: str = "training"


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The training data of a stage."""

    name: str
    ingredients: tuple[Ingredient, ...]

    def __post_init__(self) -> None:
        if not self.ingredients:
            raise DatasetError(f"the mixture {self.name} is empty; keep at least one data set")

    @property
    def crop(self) -> tuple[int, int]:
        """Height and width of the crops."""
        return self.ingredients[0].augmentation.crop

    def with_crop(self, crop: tuple[int, int]) -> "Mixture":
        """Return the mixture with another crop size."""
        parts = (
            replace(part, augmentation=replace(part.augmentation, crop=crop))
            for part in self.ingredients
        )
        return replace(self, ingredients=tuple(parts))

    def without(self, *datasets: str) -> "Mixture":
        """Return the mixture without some data sets, for example those you do not have."""
        parts = (part for part in self.ingredients if part.dataset not in datasets)
        return replace(self, ingredients=tuple(parts))


def open_mixture(
    mixture: Mixture, roots: Mapping[str, PathLike] | None = None
) -> tuple[tuple[FlowDataset, Augmentation], ...]:
    """Open the data sets of a mixture; returns each one's pairs, repeated, and its augmentation."""
    opened = []
    for part in mixture.ingredients:
        try:
            dataset = open_dataset(
                part.dataset,
                (roots or {}).get(part.dataset),
                split=part.split,
                passes=part.passes or None,
            )
        except DatasetError as err:
            if len(mixture.ingredients) == 1:
                raise
            raise DatasetError(f"{err}; to leave it out, set without={part.dataset}") from None
        opened.append((part.repeats * dataset, part.augmentation))
    return tuple(opened)


_CHAIRS = Ingredient(dataset="chairs", augmentation=dense_augmentation((368, 496), (-0.1, 1.0)))
_THINGS = Ingredient(
    dataset="things",
    passes=("clean", "final"),
    augmentation=dense_augmentation((400, 720), (-0.4, 0.8)),
)
# Roads and traffic have a direction, so the last stage does not flip.
_KITTI = Ingredient(
    dataset="kitti-2015",
    augmentation=sparse_augmentation((288, 960), (-0.2, 0.4), flip=False),
)
_CROP = (368, 768)
_SINTEL = (
    Ingredient(
        dataset="sintel",
        passes=("clean", "final"),
        repeats=100,
        augmentation=dense_augmentation(_CROP, (-0.2, 0.6)),
    ),
    Ingredient(
        dataset="kitti-2015", repeats=200, augmentation=sparse_augmentation(_CROP, (-0.3, 0.5))
    ),
    Ingredient(dataset="hd1k", repeats=5, augmentation=sparse_augmentation(_CROP, (-0.5, 0.2))),
    Ingredient(
        dataset="things", passes=("clean",), augmentation=dense_augmentation(_CROP, (-0.2, 0.6))
    ),
)

MIXTURES: Mapping[str, Mixture] = {
    "chairs": Mixture(name="chairs", ingredients=(_CHAIRS,)),
    "things": Mixture(name="things", ingredients=(_THINGS,)),
    "sintel": Mixture(name="sintel", ingredients=_SINTEL),
    "kitti": Mixture(name="kitti", ingredients=(_KITTI,)),
}
"""The paper's stages, in order."""

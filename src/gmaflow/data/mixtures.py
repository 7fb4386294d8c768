"""The training data of the paper's stages: data sets, repeats and augmentation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gmaflow.data.augmentation import Augmentation, dense_augmentation, sparse_augmentation
from gmaflow.data.dataset import FlowDataset, open_dataset
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike


@dataclass(frozen=True, kw_only=True)
class Ingredient:
    """A data set's share of a mixture.

    Attributes:
        dataset: its name.
        augmentation: the augmentation of its pairs.
        passes: the passes to join.
        repeats: how often each pair occurs in an epoch.
        split: the split.
    """

    dataset: str
    augmentation: Augmentation
    passes: tuple[str, ...] = ()
    repeats: int = 1
    split: str = "training"


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The training data of a stage.

    Attributes:
        name: the stage.
        ingredients: the data sets.
    """

    name: str
    ingredients: tuple[Ingredient, ...]

    def __post_init__(self) -> None:
        if not self.ingredients:
            raise DatasetError(f"the mixture {self.name} is empty; keep at least one data set")
        if len({part.augmentation.crop for part in self.ingredients}) > 1:
            raise DatasetError(f"the mixture {self.name} has crops of different sizes; use one")

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
    """Open the data sets of a mixture.

    Args:
        mixture: the mixture; `MIXTURES` contains the paper's.
        roots: folders of data sets by name; for others see `open_dataset`.

    Returns:
        Each ingredient's pairs, repeated, and its augmentation.

    Raises:
        DatasetError: a data set is missing.
    """
    opened = []
    for part in mixture.ingredients:
        dataset = open_dataset(
            part.dataset,
            (roots or {}).get(part.dataset),
            split=part.split,
            passes=part.passes or None,
        )
        opened.append((part.repeats * dataset, part.augmentation))
    return tuple(opened)


def chairs_mixture() -> Mixture:
    """Return the first stage: FlyingChairs."""
    part = Ingredient(dataset="chairs", augmentation=dense_augmentation((368, 496), (-0.1, 1.0)))
    return Mixture(name="chairs", ingredients=(part,))


def things_mixture() -> Mixture:
    """Return the second stage: FlyingThings3D, both passes."""
    part = Ingredient(
        dataset="things",
        passes=("clean", "final"),
        augmentation=dense_augmentation((400, 720), (-0.4, 0.8)),
    )
    return Mixture(name="things", ingredients=(part,))


def sintel_mixture() -> Mixture:
    """Return the third stage: Sintel with KITTI, HD1K and FlyingThings3D."""
    crop = (368, 768)
    dense = dense_augmentation(crop, (-0.2, 0.6))
    return Mixture(
        name="sintel",
        ingredients=(
            Ingredient(
                dataset="sintel", passes=("clean", "final"), repeats=100, augmentation=dense
            ),
            Ingredient(
                dataset="kitti-2015",
                repeats=200,
                augmentation=sparse_augmentation(crop, (-0.3, 0.5)),
            ),
            Ingredient(
                dataset="hd1k", repeats=5, augmentation=sparse_augmentation(crop, (-0.5, 0.2))
            ),
            Ingredient(dataset="things", passes=("clean",), augmentation=dense),
        ),
    )


def kitti_mixture() -> Mixture:
    """Return the last stage: KITTI 2015, without flips since roads and traffic have a direction."""
    part = Ingredient(
        dataset="kitti-2015",
        augmentation=sparse_augmentation((288, 960), (-0.2, 0.4), flip=False),
    )
    return Mixture(name="kitti", ingredients=(part,))


MIXTURES: Mapping[str, Mixture] = {
    mixture.name: mixture
    for mixture in (chairs_mixture(), things_mixture(), sintel_mixture(), kitti_mixture())
}
"""The paper's stages, in order."""

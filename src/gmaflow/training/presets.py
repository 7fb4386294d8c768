"""The paper's four stages, and our own on rendered scenes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gmaflow.errors import TrainingError, suggest
from gmaflow.training.config import TrainConfig


def chairs() -> TrainConfig:
    """The paper's first stage: FlyingChairs, from random weights."""
    return TrainConfig(
        data="stage:chairs",
        steps=120_000,
        batch=8,
        crop=(368, 496),
        lr=2.5e-4,
        weight_decay=1e-4,
        gamma=0.8,
        save_every=5000,
    )


def things() -> TrainConfig:
    """The paper's second stage: FlyingThings3D; add --init with the weights of the first."""
    return replace(chairs(), data="stage:things", batch=6, crop=(400, 720), lr=1.25e-4)


def sintel() -> TrainConfig:
    """The paper's third stage: Sintel, KITTI, HD1K and FlyingThings3D; --init from the second."""
    return replace(things(), data="stage:sintel", crop=(368, 768), weight_decay=1e-5, gamma=0.85)


def kitti() -> TrainConfig:
    """The paper's last stage: KITTI 2015; --init from the third."""
    return replace(sintel(), data="stage:kitti", steps=50_000, crop=(288, 960))


def scenes_pretrain() -> TrainConfig:
    """Ours: rendered scenes of all kinds, from random weights; needs no files."""
    return TrainConfig(
        data="scenes:mix",
        steps=100_000,
        batch=16,
        crop=(368, 496),
        lr=4e-4,
        weight_decay=1e-4,
        gamma=0.8,
        validate_every=5000,
    )


def scenes_finetune() -> TrainConfig:
    """Ours: larger frames, faster film and a gentler rate; --init from the pretraining."""
    return replace(
        scenes_pretrain(),
        data="scenes:fast-mix",
        steps=30_000,
        batch=8,
        crop=(368, 768),
        lr=1.25e-4,
        weight_decay=1e-5,
        gamma=0.85,
    )


def finetune() -> TrainConfig:
    """Your own pairs: add --data folder:PATH, and --init with the weights to begin from."""
    return TrainConfig(
        data="",  # only whoever trains knows the folder
        steps=5000,
        batch=6,
        crop=(320, 448),
        lr=1e-4,
        weight_decay=1e-5,
        gamma=0.85,
        log_every=50,
        save_every=500,
    )


PRESETS: Mapping[str, Callable[[], TrainConfig]] = {
    "chairs": chairs,
    "things": things,
    "sintel": sintel,
    "kitti": kitti,
    "scenes-pretrain": scenes_pretrain,
    "scenes-finetune": scenes_finetune,
    "finetune": finetune,
}


def preset(name: str) -> TrainConfig:
    """Return a preset by name.

    Raises:
        TrainingError: There is none of that name.
    """
    if name not in PRESETS:
        raise TrainingError(f"there is no preset {name!r}; {suggest(name, PRESETS)}")
    return PRESETS[name]()


def summary(name: str) -> str:
    """Return what a preset is, in a line."""
    return (PRESETS[name].__doc__ or "").strip().splitlines()[0]

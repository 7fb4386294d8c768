"""Presets: the paper's four stages, and training on rendered scenes or your own data."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gmaflow.errors import TrainingError, suggest
from gmaflow.training.config import TrainConfig


def chairs() -> TrainConfig:
    """Stage 1 of the paper: FlyingChairs, from random weights."""
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
    """Stage 2 of the paper: FlyingThings3D; use --init with the weights of stage 1."""
    return replace(chairs(), data="stage:things", batch=6, crop=(400, 720), lr=1.25e-4)


def sintel() -> TrainConfig:
    """Stage 3 of the paper: Sintel, KITTI, HD1K and FlyingThings3D; --init from stage 2."""
    return replace(things(), data="stage:sintel", crop=(368, 768), weight_decay=1e-5, gamma=0.85)


def kitti() -> TrainConfig:
    """Stage 4 of the paper: KITTI 2015; --init from stage 3."""
    return replace(sintel(), data="stage:kitti", steps=50_000, crop=(288, 960))


def scenes_pretrain() -> TrainConfig:
    """Rendered scenes of all kinds, from random weights; needs no files."""
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
    """Rendered scenes: larger crops, faster motion, lower rate; --init from the pretraining."""
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
    """Your own pairs: give --data folder:PATH, and --init with the initial weights."""
    return TrainConfig(
        data="",  # the user must give the folder
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
    """Return the preset with this name.

    Raises:
        TrainingError: the name is unknown.
    """
    if name not in PRESETS:
        raise TrainingError(f"unknown preset {name!r}; {suggest(name, PRESETS)}")
    return PRESETS[name]()


def summary(name: str) -> str:
    """Return a one-line description of a preset."""
    return (PRESETS[name].__doc__ or "").strip().splitlines()[0]

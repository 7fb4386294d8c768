"""How well the motion of the camera is separated from that of objects, on rendered scenes.

PYTHONPATH=src python benchmarks/camera.py --flow true --count 200
PYTHONPATH=src python benchmarks/camera.py --flow estimated --count 100

The truth: each scene is computed a second time with its objects at rest. The difference between the
two flows is the objects' own motion. An object moves if the median of its own motion is at least
2 px. Pixels of other things that move by more than half a pixel by themselves, such as slow objects
and sheets that bend, count neither way. The motion of the camera is the homography of the backdrop,
the farthest plane; its error is averaged over the whole frame.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gmaflow.inference import BidirectionalFlow, Flow, FlowEstimator
from gmaflow.inference.camera import CameraMotion, project
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.projection import (
    add_sheet,
    follow,
    initial_layers,
    make_sheets,
    of_pixels,
    pixel_grid,
)
from gmaflow.scenes.renderer import pair_arrays
from gmaflow.scenes.scene_layout import (
    BACKGROUND_LAYERS,
    draw_background,
    draw_objects,
    draw_setting,
)
from gmaflow.scenes.scene_params import RenderPlan, Scenes, draw_scenes
from gmaflow.scenes.scene_presets import draw_traits
from gmaflow.scenes.sheet_geometry import Sheets, across, homographies, inverse
from gmaflow.scenes.stateless_random import StatelessRandom

SEEDS = 2**40
"""Added to the seed: not those of any training."""
MOVES, RESTS = 2.0, 0.5
"""Pixels: an object that moves by itself, and a pixel that does not."""
SMALLEST = 0.005
"""Share of the frame: scenes in which less moves say nothing about masks."""


@dataclass(frozen=True)
class Scene:
    """A rendered pair and what moves in it."""

    number: int
    image1: np.ndarray
    image2: np.ndarray
    flow: np.ndarray
    own_motion: np.ndarray
    """Length of the motion that is not the camera's."""
    identity: np.ndarray
    homography: np.ndarray
    """Of the backdrop."""
    bent: bool
    """Whether the backdrop bends: then no homography is its motion."""
    parallax: bool
    """Whether the camera moves to another place, not only turns and zooms."""

    @property
    def backdrop(self) -> float:
        """Share of the frame that the backdrop covers."""
        return float((self.identity == 0).mean())

    def moving(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels of objects that move, and those that count."""
        moving = np.zeros(self.identity.shape, bool)
        for identity in np.unique(self.identity[self.identity >= BACKGROUND_LAYERS]):
            here = self.identity == identity
            if np.median(self.own_motion[here]) >= MOVES:
                moving |= here
        return moving, moving | (self.own_motion < RESTS)


def render(
    preset: str, count: int, size: tuple[int, int], bank: TextureBank, seed: int
) -> Iterator[Scene]:
    """Render scenes one by one."""
    seed += SEEDS
    renderer = SceneRenderer(preset, size, seed, bank)
    pixels = pixel_grid(*size, torch.device("cpu"))
    for number in range(count):
        numbers = np.array([number])
        arrays = draw_scenes(preset, seed, numbers, size, bank)
        rng = StatelessRandom(seed, numbers)
        traits = draw_traits(preset, rng)
        setting = draw_setting(traits, rng, size)
        background, _ = draw_background(traits, rng, setting, size)
        sheets = background.followed_by(draw_objects(traits, rng, setting, size).sheets)
        at_rest = Sheets.resting(sheets.centre, sheets.right, sheets.down)
        first, second = homographies(at_rest, setting.camera)
        rows = {
            "to_canvas": (inverse(first), inverse(second)),
            "to_frame": (first, second),
            "across": (across(first, second), across(second, first)),
        }
        push = arrays["push"]
        resting = {
            **arrays,
            **{name: _as_rows(*pair) for name, pair in rows.items()},
            "push": np.stack([push[:, 0], push[:, 0]], axis=1),
        }
        scenes, still = Scenes.from_arrays(arrays), Scenes.from_arrays(resting)
        visible = initial_layers(scenes, pixels)
        for sheet in make_sheets(scenes, bank.outlines, RenderPlan.for_scenes(arrays).layers):
            visible = add_sheet(sheet, pixels, visible)
        _, truth = follow(scenes, pixels, visible.shown)
        _, without = follow(still, pixels, visible.shown)
        own = (truth.flow - without.flow)[0].norm(dim=0).numpy()
        (pair,) = pair_arrays(renderer.render(number, 1))
        matrix = rows["across"][0][0, 0]
        yield Scene(
            number=number,
            image1=pair.final1,
            image2=pair.final2,
            flow=pair.flow,
            own_motion=own,
            identity=of_pixels(scenes.identity, visible.shown)[0].numpy(),
            homography=matrix / matrix[2, 2],
            bent=bool(np.abs(push[0, 1, ..., 0] - push[0, 0, ..., 0]).max() > 0),
            parallax=bool(np.abs(setting.camera.shift).max() > 0),
        )


def _as_rows(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Matrices `[b, l, 3, 3]` of both frames in the order of `Scenes`."""
    both = np.stack([first, second], axis=1)
    return both.reshape(*both.shape[:3], 9).swapaxes(2, 3)


@dataclass(frozen=True)
class Result:
    """What was found in a scene."""

    scene: Scene
    camera: CameraMotion

    @property
    def camera_error(self) -> float:
        """Mean distance in pixels between the true homography and the one found."""
        grid = np.indices(self.scene.identity.shape)[::-1].reshape(2, -1).T.astype(float)
        estimated, true = (
            project(matrix, grid) for matrix in (self.camera.homography, self.scene.homography)
        )
        return float(np.hypot(*(estimated - true).T).mean())

    @property
    def overlap(self) -> float | None:
        """Intersection over union of the masks; None if hardly anything moves."""
        truth, counts = self.scene.moving()
        if truth.mean() < SMALLEST:
            return None
        estimated = self.camera.moving > 0.5
        return float((estimated & truth)[counts].sum() / (estimated | truth)[counts].sum())


def summarise(results: list[Result], title: str) -> str:
    """Return a row of the table."""
    errors = np.array([result.camera_error for result in results])
    overlaps = np.array([o for result in results if (o := result.overlap) is not None])
    return (
        f"| {title} | {len(results)} | {np.median(errors):.3f} | {np.quantile(errors, 0.9):.2f} | "
        f"{(errors < 0.3).mean():.0%} | {len(overlaps)} | {overlaps.mean():.3f} | "
        f"{np.median(overlaps):.3f} | {(overlaps >= 0.7).mean():.0%} |"
        if len(results) and len(overlaps)
        else f"| {title} | {len(results)} | | | | | | | |"
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flow", choices=["true", "estimated"], default="true")
    parser.add_argument("--preset", default="mix")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=8, help="thresholds were chosen on 7")
    parser.add_argument("--size", type=int, nargs=2, default=(368, 496), metavar=("H", "W"))
    parser.add_argument("--textures", type=Path, help="folder of images; built-in ones by default")
    options = parser.parse_args()
    textures = options.textures
    bank = TextureBank.load(textures, split="held-out") if textures else TextureBank.procedural()
    fit: Callable[[Scene], Flow | BidirectionalFlow]
    if options.flow == "estimated":
        estimator = FlowEstimator()

        def fit(scene: Scene) -> Flow | BidirectionalFlow:
            return estimator.bidirectional(scene.image1, scene.image2)
    else:

        def fit(scene: Scene) -> Flow | BidirectionalFlow:
            return Flow(scene.flow)

    results = [
        Result(scene, fit(scene).camera())
        for scene in render(options.preset, options.count, tuple(options.size), bank, options.seed)
    ]
    half = [result for result in results if result.scene.backdrop >= 0.5]
    flat = [result for result in half if not result.scene.bent]
    print(
        "| scenes | pairs | camera error, median px | 90 % | below 0.3 px | with motion | "
        "mean IoU | median IoU | IoU >= 0.7 |\n|---|---|---|---|---|---|---|---|---|"
    )
    print(summarise(results, "all"))
    print(summarise(half, "at least half backdrop"))
    print(summarise(flat, "... that does not bend"))


if __name__ == "__main__":
    main()

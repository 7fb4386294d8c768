"""Draw what continuing motion does in a scene, and measure it in many.

Renders held-out scenes with deep holes, estimates them with gma and gma-affine, prints the errors
of pixels that are hidden inside the frame, and draws one scene: that in which gma-affine has the
most hidden pixels right beyond those of gma, or --draw.

PYTHONPATH=src python benchmarks/hidden_motion.py docs/images/hidden-motion.png --draw 96
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from gmaflow import FlowEstimator
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.viz.flow_colors import flow_to_image

HEIGHT, WIDTH = 288, 448
SEED = 7_000_001
"""Not that of any training."""
MODELS = ("gma", "gma-affine")
STEP = 10
"""Pixels between two arrows."""
WRONG = 3.0
"""Errors beyond this are drawn in red, in pixels."""


@dataclass(frozen=True)
class Result:
    """A scene with the flow of both networks."""

    number: int
    images: list[np.ndarray]
    truth: np.ndarray
    hidden: np.ndarray
    flows: dict[str, np.ndarray]

    def errors(self, model: str) -> np.ndarray:
        """End-point errors of the pixels that are hidden inside the frame."""
        return np.linalg.norm(self.flows[model] - self.truth, axis=2)[self.hidden]

    @property
    def gain(self) -> int:
        """How many fewer hidden pixels are wrong with the second network."""
        first, second = (int((self.errors(model) > WRONG).sum()) for model in MODELS)
        return first - second


def estimate(renderer: SceneRenderer, number: int, estimators: dict[str, FlowEstimator]) -> Result:
    """Render a scene and estimate its flow."""
    scene = renderer.render(number, 1)
    first, second = (
        (255 * image[0].permute(1, 2, 0)).round().byte().cpu().numpy()
        for image in (scene.final1, scene.final2)
    )
    truth = scene.flow[0].permute(1, 2, 0).cpu().numpy()
    y, x = np.indices((HEIGHT, WIDTH))
    inside = (np.abs(x + truth[..., 0] - (WIDTH - 1) / 2) <= (WIDTH - 1) / 2) & (
        np.abs(y + truth[..., 1] - (HEIGHT - 1) / 2) <= (HEIGHT - 1) / 2
    )
    hidden = (scene.occluded & scene.valid)[0].cpu().numpy() & inside
    flows = {name: estimator(first, second).array for name, estimator in estimators.items()}
    return Result(number, [first, second], truth, hidden, flows)


def draw(result: Result) -> Image.Image:
    """Frames, truth and both flows; the motion of hidden pixels as arrows."""
    hidden = result.hidden
    tinted = result.images[0].copy()
    tinted[hidden] = (0.4 * tinted[hidden] + 0.6 * np.array([255, 40, 200])).astype(np.uint8)
    longest = float(np.linalg.norm(result.truth, axis=2).max())
    panels = [("frame 1; purple: hidden in frame 2", tinted), ("frame 2", result.images[1])]
    for name, flow in {"truth": result.truth, **result.flows}.items():
        title = name
        if name != "truth":
            error = result.errors(name)
            title += f": hidden {error.mean():.1f} px, {(error > WRONG).mean():.0%} beyond 3 px"
        panels.append((title, with_arrows(flow_to_image(flow, max_length=longest), flow, result)))
    panels.append(("gain: green better, red worse by 5 px", gains(result)))
    sheet = Image.new("RGB", (3 * (WIDTH + 8), 2 * (HEIGHT + 28)), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (title, picture) in enumerate(panels):
        left, top = number % 3 * (WIDTH + 8), number // 3 * (HEIGHT + 28)
        sheet.paste(Image.fromarray(picture), (left, top + 24))
        pen.text((left + 2, top + 2), title, "black", font_size=16)
    return sheet


def with_arrows(picture: np.ndarray, flow: np.ndarray, result: Result) -> np.ndarray:
    """Draw the motion of hidden pixels: black where it is right, red where it is wrong."""
    image = Image.fromarray(picture)
    pen = ImageDraw.Draw(image)
    for y in range(STEP // 2, HEIGHT, STEP):
        for x in range(STEP // 2, WIDTH, STEP):
            if result.hidden[y, x]:
                wrong = np.linalg.norm(flow[y, x] - result.truth[y, x]) > WRONG
                colour = "red" if wrong else "black"
                end = (x + float(flow[y, x, 0]), y + float(flow[y, x, 1]))
                pen.line([(x, y), end], colour, width=2)
                pen.ellipse([x - 2, y - 2, x + 2, y + 2], colour)
    return np.asarray(image)


def gains(result: Result) -> np.ndarray:
    """Where the second network is better or worse than the first."""
    first, second = (np.linalg.norm(result.flows[model] - result.truth, axis=2) for model in MODELS)
    change = np.clip((first - second) / 5, -1, 1)[..., None]
    better, worse = np.array([0, 140, 0]), np.array([200, 0, 0])
    colour = np.where(change > 0, better, worse)
    return (255 + np.abs(change) * (colour - 255)).astype(np.uint8)


def main() -> None:
    """Estimate, print the errors, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--preset", default="deep-film")
    parser.add_argument("--draw", type=int, metavar="SCENE")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bank = TextureBank.procedural().to(device)
    renderer = SceneRenderer(options.preset, (HEIGHT, WIDTH), SEED, bank, device)
    estimators = {name: FlowEstimator(name) for name in MODELS}
    best, sums = None, {name: [] for name in MODELS}
    for number in range(options.scenes):
        result = estimate(renderer, number, estimators)
        if not result.hidden.any():
            continue
        for name in MODELS:
            sums[name].append(result.errors(name))
        errors = ", ".join(f"{name} {result.errors(name).mean():.2f} px" for name in MODELS)
        print(f"{number}: {result.hidden.sum()} hidden, {errors}, {result.gain} gained", flush=True)
        if number == options.draw or (
            options.draw is None and (best is None or result.gain > best.gain)
        ):
            best = result
            draw(best).quantize(256, kmeans=1).save(options.output)
    if best is None:
        print(f"nothing was drawn; --draw takes a scene from 0 to {options.scenes - 1}")
    for name, parts in sums.items():
        error = np.concatenate(parts)
        print(f"{name}: {error.mean():.2f} px, {(error > WRONG).mean():.1%} beyond {WRONG:g} px")


if __name__ == "__main__":
    main()

"""Judge weights on held-out scenes: errors by region and depth of hole, against the first network.

PYTHONPATH=src python benchmarks/judge_scenes.py gma-affine runs/chunk/large.safetensors:0.5 \
    --textures FOLDER

Each network is a name or a file, perhaps with `:T` for its mean with the first network, T of it the
file's, `@N` for N iterations, and `~` at the end to leave the continuation out, as gma does.
`--output` saves the sums of each scene; a file of sums instead of networks prints the tables again,
`--first K` against the network number K. Scenes are rendered and estimated in batches on a GPU,
1,000 in about a minute for eleven networks on an H200. Differences are in percent, with 95 %
intervals by paired bootstrap over the scenes. `gmaflow compare` does the same for two networks pair
by pair, with a report.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gmaflow import FlowEstimator
from gmaflow.geometry import CELL, distance_to
from gmaflow.scenes import SceneBatch, SceneRenderer, TextureBank
from gmaflow.weights import Checkpoint, average, find_checkpoint

PRESETS = {"mix": 0.24, "fast-mix": 0.24, "deep-mix": 0.52}
SEED = 777
REGIONS = ("noc", "in < 1", "in 1-3", "in > 3", "occ-in", "occ-out", "occ")
MEASURES = ("mean error", "beyond 1 px", "beyond 3 px")
DEEPEST = 32
DRAWS = 2000


def open_networks(texts: list[str], device: str, views: int = 1) -> dict[str, FlowEstimator]:
    """Return the estimator of each `NAME[:T][@N][~]`."""
    first = find_checkpoint(texts[0].removesuffix("~").partition("@")[0])
    return {text: open_network(text, first, device, views) for text in texts}


def open_network(text: str, first: Checkpoint, device: str, views: int) -> FlowEstimator:
    """Return the estimator of `NAME[:T][@N][~]`."""
    without = text.endswith("~")
    text, _, iters = text.removesuffix("~").partition("@")
    name, _, share = text.partition(":")
    checkpoint = find_checkpoint(name)
    if share:
        checkpoint = average(first, checkpoint, share=float(share))
    if without:
        tensors = {k: v for k, v in checkpoint.tensors.items() if not k.startswith("continuation.")}
        checkpoint = replace(
            checkpoint, config=replace(checkpoint.config, continuation="none"), tensors=tensors
        )
    return FlowEstimator(checkpoint, device=device, iters=int(iters or 12), views=views)


def regions_of(scenes: SceneBatch) -> torch.Tensor:
    """Return the masks of all regions, `[r, b, h, w]`."""
    visible = scenes.valid & ~scenes.occluded
    depth = distance_to(visible, DEEPEST) / CELL
    inside, out = scenes.occluded_in & scenes.valid, scenes.occluded_out & scenes.valid
    holes = [inside & (depth < 1), inside & (depth >= 1) & (depth <= 3), inside & (depth > 3)]
    return torch.stack([visible, *holes, inside, out, inside | out])


def sums_of(network: FlowEstimator, scenes: SceneBatch, regions: torch.Tensor) -> np.ndarray:
    """Return pixels, errors and pixels beyond 1 and 3 px, `[b, r, 4]`."""
    error = (network.batch(scenes.final1, scenes.final2).flow - scenes.flow).norm(dim=1)
    error = torch.where(scenes.valid, error, 0.0)
    values = torch.stack([torch.ones_like(error), error, error > 1, error > 3])
    return torch.einsum("rbhw,mbhw->brm", regions.float(), values).cpu().numpy()


def format_change(new: np.ndarray, old: np.ndarray, draws: np.ndarray) -> str:
    """Return a difference in percent and its interval, from sums by scene."""
    if not old.sum():
        return "-"
    drawn = 100 * (new[draws].sum(1) / np.maximum(old[draws].sum(1), 1e-9) - 1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{100 * (new.sum() / old.sum() - 1):.1f} ({low:.1f}, {high:.1f})"


def judge(options: argparse.Namespace) -> np.ndarray:
    """Return sums by scene and network, `[scene, network, region, 4]`."""
    networks = open_networks(options.networks, options.device)
    bank = TextureBank.load(options.textures, split="held-out") if options.textures else None
    sums: list[np.ndarray] = []
    for preset, share in PRESETS.items():
        renderer = SceneRenderer(preset, tuple(options.size), SEED, bank, options.device)
        for start in range(0, round(share * options.count), options.batch):
            scenes = renderer.render(start, options.batch)
            regions = regions_of(scenes)
            each = [sums_of(network, scenes, regions) for network in networks.values()]
            sums.append(np.stack(each, axis=1))
    return np.concatenate(sums)


def print_tables(names: list[str], table: np.ndarray, first: int) -> None:
    """Print mean errors, and differences from the first network."""
    draws = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    print(f"{len(table)} scenes\n\n| | {' | '.join(REGIONS)} |\n|{'---|' * (len(REGIONS) + 1)}")
    for place, text in enumerate(names):
        pixels, errors = table[:, place, :, 0].sum(0), table[:, place, :, 1].sum(0)
        means = " | ".join(f"{error:.3f}" for error in errors / np.maximum(pixels, 1))
        print(f"| {text}, px | {means} |")
        for number, measure in enumerate(MEASURES, 1) if place != first else ():
            new, old = table[:, place, :, number], table[:, first, :, number]
            cells = (format_change(new[:, r], old[:, r], draws) for r in range(len(REGIONS)))
            print(f"| {text}, {measure} | {' | '.join(cells)} |")


def main() -> None:
    """Judge, or read what was judged, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--textures", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, nargs=2, default=(368, 768))
    parser.add_argument("--first", type=int, default=0, help="number of the one to compare with")
    parser.add_argument("--output", type=Path, help="an .npz for the sums")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.networks[0].endswith(".npz"):
        saved = np.load(options.networks[0])
        names, table = saved["names"].tolist(), saved["sums"]
    else:
        names, table = options.networks, judge(options)
    if options.output:
        np.savez(options.output, names=np.array(names), sums=table)
    print_tables(names, table, options.first)


if __name__ == "__main__":
    main()

"""Speed of rendering scenes: pairs per second and milliseconds per batch.

PYTHONPATH=src python benchmarks/scenes.py --device cuda --compiled --textures FOLDER
"""

import argparse
import statistics
import time

import torch

from gmaflow.scenes import PRESETS, SceneRenderer, TextureBank


def measure(renderer: SceneRenderer, batch: int, repeats: int) -> list[float]:
    """Seconds for each batch, after a warm-up."""

    def wait() -> None:
        if renderer.device.type == "cuda":
            torch.cuda.synchronize()

    renderer.render(0, batch)
    wait()
    seconds = []
    for i in range(repeats):
        begin = time.perf_counter()
        renderer.render((i + 1) * batch, batch)
        wait()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Measure one preset, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=[*PRESETS, "all"], default="mix")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, nargs=2, default=(368, 496), metavar=("H", "W"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--textures", help="folder of images; built-in textures by default")
    parser.add_argument("--compiled", action="store_true", help="compile the rendering")
    options = parser.parse_args()

    begin = time.perf_counter()
    textures = options.textures
    bank = TextureBank.load(textures) if textures else TextureBank.procedural()
    print(f"textures: {time.perf_counter() - begin:.1f} s, {bank.texels.nbytes / 2**20:.0f} MiB")
    for preset in PRESETS if options.preset == "all" else [options.preset]:
        renderer = SceneRenderer(
            preset, tuple(options.size), 1, bank, options.device, options.compiled
        )
        begin = time.perf_counter()
        seconds = measure(renderer, options.batch, options.repeats)
        first = time.perf_counter() - begin - sum(seconds)
        median = statistics.median(seconds)
        print(
            f"{preset}: batch of {options.batch} at {options.size[0]}x{options.size[1]} on "
            f"{options.device}: median {1000 * median:.2f} ms, worst {1000 * max(seconds):.2f} ms, "
            f"{options.batch / median:.1f} pairs/s (first batch {first:.1f} s)"
        )


if __name__ == "__main__":
    main()

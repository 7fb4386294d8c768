"""`gmaflow scenes stats`: motion and occlusion of the presets, beside those of real pairs."""

import json
from collections.abc import Sequence

from gmaflow.cli.progress import progress_bar
from gmaflow.cli.scenes_options import (
    StatsOptions,
    check_numbers,
    check_picture,
    parse_size,
    presets_of,
)
from gmaflow.errors import FlowError
from gmaflow.io import write_image
from gmaflow.scenes import SceneRenderer
from gmaflow.scenes.catalog import CATALOG
from gmaflow.scenes.real_truth import find_truths, real_statistics
from gmaflow.scenes.renderer import SMALLEST
from gmaflow.scenes.sheets import motion_chart
from gmaflow.scenes.statistics import MotionStatistics, rendered_statistics


def stats(options: StatsOptions) -> None:
    """Print the numbers, and draw the distributions if asked to."""
    presets = presets_of(options.preset)
    sizes = {preset: full_size(options, preset) for preset in presets}
    check_numbers(options.start, options.count)
    if options.output is not None:
        check_picture(options.output, overwrite=options.overwrite)
    for root in options.against:
        find_truths(root)
    real = measure_real(options)
    rendered = measure_rendered(options, sizes)
    if options.output is not None:
        write_image(options.output, motion_chart(rendered, real))
    if options.json:
        report = {
            "seed": options.seed,
            "sizes": {preset: list(size) for preset, size in sizes.items()},
            "shrink": options.shrink,
            "rendered": [one.as_json() for one in rendered],
            "real": [one.as_json() for one in real],
        }
        print(json.dumps(report, indent=2))
        return
    show(rendered, real)
    if options.output is not None:
        print(f"wrote {options.output}")


def full_size(options: StatsOptions, preset: str) -> tuple[int, int]:
    """The size that a preset's numbers are for.

    Raises:
        FlowError: shrunk, it is too small to render.
    """
    size = CATALOG[preset].size if options.size is None else parse_size(options.size)
    if options.shrink < 1 or min(size) / options.shrink < SMALLEST:
        raise FlowError(
            f"--shrink {options.shrink} does not suit frames of {size[0]}x{size[1]}; give a whole "
            f"number from 1 to {min(size) // SMALLEST}"
        )
    return size


def measure_real(options: StatsOptions) -> list[MotionStatistics]:
    """Count the real truth."""
    with progress_bar("reading", quiet=options.json) as show_progress:
        return [real_statistics(root, progress=show_progress) for root in options.against]


def measure_rendered(
    options: StatsOptions, sizes: dict[str, tuple[int, int]]
) -> list[MotionStatistics]:
    """Count rendered pairs of each preset."""
    device = options.look.pick_device()
    found: list[MotionStatistics] = []
    with progress_bar("rendering", quiet=options.json) as show_progress:
        bank = options.look.load_textures()
        for preset, (height, width) in sizes.items():
            small = round(height / options.shrink), round(width / options.shrink)
            renderer = SceneRenderer(preset, small, options.seed, bank, device)
            found.append(
                rendered_statistics(
                    renderer,
                    start=options.start,
                    count=options.count,
                    scale=height / small[0],
                    progress=lambda done: show_progress(
                        len(found) * options.count + done, len(sizes) * options.count
                    ),
                )
            )
    return found


def show(rendered: Sequence[MotionStatistics], real: Sequence[MotionStatistics]) -> None:
    """Print the numbers for people."""
    lengths = ("mean", "50 %", "90 %", "99 %", "99.9 %", "longest")
    width = 2 + max(len(one.name) for one in (*rendered, *real))
    print("motion in pixels: mean, percentiles and maximum;")
    print("still, hidden, out: % of the pixels that do not move, are occluded, leave the frame;")
    print("depth, 90 %: distance from a hidden pixel to the nearest visible one, in cells of 8 px;")
    print("> 1, > 3: % of the hidden pixels that are deeper than 1 and 3 cells")
    columns = (*lengths, "still", "hidden", "out", "depth", "90 %", "> 1", "> 3")
    headings = (f"{heading:>8}" for heading in columns)
    print(f"{'':<{width}}{'pairs':>6}{''.join(headings)}")
    for one in (*rendered, *real):
        motions = (one.mean, one.median, one.p90, one.p99, one.p999, one.largest)
        shares = (one.still, one.occluded_in, one.occluded_out)
        deep = (one.holes_over_1, one.holes_over_3)
        cells = [_cell(motion) for motion in motions]
        cells += [_cell(share, 100) for share in shares]
        cells += [_cell(depth) for depth in (one.hole_depth, one.hole_depth_p90)]
        cells += [_cell(share, 100) for share in deep]
        print(f"{one.name:<{width}}{one.pairs:>6,}{''.join(cells)}")


def _cell(value: float | None, factor: int = 1) -> str:
    return f"{'-':>8}" if value is None else f"{factor * value:8.1f}"

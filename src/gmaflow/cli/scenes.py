"""`gmaflow scenes`: render pairs and clips with exact flow, draw them, and measure their motion."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.options import (
    CONTINUES_WITH_RESUME,
    Json,
    Overwrite,
    Quiet,
    progress_bar,
    run_action,
)
from gmaflow.errors import FlowError, OutputError, counted
from gmaflow.io import PICTURE_SUFFIXES, ensure_can_write, write_image
from gmaflow.io.images import check_smallest, shape_text

if TYPE_CHECKING:
    import torch

    from gmaflow.scenes import TextureBank
    from gmaflow.scenes.motion_statistics import MotionStatistics

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
Preset = Annotated[str, tyro.conf.arg(metavar="NAME")]

_LAST_PAIR = 2**53
_SHEET_PIXELS = 192 * 256
_SHEET_OF_ALL = (192, 256)


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the presets."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class RenderingOptions:
    """Which pairs are rendered, with which textures, and on which device."""

    textures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of images for surfaces; built-in textures by default."""
    textures_split: Literal["all", "train", "held-out"] = "all"
    """Which images of the folder to use; held-out is the tenth that training leaves out."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    seed: int = 0
    """Each seed gives other pairs."""
    start: int = 0
    """Number of the first pair."""
    quiet: Quiet = False

    def pick_device(self) -> "torch.device":
        from gmaflow.runtime.device import pick_device
        from gmaflow.scenes.renderer import rendering_device

        picked = pick_device(self.device)
        if self.device == "auto":
            picked = rendering_device(picked)
        if picked.type not in ("cpu", "cuda"):
            raise FlowError(f"scenes cannot be rendered on {picked}; use --device cpu")
        return picked

    def load_textures(self) -> "TextureBank":
        """Read the textures, or draw the built-in ones."""
        from gmaflow.scenes import TextureBank

        if self.textures is not None:
            return TextureBank.load(self.textures, split=self.textures_split)
        if self.textures_split != "all":
            raise FlowError(
                f"--textures-split {self.textures_split} needs a folder of images; add --textures"
            )
        return TextureBank.procedural()


Rendering = Annotated[RenderingOptions, tyro.conf.OmitArgPrefixes]


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """Render pairs, or clips, with exact flow into a data set in Sintel's layout.

    Examples:
      gmaflow scenes render --count 1000 -o scenes
      gmaflow scenes render --preset drive --size 375x1242 --count 200 --seed 7 -o drive
      gmaflow scenes render --count 1000 --textures photos/ -o scenes --resume
      gmaflow scenes render --count 50 --frames 24 -o clips
    """

    output: Output
    """Folder to write to."""
    count: int
    """Number of pairs."""
    frames: int = 2
    """With more than two, each pair continues as a clip of this many frames, with tracks."""
    preset: Preset = "mix"
    """A preset listed by `gmaflow scenes list`."""
    size: tuple[int, int] = (368, 496)
    """Height and width of the frames."""
    rendering: Rendering = RenderingOptions()
    resume: bool = False
    """Resume an interrupted run; complete pairs are kept."""
    overwrite: Overwrite = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Draw a contact sheet of pairs: frames, the flow as colour, and occluded pixels.

    Examples:
      gmaflow scenes show --preset film -o film.png
      gmaflow scenes show --preset all --count 2 -o all.jpg
    """

    output: Output
    """Image to write."""
    preset: Preset = "mix"
    """A preset listed by `gmaflow scenes list`, or all."""
    count: int = 8
    """Number of pairs of each preset."""
    size: tuple[int, int] | None = None
    """Height and width of the frames; by default small, with the preset's aspect ratio."""
    rendering: Rendering = RenderingOptions()
    overwrite: Overwrite = False


@dataclass(frozen=True, kw_only=True)
class StatsOptions:
    """Measure motion and occlusion, and compare with real data sets.

    Examples:
      gmaflow scenes stats --preset film --against MPI-Sintel -o film.png
      gmaflow scenes stats --preset all --count 200 --json
    """

    preset: Preset = "all"
    """A preset listed by `gmaflow scenes list`, or all."""
    count: int = 100
    """Number of pairs of each preset."""
    against: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Folder with real ground truth, in the layout of any data set."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """Chart of the distributions to write."""
    size: tuple[int, int] | None = None
    """Frame size that the statistics are for; by default the size that the preset imitates."""
    shrink: int = 4
    """Render frames smaller by this factor, and scale the motion up by it."""
    rendering: Rendering = RenderingOptions()
    overwrite: Overwrite = False
    json: Json = False


def main(args: list[str]) -> None:
    run_action(
        args,
        "scenes",
        {
            "list": (ListOptions, list_presets),
            "render": (RenderOptions, render),
            "show": (ShowOptions, show),
            "stats": (StatsOptions, stats),
        },
    )


def list_presets(options: ListOptions) -> None:
    from gmaflow.scenes.scene_presets import PRESET_INFO, PRESETS

    if options.json:
        about = {
            name: {"about": info.about, "imitates": list(info.size), "kinds": PRESETS[name]}
            for name, info in PRESET_INFO.items()
        }
        print(json.dumps(about, indent=2))
        return
    width = max(map(len, PRESET_INFO)) + 2
    for name, info in PRESET_INFO.items():
        print(f"{name:<{width}}{info.about}; {info.size[0]}x{info.size[1]}")


def render(options: RenderOptions) -> None:
    """Write a data set."""
    from gmaflow.scenes import SceneRenderer
    from gmaflow.scenes.scene_dataset import dataset_record, write_dataset
    from gmaflow.scenes.scene_presets import check_preset

    check_preset(options.preset)
    check_numbers(options)
    if options.frames < 2:
        raise FlowError(f"--frames is {options.frames}; give 2 for pairs, or more for clips")
    device = options.rendering.pick_device()
    record = dataset_record(options.output)
    record.check_start(resume=options.resume, overwrite=options.overwrite)
    started = time.perf_counter()
    with progress_bar(
        "rendering",
        quiet=options.rendering.quiet or options.json,
        on_interrupt=CONTINUES_WITH_RESUME,
    ) as show_progress:
        bank = options.rendering.load_textures()
        renderer = SceneRenderer(options.preset, options.size, options.rendering.seed, bank, device)
        rendered = write_dataset(
            renderer,
            options.output,
            start=options.rendering.start,
            count=options.count,
            frames=options.frames,
            resume=options.resume,
            overwrite=options.overwrite,
            progress=show_progress,
        )
    report = {
        "output": str(options.output),
        "preset": options.preset,
        "seed": options.rendering.seed,
        "size": list(options.size),
        "start": options.rendering.start,
        "count": options.count,
        "frames": options.frames,
        "rendered": rendered,
        "kept": options.count - rendered,
        "skipped_textures": list(bank.skipped),
        "device": str(device),
        "seconds": round(time.perf_counter() - started, 2),
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    kept = f", {report['kept']} kept" if report["kept"] else ""
    what = "pair" if options.frames == 2 else f"{options.frames}-frame clip"
    print(
        f"wrote {options.output}: {counted(rendered, what)} of {options.preset} at "
        f"{shape_text(options.size)}{kept} ({device}, {report['seconds']} s)"
    )


def show(options: ShowOptions) -> None:
    presets = presets_of(options.preset)
    check_numbers(options)
    check_picture(options.output, overwrite=options.overwrite)
    device = options.rendering.pick_device()

    from gmaflow.scenes import SceneRenderer
    from gmaflow.scenes.contact_sheet import contact_sheet
    from gmaflow.scenes.renderer import pair_arrays

    pairs, names = [], []
    with progress_bar("rendering", quiet=options.rendering.quiet) as show_progress:
        bank = options.rendering.load_textures()
        for preset in presets:
            frame = options.size or (_SHEET_OF_ALL if len(presets) > 1 else sheet_size(preset))
            renderer = SceneRenderer(preset, frame, options.rendering.seed, bank, device)
            for number in range(options.rendering.start, options.rendering.start + options.count):
                pairs += pair_arrays(renderer.render(number, 1))
                names.append(f"{preset} {number}")
                show_progress(len(pairs), len(presets) * options.count)
    write_image(options.output, contact_sheet(pairs, names))
    print(f"wrote {options.output}: {counted(len(pairs), 'pair')} of {', '.join(presets)}")


def sheet_size(preset: str) -> tuple[int, int]:
    """The frame size of a contact sheet: small, with the aspect ratio of the preset."""
    from gmaflow.scenes.scene_presets import PRESET_INFO

    height, width = PRESET_INFO[preset].size
    scale = (_SHEET_PIXELS / (height * width)) ** 0.5
    return round(height * scale), round(width * scale)


def stats(options: StatsOptions) -> None:
    """Print statistics, and draw the distributions if asked to."""
    from gmaflow.scenes.contact_sheet import motion_chart
    from gmaflow.scenes.motion_statistics import find_truths, real_statistics

    presets = presets_of(options.preset)
    check_numbers(options)
    sizes = {preset: full_size(options, preset) for preset in presets}
    if options.output is not None:
        check_picture(options.output, overwrite=options.overwrite)
    for root in options.against:
        find_truths(root)
    with progress_bar("reading", quiet=options.rendering.quiet or options.json) as show_progress:
        real = [real_statistics(root, progress=show_progress) for root in options.against]
    rendered = measure_rendered(options, sizes)
    if options.output is not None:
        write_image(options.output, motion_chart(rendered, real))
    if options.json:
        report = {
            "seed": options.rendering.seed,
            "sizes": {preset: list(size) for preset, size in sizes.items()},
            "shrink": options.shrink,
            "rendered": [one.as_json() for one in rendered],
            "real": [one.as_json() for one in real],
        }
        print(json.dumps(report, indent=2))
        return
    print_statistics([*rendered, *real])
    if options.output is not None:
        print(f"wrote {options.output}")


def full_size(options: StatsOptions, preset: str) -> tuple[int, int]:
    """The frame size that the statistics of a preset are for."""
    from gmaflow.scenes.renderer import SMALLEST
    from gmaflow.scenes.scene_presets import PRESET_INFO

    size = options.size or PRESET_INFO[preset].size
    if options.shrink < 1 or min(size) / options.shrink < SMALLEST:
        raise FlowError(
            f"--shrink {options.shrink} does not work for frames of {shape_text(size)}; give an "
            f"integer from 1 to {min(size) // SMALLEST}"
        )
    return size


def measure_rendered(
    options: StatsOptions, sizes: dict[str, tuple[int, int]]
) -> "list[MotionStatistics]":
    from gmaflow.scenes import SceneRenderer
    from gmaflow.scenes.motion_statistics import rendered_statistics

    device = options.rendering.pick_device()
    statistics: list[MotionStatistics] = []
    with progress_bar("rendering", quiet=options.rendering.quiet or options.json) as show_progress:
        bank = options.rendering.load_textures()
        for preset, (height, width) in sizes.items():
            small = round(height / options.shrink), round(width / options.shrink)
            renderer = SceneRenderer(preset, small, options.rendering.seed, bank, device)
            statistics.append(
                rendered_statistics(
                    renderer,
                    start=options.rendering.start,
                    count=options.count,
                    scale=height / small[0],
                    progress=lambda done, total: show_progress(
                        len(statistics) * total + done, len(sizes) * total
                    ),
                )
            )
    return statistics


def print_statistics(statistics: "Sequence[MotionStatistics]") -> None:
    """Print a table, one row for each preset or data set."""
    print("motion in pixels: mean, percentiles and maximum")
    print("still, hidden, out: % of the pixels that do not move, are occluded, leave the frame")
    print("depth, its 90 %: cells of 8 px from a hidden pixel to the nearest visible one")
    print("> 1, > 3: % of the hidden pixels that are deeper than 1 and 3 cells")
    columns = (
        "mean", "50 %", "90 %", "99 %", "99.9 %", "longest", "still", "hidden", "out",
        "depth", "its 90 %", "> 1", "> 3",
    )  # fmt: skip
    width = 2 + max(len(one.name) for one in statistics)
    print(f"{'':<{width}}{'pairs':>6}{''.join(f'{column:>9}' for column in columns)}")
    for one in statistics:
        cells = [
            *(_cell(m) for m in (one.mean, one.median, one.p90, one.p99, one.p999, one.largest)),
            *(_cell(share, 100) for share in (one.still, one.occluded_in, one.occluded_out)),
            *(_cell(depth) for depth in (one.hole_depth, one.hole_depth_p90)),
            *(_cell(share, 100) for share in (one.holes_over_1, one.holes_over_3)),
        ]
        print(f"{one.name:<{width}}{one.pairs:>6,}{''.join(cells)}")


def _cell(value: float | None, factor: int = 1) -> str:
    return f"{'-':>9}" if value is None else f"{factor * value:9.1f}"


def check_numbers(options: RenderOptions | ShowOptions | StatsOptions) -> None:
    """Refuse a range of pairs that is empty or out of bounds, and frames that are too small."""
    from gmaflow.scenes.renderer import SMALLEST

    start, count = options.rendering.start, options.count
    if count < 1:
        raise FlowError(f"--count is {count}; give 1 or more")
    if start < 0 or start + count > _LAST_PAIR:
        raise FlowError(f"--start is {start}; give the number of a pair, 0 or more")
    if options.size is not None:
        check_smallest(options.size, SMALLEST)


def presets_of(name: str) -> list[str]:
    from gmaflow.scenes.scene_presets import PRESETS, check_preset

    if name == "all":
        return list(PRESETS)
    check_preset(name)
    return [name]


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse a picture that cannot be written, before any work is done for it."""
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise OutputError(f"{path}: unknown image format {path.suffix!r}; use .png or .jpg")
    ensure_can_write(path, overwrite)

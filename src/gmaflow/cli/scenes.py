"""`gmaflow scenes`: render training pairs whose flow is known exactly, and look at them."""

import json
import time

from gmaflow.cli.app import pick
from gmaflow.cli.options import parse
from gmaflow.cli.progress import GOES_ON_IF_ASKED, progress_bar
from gmaflow.cli.scenes_options import (
    ListOptions,
    RenderOptions,
    ShowOptions,
    StatsOptions,
    check_numbers,
    check_picture,
    parse_size,
    presets_of,
)
from gmaflow.errors import counted
from gmaflow.io import write_image

ACTIONS = {
    "list": "list the presets",
    "render": "render pairs with their true flow into a data set in Sintel's layout",
    "show": "make a contact sheet to look at",
    "stats": "count motion and occlusion, and compare with real truth",
}
_SHEET_PIXELS = 192 * 256
_SHEET_OF_ALL = (192, 256)


def main(args: list[str]) -> None:
    """Run the verb."""
    action, rest = pick(args, ACTIONS, command="gmaflow scenes")
    if action == "list":
        list_presets(parse(ListOptions, rest, verb="scenes list"))
    elif action == "render":
        render(parse(RenderOptions, rest, verb="scenes render"))
    elif action == "show":
        show(parse(ShowOptions, rest, verb="scenes show"))
    elif action == "stats":
        from gmaflow.cli.scenes_stats import stats

        stats(parse(StatsOptions, rest, verb="scenes stats"))


def list_presets(options: ListOptions) -> None:
    """Print the presets."""
    from gmaflow.scenes.catalog import CATALOG
    from gmaflow.scenes.presets import PRESETS

    if options.json:
        about = {
            name: {"about": info.about, "imitates": list(info.size), "kinds": PRESETS[name]}
            for name, info in CATALOG.items()
        }
        print(json.dumps(about, indent=2))
        return
    for name, info in CATALOG.items():
        print(f"{name:<12}{info.about}; {info.size[0]}x{info.size[1]}")


def render(options: RenderOptions) -> None:
    """Write a data set."""
    from gmaflow.scenes import SceneRenderer
    from gmaflow.scenes.output_folder import check_folder
    from gmaflow.scenes.presets import check_preset
    from gmaflow.scenes.writing import write_dataset

    check_preset(options.preset)
    size = parse_size(options.size)
    check_numbers(options.start, options.count)
    device = options.look.pick_device()
    check_folder(options.output, resume=options.resume, overwrite=options.overwrite)
    begun = time.perf_counter()
    with progress_bar("rendering", quiet=options.json, kept=GOES_ON_IF_ASKED) as show_progress:
        bank = options.look.load_textures()
        renderer = SceneRenderer(options.preset, size, options.seed, bank, device)
        written = write_dataset(
            renderer,
            options.output,
            start=options.start,
            count=options.count,
            resume=options.resume,
            overwrite=options.overwrite,
            progress=lambda done: show_progress(done, options.count),
        )
    report = {
        "output": str(options.output),
        "preset": options.preset,
        "seed": options.seed,
        "size": list(size),
        "start": options.start,
        "count": options.count,
        "rendered": written.rendered,
        "kept": written.kept,
        "skipped_textures": list(bank.skipped),
        "device": str(device),
        "seconds": round(time.perf_counter() - begun, 2),
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    kept = f", {written.kept} were there" if written.kept else ""
    print(
        f"wrote {options.output}: {counted(written.rendered, 'pair')} of {options.preset} at "
        f"{size[0]}x{size[1]}{kept} ({device}, {report['seconds']} s)"
    )


def show(options: ShowOptions) -> None:
    """Write a contact sheet."""
    presets = presets_of(options.preset)
    size = None if options.size is None else parse_size(options.size)
    check_numbers(options.start, options.count)
    check_picture(options.output, overwrite=options.overwrite)
    device = options.look.pick_device()

    from gmaflow.scenes import SceneRenderer
    from gmaflow.scenes.arrays import pair_arrays
    from gmaflow.scenes.sheets import contact_sheet

    pairs, names = [], []
    with progress_bar("rendering") as show_progress:
        bank = options.look.load_textures()
        for preset in presets:
            frame = size or (_SHEET_OF_ALL if len(presets) > 1 else sheet_size(preset))
            renderer = SceneRenderer(preset, frame, options.seed, bank, device)
            for number in range(options.start, options.start + options.count):
                pairs += pair_arrays(renderer.render(number, 1))
                names.append(f"{preset} {number}")
                show_progress(len(pairs), len(presets) * options.count)
    write_image(options.output, contact_sheet(pairs, names))
    print(f"wrote {options.output}: {counted(len(pairs), 'pair')} of {', '.join(presets)}")


def sheet_size(preset: str) -> tuple[int, int]:
    """The size of a sheet's frames: small, in the shape that the preset imitates."""
    from gmaflow.scenes.catalog import CATALOG

    height, width = CATALOG[preset].size
    scale = (_SHEET_PIXELS / (height * width)) ** 0.5
    return round(height * scale), round(width * scale)

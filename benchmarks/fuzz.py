"""Feed damaged files and texts to every reader, and count what goes wrong.

PYTHONPATH=src python benchmarks/fuzz.py --count 2000000

A reader may return or raise a `FlowError`. Anything else is a crash: another exception, or a signal
that ends the process. More than 1 GB of memory for an input below 1 MB, and more than 10 s of CPU
time, are counted too. Inputs are numbered: `--first N --count 1` runs input N again, and `--keep
FOLDER` keeps the inputs that failed.
"""

import argparse
import io
import json
import mmap
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_MEMORY, MOST_SECONDS = 10**9, 10.0
ADDRESS_SPACE = 12 * 10**9
INPUTS_OF_A_PROCESS = 20_000
CLOCK_TICKS = 100  # a second, in /proc
NUMBERS = (0, 1, 2, 255, 256, 32767, 65535, 65536, 100_000, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
COUNTER = struct.Struct("<q")

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Target:
    """A reader, and sound inputs for it."""

    read: Read
    seeds: list[bytes]
    suffix: str = ""
    share: int = 4
    """How often it is chosen."""
    repair: Callable[[bytes], bytes] = lambda data: data
    """Makes checksums right, so that damage gets past them."""


# --- Inputs --------------------------------------------------------------------------------------


def mutate(rng: random.Random, seed: bytes, other: bytes) -> bytes:
    """Return a seed with one to four kinds of damage."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        place = rng.randrange(len(data) + 1)
        # Half of the damage goes to the first bytes, which are the header of most formats.
        if rng.random() < 0.5:
            place = rng.randrange(min(len(data), 128) + 1)
        match rng.randrange(9):
            case 0 | 1 if data:
                data[place % len(data)] ^= 1 << rng.randrange(8)
            case 2:
                count = rng.randrange(1, 9)
                data[place : place + count] = rng.randbytes(count)
            case 3 | 4:
                code = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
                value = struct.pack(code, rng.choice(NUMBERS) % 256 ** struct.calcsize(code))
                data[place : place + len(value)] = value
            case 5:
                del data[place:]
            case 6:
                del data[place : place + rng.randrange(1, 64)]
            case 7:
                data[place:place] = data[place : place + 64] * rng.choice((1, 2, 50, 1000))
            case _:
                data[place:] = other[min(place, len(other)) :]
    return bytes(data)


def repair_png(data: bytes) -> bytes:
    """Return a PNG with the right checksum in every chunk that is whole."""
    repaired, place = bytearray(data), 8
    while place + 12 <= len(repaired):
        end = place + 8 + int.from_bytes(repaired[place : place + 4], "big")
        if end + 4 > len(repaired):
            break
        repaired[end : end + 4] = zlib.crc32(repaired[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return bytes(repaired)


def zipped(name: str, method: int = zipfile.ZIP_DEFLATED) -> Callable[[bytes], bytes]:
    """Return a function that puts data into a sound archive."""

    def pack(data: bytes) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo(name), data)
        return packed.getvalue()

    return pack


def image_seeds() -> dict[str, list[bytes]]:
    """Return small images of all kinds that Pillow writes, by format."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 255, (24, 32, 3), np.uint8))
    rgba, grey, one = rgb.convert("RGBA"), rgb.convert("L"), rgb.convert("1")
    palette = rgb.quantize(16)
    deep = Image.fromarray(rng.integers(0, 65535, (24, 32), np.uint16))
    turned = Image.Exif()
    turned[0x0112] = 6
    animated = {"save_all": True, "append_images": [rgb.rotate(90), rgb], "duration": 40}
    kinds: dict[str, list[tuple[Image.Image, dict[str, object]]]] = {
        "PNG": [(image, {}) for image in (rgb, rgba, grey, one, palette, deep)] + [(rgb, animated)],
        "JPEG": [
            (rgb, {}),
            (rgb, {"progressive": True, "exif": turned}),
            (rgb.convert("CMYK"), {}),
            (grey, {"restart_marker_blocks": 2}),
        ],
        "PPM": [(image, {}) for image in (rgb, grey, one, deep)],
        "WEBP": [(rgb, {}), (rgba, {"lossless": True}), (rgb, animated)],
        "TIFF": [
            *((rgb, {"compression": name}) for name in ("raw", "tiff_lzw", "packbits", "jpeg")),
            (rgb, {"compression": "tiff_adobe_deflate", "exif": turned}),
            (one, {"compression": "group4"}),
            (one, {"compression": "group3"}),
            (palette, {}),
            (deep, {"compression": "tiff_adobe_deflate"}),
            (rgba, {"tiffinfo": {322: 16, 323: 16}}),
            (rgb, {"save_all": True, "append_images": [grey]}),
        ],
        "BMP": [(image, {}) for image in (rgb, rgba, grey, one, palette)],
        "GIF": [(palette, {}), (palette, {**animated, "comment": b"made by hand"})],
    }
    return {
        name: [encode(image, name, more) for image, more in all_] for name, all_ in kinds.items()
    }


def encode(image: "Image.Image", name: str, more: dict[str, object]) -> bytes:  # noqa: F821
    """Return an image as a file's bytes."""
    packed = io.BytesIO()
    image.save(packed, name, **more)  # type: ignore[attr-defined]
    return packed.getvalue()


def flow_seeds(folder: Path) -> dict[str, bytes]:
    """Return a flow in every format, by suffix."""
    import numpy as np

    from gmaflow.io import FLOW_SUFFIXES, write_flow

    flow = np.random.default_rng(1).normal(0, 9, (20, 24, 2)).astype(np.float32)
    seeds = {}
    for suffix in sorted(FLOW_SUFFIXES):
        write_flow(folder / f"flow{suffix}", flow, flow[..., 0] < 9)
        seeds[suffix] = (folder / f"flow{suffix}").read_bytes()
    return seeds


def exr_seeds() -> list[bytes]:
    """Return OpenEXR pictures of several compressions, in tiles and not."""
    import numpy as np
    import OpenEXR

    planes = np.random.default_rng(2).random((3, 20, 24)).astype(np.float16)
    seeds = []
    for name in ("NO", "RLE", "ZIPS", "ZIP", "PIZ", "PXR24", "B44", "DWAA"):
        header = {
            "compression": getattr(OpenEXR, f"{name}_COMPRESSION"),
            "type": OpenEXR.scanlineimage,
        }
        if name in ("ZIP", "PIZ"):
            header |= {"type": OpenEXR.tiledimage, "tiles": OpenEXR.TileDescription()}
            header["tiles"].xSize = header["tiles"].ySize = 16
        packed = io.BytesIO()
        OpenEXR.File(header, dict(zip("RGB", planes, strict=True))).write(packed)
        seeds.append(packed.getvalue())
    return seeds


def video_seeds(folder: Path) -> list[bytes]:
    """Return clips of three frames in several containers and codecs."""
    import av
    import numpy as np

    kinds = {
        "mp4": ("libx264", "yuv420p"),
        "mkv": ("mjpeg", "yuvj420p"),
        "avi": ("mpeg4", "yuv420p"),
        "webm": ("libvpx-vp9", "yuv420p"),
        "mov": ("png", "rgb24"),
        "mpg": ("mpeg2video", "yuv420p"),
        "ts": ("libx264", "yuv420p"),
        "gif": ("gif", "rgb8"),
    }
    frames = np.random.default_rng(3).integers(0, 255, (3, 32, 48, 3), np.uint8)
    seeds = []
    for suffix, (codec, pixels) in kinds.items():
        path = folder / f"clip.{suffix}"
        with av.open(str(path), "w") as container:
            stream = container.add_stream(codec, rate=25)
            stream.height, stream.width, stream.pix_fmt = 32, 48, pixels
            for frame in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode(None))
        seeds.append(path.read_bytes())
    return seeds


def weights_seeds() -> list[bytes]:
    """Return files of a few tensors: safetensors, and both formats of `torch.save`."""
    import torch
    from safetensors.torch import save

    from gmaflow.model import model_config
    from gmaflow.weights.checkpoint import METADATA_KEY

    tensors = {f"fnet.conv{i}.weight": torch.rand(2, 3, 3, 3) for i in range(4)}
    config = dict(vars(model_config("raft-small")).items())
    about = json.dumps({"config": config, "card": {"title": "small", "iters": 12}})
    seeds = [save(tensors, {METADATA_KEY: about}), save(tensors)]
    for new in (True, False):
        packed = io.BytesIO()
        torch.save(
            {f"module.{name}": value for name, value in tensors.items()},
            packed,
            _use_new_zipfile_serialization=new,
        )
        seeds.append(packed.getvalue())
    return seeds


def texts() -> dict[str, tuple[Callable[[str], object], list[str]]]:
    """Return readers of text that users type or that files hold, with sound texts."""
    from gmaflow.cli.options import parse_fps, parse_time
    from gmaflow.cli.settings import override
    from gmaflow.io.images import read_size
    from gmaflow.runtime.device import as_bytes, pick_device
    from gmaflow.training.config import TrainConfig
    from gmaflow.weights import find_checkpoint

    def setting(text: str) -> object:
        name, _, value = text.partition("=")
        return override(TrainConfig(), {name: value})

    return {
        "size": (read_size, ["440x1024", "16x16", " 99X98 "]),
        "memory": (as_bytes, ["1.5GB", "800 MiB", "2e9", "4g"]),
        "fps": (parse_fps, ["25", "30000/1001", "23.976"]),
        "time": (parse_time, ["1.5", "0:12", "01:02:03.5"]),
        "device": (pick_device, ["cpu", "cuda:1", "auto", "mps"]),
        "setting": (setting, ["steps=100", "crop=368x496", "resume=true", "rate=1e-4"]),
        "weights": (find_checkpoint, ["gma-sintel.pth", "nothing", "raft_small"]),
    }


def clip_seeds(folder: Path) -> dict[str, bytes]:
    """Return a clip of flow in every format of one file, by suffix."""
    import numpy as np

    from gmaflow.io import CLIP_SUFFIXES, create_clip

    flow = np.random.default_rng(4).normal(0, 5, (20, 24, 2)).astype(np.float32)
    seeds = {}
    for suffix in sorted(CLIP_SUFFIXES):
        path = folder / f"clip{suffix}"
        with create_clip(path) as clip:
            for number in range(3):
                clip.add(number, flow)
        seeds[suffix] = path.read_bytes()
    return seeds


def read_clip(path: Path) -> object:
    """Read every flow of a clip."""
    from gmaflow.io.clips import open_clip

    return [None for _ in open_clip(path)]


def read_both(path: Path) -> object:
    """Read a damaged JPEG as the x and as the y of a flow."""
    from gmaflow.io import read_flow_arrays

    for name in ("flow_x.jpg", "flow_y.jpg"):
        (path.parent / name).write_bytes(path.read_bytes())
    return read_flow_arrays(path.parent / "flow_x.jpg")


def list_clips(path: Path) -> object:
    """Read a manifest."""
    from gmaflow.batch.manifest import ClipList

    return list(ClipList([str(path)]))


MANIFESTS = {
    ".csv": b'path,id,start,end\r\na.mp4,one,0,1.5\r\n"b, c.mp4",two,,\r\n',
    ".jsonl": b'{"path": "a.mp4", "id": "one", "start": 1}\n{"path": "b.png", "second": "c.png"}\n',
    ".txt": b"a.mp4\nb.png\tc.png\n",
}


def newer_targets(folder: Path) -> dict[str, Target]:
    """Return the readers of clips in one file, of tracks, of warm starts and of manifests."""
    import numpy as np

    from gmaflow.inference.flow import Flow
    from gmaflow.inference.tracks import Tracks, read_tracks
    from gmaflow.inference.warm_start import read_coarse_flows, write_coarse_flows
    from gmaflow.io import write_flow

    rng = np.random.default_rng(5)
    flow = rng.normal(0, 5, (16, 24, 2)).astype(np.float32)
    positions = rng.random((4, 5, 2), np.float32)
    seen = rng.random((4, 5)) < 0.5
    tracks = Tracks(positions[1], 1, positions, seen, rng.random((4, 5), np.float32))
    tracks.save(folder / "tracks.npz")
    write_coarse_flows(folder / "warm", {"a.png": Flow(flow, coarse=flow[::8, ::8])})
    write_flow(folder / "flow_x.jpg", flow)
    array = io.BytesIO()
    np.save(array, positions)
    targets = {
        f"clip {suffix}": Target(read_clip, [seed], suffix, 6)
        for suffix, seed in clip_seeds(folder).items()
    }
    targets["tracks"] = Target(read_tracks, [(folder / "tracks.npz").read_bytes()], ".npz", 6)
    targets["array of tracks"] = Target(
        read_tracks, [array.getvalue()], ".npz", 6, repair=zipped("points.npy")
    )
    targets["warm start"] = Target(read_coarse_flows, [(folder / "warm").read_bytes()], "", 4)
    targets["flow_x.jpg"] = Target(read_both, [(folder / "flow_x.jpg").read_bytes()], "", 6)
    for suffix, seed in MANIFESTS.items():
        targets[f"manifest {suffix}"] = Target(list_clips, [seed], suffix, 3)
    return targets


def make_targets(folder: Path) -> dict[str, Target]:
    """Return every reader with its seeds."""
    from gmaflow.data.headers import measure
    from gmaflow.io import VideoReader, read_flow_arrays, read_image
    from gmaflow.io.resumable import ResultRecord
    from gmaflow.weights import load_checkpoint

    images = image_seeds()
    targets = {
        name: Target(
            read_image, seeds, repair=repair_png if name == "PNG" else lambda data: data, share=6
        )
        for name, seeds in images.items()
    }
    targets["EXR"] = Target(read_image, exr_seeds(), share=6)
    flows = flow_seeds(folder)
    for suffix, seed in flows.items():
        repair = repair_png if suffix == ".png" else lambda data: data
        targets[f"flow {suffix}"] = Target(read_flow_arrays, [seed], suffix, 6, repair)
        targets[f"size {suffix}"] = Target(measure, [seed], suffix, 1, repair)
    array = flows[".npy"]
    targets["flow in .npz"] = Target(
        read_flow_arrays, [array], ".npz", 4, repair=zipped("flow.npy", zipfile.ZIP_STORED)
    )
    targets["size .ppm"] = Target(measure, images["PPM"], ".ppm", 1)
    clips = video_seeds(folder)
    targets["video"] = Target(lambda path: [None for _ in VideoReader(path)], clips, ".mp4", 4)
    targets["clip"] = Target(
        lambda path: [None for _ in VideoReader(path, max_pixels=10**6)], clips, ".mp4", 4
    )
    targets["weights"] = Target(load_checkpoint, weights_seeds(), ".pth", 6)
    record = json.dumps({"version": 1, "iters": 12, "size": [4, 4], "end": None}).encode()

    def resume(path: Path) -> object:
        return ResultRecord(path.parent, path.name, required="iters").read()

    targets["record"] = Target(resume, [record], ".json", 2)
    for name, (read, seeds) in texts().items():

        def read_text(path: Path, read: Callable[[str], object] = read) -> object:
            return read(path.read_text("utf-8", "replace"))

        targets[f"text {name}"] = Target(read_text, [seed.encode() for seed in seeds], "", 1)
    return targets | newer_targets(folder)


def make_input(number: int, targets: dict[str, Target]) -> tuple[str, bytes]:
    """Return the target and the bytes of an input, by its number."""
    rng = random.Random(number)
    names = list(targets)
    (name,) = rng.choices(names, [target.share for target in targets.values()])
    target = targets[name]
    data = mutate(rng, rng.choice(target.seeds), rng.choice(target.seeds))
    return name, target.repair(data) if rng.random() < 0.8 else data


# --- A process that reads ------------------------------------------------------------------------


class Peak:
    """The most memory that this process has taken since the last reset."""

    def __init__(self) -> None:
        self._clear = Path("/proc/self/clear_refs")
        self._status = Path("/proc/self/status")

    def reset(self) -> int:
        """Forget the peak; returns the memory that is in use, in bytes."""
        self._clear.write_text("5")
        return self.read()

    def read(self) -> int:
        """Return the peak in bytes."""
        text = self._status.read_text()
        return 1024 * int(text.split("VmHWM:", 1)[1].split(None, 1)[0])


def work(first: int, count: int, place: Path, keep: Path | None, only: str) -> None:
    """Read inputs in this process; prints a line of JSON for what was found."""
    import warnings

    from gmaflow.errors import FlowError

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("ignore")
    outcomes: Counter[str] = Counter()
    longest = most = 0.0
    peak = Peak()
    with tempfile.TemporaryDirectory(dir=place.parent) as name, place.open("r+b") as file:
        folder = Path(name)
        targets = {name: one for name, one in make_targets(folder).items() if only in name}
        counter = mmap.mmap(file.fileno(), COUNTER.size)
        for number in range(first, first + count):
            COUNTER.pack_into(counter, 0, number)
            kind, data = make_input(number, targets)
            path = folder / f"input{targets[kind].suffix}"
            path.write_bytes(data)
            before, begun = peak.reset(), time.process_time()
            problem = ""
            try:
                targets[kind].read(path)
                outcome = "read"
            except FlowError as err:
                outcome = "refused"
                # Not FFmpeg's own subclass: it refuses large blocks without asking for them.
                if type(err.__cause__) is MemoryError:
                    problem = "memory"
            except Exception:  # noqa: BLE001  that is what is looked for
                outcome = problem = "crash"
                print(json.dumps({"crash": traceback.format_exc(limit=-3)}), flush=True)
            seconds, taken = time.process_time() - begun, peak.read() - before
            longest, most = max(longest, seconds), max(most, taken)
            if seconds > MOST_SECONDS:
                problem = "slow"
            if taken > MOST_MEMORY and len(data) < 10**6:
                problem = "memory"
            outcomes[outcome] += 1
            if problem:
                print(json.dumps({"problem": problem, "number": number, "kind": kind}), flush=True)
                if keep is not None:
                    (keep / f"{problem}-{number}{path.suffix}").write_bytes(data)
    print(json.dumps({"outcomes": outcomes, "longest": longest, "most": most}), flush=True)


# --- The process that watches --------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def watch(process: "subprocess.Popen[str]", counter: mmap.mmap) -> None:
    """Wait for a process, and kill it if one input takes too long."""
    at, since = -1, 0.0
    while process.poll() is None:
        time.sleep(1)
        number = COUNTER.unpack_from(counter)[0]
        try:
            used = cpu_seconds(process.pid)
        except (OSError, ValueError):
            continue
        if number != at:
            at, since = number, used
        elif number >= 0 and used - since > 3 * MOST_SECONDS:
            process.kill()


def run(first: int, count: int, keep: Path | None, only: str) -> Iterator[dict[str, object]]:
    """Run inputs in processes, one after the other; yields what they found."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        place = Path(name) / "counter"
        number, end = first, first + count
        while number < end:
            place.write_bytes(COUNTER.pack(-1))
            chunk = min(INPUTS_OF_A_PROCESS, end - number)
            command = [
                sys.executable,
                __file__,
                "--work",
                f"{number},{chunk}",
                "--place",
                str(place),
                "--only",
                only,
            ]
            command += ["--keep", str(keep)] if keep else []
            with place.open("r+b") as file, (Path(name) / "log").open("w+") as log:
                counter = mmap.mmap(file.fileno(), COUNTER.size)
                process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.DEVNULL, text=True
                )
                try:
                    watch(process, counter)
                finally:
                    process.kill()
                log.seek(0)
                yield from map(json.loads, log)
                reached = COUNTER.unpack_from(counter)[0]
            if process.returncode == 0:
                number += chunk
                continue
            if reached < 0:
                raise SystemExit(f"the reading process does not start: {' '.join(command)}")
            died = process.returncode == -signal.SIGKILL
            yield {"problem": "slow" if died else "crash", "number": reached, "kind": "?"}
            yield {"outcomes": {"ended": reached + 1 - number}, "longest": 0.0, "most": 0.0}
            number = reached + 1


def main() -> None:
    """Read the options, run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="folder for inputs that failed")
    parser.add_argument("--only", default="", help="readers whose name contains this")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.work:
        first, count = map(int, options.work.split(","))
        work(first, count, options.place, options.keep, options.only)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the reading process, too
    outcomes: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    longest = most = 0.0
    begun = time.perf_counter()
    for line in run(options.first, options.count, options.keep, options.only):
        if "crash" in line:
            print(line["crash"], flush=True)
        elif "problem" in line:
            problems[str(line["problem"])] += 1
            print(f"{line['problem']}: input {line['number']} ({line['kind']})", flush=True)
        else:
            outcomes.update(line["outcomes"])  # type: ignore[arg-type]
            longest, most = max(longest, line["longest"]), max(most, line["most"])  # type: ignore[call-overload]
            minutes = (time.perf_counter() - begun) / 60
            print(
                f"{outcomes.total():,} inputs in {minutes:.1f} min: {outcomes['read']:,} read, "
                f"{outcomes['refused']:,} refused; {problems['crash']} crashes, "
                f"{problems['memory']} over 1 GB, {problems['slow']} over 10 s; "
                f"longest {longest:.2f} s, most {most / 1e6:.0f} MB",
                flush=True,
            )
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

"""Measure `gmaflow batch`: a cluster whose nodes die, the engine's overhead, resuming, memory.

PYTHONPATH=src python benchmarks/batch.py cluster        # two nodes, killed twice, 200 clips
PYTHONPATH=src python benchmarks/batch.py overhead       # Ray against local, 12 clips
PYTHONPATH=src python benchmarks/batch.py resume         # 10,000 finished clips
PYTHONPATH=src python benchmarks/batch.py memory         # 1,000,000 rows
PYTHONPATH=src python benchmarks/batch.py workers        # workers and threads on a CPU
PYTHONPATH=src python benchmarks/batch.py speed          # pairs a second, JPEG frames to flow
"""

import argparse
import hashlib
import io
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
GMAFLOW = [sys.executable, "-m", "gmaflow"]


def run(
    *args: str | Path, check: bool = True, env: dict[str, str] | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """Run `gmaflow batch --json`; returns the report, the events of clips, and the seconds."""
    settings = [f"{a}" for a in args]
    began = time.monotonic()
    done = subprocess.run(
        [*GMAFLOW, "batch", *settings, "json=true"],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
        check=False,
    )
    seconds = time.monotonic() - began
    if check and done.returncode:
        raise SystemExit(f"gmaflow batch failed:\n{done.stderr}")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return events[-1], events[:-1], seconds


def write_frames(
    folder: Path, clips: int, frames: int, size: tuple[int, int], *, quality: int = 90
) -> None:
    """Write clips as folders of JPEG frames: textures that move by a few pixels."""
    height, width = size
    textures = []
    for seed in range(min(clips, 8)):
        rng = np.random.default_rng(seed)
        picture = np.zeros((height + 64, width + 64, 3))
        for cell in (64, 24, 8, 3):
            rough = rng.uniform(0, 255, (height // cell + 30, width // cell + 30, 3))
            fine = Image.fromarray(rough.astype(np.uint8)).resize((width + 64, height + 64), 2)
            picture += np.asarray(fine) / 4
        textures.append(picture.astype(np.uint8))

    def write(clip: int) -> None:
        target = folder / f"clip{clip:05d}"
        target.mkdir(parents=True)
        texture = textures[clip % len(textures)]
        for number in range(frames):
            x, y = (int(32 + 30 * f(0.15 * number + clip)) for f in (np.sin, np.cos))
            part = texture[y : y + height, x : x + width]
            Image.fromarray(part).save(target / f"img_{number:05d}.jpg", quality=quality)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, range(clips)))


def cpu_seconds() -> float:
    """Return the CPU time of all commands so far; on a busy machine it says more than a clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bytes_of(folder: Path) -> dict[str, str]:
    """Return a hash of every file of a destination."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def workplace() -> Iterator[Path]:
    """Give a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gmaflow-batch-") as folder:
        yield Path(folder)


def measure_cluster(options: argparse.Namespace) -> None:
    """Kill a node of a two-node cluster with -9 while it works, twice, and compare bytes."""
    from ray.cluster_utils import Cluster

    with workplace() as folder:
        write_frames(folder / "clips", options.clips, 4, (64, 64))
        common = (f"inputs={folder / 'clips'}", "iters=2", "write=flow,statistics")
        report, _, seconds = run(*common, f"output={folder / 'local'}")
        print(f"local: {report['done']} clips in {seconds:.1f} s")

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        lost = cluster.add_node(num_cpus=1)
        began = time.monotonic()
        job = subprocess.Popen(
            [
                *GMAFLOW,
                "batch",
                *common,
                f"output={folder / 'ray'}",
                "engine=ray",
                f"address={cluster.address}",
                "workers=2",
                "json=true",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert job.stdout is not None
        kills, nodes, clips, end = 0, set(), [], {}
        for line in job.stdout:
            if not line.startswith("{"):
                raise SystemExit(f"not JSON: {line}")
            event = json.loads(line)
            if event["event"] == "end":
                end = event
                continue
            clips.append(event["id"])
            nodes.add(event["node"])
            # Both nodes have worked since the last kill: end the second one in the middle of it.
            if kills < options.kills and len(nodes) >= 2 + kills and event["left"] > 10:
                cluster.remove_node(lost, allow_graceful=False)
                kills += 1
                print(f"killed node {kills} after {len(clips)} clips", flush=True)
                if kills < options.kills:
                    lost = cluster.add_node(num_cpus=1)
        code = job.wait()
        print(f"ray: exit code {code}, {end.get('done')} clips in {time.monotonic() - began:.1f} s")
        print(f"kills: {kills}; nodes that worked: {len(nodes)}; results: {len(clips)}, ", end="")
        print(f"{len(set(clips))} different; failed: {end.get('failed')}")
        same = bytes_of(folder / "local") == bytes_of(folder / "ray")
        print(f"the same bytes as local: {same}")
        again, events, _ = run(*common, f"output={folder / 'ray'}")
        print(f"again with local: {again['done']} computed, {again['finished_before']} were there")
        cluster.shutdown()
        if not same or code or len(clips) != len(set(clips)) or events:
            raise SystemExit("not as promised")
        if kills < options.kills:
            raise SystemExit(f"only {kills} of {options.kills} kills; give more --clips")


def measure_overhead(options: argparse.Namespace) -> None:
    """Measure how much longer clips take with Ray, one worker each, without its start.

    The time of a clip is that between two results. Other programs disturb it: run it on an idle
    machine, with several turns.
    """
    with workplace() as folder:
        write_frames(folder / "clips", options.clips, options.frames, (128, 160))
        taken: dict[str, list[float]] = {"local": [], "ray": []}
        for turn in range(options.turns):
            for engine, seconds in taken.items():
                _, events, _ = run(
                    f"inputs={folder / 'clips'}",
                    f"output={folder / f'{engine}{turn}'}",
                    f"engine={engine}",
                    "workers=1",
                    "iters=4",
                )
                whole = events[-1]["time"] - events[0]["time"]
                clips = sum(event["seconds"] for event in events[1:])
                seconds.append(whole / (len(events) - 1))
                print(
                    f"{engine}: {seconds[-1]:.3f} s for each clip, of which "
                    f"{100 - 100 * clips / whole:.2f} % between clips",
                    flush=True,
                )
        local, ray = (statistics.mean(seconds) for seconds in taken.values())
        print(f"Ray over local: {100 * (ray / local - 1):+.1f} %", flush=True)


def measure_resume(options: argparse.Namespace) -> None:
    """Run a job again whose clips are all finished, as `batch` sees it: by names."""
    from gmaflow.batch.destination import record_name
    from gmaflow.batch.manifest import ClipList

    with workplace() as folder:
        write_frames(folder / "clips", 1, 2, (64, 64))
        only = folder / "clips" / "clip00000"
        manifest = folder / "all.csv"
        rows = "".join(f"{only},clip{n:07d}\n" for n in range(options.clips))
        manifest.write_text(f"path,id\n{only},first\n{rows}")
        output = folder / "out"
        (folder / "first.csv").write_text(f"path,id\n{only},first\n")
        run(f"inputs={folder / 'first.csv'}", f"output={output}", "iters=1")
        # The other clips are finished, too: their records and flow are copies of the first's.
        first, *others = ClipList([str(manifest)])
        record = (output / record_name(first)).read_bytes()
        for clip in others:
            path = output / record_name(clip)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(record)
        for _ in range(options.turns):
            before = cpu_seconds()
            report, _, seconds = run(f"inputs={manifest}", f"output={output}", "iters=1")
            print(
                f"{report['finished_before']} finished clips: {seconds:.2f} s, "
                f"{cpu_seconds() - before:.2f} s of CPU; computed again: {report['done']}",
                flush=True,
            )


def measure_memory(options: argparse.Namespace) -> None:
    """Measure the driver's memory with a long manifest, all but a few of whose clips are bad."""
    with workplace() as folder:
        write_frames(folder / "clips", 1, 2, (64, 64))
        for rows in (1_000, options.rows):
            manifest = folder / f"{rows}.csv"
            with manifest.open("w") as file:
                file.write("path,id\n")
                for number in range(rows):
                    file.write(f"clips/clip00000,kinetics/train/video_{number:08d}\n")
            code = (
                "import resource, sys, time\n"
                "from gmaflow.batch import BatchConfig, run_batch\n"
                "from gmaflow.batch import local_engine\n"
                "def stop(progress):\n"
                "    if progress.done >= 20: raise KeyboardInterrupt\n"
                "began = time.monotonic()\n"
                "try:\n"
                "    run_batch(BatchConfig(iters=1, workers=1), sys.argv[1:2], sys.argv[2],\n"
                "              watch=stop)\n"
                "except KeyboardInterrupt: pass\n"
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,\n"
                "      time.monotonic() - began)\n"
            )
            script = folder / "driver.py"
            guarded = code.replace("\n", "\n    ")
            script.write_text(f"if __name__ == '__main__':\n    {guarded}\n")
            out = folder / f"out{rows}"
            done = subprocess.run(
                [sys.executable, script, manifest, out], capture_output=True, text=True, check=True
            )
            megabytes, seconds = map(float, done.stdout.split())
            print(f"{rows} rows: driver peaks at {megabytes:.0f} MB ({seconds:.1f} s, 20 clips)")


def measure_workers(options: argparse.Namespace) -> None:
    """Compare workers on a CPU."""
    with workplace() as folder:
        write_frames(folder / "clips", options.clips, options.frames, (256, 344))
        for workers in map(int, options.counts.split(",")):
            report, events, _ = run(
                f"inputs={folder / 'clips'}",
                f"output={folder / f'out{workers}'}",
                f"workers={workers}",
                f"iters={options.iters}",
            )
            times = sorted(event["time"] for event in events)
            pairs = sum(event["pairs"] for event in events[workers:])
            speed = pairs / (times[-1] - times[workers - 1])
            print(f"{workers} workers: {speed:.2f} pairs/s ({report['seconds']} s with start)")


def measure_speed(options: argparse.Namespace) -> None:
    """Measure pairs a second from JPEG frames to flow in a compact format, start left out."""
    height, width = map(int, options.size.split("x"))
    with workplace() as folder:
        write_frames(folder / "clips", options.clips, options.frames, (height, width))
        for turn, workers in enumerate(options.turns * options.counts.split(",")):
            output = folder / f"out{turn}"
            report, events, seconds = run(
                f"inputs={folder / 'clips'}",
                f"output={output}",
                f"format={options.format}",
                f"iters={options.iters}",
                f"device={options.device}",
                f"workers={workers}",
            )
            events.sort(key=lambda event: event["time"])
            times = [event["time"] for event in events]
            warm = len(times) // 3  # the first calls compile, tune and record
            pairs = sum(event["pairs"] for event in events[warm:])
            steady = pairs / (times[-1] - times[warm - 1])
            size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
            print(
                f"{workers} workers, {report['done']} clips, {report['pairs']} pairs of "
                f"{options.size}, {options.iters} iterations, {options.format}: "
                f"{steady:.0f} pairs/s after the first third, {report['pairs_per_second']:.0f} "
                f"with the start of the workers, {report['pairs'] / seconds:.0f} for the whole "
                f"command; {size / report['pairs'] / height / width:.3f} bytes per pixel",
                flush=True,
            )


def draw_picture(options: argparse.Namespace) -> None:
    """Draw the display in the middle of a run on two nodes as an SVG."""
    from ray.cluster_utils import Cluster
    from rich.console import Console

    from gmaflow.batch import BatchConfig, BatchProgress, run_batch
    from gmaflow.cli.batch_progress import draw

    with workplace() as folder:
        write_frames(folder / "clips", options.clips, 4, (64, 64))
        write_frames(folder / "clips" / "beach", 1, 10 * options.clips, (64, 64))
        (folder / "clips" / "holiday.mp4").write_bytes(b"not a video")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)

        def watch(progress: BatchProgress) -> None:
            if progress.done == 2 * options.clips // 3:
                console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
                failure = progress.last_failure
                if failure is not None and failure.error is not None:
                    message = failure.error.replace(f"{folder}/clips/", "videos/")
                    progress.last_failure = replace(failure, error=message)
                console.print(draw(progress))
                text = console.export_svg(title="gmaflow batch videos -o flow --engine ray")
                # Fonts come from the reader's machine, not from another server.
                text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
                Path(options.output).write_text(text, "utf-8")

        config = BatchConfig(iters=2, engine="ray", address=cluster.address, workers=2)
        run_batch(config, [str(folder / "clips")], str(folder / "out"), watch=watch)
        cluster.shutdown()


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", choices=["cluster", "overhead", "resume", "memory", "workers", "speed", "picture"]
    )
    parser.add_argument("--clips", type=int)
    parser.add_argument("--frames", type=int)
    parser.add_argument("--iters", type=int, default=12)
    parser.add_argument("--size", default="256x344")
    parser.add_argument("--format", default="tar")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--counts", default="1,2")
    parser.add_argument("--output", default="docs/images/batch.svg", help="of picture")
    options = parser.parse_args()
    usual = {
        "cluster": (200, 4),
        "overhead": (12, 33),
        "resume": (10_000, 2),
        "memory": (1, 2),
        "workers": (8, 9),
        "speed": (96, 150),
        "picture": (120, 4),
    }
    clips, frames = usual[options.what]
    options.clips, options.frames = options.clips or clips, options.frames or frames
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}", flush=True)
    if options.what == "picture":
        draw_picture(options)
        return
    globals()[f"measure_{options.what}"](options)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"largest process: {peak:.0f} MB")


if __name__ == "__main__":
    main()

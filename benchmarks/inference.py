"""How long inference takes and how much memory it needs, size by size.

PYTHONPATH=src python benchmarks/inference.py
PYTHONPATH=src python benchmarks/inference.py --sizes 440x1024 --iters 12 32 --check
PYTHONPATH=src python benchmarks/inference.py --first-flow   # a new process, an empty kernel cache
PYTHONPATH=src python benchmarks/inference.py --sizes 440x1024 --profile
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from gmaflow.inference.backend import Runner, make_runner
from gmaflow.inference.device import pick_dtype
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan, Prediction
from gmaflow.weights import find_checkpoint

GB = 1e9
TARGETS = (
    # height, width, batch, iterations, stored, what is wanted
    (440, 1024, 1, 12, True, "6 ms (aim 3.5), 0.5 GB"),
    (440, 1024, 1, 32, True, "13 ms"),
    (440, 1024, 8, 12, True, "40 ms (200 pairs/s)"),
    (1088, 1920, 1, 12, True, "30 ms, 7 GB"),
    (1088, 1920, 1, 12, False, "60 ms, 1.5 GB"),
    (2160, 3840, 1, 12, False, "1000 ms, 6 GB"),
)


def wait(device: torch.device) -> None:
    """Let the device finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def images(height: int, width: int, batch: int, device: torch.device) -> list[torch.Tensor]:
    """Return a smooth random pair, the second a shift of the first."""
    torch.manual_seed(0)
    coarse = torch.rand(batch, 3, height // 8 + 2, width // 8 + 2, device=device)
    fine = torch.nn.functional.interpolate(coarse, (height + 8, width + 8), mode="bilinear")
    return [fine[..., :height, :width].contiguous(), fine[..., 3 : 3 + height, 5 : 5 + width]]


def measure(runner: Runner, pair: list[torch.Tensor], options: dict, repeats: int) -> str:
    """Return median and worst milliseconds and peak memory, in words."""
    device = pair[0].device
    for _ in range(3):
        runner(*pair, flow_init=None, **options)
    wait(device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        runner(*pair, flow_init=None, **options)
        wait(device)
        seconds.append(time.perf_counter() - begin)
    words = f"{1000 * statistics.median(seconds):8.2f} ms, worst {1000 * max(seconds):8.2f}"
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) / GB
        words += f", allocated {torch.cuda.max_memory_allocated(device) / GB:5.2f} GB"
        words += f", reserved {reserved:5.2f} GB"
    return words


def first_peak(runner: Runner, pair: list[torch.Tensor], options: dict) -> str:
    """Return the peak of the first two calls: as it is, and recorded."""
    device = pair[0].device
    if device.type != "cuda":
        return ""
    peaks = []
    for _ in range(2):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        runner(*pair, flow_init=None, **options)
        wait(device)
        peaks.append(f"{torch.cuda.max_memory_allocated(device) / GB:.2f}")
    return f"; peaks of calls 1, 2: {' '.join(peaks)} GB"


def check(network: FlowNetwork, found: Prediction, pair: list[torch.Tensor], options: dict) -> str:
    """Return how far the flow is from the network's own in float32."""
    with torch.inference_mode():
        expected = network(*pair, **options).flow
    away = (found.flow - expected).norm(dim=1)
    return f"; from float32: mean {away.mean():.4f} px, largest {away.max():.3f} px"


def profile(runner: Runner, pair: list[torch.Tensor], options: dict) -> None:
    """Print where the time of a recorded call goes."""
    for _ in range(3):
        runner(*pair, flow_init=None, **options)
    wait(pair[0].device)
    with torch.profiler.profile() as found:
        runner(*pair, flow_init=None, **options)
        wait(pair[0].device)
    key = "self_cuda_time_total" if pair[0].is_cuda else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=90))


def first_flow() -> None:
    """Time a new process with an empty kernel cache, from torch's import on."""
    with tempfile.TemporaryDirectory() as folder:
        script = f"""
import time, torch
torch.cuda.init() if torch.cuda.is_available() else None
begin = time.perf_counter()
import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
import inference
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dtype = inference.pick_dtype("auto", device)
runner = inference.make_runner(inference.load("gma").to(device), dtype, "fast")
pair = inference.images(440, 1024, 1, device)
for call in ("first", "second", "third"):
    with torch.inference_mode():
        runner(*pair, iters=12, flow_init=None, plan=inference.MemoryPlan())
    inference.wait(device)
    print(f"{{call}} flow after {{time.perf_counter() - begin:.2f}} s")
"""
        environment = {**os.environ, "TRITON_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def load(model: str) -> FlowNetwork:
    """Return the shipped network, or one with random weights."""
    try:
        if model == "gma":
            return find_checkpoint(None, model=model).build()
    except ModuleNotFoundError as err:
        print(f"random weights, since {err}")
    torch.manual_seed(0)
    return FlowNetwork(MODELS[model]).eval().requires_grad_(False)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gma")
    parser.add_argument("--sizes", nargs="*", default=[], help="HxW; by default the usual ones")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--iters", type=int, nargs="*", default=[12])
    parser.add_argument("--stream", action="store_true", help="neither volume nor attention kept")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="compare with float32")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--first-flow", action="store_true")
    parser.add_argument(
        "--no-search", action="store_true", help="cuDNN's first guess at algorithms"
    )
    parser.add_argument("--no-fused", action="store_true", help="bias and ReLU by our own kernel")
    options = parser.parse_args()
    if options.first_flow:
        first_flow()
        return
    device = torch.device(options.device)
    network = load(options.model).to(device)
    cases = [
        (*map(int, size.split("x")), options.batch, iters, not options.stream, "")
        for size in options.sizes
        for iters in options.iters
    ]
    print(f"{options.model}, torch {torch.__version__}, {device}, {options.precision}")
    for height, width, batch, iters, stored, wanted in cases or TARGETS:
        runner = make_runner(network, pick_dtype(options.precision, device), options.backend)
        if options.no_search:
            runner.search = False
        if options.no_fused:
            runner.network.operations.fused = False
        pair = images(height, width, batch, device)
        what = {"iters": iters, "plan": MemoryPlan(stored, stored)}
        name = (
            f"{height}x{width} batch {batch} iters {iters:2d} {'stored' if stored else 'streamed'}"
        )
        try:
            with torch.inference_mode():
                peaks = first_peak(runner, pair, what)
                words = measure(runner, pair, what, options.repeats) + peaks
                if options.check:
                    found = runner(*pair, flow_init=None, **what)
                    words += check(network, found, pair, what)
                if options.profile:
                    profile(runner, pair, what)
        except RuntimeError as err:
            words = f"failed: {str(err).splitlines()[0]}"
        print(f"{name:44s} {words}   [wanted: {wanted or '-'}]", flush=True)
        del runner
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

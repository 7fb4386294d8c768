"""Load test of a server: status codes, response times and memory.

PYTHONPATH=src python benchmarks/serving.py --requests 200 --clients 50 --size 384 512
"""

import argparse
import collections
import io
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

ANSWER_SECONDS = 600.0


def make_files(height: int, width: int) -> dict[str, tuple[str, bytes]]:
    """Return a random image and a shifted copy as the files of a form."""
    coarse = np.random.default_rng(0).integers(0, 256, (height // 8 + 2, width // 8 + 2, 3))
    fine = Image.fromarray(coarse.astype(np.uint8)).resize((width + 8, height + 8))
    files = {}
    for name, left in (("image1", 0), ("image2", 3)):
        buffer = io.BytesIO()
        fine.crop((left, 0, left + width, height)).save(buffer, "PNG")
        files[name] = (f"{name}.png", buffer.getvalue())
    return files


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("cannot read the memory of a process on this system")


def summary(seconds: list[float]) -> str:
    """Return median, 95th percentile and maximum."""
    if len(seconds) < 2:
        return "too few for percentiles"
    p95 = statistics.quantiles(seconds, n=20)[-1]
    return f"p50 {statistics.median(seconds):.2f} s, p95 {p95:.2f} s, max {max(seconds):.2f} s"


def burst(client: httpx.Client, options: argparse.Namespace) -> dict[int, list[float]]:
    """Send many requests at once; returns the response times in seconds by status code."""
    files = make_files(*options.size)

    def ask(_: int) -> tuple[int, float]:
        begin = time.perf_counter()
        answer = client.post(f"/api/flow?iters={options.iters}", files=files)
        return answer.status_code, time.perf_counter() - begin

    found: dict[int, list[float]] = collections.defaultdict(list)
    with ThreadPoolExecutor(options.clients) as pool:
        for status, seconds in pool.map(ask, range(options.requests)):
            found[status].append(seconds)
    return found


def main() -> None:
    """Start a server, send bursts of requests, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=200, help="simultaneous requests")
    parser.add_argument("--size", type=int, nargs=2, default=(384, 512), metavar=("H", "W"))
    parser.add_argument("--iters", type=int, default=12)
    parser.add_argument("--bursts", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--queue", type=int, default=16)
    options = parser.parse_args()

    command = [sys.executable, "-m", "gmaflow", "serve", "--no-open", "--port", "0"]
    command += ["--device", options.device, "--queue", str(options.queue)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[3]
            many = httpx.Limits(max_connections=options.clients)
            with httpx.Client(base_url=url, timeout=ANSWER_SECONDS, limits=many) as client:
                client.post(f"/api/flow?iters={options.iters}", files=make_files(*options.size))
                time.sleep(2)
                print(f"memory before: {resident_mib(server.pid):.0f} MiB (after one flow)")
                for number in range(1, options.bursts + 1):
                    begin = time.perf_counter()
                    found = burst(client, options)
                    whole = time.perf_counter() - begin
                    print(f"burst {number}: {options.requests} requests in {whole:.1f} s")
                    for status, seconds in sorted(found.items()):
                        print(f"  {status}: {len(seconds)} answers, {summary(seconds)}")
                    time.sleep(2)
                    print(f"  memory after: {resident_mib(server.pid):.0f} MiB")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

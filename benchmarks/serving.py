"""Load test of a server: status codes, response times, lost requests and memory.

PYTHONPATH=src python benchmarks/serving.py --requests 200 --clients 50 --size 384 512
PYTHONPATH=src python benchmarks/serving.py --bursts 10 --size 96 128 --addresses --patient

A request is lost if it gets no answer. With `--addresses` every client has an address of its own,
and with `--patient` it tries again after `Retry-After`, until it gets its flow.
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
LOST, BUSY = 0, (429, 503)


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


def burst(url: str, options: argparse.Namespace) -> dict[int, list[float]]:
    """Send many requests at once; returns the response times in seconds by status code."""
    files = make_files(*options.size)
    context = httpx.create_ssl_context()  # takes longer to make than many requests

    def ask(number: int) -> tuple[int, float]:
        begin = time.perf_counter()
        own = f"127.1.{number // 250}.{1 + number % 250}" if options.addresses else None
        transport = httpx.HTTPTransport(verify=context, local_address=own)
        with httpx.Client(base_url=url, timeout=ANSWER_SECONDS, transport=transport) as client:
            status, wait = post(client, options.iters, files)
            while options.patient and status in BUSY:
                time.sleep(wait)
                status, wait = post(client, options.iters, files)
        return status, time.perf_counter() - begin

    by_status: dict[int, list[float]] = collections.defaultdict(list)
    with ThreadPoolExecutor(options.clients) as pool:
        for status, seconds in pool.map(ask, range(options.requests)):
            by_status[status].append(seconds)
    return by_status


def post(
    client: httpx.Client, iters: int, files: dict[str, tuple[str, bytes]]
) -> tuple[int, float]:
    """Ask for a flow; returns the status, and after how many seconds to try again."""
    try:
        answer = client.post(f"/api/flow?iters={iters}", files=files)
    except httpx.TransportError:
        return LOST, 0
    return answer.status_code, float(answer.headers.get("retry-after", 0))


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
    parser.add_argument("--addresses", action="store_true", help="one address for each client")
    parser.add_argument("--patient", action="store_true", help="try again after Retry-After")
    options = parser.parse_args()

    command = [sys.executable, "-m", "gmaflow", "serve", "--no-open", "--port", "0"]
    command += ["--device", options.device, "--queue", str(options.queue)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[3]
            with httpx.Client(base_url=url, timeout=ANSWER_SECONDS) as client:
                post(client, options.iters, make_files(*options.size))
            time.sleep(2)
            print(f"memory before: {resident_mib(server.pid):.0f} MiB (after one flow)")
            lost, memory = 0, []
            for number in range(1, options.bursts + 1):
                begin = time.perf_counter()
                by_status = burst(url, options)
                whole = time.perf_counter() - begin
                print(f"burst {number}: {options.requests} requests in {whole:.1f} s")
                for status, seconds in sorted(by_status.items()):
                    print(f"  {status}: {len(seconds)} answers, {summary(seconds)}")
                lost += len(by_status[LOST])
                time.sleep(2)
                memory.append(resident_mib(server.pid))
                print(f"  memory after: {memory[-1]:.0f} MiB", flush=True)
            growth = memory[-1] / memory[0] - 1
            print(f"lost: {lost}; memory after the last burst: {growth:+.1%} of after the first")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

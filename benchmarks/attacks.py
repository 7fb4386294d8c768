"""Attack a server, and print how it answers, how long that takes and what it costs.

PYTHONPATH=src:. python benchmarks/attacks.py

Attacks come from one address. While each of them lasts, a user at another address asks for a flow,
which must be answered. The server runs in a process of its own with `--job-seconds 20`.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx

from benchmarks.serving import make_files, resident_mib
from tests.io import bombs

ATTACKER, USER = "127.0.0.2", "127.0.0.3"
PATIENCE = 200.0
Files = dict[str, tuple[str, bytes]]


class Site:
    """A running server, an attacker and a user."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        self.attacker, self.user = (
            httpx.Client(
                base_url=url,
                timeout=PATIENCE,
                transport=httpx.HTTPTransport(local_address=address),
            )
            for address in (ATTACKER, USER)
        )

    def connect(self) -> socket.socket:
        """Open a connection of the attacker."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return socket.create_connection((parts.hostname, parts.port), 30, (ATTACKER, 0))

    def upload(self, files: Files) -> str:
        """Upload files as the attacker; returns the answer."""
        answer = self.attacker.post("/api/jobs", files=files, data={"iters": "1"})
        return f"{answer.status_code} {answer.json().get('error', '')}"

    def raw(self, request: bytes) -> str:
        """Send bytes as the attacker; returns the first line of the answer."""
        with self.connect() as wire:
            wire.sendall(request)
            return wire.recv(65536).split(b"\r\n")[0].decode()

    def serves(self) -> float:
        """Ask for a flow as the user; returns after how many seconds it came."""
        begun = time.perf_counter()
        answer = self.user.post("/api/flow?iters=1&model=gma", files=make_files(96, 128))
        answer.raise_for_status()
        return time.perf_counter() - begun


@contextmanager
def started() -> Iterator[Site]:
    """Start a server."""
    command = [sys.executable, "-m", "gmaflow", "serve", "--no-open", "--port", "0"]
    command += ["--job-seconds", "20", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield Site(server.stdout.readline().split()[3], server.pid)
        finally:
            server.terminate()


def image(name: str, content: bytes) -> Files:
    """Return a pair of which the first image is an attack."""
    return {"image1": (name, content), "image2": make_files(64, 64)["image2"]}


def made(write: Callable[..., None], name: str, *args: int) -> bytes:
    """Return what a function writes into a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path, *args)
        return path.read_bytes()


def slow_uploads(site: Site, count: int = 26) -> str:
    """Send a byte of many uploads every eight seconds, until the server closes them."""
    head = (
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    answers = []
    with ExitStack() as stack:
        wires = [stack.enter_context(site.connect()) for _ in range(count)]
        for wire in wires:
            wire.sendall(head)
        for _ in range(3):
            time.sleep(8)
            for wire in wires:
                try:
                    wire.sendall(b"-")
                except OSError:
                    continue
        for wire in wires:
            wire.settimeout(20)
            answers.append(wire.recv(65536).split(b"\r\n")[0].decode().split()[1])
    return ", ".join(f"{answers.count(code)} x {code}" for code in sorted(set(answers)))


def many_connections(site: Site, count: int = 600) -> str:
    """Open more connections than are allowed, and ask on the last one."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(site.connect())
        wire = stack.enter_context(site.connect())
        wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = wire.recv(65536).decode()
    retry = "with" if "retry-after" in answer.lower() else "without"
    return f"{answer.splitlines()[0]} {retry} Retry-After"


def at_once(site: Site, count: int, files: Files) -> str:
    """Upload the same files several times at once."""
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(site.upload, count * [files]))
    return f"{count} times: {answers[0]}"


def attacks() -> dict[str, Callable[[Site], str]]:
    """Return every attack by name."""
    gif = {"clip": ("a.gif", bombs.make_gif(5824, 130))}
    ppm = b"P6\n#" + 31 * 2**20 * b"a" + b"\n64 64\n255\n" + bytes(64 * 64 * 3)
    files = {
        "PPM, 31 MB of comment": image("a.ppm", ppm),
        "GIF, 31 MB of comment": image("a.gif", bombs.make_gif(64, 1, comment=125_000)),
        "TIFF of one giant tile": image("a.tif", made(bombs.write_tiff_of_one_tile, "a.tif")),
        "EXR of 15 channels": image(
            "a.exr", made(bombs.write_exr_of_many_channels, "a.exr", 3000, 15)
        ),
        "PNG of 13000 x 13000, 16 bits": image("a.png", made(bombs.write_png16, "a.png", 13_000)),
        "AVI of 30000 x 30000": {"clip": ("a.avi", made(bombs.write_avi, "a.avi", 30_000))},
    }
    all_attacks: dict[str, Callable[[Site], str]] = {
        "GIF of 130 frames, 3 at once": lambda site: at_once(site, 3, gif),
        "26 slow uploads": slow_uploads,
        "600 connections": many_connections,
        "Origin: http://[": lambda site: site.raw(
            b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n"
        ),
        "Content-Length and chunks": lambda site: site.raw(
            b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
    }
    return {name: (lambda site, f=f: site.upload(f)) for name, f in files.items()} | all_attacks  # type: ignore[misc]


def run(site: Site, name: str, attack: Callable[[Site], str], before: float) -> bool:
    """Run one attack while a user asks for flows, and print both; false if it got no answer."""
    over, peak, waits = Event(), [before], list[float]()

    def look() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], resident_mib(site.pid))

    def use() -> None:
        while not over.is_set() or not waits:
            try:
                waits.append(site.serves())
            except httpx.HTTPError as err:
                print(f"the user got no flow: {err}")
                waits.append(float("inf"))

    threads = [Thread(target=target) for target in (look, use)]
    for thread in threads:
        thread.start()
    begun, answered = time.perf_counter(), True
    try:
        outcome = attack(site)
    except (OSError, httpx.HTTPError) as err:
        outcome, answered = f"no answer: {err}", False
    seconds = time.perf_counter() - begun
    over.set()
    for thread in threads:
        thread.join()
    print(
        f"{name}: {outcome}\n  {seconds:.1f} s, at most {peak[0] - before:+.0f} MiB; the user got "
        f"{len(waits)} flows, the slowest in {max(waits):.1f} s",
        flush=True,
    )
    return answered


def main() -> None:
    """Run every attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of one attack")
    options = parser.parse_args()
    with started() as site:
        print(f"a user's flow without an attack: {site.serves():.1f} s, then {site.serves():.1f} s")
        before = resident_mib(site.pid)
        print(f"memory: {before:.0f} MiB")
        answered = [
            run(site, name, attack, before)
            for name, attack in attacks().items()
            if options.only in (None, name)
        ]
        print(f"memory: {resident_mib(site.pid):.0f} MiB; unanswered: {answered.count(False)}")


if __name__ == "__main__":
    main()

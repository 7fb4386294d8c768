"""Attacks and accidents: each is answered with the right status and one sentence."""

import errno
import itertools
import json
import os
import re
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import httpx
import numpy as np
import pytest
from PIL import Image

from gmaflow.errors import OutputError
from gmaflow.inference import FlowEstimator, FrameAttention
from gmaflow.io import encode_png
from gmaflow.serving import middleware, server
from gmaflow.serving.http_errors import too_busy
from gmaflow.serving.job_queue import JobQueue
from gmaflow.serving.jobs import Job, Task
from gmaflow.serving.models import ModelRegistry
from gmaflow.serving.views import ARCHIVED
from tests.io.bombs import make_gif
from tests.io.clips import write_mislabelled_clip
from tests.serving.conftest import (
    BROWSER,
    PATIENCE,
    Running,
    eventually,
    frames,
    pair_files,
    png,
    running,
    write_clip,
)

SOUND = png(frames()[0])


def send(site: Running, first: bytes, second: bytes = SOUND, name: str = "a.png") -> httpx.Response:
    files = {"image1": (name, first), "image2": ("b.png", second)}
    return site.client.post("/api/jobs", files=files, data={"iters": "1"})


def refused(answer: httpx.Response, status: int, sentence: str = "") -> None:
    """Check a refusal: the status, one sentence, no address of a file in it."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert sentence in answer.json()["error"]
    assert "/tmp" not in answer.json()["error"]


def is_well(site: Running) -> bool:
    return site.wait(site.start(iters="1"))["state"] == "done"


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred kilobytes at most that claims, and has, that many black pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    pack = zlib.compressobj(9)
    rows = b"".join(pack.compress(bytes(1 + -(-width // 8))) for _ in range(height)) + pack.flush()
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(7000, 7000), (20_000, 20_000)])
def test_a_decompression_bomb_is_refused_before_it_goes_off(
    site: Running, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: Image.Image) -> None:
        raise AssertionError("it was decoded")

    packed = bomb(*size)
    assert len(packed) < 100_000
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    refused(send(site, packed, packed), 413, "image1 has ")


@pytest.mark.filterwarnings("default")  # Pillow warns where it does not refuse yet
def test_a_bomb_that_pillow_only_warns_of_is_refused(site: Running) -> None:
    refused(send(site, bomb(10_000, 10_000)), 413, "image1 has ")


def test_a_clip_of_huge_frames_is_refused(models: ModelRegistry, tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mp4", list(frames()))
    with running(models, pixels=40 * 56 - 1) as site:
        answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", clip)})
        refused(answer, 413, "clip has frames of 56 x 40 pixels")


def test_a_clip_with_wrong_frame_sizes_is_refused(models: ModelRegistry, tmp_path: Path) -> None:
    path = write_mislabelled_clip(tmp_path / "clip.mkv", declared=(40, 56), actual=(400, 560))
    with running(models, pixels=40 * 56) as site:
        answer = site.client.post("/api/jobs", files={"clip": ("x.mkv", path.read_bytes())})
        refused(answer, 400, "clip cannot be read as video (Invalid argument)")


HUGE = make_gif(5824, 130)
"""Three kilobytes that take minutes to decode."""


def send_clip(client: httpx.Client, content: bytes) -> httpx.Response:
    return client.post("/api/jobs", files={"clip": ("a.gif", content)}, data={"iters": "1"})


def test_decoding_ends_at_the_deadline(models: ModelRegistry) -> None:
    assert len(HUGE) < 4000
    with running(models, job_seconds=0.3) as site:
        answer = send_clip(site.client, HUGE)
        refused(answer, 504, "decoding the upload took longer than 0.3 s")
        assert answer.elapsed.total_seconds() < 15
        assert not list(site.folder.iterdir())


def test_megabytes_of_comments_are_refused_at_once(site: Running) -> None:
    refused(send(site, make_gif(32, 1, comment=20_000)), 400, "a comment that is too long")


def test_decoding_ends_when_the_client_leaves(models: ModelRegistry) -> None:
    with running(models) as site:
        app = site.server.config.app
        decoding = app.state.services.decoding  # type: ignore[union-attr]
        with pytest.raises(httpx.ReadTimeout):
            site.client.post(
                "/api/jobs",
                files={"clip": ("a.gif", HUGE)},
                timeout=httpx.Timeout(PATIENCE, read=0.5),
            )
        left = time.monotonic()
        eventually(lambda: decoding.borrowed_tokens == 0)
        assert time.monotonic() - left < 15
        eventually(lambda: not list(site.folder.iterdir()))


def test_one_client_does_not_take_all_decoders(models: ModelRegistry) -> None:
    with running(models, job_seconds=1.5) as site, ThreadPoolExecutor(3) as pool:
        services = site.server.config.app.state.services  # type: ignore[union-attr]
        attacks = [pool.submit(send_clip, site.client, HUGE) for _ in range(3)]
        eventually(lambda: services.turns["127.0.0.1"].statistics().tasks_waiting == 2)
        assert services.decoding.borrowed_tokens == 1
        with another_client(site) as client:
            assert client.post("/api/jobs", files=pair_files()).status_code == 202
        # Two decoders at once would both be free only when two attacks are over.
        assert sum(attack.done() for attack in attacks) < 2
        assert [attack.result().status_code for attack in attacks] == [504] * 3


def test_a_clip_is_cut_at_the_budget_of_pixels(models: ModelRegistry) -> None:
    with running(models, clip_pixels=3 * 32 * 32) as site:
        status = site.wait(send_clip(site.client, make_gif(32, 8)).json()["url"])
        assert status["pairs"] == 2
        assert "only the first 3 frames are used" in status["notes"]


PAYLOAD = b"<script>alert(1)</script>"


def test_a_polyglot_is_a_picture_and_nothing_else(site: Running) -> None:
    """What is sent never comes back as it was: pictures are drawn anew, and typed as such."""
    first = SOUND + b"PK\x03\x04" + PAYLOAD
    url = send(site, first, name="a.html").json()["url"]
    assert site.wait(url)["state"] == "done"
    for view in ("frame1", "panel", "flow"):
        answer = site.client.get(f"{url}/pairs/0/small/{view}")
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert PAYLOAD not in answer.content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "image1 is empty"),
        (b"just text", "not an image"),
        (b"GIF89a/*" + PAYLOAD + b"*/", "image1"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "not an image"),
        (SOUND[: len(SOUND) // 2], "image1 cannot be read"),
        (png(np.zeros((9, 9, 3), np.uint8)), "at least 16 pixels"),
        (png(np.zeros((40, 57, 3), np.uint8)), "differ in size"),
    ],
)
def test_a_file_that_is_not_an_image_is_refused(
    site: Running, content: bytes, sentence: str
) -> None:
    before = set(site.folder.iterdir())
    refused(send(site, content), 400, sentence)
    assert set(site.folder.iterdir()) <= before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        SOUND,
        b"ffconcat version 1.0\nfile /etc/passwd\n",
    ],
)
def test_a_file_that_is_not_a_video_is_refused(site: Running, content: bytes) -> None:
    answer = site.client.post("/api/jobs", files={"clip": ("clip.mp4", content)})
    refused(answer, 400, "clip")
    assert not list(site.folder.glob("*/clip"))


def test_a_video_of_one_frame_is_refused(site: Running, tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mp4", [frames()[0]])
    answer = site.client.post("/api/jobs", files={"clip": ("x.mp4", clip)})
    refused(answer, 400, "fewer than two frames")


@pytest.mark.parametrize(
    "name", ["../../../../tmp/escaped.png", "/etc/passwd", "a\\..\\b", "\x00x"]
)
def test_a_path_in_a_file_name_leads_nowhere(site: Running, name: str) -> None:
    before = set(site.folder.parent.iterdir())
    url = send(site, SOUND, name=name).json()["url"]
    assert site.wait(url)["state"] == "done"
    # Other processes use the folder of temporary files too.
    added = {path.name for path in set(site.folder.parent.iterdir()) - before}
    assert not added & {"escaped.png", "passwd", "b", "x"}
    kept = {path.name for path in site.folder.rglob("*") if path.is_file()}
    assert all(re.fullmatch(r"[a-z]+(-\d+)?\.npy", file) for file in kept)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"]
)
def test_static_files_are_those_of_the_page(site: Running, path: str) -> None:
    with socket.create_connection(address(site)) as wire:
        wire.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        assert b" 404 " in everything(wire).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
    ],
)
def test_other_sites_are_refused(site: Running, headers: dict[str, str]) -> None:
    answer = site.client.post("/api/jobs", data={"example": "1"}, headers={**BROWSER, **headers})
    refused(answer, 403)
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_must_show_that_the_page_itself_asks(site: Running) -> None:
    own = {"Origin": site.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=site.url, timeout=PATIENCE) as client:
        refused(client.post("/api/jobs", data={"example": "1"}, headers=own), 403, "X-Gmaflow")
        refused(client.delete("/api/jobs/x", headers=own), 403, "X-Gmaflow")
        refused(client.delete("/api/jobs/x", headers={**own, **BROWSER}), 404)
        named = {"Host": "LocalHost:1", "Origin": "http://localhost:1"}  # upper or lower case
        refused(client.delete("/api/jobs/x", headers={**named, **BROWSER}), 404)
        # A program, which sends none of this, may ask.
        refused(client.delete("/api/jobs/x"), 404)


def test_the_preflight_of_another_site_gets_no_permission(site: Running) -> None:
    answer = site.client.options(
        "/api/jobs",
        headers={
            "Origin": "http://evil.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-gmaflow",
        },
    )
    refused(answer, 403)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_another_site_cannot_show_our_pictures_but_may_link_here(site: Running) -> None:
    url = site.start(iters="1")
    site.wait(url)
    other = {"Sec-Fetch-Site": "cross-site"}
    refused(site.client.get(f"{url}/pairs/0/small/frame1", headers=other), 403)
    page = site.client.get("/", headers=other)
    assert page.status_code == 200
    assert page.headers["cross-origin-resource-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("counted", [True, False])
def test_an_upload_over_the_limit_is_refused_while_it_arrives(
    models: ModelRegistry, counted: bool
) -> None:
    with running(models, upload_bytes=100_000) as site:
        boundary = "frontier"
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="image1"; filename="a"\r\n\r\n'
        ).encode()
        body = head + bytes(150_000)
        content: bytes | Iterator[bytes] = body
        if not counted:  # sent in chunks, without Content-Length
            content = itertools.chain(body[i : i + 1000] for i in range(0, len(body), 1000))
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        refused(site.client.post("/api/jobs", content=content, headers=kind), 413, "MiB")
        assert not list(site.folder.iterdir())
        assert is_well(site)


def test_other_bodies_must_be_small(site: Running) -> None:
    words = {"pair": 0, "x": [[]] * 50_000}
    refused(site.client.post("/api/jobs/none/seek", json=words), 413, "0.0625 MiB")
    assert is_well(site)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nowhere", 404, "/nowhere does not exist; see /docs"),
        ("/api/flow/", 404, "/api/flow/ does not exist (remove the trailing slash); see /docs"),
        ("/api/jobs/", 404, "/api/jobs/ does not exist (remove the trailing slash); see /docs"),
        ("/api/jobs/none", 405, "does not accept POST"),
    ],
)
@pytest.mark.parametrize("size", [10, 200_000])
def test_a_wrong_address_is_reported_whatever_is_sent_there(
    site: Running, path: str, status: int, sentence: str, size: int
) -> None:
    files = {"image1": ("a.png", bytes(size))}
    refused(site.client.post(path, files=files), status, sentence)
    assert is_well(site)


def test_other_kinds_of_bodies_are_refused(site: Running) -> None:
    refused(site.client.post("/api/jobs", json={"example": 1}), 415, "multipart/form-data")
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    refused(site.client.post("/api/jobs", content=b"nonsense", headers=kind), 400)
    refused(site.client.post("/api/jobs", data={}), 415)
    refused(
        site.client.post("/api/jobs", data={"iters": "1"}), 422, "give image1 and image2, or clip"
    )
    refused(site.send(iters="0"), 422, "iters is 0")
    refused(site.send(iters="many"), 422, "iters")
    refused(site.send(model="gmma"), 422, "did you mean gma")
    refused(site.send(model="gma", compare_model="gma"), 422, "with itself")
    refused(site.client.put("/api/jobs"), 405, "does not accept PUT")


def another_client(site: Running, address: str = "127.0.0.2") -> httpx.Client:
    """A client that the server takes for another one, by its address."""
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=site.url, transport=transport, timeout=PATIENCE)


def address(site: Running) -> tuple[str, int]:
    url = httpx.URL(site.url)
    assert url.port
    return url.host, url.port


def everything(wire: socket.socket) -> bytes:
    """Read until the other side closes."""
    wire.settimeout(PATIENCE)
    parts = []
    try:
        while part := wire.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


HEAD = (
    b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
)


@pytest.mark.parametrize(("silence", "total"), [(0.3, PATIENCE), (PATIENCE, 0.3)])
def test_a_slow_upload_times_out(models: ModelRegistry, silence: float, total: float) -> None:
    with (
        running(models, silence_seconds=silence, upload_seconds=total) as site,
        socket.create_connection(address(site)) as wire,
    ):
        wire.sendall(HEAD + b"--x\r\n")
        status, *headers = everything(wire).lower().split(b"\r\n")
        assert b" 408 " in status
        assert b"connection: close" in headers  # the rest is not the next request


@pytest.mark.parametrize("begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_incomplete_headers_time_out(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    with running(models) as site, socket.create_connection(address(site)) as wire:
        wire.sendall(begun)
        assert everything(wire) == b""


def test_incomplete_headers_of_a_second_request_time_out(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(models) as site, socket.create_connection(address(site)) as wire:
        wire.sendall(whole)
        answer = b""
        while not answer.endswith(b"}"):
            answer += wire.recv(4096)
        wire.sendall(whole[:20])
        assert everything(wire) == b""


def test_a_client_that_does_not_read_is_cut_off(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.3)
    with running(models, send_buffer=4096) as site:
        url = site.start(size=(200, 200), iters="1")
        site.wait(url)
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(address(site))
            request = f"GET {url}/pairs/0/small/values HTTP/1.1\r\nHost: localhost\r\n\r\n"
            wire.sendall(request.encode())
            eventually(lambda: len(site.server.server_state.connections) == 2)
            eventually(lambda: len(site.server.server_state.connections) == 1)
            assert len(everything(wire)) < 4 * 4 * 200 * 200


def test_an_upload_that_breaks_off_leaves_nothing(site: Running) -> None:
    before = set(site.folder.iterdir())
    for _ in range(5):
        with socket.create_connection(address(site)) as wire:
            wire.sendall(HEAD + b"--x\r\nContent-Disposition: form-data; name=image1\r\n\r\nabc")
    assert is_well(site)
    assert len(set(site.folder.iterdir()) - before) == 1  # that of the sound job


def test_two_hundred_requests_at_once(models: ModelRegistry) -> None:
    with running(models, queue=4) as site:
        files = pair_files()

        many = httpx.Limits(max_connections=200)
        client = httpx.Client(base_url=site.url, timeout=PATIENCE, limits=many)

        def post(_: int) -> httpx.Response:
            return client.post("/api/jobs", files=files, data={"iters": "1"})

        with client, ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(post, range(200)))
        taken = [answer for answer in answers if answer.status_code == 202]
        busy = [answer for answer in answers if answer.status_code == 429]
        assert len(taken) + len(busy) == 200
        assert len(taken) >= 4
        assert busy
        assert all(int(answer.headers["retry-after"]) > 0 for answer in busy)
        refused(busy[0], 429)
        for answer in taken:
            assert site.wait(answer.json()["url"])["state"] == "done"
        assert len(list(site.folder.iterdir())) == len(taken)
        assert is_well(site)


FOR_EVER = 10**6


def long_job(site: Running) -> str:
    """Start a job that would take hours."""
    url = site.start(iters=str(FOR_EVER))
    site.until(url, lambda job: job["progress"] > 0)
    return url


def test_a_job_is_cancelled_between_two_refinements(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER) as site:
        url = long_job(site)
        picture = site.client.get(f"{url}/pairs/0/small/frame1")
        assert picture.headers["cache-control"] == "no-store"  # others change until the end
        assert site.client.delete(url).status_code == 204
        status = site.wait(url)
        assert (status["state"], status["error"]) == ("cancelled", "cancelled")
        assert 0 <= status["progress"] < 1
        refused(site.client.get(f"{url}/pairs/0/small/flow"), 409, "job cancelled")
        refused(site.client.get(f"{url}/all.zip"), 409)
        # Once more deletes it.
        assert site.client.delete(url).status_code == 204
        refused(site.client.get(url), 410, "deleted")


def test_disconnecting_cancels_the_job(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER) as site:
        with pytest.raises(httpx.ReadTimeout):
            site.client.post(
                f"/api/flow?iters={FOR_EVER}",
                files=pair_files(),
                timeout=httpx.Timeout(PATIENCE, read=0.5),
            )
        eventually(lambda: site.queue.counts() == (0, 0))
        eventually(lambda: not list(site.folder.iterdir()))
        assert is_well(site)


def test_too_many_uploads_are_refused(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_UPLOADS", 2)
    with running(models, iters=FOR_EVER) as site, ExitStack() as stack:
        for _ in range(2):
            wire = stack.enter_context(socket.create_connection(address(site)))
            wire.sendall(HEAD)
        eventually(lambda: site.send(iters="1").status_code == 429)
        refused(site.send(), 429, "too many uploads")


def test_uploads_that_were_refused_do_not_count(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_UPLOADS", 1)
    with running(models) as site:
        for _ in range(3):
            refused(site.send(iters="0"), 422, "iters is 0")


def test_one_client_cannot_take_all_uploads(models: ModelRegistry) -> None:
    with running(models, queue=2) as site, ExitStack() as stack:
        for _ in range(2):
            wire = stack.enter_context(socket.create_connection(address(site)))
            wire.sendall(HEAD)
        # Never a job, so that only uploads count.
        eventually(lambda: site.send(iters="0").status_code == 429)
        refused(site.send(iters="0"), 429, "you have 2 unfinished jobs and uploads")
        with another_client(site) as client:
            assert client.post("/api/jobs", files=pair_files()).status_code == 202


def test_too_many_connections_are_answered_with_retry_after(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    with running(models) as site:
        with socket.create_connection(address(site)):
            eventually(lambda: len(site.server.server_state.connections) == 1)
            answer = site.client.get("/health")
        refused(answer, 503, "too many connections")
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["x-content-type-options"] == "nosniff"
        eventually(lambda: not site.server.server_state.connections)
        assert site.client.get("/health").status_code == 200


def test_requests_that_wait_for_their_flow_do_not_count_as_uploads(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_UPLOADS", 1)
    with running(models, iters=FOR_EVER) as site, ThreadPoolExecutor(3) as pool:

        def ask(_: int) -> int:
            return site.client.post("/api/flow?iters=1", files=pair_files()).status_code

        blocker = long_job(site)
        waiting = []
        for number in range(3):
            waiting.append(pool.submit(ask, number))
            eventually(lambda count=number + 1: site.queue.counts()[0] == count)  # type: ignore[misc]
        site.client.delete(blocker)
        assert [answer.result() for answer in waiting] == [200, 200, 200]


def test_an_abandoned_job_is_cancelled(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER, unseen_seconds=0.5) as site:
        url = long_job(site)
        job = site.queue._jobs[url.rsplit("/", 1)[1]]
        asked_before, _ = job.last_seen, site.client.get(url)
        assert job.last_seen > asked_before
        eventually(lambda: job.state.over)
        assert "no client asked" in site.client.get(url).json()["error"]


def test_a_job_with_an_open_event_stream_is_not_abandoned(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER, unseen_seconds=0.2) as site:
        url = site.start(iters=str(FOR_EVER))
        end = time.monotonic() + 0.6
        with site.client.stream("GET", f"{url}/events") as stream:
            statuses = (json.loads(line[6:]) for line in stream.iter_lines() if line)
            followed = next(status for status in statuses if time.monotonic() > end)
        assert followed["state"] == "running"
        site.client.delete(url)


def test_a_job_that_takes_too_long_is_ended(models: ModelRegistry) -> None:
    with running(models, job_seconds=0.01) as site:
        url = site.start()
        status = site.wait(url)
        assert (status["state"], status["done_pairs"]) == ("failed", [])
        refused(site.client.get(f"{url}/pairs/0/small/flow"), 504, "longer than 0.01 s")
        refused(site.client.post("/api/flow", files=pair_files()), 504, "longer than 0.01 s")


def test_no_client_waits_for_all_jobs_of_another(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER) as site:
        blocker = long_job(site)
        many = [site.start(iters="1") for _ in range(6)]
        with another_client(site) as client:
            answer = client.post("/api/jobs", files=pair_files(), data={"iters": "1"})
        late = answer.json()["url"]
        positions = [site.client.get(url).json()["position"] for url in (*many, late)]
        assert positions == [1, 3, 4, 5, 6, 7, 2]
        site.client.delete(blocker)
        assert all(site.wait(url)["state"] == "done" for url in (*many, late))


def test_one_client_cannot_fill_the_queue_of_all(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER, queue=1) as site:
        long_job(site)
        refused(site.send(), 429, "you have 1 unfinished")
        with another_client(site, "127.0.0.3") as client:
            assert client.post("/api/jobs", files=pair_files()).status_code == 202


def test_unfinished_jobs_cannot_fill_the_disk(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER, keep_bytes=10_000) as site:
        url = long_job(site)
        refused(site.send(), 429, "the disk space for jobs (--keep-disk) is used up")
        assert site.client.delete(url).status_code == 204
        site.wait(url)
        assert site.send(iters="1").status_code == 202


def test_an_upload_for_which_the_queue_filled_up_meanwhile_leaves_nothing(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(client: str) -> None:
        raise too_busy("the queue is full")

    with running(models) as site:
        monkeypatch.setattr(site.queue, "admit", full)  # the middleware keeps the other one
        refused(site.send(), 429, "the queue is full")
        assert not list(site.folder.iterdir())


def test_results_expire(models: ModelRegistry) -> None:
    with running(models, keep_results=1) as site:
        first, second = (site.start(iters="1") for _ in range(2))
        site.wait(second)
        # Not by asking for the first: then it would be the one used last.
        eventually(lambda: len(list(site.folder.iterdir())) == 1)
        refused(site.client.get(first), 410, "deleted")
        assert site.client.get(second).status_code == 200
        refused(site.client.get("/api/jobs/never-was"), 404)


def test_results_make_room_on_the_disk(models: ModelRegistry) -> None:
    with running(models, keep_bytes=100_000) as site:
        urls = [site.start(iters="1") for _ in range(4)]
        site.wait(urls[-1])
        eventually(lambda: site.queue.counts()[1] < 4)
        assert site.client.get(urls[0]).status_code == 410
        assert site.client.get(urls[-1]).status_code == 200
        large = site.start(iters="1", size=(120, 160))
        site.wait(large)
        eventually(lambda: site.queue.counts() == (0, 1))
        assert site.client.get(f"{large}/pairs/0/small/flow").status_code == 200
        eventually(lambda: len(list(site.folder.iterdir())) == 1)


def test_unused_results_expire(models: ModelRegistry) -> None:
    with running(models, keep_minutes=0.01) as site:
        url = site.start(iters="1")
        site.wait(url)
        eventually(lambda: site.queue.counts() == (0, 0))
        refused(site.client.get(url), 410)
        eventually(lambda: not list(site.folder.iterdir()))


def test_a_server_that_stops_ends_its_jobs_and_takes_no_more(models: ModelRegistry) -> None:
    with running(models, iters=FOR_EVER) as site:
        url = long_job(site)
        folder = site.folder
        with (
            ThreadPoolExecutor(1) as pool,
            site.client.stream("GET", f"{url}/events") as stream,
        ):
            lines = stream.iter_lines()
            next(lines)
            flow = pool.submit(site.client.post, "/api/flow?iters=1", files=pair_files())
            eventually(lambda: site.queue.counts() == (1, 2))
            site.queue.close()
            refused(site.send(), 503, "shutting down")
            assert json.loads(list(lines)[-2][6:])["state"] == "cancelled"
            refused(flow.result(), 503, "shutting down")
    assert not site.thread.is_alive()
    assert not folder.exists()


def full_disk() -> OutputError:
    """What writing to a disk raises that is full."""
    err = OutputError("/tmp/a secret cannot be written: no space left on device")
    err.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return err


def test_pairs_that_were_deleted_for_a_full_disk_are_not_listed(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch, pan: bytes
) -> None:
    compute = JobQueue._compute

    def fill_disk(queue: JobQueue, job: Job, task: Task, estimator: FlowEstimator) -> None:
        if task.number == 1:
            raise full_disk()
        compute(queue, job, task, estimator)

    monkeypatch.setattr(JobQueue, "_compute", fill_disk)
    with running(models) as site:
        sent = site.client.post("/api/jobs", files={"clip": pan}, data={"iters": "1"})
        status = site.wait(sent.json()["url"])
        assert (status["state"], status["done_pairs"]) == ("failed", [])
        refused(site.client.get(f"{sent.json()['url']}/pairs/0/small/flow"), 507, "disk is full")


@pytest.mark.parametrize(
    ("err", "failure", "sentence"),
    [(RuntimeError("a secret"), 500, "internal server error"), (full_disk(), 507, "disk is full")],
)
def test_a_bug_fails_the_job_and_not_the_server(
    models: ModelRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    err: Exception,
    failure: int,
    sentence: str,
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise err

    with running(models) as site:
        with monkeypatch.context() as patch:
            patch.setattr("gmaflow.serving.job_queue.JobQueue._compute", broken)
            url = site.start()
            status = site.wait(url)
            refused(site.client.post("/api/flow", files=pair_files()), failure, sentence)
        assert status["state"] == "failed"
        refused(site.client.get(f"{url}/pairs/0/small/flow"), failure, sentence)
        if failure == 507:  # the disk is freed
            eventually(lambda: not list(site.folder.iterdir()))
        assert "secret" not in status["error"]
        assert sentence in status["error"]
        assert "a secret" in caplog.text
        assert ("Traceback" in caplog.text) == (failure == 500)  # a full disk is not a bug
        assert is_well(site)


def test_an_upload_that_does_not_fit_the_disk_is_507(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def parse(self: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("starlette.formparsers.MultiPartParser.parse", parse)
        refused(site.send(), 507, "disk is full")


def test_an_archive_is_made_once_and_counts_towards_the_disk(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def encode_slowly(image: np.ndarray) -> bytes:
        drawn.append(image)
        time.sleep(0.01)
        return encode_png(image)

    monkeypatch.setattr("gmaflow.serving.views.encode_png", encode_slowly)
    with running(models) as site, ThreadPoolExecutor(4) as others:
        url = site.start(iters="1")
        site.wait(url)
        folder = site.queue.find(url.rsplit("/", 1)[1]).footage.folder
        before = folder.bytes
        answers = list(others.map(site.client.get, [f"{url}/all.zip"] * 4))
        assert [answer.status_code for answer in answers] == [200] * 4
        assert len(drawn) == len(ARCHIVED["pair"])
        # The flow file that is packed stays, too.
        flow_file = site.client.get(f"{url}/pairs/0/small/flow.flo").content
        assert folder.bytes == before + len(answers[0].content) + len(flow_file)


def test_waiting_for_attention_does_not_block_other_clients(
    models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free, attend = Event(), Event(), FlowEstimator.attend

    def attend_slowly(self: FlowEstimator, image: np.ndarray) -> FrameAttention:
        begun.set()
        free.wait(PATIENCE)
        return attend(self, image)

    with running(models) as site, ThreadPoolExecutor() as others:
        url = site.start(iters="1", model="attentive")
        assert site.wait(url)["state"] == "done"
        site.queue.attention.forget(site.queue.find(url.rsplit("/", 1)[1]))
        monkeypatch.setattr(FlowEstimator, "attend", attend_slowly)
        point = f"{url}/pairs/0/attentive/attention?x=1&y=1"
        looking = others.submit(site.client.get, point)
        assert begun.wait(PATIENCE)
        flow = others.submit(site.client.post, "/api/flow?iters=1", files=pair_files())
        try:
            # The flow is done, and its job is being deleted.
            eventually(lambda: bool(site.queue._deleted))
            assert site.client.get("/health", timeout=5).json()["status"] == "ok"
        finally:
            free.set()
        assert (looking.result().status_code, flow.result().status_code) == (200, 200)


def test_flow_that_a_format_cannot_hold_is_refused(site: Running) -> None:
    url = site.start(iters="1")
    assert site.wait(url)["state"] == "done"
    folder = site.queue.find(url.rsplit("/", 1)[1]).footage.folder
    folder.save("pair-0000-0/flow", np.full((40, 56, 2), 600, np.float32))
    answer = site.client.get(f"{url}/pairs/0/small/flow.png16")
    refused(answer, 400, "flow.png16: a flow of 600 pixels does not fit KITTI's format")


@pytest.mark.parametrize(
    ("err", "status", "sentence"),
    [
        (RuntimeError("a secret"), 500, "internal server error"),
        (OSError(errno.ENOSPC, "No space left on device", "a secret"), 507, "disk is full"),
        (full_disk(), 507, "disk is full"),
    ],
)
def test_a_bug_in_an_answer_is_one_sentence_too(
    models: ModelRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    err: Exception,
    status: int,
    sentence: str,
) -> None:
    def broken(*args: object) -> None:
        raise err

    with running(models) as site:
        monkeypatch.setattr("gmaflow.serving.routes.read_example", broken)
        refused(site.client.post("/api/jobs", data={"example": "1"}), status, sentence)
        eventually(lambda: "a secret" in caplog.text)
        assert not list(site.folder.iterdir())
        assert is_well(site)


def test_content_length_with_chunks_is_refused_and_closes(site: Running) -> None:
    smuggled = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(address(site)) as wire:
        wire.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
        )
        answer = everything(wire)
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer.lower()


def test_leftovers_of_a_killed_server_are_removed(
    models: ModelRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, new, other = (tmp_path / name for name in ("gmaflow-serve-a", "gmaflow-serve-b", "other"))
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "frame.npy").write_bytes(b"x")
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with running(models) as first:
        assert not old.exists()
        os.utime(first.folder, (0, 0))
        with running(models):
            assert first.folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gmaflow-serve-b", "other"]


def test_where_folders_cannot_be_locked_leftovers_stay(
    models: ModelRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr("os.getuid")  # as on Windows
    left = tmp_path / "gmaflow-serve-a"
    left.mkdir()
    os.utime(left, (0, 0))
    with running(models):
        assert left.exists()

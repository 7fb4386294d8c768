"""Names of the server, HEAD requests, slow uploads."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from gmaflow.serving.http_errors import ApiError
from gmaflow.serving.limits import Limits
from gmaflow.serving.middleware import Body, CrossSiteProtection
from gmaflow.serving.models import ModelRegistry
from tests.serving.conftest import PATIENCE, Running, running


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that never answers."""


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000", "10.1.2.3", "lab:80"],
)
def test_addresses_and_given_names_are_ours(host: str) -> None:
    assert CrossSiteProtection(nothing, ("Lab",)).is_trusted(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[::1", "lab.x", "0x7f.1"],
)
def test_other_names_are_not(host: str) -> None:
    assert not CrossSiteProtection(nothing, ("lab",)).is_trusted(host)


@pytest.mark.parametrize(
    "path", ["/", "/health", "/version", "/docs", "/api/models", "/static/main.js", "/nowhere"]
)
def test_a_head_request_returns_the_headers_of_get(site: Running, path: str) -> None:
    whole, head = site.client.get(path), site.client.head(path)
    assert head.status_code == whole.status_code
    assert not head.content
    own = dict(head.headers), dict(whole.headers)
    for headers in own:
        headers.pop("date")
    assert own[0] == own[1]
    assert int(head.headers["content-length"]) == len(whole.content)


def test_the_head_of_a_stream_does_not_wait_for_its_end(models: ModelRegistry) -> None:
    with running(models) as site:
        url = site.start(iters="64", size=(240, 320))
        assert site.client.head(f"{url}/events").headers["content-type"].startswith("text/event")
        # The next answer comes over the same connection, so only after the end of that one.
        assert site.client.get(url).json()["state"] in ("queued", "running")
        site.client.delete(url)


def test_what_takes_no_get_takes_no_head(site: Running) -> None:
    assert site.client.head("/api/flow").status_code == 405


def test_an_upload_below_the_lowest_rate_is_given_up() -> None:
    pieces = 0

    async def drip() -> Message:
        nonlocal pieces
        pieces += 1
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def upload() -> None:
        limits = Limits(silence_seconds=0.1, upload_rate=1000)
        body = Body({"type": "http", "headers": []}, drip, limits, 10**6)
        async with asyncio.timeout(PATIENCE):
            while True:
                await body.receive()

    with pytest.raises(ApiError, match="too slow"):
        asyncio.run(upload())
    assert pieces > 1  # it was never silent

"""Middleware: cross-site protection, limits on uploads, HEAD requests.

Starlette's own middleware does not fit. `TrustedHostMiddleware` takes names but not any IP address,
and `RequestBodyLimitMiddleware` answers 413 to large requests for addresses that do not exist, has
no timeouts, and answers in plain text.
"""

import asyncio
import ipaddress
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gmaflow.serving.http_errors import ApiError, too_busy
from gmaflow.serving.limits import MIB, Limits

OWN_HEADER = "x-gmaflow"
UPLOADS = ("/api/jobs", "/api/flow")
"""Addresses that accept files."""
SMALL_BODY = 64 * 1024
"""Bytes that other addresses accept."""
MAX_UPLOADS = 24
"""Uploads at a time; each may take `upload_bytes` of disk."""
DRAIN_SECONDS = 5.0


class CrossSiteProtection:
    """Refuse requests that other web sites make a browser send.

    The server has no accounts, and any page that is open in a browser on the same machine could try
    to use it. Three checks prevent that: `Host` must be one of our names (against DNS rebinding),
    `Origin` must be the server itself, and requests of browsers that change something need a
    header that other sites cannot set. `names` are those of the server besides localhost and IP
    addresses.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in ("localhost", *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self.check(scope["method"], scope["path"], Headers(scope=scope))
            except ApiError as err:
                await err.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise `ApiError` if another site may have caused a request, or smuggled it."""
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may take the other one for the end of the request; the rest is not read.
            sentence = "send Content-Length or Transfer-Encoding, not both"
            raise ApiError(400, sentence, {"Connection": "close"})
        host = headers.get("host", "")
        if not self.is_trusted(host):
            raise ApiError(403, f"unknown host {host!r}; start the server with --allow-name NAME")
        safe = method in ("GET", "HEAD")
        site = headers.get("sec-fetch-site", "")
        # Other sites may link to the page, but may not use the API.
        if site in ("cross-site", "same-site") and not (safe and not path.startswith("/api")):
            raise ApiError(403, "requests from other sites are not allowed")
        origin = headers.get("origin")
        if origin is not None and host_of(origin) != host.lower():
            raise ApiError(403, f"requests from {origin} are not allowed")
        browser = bool(origin or site)
        if browser and not safe and OWN_HEADER not in headers:
            raise ApiError(403, "browsers must send the header X-Gmaflow: 1 with this request")

    def is_trusted(self, host: str) -> bool:
        """Return whether a `Host` header holds one of our names or an IP address.

        Other names may belong to someone else, who could point them at this server.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name.lower() not in self._names:
                ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def host_of(origin: str) -> str | None:
    """Return host and port of an `Origin` header; None if it is not a valid URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


class HeadRequests:
    """Answer HEAD wherever GET is answered. FastAPI's routes, unlike Starlette's, do not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # The response ends here, so that an endless stream of events ends too.
                await send({"type": "http.response.body"})

        await self._app({**scope, "method": "GET"}, receive, send_head)


class Body:
    """The body of one request while it arrives."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits, most: int) -> None:
        self.client = scope["client"][0] if scope.get("client") else "unknown"
        self.complete = False
        self.processed = False
        """Set by a route when the upload was decoded and its files are closed."""
        self._length = Headers(scope=scope).get("content-length", "0")
        self._receive = receive
        self._limits = limits
        self._most = most
        self._started = time.monotonic()
        self._bytes = 0
        self._too_slow = False

    async def receive(self) -> Message:
        """Return the next piece; raises `ApiError` if the body is too long or too slow."""
        if self.complete:  # the next message is that the client disconnects
            return await self._receive()
        # Checked on reading, so that a wrong address is 404 whatever is sent there.
        if not self._length.isdecimal() or int(self._length) > self._most:
            raise too_long(self._most)
        try:
            async with asyncio.timeout(self._patience()):
                message = await self._receive()
        except TimeoutError:
            self._too_slow = True
            raise ApiError(408, "the upload is too slow; try again") from None
        self._take(message)
        if self._bytes > self._most:
            raise too_long(self._most)
        return message

    async def drain(self) -> None:
        """Read and drop the rest, within limits.

        A client that is still sending when the connection closes would not see the response.
        """
        if self._too_slow:
            return
        most = 2 * self._limits.upload_bytes
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.complete and self._bytes < most:
                    self._take(await self._receive())
        except TimeoutError:
            return

    def _take(self, message: Message) -> None:
        self._bytes += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)

    def _patience(self) -> float:
        """Return how many seconds to wait for the next piece."""
        limits, now = self._limits, time.monotonic()
        end = self._started + limits.upload_seconds
        slowest = self._started + limits.silence_seconds + self._bytes / limits.upload_rate
        return max(0.0, min(limits.silence_seconds, end - now, slowest - now))


class UploadLimits:
    """Limit the size, the rate and the number of uploads.

    `admit` is called with the client's address and the number of its other uploads before anything
    is read; it raises `ApiError` to refuse the upload.
    """

    def __init__(self, app: ASGIApp, limits: Limits, admit: Callable[[str, int], None]) -> None:
        self._app = app
        self._limits = limits
        self._admit = admit
        self._open: set[Body] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        uploads = scope["method"] == "POST" and scope["path"] in UPLOADS
        most = self._limits.upload_bytes if uploads else SMALL_BODY
        body = Body(scope, receive, self._limits, most)
        scope.setdefault("state", {})["body"] = body

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await body.drain()
                if not body.complete:  # the rest must not be taken for the next request
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        try:
            if uploads:
                self.check(body, Headers(scope=scope))
                self._open.add(body)
            await self._app(scope, body.receive, send_after_body)
        except ApiError as err:
            await err.response()(scope, receive, send_after_body)
        finally:
            self._open.discard(body)

    def check(self, body: Body, headers: Headers) -> None:
        """Raise `ApiError` if an upload is refused before its body is read."""
        kind = media_type(headers)
        if kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
            raise ApiError(415, f"send multipart/form-data, not {kind or 'an untyped body'}")
        clients = [other.client for other in self._open if not other.processed]
        if len(clients) >= MAX_UPLOADS:
            raise too_busy("too many uploads at a time")
        self._admit(body.client, clients.count(body.client))


def media_type(headers: Headers) -> str:
    """Return the media type of a body, without parameters."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def too_long(most: int) -> ApiError:
    return ApiError(413, f"the request is too large; at most {most / MIB:g} MiB are allowed")

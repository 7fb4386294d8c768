"""Bodies of requests: counted while they arrive, and not waited for for ever."""

import asyncio
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gmaflow.serving.limits import MIB, Limits
from gmaflow.serving.refusals import RefusedError, too_busy

UPLOADS = ("/api/jobs", "/api/flow")
"""Where files may be sent to."""
SMALL_BODY = 64 * 1024
"""Bytes of what is sent elsewhere: a few words of JSON."""
MOST_UPLOADS = 24
"""Uploads that are taken at a time; each may fill the disk up to the limit of one."""
DRAIN_SECONDS = 5.0


class Body:
    """The body of one request as it arrives.

    Raises on `receive`:
        RefusedError: It is, or says that it will be, too long (413), or it is too slow (408).
    """

    def __init__(self, scope: Scope, receive: Receive, limits: Limits, most: int) -> None:
        self._length = Headers(scope=scope).get("content-length", "0")
        self._receive = receive
        self._limits = limits
        self._most = most
        self._started = time.monotonic()
        self._bytes = 0
        self.complete = False
        self.used_up = False
        """Set by whoever has taken what was sent, and closed the files: it takes no room now."""
        self._silent = False

    async def receive(self) -> Message:
        """Return the next piece."""
        if self.complete:  # what comes now is that the client leaves, some day
            return await self._receive()
        # Only whoever wants a body cares how long it is: what has no such address is 404.
        if not self._length.isdecimal() or int(self._length) > self._most:
            raise too_long(self._most)
        left = self._started + self._limits.upload_seconds - time.monotonic()
        try:
            async with asyncio.timeout(min(self._limits.silence_seconds, max(0.0, left))):
                message = await self._receive()
        except TimeoutError:
            self._silent = True
            raise RefusedError(408, "the upload is too slow; try again") from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self._bytes > self._most:
                raise too_long(self._most)
        else:
            self.complete = True
        return message

    async def drain(self) -> None:
        """Read what is left and drop it, within reason.

        A client that is still sending when the connection closes would never see the answer.
        """
        if self._silent:
            return
        most = 2 * self._limits.upload_bytes
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.complete and self._bytes < most:
                    message = await self._receive()
                    self._bytes += len(message.get("body", b""))
                    self.complete = not message.get("more_body", False)
        except TimeoutError:
            return


class BodyGuard:
    """Limits what clients upload, each of them and all at once.

    Args:
        app: What answers the rest.
        limits: What may be sent.
        admit: Called with the client's address before anything is read; may refuse.
    """

    def __init__(self, app: ASGIApp, limits: Limits, admit: Callable[[str], None]) -> None:
        self._app = app
        self._limits = limits
        self._admit = admit
        self._open: set[Body] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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
                if not body.complete:  # what still comes must not be taken for a request
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        self._open.add(body)
        try:
            if uploads:
                self.check(scope)
            await self._app(scope, body.receive, send_after_body)
        except RefusedError as err:
            await err.response()(scope, receive, send_after_body)
        finally:
            self._open.remove(body)

    def check(self, scope: Scope) -> None:
        """Refuse an upload by its head alone.

        Raises:
            RefusedError: It is not wanted.
        """
        kind = media_type(Headers(scope=scope))
        if kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
            raise RefusedError(415, f"this takes multipart/form-data, not {kind or 'nothing'}")
        if sum(not body.used_up for body in self._open) > MOST_UPLOADS:
            raise too_busy("too many uploads at a time; try later")
        self._admit(scope["client"][0] if scope.get("client") else "unknown")


def media_type(headers: Headers) -> str:
    """Return what a body says it is, without its parameters."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def too_long(most: int) -> RefusedError:
    """Return the refusal of a body that is too long."""
    return RefusedError(413, f"this request may have {most / MIB:g} MiB; send less")

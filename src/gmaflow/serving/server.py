"""The server: the application, and uvicorn with our timeouts and signals."""

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import FrameType

import anyio
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from gmaflow.errors import FlowError, os_reason
from gmaflow.serving import http_errors, routes
from gmaflow.serving.dependencies import Services
from gmaflow.serving.job_queue import JobQueue
from gmaflow.serving.limits import Limits
from gmaflow.serving.middleware import CrossSiteProtection, HeadRequests, UploadLimits
from gmaflow.serving.models import ModelRegistry
from gmaflow.version import __version__

ABOUT = (
    "Optical flow over HTTP: the motion of every pixel between two frames. Errors are JSON: "
    '{"error": "one sentence"}. Browsers must send the header X-Gmaflow: 1 with POST and DELETE.'
)
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
MAX_CONNECTIONS = 500
"""Further connections are answered with 503."""
HEADER_SECONDS = 15.0
"""Time for the headers of a request to arrive."""
READ_SECONDS = 60.0
"""Time for a client to read what it was sent."""
KEEP_ALIVE_SECONDS = 10
SHUTDOWN_SECONDS = 5


def create_app(queue: JobQueue, names: tuple[str, ...] = ()) -> FastAPI:
    """Return the application, which starts and closes the job queue.

    `names` are those of the server besides localhost and IP addresses.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queue.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(queue.wait_closed)

    app = FastAPI(
        title="gmaflow",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere; ours is in api_docs.py
        redoc_url=None,
        redirect_slashes=False,  # many clients do not repeat an upload after a redirect
    )
    app.state.services = Services(queue)
    # The middleware that is added last sees a request first.
    app.add_middleware(HeadRequests)
    app.add_middleware(UploadLimits, limits=queue.limits, admit=queue.admit)
    app.add_middleware(CrossSiteProtection, names=names)
    for router in (routes.about, routes.jobs, routes.results):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=routes.PAGE), name="static")
    app.add_exception_handler(HTTPException, http_errors.answer_http_error)
    app.add_exception_handler(RequestValidationError, http_errors.answer_invalid)
    app.add_exception_handler(Exception, http_errors.answer_bug)
    app.add_exception_handler(FlowError, http_errors.answer_flow_error)
    return app


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn, with a limit on connections and on slow clients.

    Uvicorn closes connections that are idle between requests, but waits forever for the headers of
    a request and for a client to read a response. Its `limit_concurrency` answers in plain text,
    without `Retry-After`. Bodies have their own limits, see `middleware.UploadLimits`.
    """

    _headers_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the headers of the first request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            busy = http_errors.too_busy("the server has too many connections", 503)
            busy.headers = {**(busy.headers or {}), "Connection": "close"}
            self.app = busy.response()
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Handle data, and wait for the headers of the next request if one is complete."""
        super().data_received(data)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_awaiting_headers()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _await_headers(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_awaiting_headers()
        elif self._headers_timer is None:
            self._headers_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_awaiting_headers(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _give_up(self) -> None:
        self._headers_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class FlowServer(uvicorn.Server):
    """The server: `run` serves until a signal arrives or `stop` is called.

    It listens on a bound socket (see `bind`). `ready` is called with the URL when it accepts
    requests.
    """

    def __init__(
        self,
        listener: socket.socket,
        models: ModelRegistry,
        limits: Limits,
        *,
        names: tuple[str, ...] = (),
        ready: Callable[[str], None] = lambda url: None,
    ) -> None:
        self.queue = JobQueue(models, limits)
        self._listener = listener
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                create_app(self.queue, names),
                http=TimeoutProtocol,
                ws="none",
                log_config=None,
                access_log=True,
                server_header=False,
                headers=list(SECURITY_HEADERS.items()),
                proxy_headers=False,  # any client could write them
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after a clean shutdown
            super().run(sockets or [self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call `ready`."""
        await super().startup(sockets)
        if self.started:
            self._ready(url_of(self._listener))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on a signal. A second signal stops at once."""
        self.queue.close()  # first: uvicorn waits for event streams, which wait for jobs
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop soon. May be called from any thread."""
        self.queue.close()
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; raises `FlowError` if the address cannot be used."""
    if not 0 <= port < 2**16:  # the system would take it modulo 65536
        raise FlowError(f"--port {port} is out of range; give 1 to 65535, or 0 for any free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio disables Nagle's algorithm only for sockets whose protocol is TCP. With it, each
        # small response takes 40 ms.
        listener = socket.socket(family, kind, protocol)
    except UnicodeError as err:  # an empty label, or a long one
        raise FlowError(
            f"--host {host} cannot be the name of a computer; give a name or an IP address"
        ) from err
    except OSError as err:
        raise _no_listener(host, port, err) from err
    try:
        if os.name == "posix":  # on Windows two servers could then share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as err:
        listener.close()
        if err.errno == errno.EADDRINUSE:
            raise FlowError(f"port {port} is in use; choose another with --port") from err
        raise _no_listener(host, port, err) from err
    return listener


def _no_listener(host: str, port: int, err: OSError) -> FlowError:
    return FlowError(
        f"cannot listen on {host} port {port}: {os_reason(err)}; choose another --host or --port"
    )


def url_of(listener: socket.socket) -> str:
    """Return the URL of a socket, as a browser on this machine can open it."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

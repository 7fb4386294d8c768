"""Running the server: its socket, uvicorn, signals."""

import errno
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from gmaflow.errors import FlowError
from gmaflow.serving.app import create_app
from gmaflow.serving.limits import Limits
from gmaflow.serving.patience import PatientProtocol
from gmaflow.serving.shelf import ModelShelf

MAX_CONNECTIONS = 500
"""More at once are answered with 503."""
IDLE_SECONDS = 10
CLOSING_SECONDS = 5


class FlowServer(uvicorn.Server):
    """Uvicorn, which tells the workshop first when it is to stop.

    Otherwise it would wait for streams of events that wait for jobs.
    """

    def __init__(self, app: FastAPI, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on a signal; a second one stops at once."""
        self._close_workshop()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop soon; may be called from any thread."""
        self._close_workshop()
        self.should_exit = True

    def _close_workshop(self) -> None:
        services = getattr(self._app.state, "services", None)
        if services is not None:
            services.workshop.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        FlowError: The address cannot be used; it says why.
    """
    if not 0 <= port < 2**16:  # the system would take it modulo that
        raise FlowError(f"port {port} is no port; give 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # The protocol must be named: asyncio sends small answers at once only over what it knows
        # to be TCP, and otherwise each takes 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as err:
        raise FlowError(f"{host} port {port} is no address to listen to: {err}") from err
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as err:
        listener.close()
        if err.errno == errno.EADDRINUSE:
            raise FlowError(f"port {port} is taken; choose another with --port") from err
        raise FlowError(f"cannot listen to {host} port {port}: {err.strerror}") from err
    return listener


def serve(
    listener: socket.socket,
    shelf: ModelShelf,
    limits: Limits,
    *,
    names: tuple[str, ...] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until a signal comes.

    Args:
        listener: A bound socket.
        shelf: The models to offer.
        limits: What may be asked for.
        names: By which the server may be called, besides addresses and localhost.
        ready: Called with the address when the server answers.
    """
    server = make_server(listener, shelf, limits, names=names, ready=ready)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has stopped in good order
        server.run(sockets=[listener])


def make_server(
    listener: socket.socket,
    shelf: ModelShelf,
    limits: Limits,
    *,
    names: tuple[str, ...] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> FlowServer:
    """Return a server that is yet to run; the arguments are those of `serve`."""
    app = create_app(shelf, limits, names=names)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=True,
        server_header=False,
        # Whoever can reach us could write anything into those headers.
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    return FlowServer(app, config, lambda: ready(address_of(listener)))


def address_of(listener: socket.socket) -> str:
    """Return the address to open for a socket."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

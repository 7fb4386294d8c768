"""Who may ask: requests that other sites make a browser send are refused.

The server has no accounts, so on a developer's machine any page in the browser could try to use it.
Three things keep them out: the name in `Host` must be ours (DNS rebinding), `Origin` must be the
server itself, and what changes something needs a header that no foreign page may set unasked.
"""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gmaflow.serving.refusals import RefusedError

HEADER = "x-gmaflow"
SAFE_METHODS = ("GET", "HEAD")

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
ANSWER_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Security:
    """Refuse what other sites ask for, and tell browsers what our answers may do.

    Args:
        app: What answers the rest.
        names: By which the server may be called, besides addresses and localhost.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in ("localhost", *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self.check(scope["method"], scope["path"], Headers(scope=scope))
        except RefusedError as err:
            await err.response()(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse a request that another site may have caused.

        Raises:
            RefusedError: It may have been.
        """
        host = headers.get("host", "")
        if not self.is_ours(host):
            raise RefusedError(
                403, f"this server is not called {host!r}; if it should be, use --allow-name"
            )
        safe = method in SAFE_METHODS
        site = headers.get("sec-fetch-site", "")
        # To come here by a link is fine, to use what is here is not.
        if site in ("cross-site", "same-site") and not (safe and not path.startswith("/api")):
            raise RefusedError(403, "requests from other sites are refused")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise RefusedError(403, f"requests from {origin} are refused")
        browser = bool(origin or site)
        if browser and not safe and HEADER not in headers:
            raise RefusedError(403, "browsers must send the header X-Gmaflow: 1 with this")

    def is_ours(self, host: str) -> bool:
        """Tell whether a `Host` can be trusted: one of our names, or an address.

        A name that somebody else owns may be made to lead here; an address cannot be.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

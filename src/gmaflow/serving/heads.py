"""HEAD, by which monitors and `curl -I` ask: the answer to GET, without its body."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Heads:
    """Answer HEAD wherever there is an answer to GET.

    Args:
        app: What answers GET.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # The end comes at once, so that a stream of events is not waited for.
                await send({"type": "http.response.body"})

        await self._app({**scope, "method": "GET"}, receive, send_head)

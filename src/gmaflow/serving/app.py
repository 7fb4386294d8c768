"""The server as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from gmaflow.errors import FlowError
from gmaflow.serving import refusals
from gmaflow.serving.bodies import BodyGuard
from gmaflow.serving.heads import Heads
from gmaflow.serving.limits import Limits
from gmaflow.serving.routes import about, flow, jobs, results
from gmaflow.serving.security import Security
from gmaflow.serving.services import Services
from gmaflow.serving.shelf import ModelShelf
from gmaflow.serving.workshop import Workshop
from gmaflow.version import __version__

ABOUT = (
    "Optical flow over HTTP: the motion of every pixel between two frames. Errors are JSON, "
    '{"error": "one sentence"}. Browsers must send the header X-Gmaflow: 1 with POST and DELETE.'
)


def create_app(shelf: ModelShelf, limits: Limits, *, names: tuple[str, ...] = ()) -> FastAPI:
    """Return the application.

    Args:
        shelf: The models to offer.
        limits: What may be asked for.
        names: By which the server may be called, besides addresses and localhost.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workshop = Workshop(shelf, limits)
        app.state.services = Services(shelf, limits, workshop)
        workshop.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(workshop.wait_closed)

    def admit(client: str) -> None:
        app.state.services.workshop.admit(client)

    app = FastAPI(
        title="gmaflow",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page comes from elsewhere; ours is in routes/about.py
        redoc_url=None,
        redirect_slashes=False,  # few clients send their files again to where they are sent on
    )
    # The one added last sees a request first.
    app.add_middleware(Heads)
    app.add_middleware(BodyGuard, limits=limits, admit=admit)
    app.add_middleware(Security, names=names)
    for module in (about, flow, jobs, results):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=about.PAGE), name="static")
    app.add_exception_handler(HTTPException, refusals.answer_http_error)
    app.add_exception_handler(RequestValidationError, refusals.answer_invalid)
    app.add_exception_handler(Exception, refusals.answer_bug)
    app.add_exception_handler(FlowError, refusals.answer_flow_error)
    return app

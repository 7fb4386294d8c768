"""The page itself, and what the server says of itself."""

from dataclasses import dataclass
from pathlib import Path

import torch
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse

from gmaflow.serving.documentation import document
from gmaflow.serving.services import Shared
from gmaflow.serving.shelf import Model
from gmaflow.version import __version__

PAGE = Path(__file__).parent.parent / "page"

router = APIRouter(tags=["about"])


@dataclass(frozen=True)
class Health:
    """How the server is."""

    status: str
    device: str
    queue: int
    """Jobs that wait."""
    jobs: int
    """Jobs in all, with those whose results are kept."""


@dataclass(frozen=True)
class Versions:
    """What answers."""

    gmaflow: str
    torch: str


@router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """Show the page."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Show what the API can do."""
    return HTMLResponse(document(request.app.openapi()))


@router.get("/health")
async def health(shared: Shared) -> Health:
    """Tell how the server is."""
    waiting, jobs = shared.workshop.counts()
    status = "closing" if shared.workshop.closing else "ok"
    return Health(status, str(shared.shelf.device), waiting, jobs)


@router.get("/version")
async def version() -> Versions:
    """Tell the versions of gmaflow and torch."""
    return Versions(__version__, torch.__version__)


@router.get("/api/models")
async def models(shared: Shared) -> list[Model]:
    """List the models, the default first."""
    return shared.shelf.models()

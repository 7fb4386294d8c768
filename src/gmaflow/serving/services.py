"""What the routes of the server share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import anyio
from fastapi import Depends, Request

from gmaflow.serving.limits import Limits
from gmaflow.serving.refusals import gone
from gmaflow.serving.shelf import ModelShelf
from gmaflow.serving.workshop import Workshop

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Services:
    """Everything behind the routes."""

    shelf: ModelShelf
    limits: Limits
    workshop: Workshop
    # However many requests come, only so many take memory at a time; the others wait.
    decoding: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    drawing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))

    async def decode(self, work: Callable[[], Result]) -> Result:
        """Decode an upload beside the event loop."""
        return await anyio.to_thread.run_sync(work, limiter=self.decoding)

    async def draw(self, work: Callable[[], Result]) -> Result:
        """Make an answer from results beside the event loop.

        Raises:
            RefusedError: They are being deleted at this moment.
        """
        try:
            return await anyio.to_thread.run_sync(work, limiter=self.drawing)
        except FileNotFoundError as err:
            raise gone() from err


def services_of(request: Request) -> Services:
    """Return the services of the app that answers."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def client_of(request: Request) -> str:
    """Return who asks: turns and queues go by address."""
    return request.client.host if request.client else "unknown"


Shared = Annotated[Services, Depends(services_of)]
Client = Annotated[str, Depends(client_of)]

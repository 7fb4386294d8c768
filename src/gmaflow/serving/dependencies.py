"""What the routes share: the services behind them, and checks of requests."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import anyio
from fastapi import Depends, Request

from gmaflow.errors import FlowError, suggest
from gmaflow.serving.api_docs import Parameter, parameters_of
from gmaflow.serving.http_errors import ApiError, gone
from gmaflow.serving.job_queue import JobQueue
from gmaflow.serving.jobs import Footage, Job
from gmaflow.serving.middleware import media_type
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.uploads import Deadline

Result = TypeVar("Result")

LONGEST_NAME = 40
"""Characters of an unknown parameter's name that are repeated in the error."""


@dataclass(frozen=True, eq=False)
class Services:
    """Everything behind the routes."""

    queue: JobQueue
    # The number of threads bounds the memory; further requests wait.
    decoding: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    drawing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    # One upload of a client is decoded at a time, so that no client takes all threads.
    turns: dict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    async def read_upload(
        self, request: Request, client: str, read: Callable[[ResultFolder, Deadline], Footage]
    ) -> Footage:
        """Read an upload into a new folder, in a thread. The folder is deleted on failure."""
        deadline = Deadline(self.queue.limits.job_seconds)

        def work() -> Footage:
            deadline.start()
            folder = self.queue.new_folder()
            try:
                return read(folder, deadline)
            except BaseException:
                folder.delete()
                raise

        async def decode() -> Footage:
            turn = self.turns[client]
            try:
                async with turn:
                    return await anyio.to_thread.run_sync(work, limiter=self.decoding)
            finally:
                if not turn.statistics().tasks_waiting and not turn.locked():
                    self.turns.pop(client, None)

        return await unless_disconnected(request, decode, on_disconnect=deadline.cancel)

    async def draw(self, work: Callable[[], Result]) -> Result:
        """Make a response from results, in a thread; 410 if they are deleted meanwhile."""
        try:
            return await anyio.to_thread.run_sync(work, limiter=self.drawing)
        except FileNotFoundError as err:
            raise gone() from err

    def check_request(self, iters: int, *models: str | None) -> tuple[str, ...]:
        """Return the models to use, the default if the first is None."""
        registry, most = self.queue.models, self.queue.limits.iters
        names = tuple(name for name in (models[0] or registry.default, *models[1:]) if name)
        if len(set(names)) < len(names):
            raise ApiError(422, f"cannot compare {names[0]} with itself; choose another model")
        try:
            for name in names:
                registry.check(name)
        except FlowError as err:
            raise ApiError(422, str(err)) from err
        if not 1 <= iters <= most:
            raise ApiError(422, f"iters is {iters}; it must be 1 to {most}")
        return names


async def unless_disconnected(
    request: Request,
    work: Callable[[], Awaitable[Result]],
    on_disconnect: Callable[[], None] = lambda: None,
) -> Result:
    """Do some work; if the client disconnects, cancel it and raise `ApiError`."""
    disconnected = False

    async def wait_for_disconnect() -> None:
        nonlocal disconnected
        while (await request.receive())["type"] != "http.disconnect":
            pass
        disconnected = True
        on_disconnect()
        tasks.cancel_scope.cancel()

    done: list[Result] = []
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_disconnect)
        try:
            done.append(await work())
        except Exception as err:  # noqa: BLE001  raised below, outside of the group
            failure = err
        tasks.cancel_scope.cancel()
    if disconnected:
        raise ApiError(499, "the client has disconnected")
    if failure is not None:
        raise failure
    return done[0]


# Async, although they never wait: FastAPI runs other functions in a thread.
async def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


async def client_of(request: Request) -> str:
    """Return the address of the client, which identifies it."""
    return request.client.host if request.client else "unknown"


Shared = Annotated[Services, Depends(services_of)]
Client = Annotated[str, Depends(client_of)]


async def find_job(shared: Shared, job_id: str) -> Job:
    return shared.queue.find(job_id)


FoundJob = Annotated[Job, Depends(find_job)]


async def check_parameters(request: Request) -> None:
    """Refuse parameters that are unknown, misplaced or repeated; FastAPI would ignore them."""
    path, openapi = request.scope["route"].path, request.app.openapi()
    parameters = parameters_of(openapi, openapi["paths"][path][request.method.lower()])
    counts = Counter(("query", name) for name, _ in request.query_params.multi_items())
    body = next((parameter.place for parameter in parameters if parameter.in_body), None)
    if body is not None:
        counts += Counter((body, name) for name in await names_in_body(request, body))
    for (place, name), times in counts.items():
        check_place(path, parameters, place, name[:LONGEST_NAME])
        if times > 1 and not any(
            parameter.name == name and parameter.repeated for parameter in parameters
        ):
            raise ApiError(422, f"{name} was given {times} times; give it once")


async def names_in_body(request: Request, place: str) -> list[str]:
    """Return the names in a form or a JSON object, with repetitions."""
    if place == "form":
        return [name for name, _ in (await request.form()).multi_items()]
    is_json = media_type(request.headers) == "application/json"
    body = await request.json() if is_json else None
    return list(body) if isinstance(body, dict) else []  # FastAPI refuses anything else


def check_place(path: str, parameters: list[Parameter], place: str, name: str) -> None:
    """Raise `ApiError` if a parameter is unknown, or belongs in another place."""
    places = [parameter.place for parameter in parameters if parameter.name == name]
    if place in places:
        return
    if places:
        where = {
            "path": f"the path: {path}",
            "query": f"the query: {path}?{name}=...",
            "form": f"the form: with curl use -F {name}=...",
            "JSON": f'the body: {{"{name}": ...}}',
        }
        raise ApiError(422, f"{name} belongs in {where[places[0]]}")
    names = [parameter.name for parameter in parameters if parameter.place != "path"]
    advice = suggest(name, names) if names else f"{path} has no parameters"
    raise ApiError(422, f"unknown parameter {name!r}; {advice}")

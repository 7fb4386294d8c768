"""Jobs: send one, follow it, cancel it."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, File, Form, Response, UploadFile
from fastapi.responses import StreamingResponse

from gmaflow.serving.asking import check_iters, into_new_folder, pick_models, submit
from gmaflow.serving.jobs import Footage, Job, JobStatus, Kind, Wish
from gmaflow.serving.parameters import check_parameters
from gmaflow.serving.refusals import RefusedError
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.services import Client, Services, Shared
from gmaflow.serving.uploads import take_clip, take_example, take_pair

router = APIRouter(prefix="/api/jobs", tags=["jobs"], dependencies=[Depends(check_parameters)])

LOOK_SECONDS = 0.1
"""How often a stream of events looks for a change."""
ALIVE_SECONDS = 15.0
"""How often it says that it is still there."""


@dataclass(frozen=True)
class Accepted:
    """A job that was taken."""

    id: str
    kind: Kind
    url: str


@dataclass(frozen=True)
class Seek:
    """Where a clip is to go on."""

    pair: int


@router.post("", status_code=202)
async def send_job(  # noqa: PLR0913, PLR0917  one for each field of the form
    shared: Shared,
    client: Client,
    image1: Annotated[UploadFile | None, File(description="The first frame.")] = None,
    image2: Annotated[UploadFile | None, File(description="The second frame.")] = None,
    clip: Annotated[UploadFile | None, File(description="Or a video, or a GIF.")] = None,
    example: Annotated[bool, Form(description="Or the built-in pair.")] = False,
    model: Annotated[str | None, Form(description="A name of /api/models.")] = None,
    compare_model: Annotated[str | None, Form(description="A second one to compare.")] = None,
    iters: Annotated[int, Form(description="Refinements.")] = 12,
) -> Accepted:
    """Send a pair of images, a clip, or ask for the built-in example; returns at once."""
    models = pick_models(shared, model, compare_model)
    check_iters(shared, iters)
    pair = (image1 is not None, image2 is not None)
    if any(pair) != all(pair) or sum((all(pair), clip is not None, example)) != 1:
        raise RefusedError(422, "give image1 and image2, or clip, or example=1")

    def take(folder: ResultFolder) -> Footage:
        if clip is not None:
            return take_clip(clip, folder, shared.limits)
        if image1 is not None and image2 is not None:
            return take_pair(image1, image2, folder, shared.limits)
        return take_example(folder)

    footage = await shared.decode(lambda: into_new_folder(shared, take))
    single = footage.kind == "pair"  # of a clip it would be too much
    wish = Wish(models, iters, every_iteration=single, prepare_attention=single)
    job = submit(shared, client, footage, wish)
    return Accepted(job.id, footage.kind, f"/api/jobs/{job.id}")


@router.get("/{job_id}")
async def look_at_job(shared: Shared, job_id: str) -> JobStatus:
    """Tell how far a job is."""
    return shared.workshop.status(shared.workshop.find(job_id))


@router.get("/{job_id}/events", response_class=StreamingResponse)
async def follow_job(shared: Shared, job_id: str) -> StreamingResponse:
    """Tell how far a job is, as server-sent events, until it is over."""
    events = job_events(shared, shared.workshop.find(job_id))
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


@router.delete("/{job_id}", status_code=204)
async def cancel_job(shared: Shared, job_id: str) -> Response:
    """Cancel a job; of one that is over, delete the results."""
    job = shared.workshop.find(job_id)
    if job.state.over:
        await shared.draw(lambda: shared.workshop.forget(job))
    else:
        shared.workshop.cancel(job)
    return Response(status_code=204)


@router.post("/{job_id}/seek", status_code=202)
async def seek(shared: Shared, job_id: str, wanted: Seek) -> JobStatus:
    """Let a clip go on with this pair, then those after it, then those before."""
    job = shared.workshop.find(job_id)
    if not 0 <= wanted.pair < job.footage.pairs:
        last = job.footage.pairs - 1
        raise RefusedError(422, f"pair {wanted.pair} is not in this job; pairs go from 0 to {last}")
    shared.workshop.seek(job, wanted.pair)
    return shared.workshop.status(job)


async def job_events(shared: Services, job: Job) -> AsyncIterator[str]:
    """Yield a job's status whenever it changes, until it is over."""
    told, quiet = None, 0.0
    while True:
        try:
            shared.workshop.find(job.id)
        except RefusedError:  # it was deleted meanwhile
            return
        status = shared.workshop.status(job)
        if status != told:
            told, quiet = status, 0.0
            yield f"data: {json.dumps(asdict(status))}\n\n"
        elif quiet >= ALIVE_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"
        if job.state.over:
            return
        await anyio.sleep(LOOK_SECONDS)
        quiet += LOOK_SECONDS

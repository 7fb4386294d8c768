"""Flow in one request, for programs."""

from typing import Annotated, Literal

import anyio
from fastapi import APIRouter, Depends, File, Query, Request, Response, UploadFile

from gmaflow.serving.asking import check_iters, into_new_folder, pick_models, submit
from gmaflow.serving.jobs import Footage, Job, State, Task, Wish
from gmaflow.serving.parameters import check_parameters
from gmaflow.serving.refusals import RefusedError
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.services import Client, Services, Shared
from gmaflow.serving.uploads import take_pair
from gmaflow.serving.views import Look, flow_file, pack_both

router = APIRouter(prefix="/api/flow", tags=["flow"], dependencies=[Depends(check_parameters)])

LOOK_SECONDS = 0.02
TYPES = {"npz": "application/octet-stream", "flo": "application/octet-stream", "png": "image/png"}


@router.post("", response_class=Response)
async def estimate(  # noqa: PLR0913, PLR0917  one for each parameter of the API
    request: Request,
    shared: Shared,
    client: Client,
    image1: Annotated[UploadFile, File(description="The first frame.")],
    image2: Annotated[UploadFile, File(description="The second frame.")],
    format: Annotated[
        Literal["npz", "flo", "png"], Query(description="png is KITTI's 16-bit format.")
    ] = "npz",
    model: Annotated[str | None, Query(description="A name of /api/models.")] = None,
    iters: Annotated[int, Query(description="Refinements.")] = 12,
    bidirectional: Annotated[
        bool, Query(description="With occlusion and confidence; npz only.")
    ] = False,
    fit: Annotated[
        bool, Query(description="Scale images above the working size down; else they are refused.")
    ] = False,
) -> Response:
    """Return the flow of two images as a file; waits for its turn, and until it is done.

    npz holds `flow` (height x width x 2, pixels) and `valid`; with `bidirectional` besides
    `occluded_in`, `occluded_out` and `confidence`. A client that leaves cancels it.
    """
    if bidirectional and format != "npz":
        raise RefusedError(422, f"{format} holds no occlusion; use format=npz with bidirectional")
    models = pick_models(shared, model)
    check_iters(shared, iters)

    def take(folder: ResultFolder) -> Footage:
        footage = take_pair(image1, image2, folder, shared.limits)
        if footage.size != footage.original and not fit:
            most = f"{shared.limits.work_pixels:,}"
            raise RefusedError(
                413,
                f"the images have {footage.original} pixels, more than the {most} that are worked "
                "on; shrink them, or add fit=true to get the flow of scaled images",
            )
        return footage

    footage = await shared.decode(lambda: into_new_folder(shared, take))
    # It may wait for minutes now, and others shall be able to upload meanwhile.
    await image1.close()
    await image2.close()
    request.state.body.used_up = True
    wish = Wish(models, iters, bidirectional=bidirectional, every_iteration=False)
    job = submit(shared, client, footage, wish)
    try:
        await wait_for(request, shared, job)
        look = Look(job, Task(0, 0))
        packed = await shared.draw(lambda: pack(look, format, bidirectional=bidirectional))
    finally:
        # Beside the event loop: files are deleted, and a frame that is encoded may be waited for.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(shared.workshop.forget, job)
    headers = {"X-Width": str(footage.size.width), "X-Height": str(footage.size.height)}
    return Response(packed, media_type=TYPES[format], headers=headers)


def pack(look: Look, format: str, *, bidirectional: bool) -> bytes:
    """Return the flow as the bytes of a file."""
    if bidirectional:
        return pack_both(look)
    return flow_file(look, "flow.png16" if format == "png" else f"flow.{format}").read_bytes()


async def wait_for(request: Request, shared: Services, job: Job) -> None:
    """Wait until a job is done.

    Raises:
        RefusedError: It failed, or nobody waits any more.
    """
    while not job.state.over:
        if await request.is_disconnected():
            raise RefusedError(499, "the client has left")
        shared.workshop.find(job.id)
        await anyio.sleep(LOOK_SECONDS)
    if job.state is not State.DONE:
        status = 504 if job.timed_out else 503 if shared.workshop.closing else 400
        raise RefusedError(status, job.error or "the job was cancelled")

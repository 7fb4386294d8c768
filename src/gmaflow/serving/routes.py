"""The routes of the server."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import anyio
import numpy as np
import torch
from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.sse import EventSourceResponse

from gmaflow import viz
from gmaflow.errors import suggest
from gmaflow.io import encode_png
from gmaflow.serving.api_docs import document
from gmaflow.serving.dependencies import (
    Client,
    FoundJob,
    Services,
    Shared,
    check_parameters,
    unless_disconnected,
)
from gmaflow.serving.http_errors import ApiError
from gmaflow.serving.jobs import Footage, Job, JobRequest, JobState, JobStatus, Kind, Task
from gmaflow.serving.models import Model
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.track_views import (
    FRAME_PICTURES,
    TRACK_FILES,
    find_origin,
    pack_tracks,
    parse_points,
    track_file,
)
from gmaflow.serving.uploads import Deadline, read_clip, read_example, read_images, read_pair
from gmaflow.serving.views import (
    FLOW_FILES,
    PICTURES,
    ResultView,
    archive,
    flow_file,
    pack_bidirectional,
    pack_values,
)
from gmaflow.version import __version__

PAGE = Path(__file__).parent / "page"
BYTES = "application/octet-stream"
EVENT_SECONDS = 0.1
"""Shortest time between two events of a stream."""

about = APIRouter(tags=["about"])
jobs = APIRouter(prefix="/api", tags=["jobs"], dependencies=[Depends(check_parameters)])
results = APIRouter(
    prefix="/api/jobs/{job_id}", tags=["results"], dependencies=[Depends(check_parameters)]
)


@dataclass(frozen=True)
class Health:
    """State of the server."""

    status: str
    device: str
    queue: int
    """Waiting jobs."""
    jobs: int
    """All jobs, including finished ones whose results are kept."""


@dataclass(frozen=True)
class Versions:
    """Versions of the software."""

    gmaflow: str
    torch: str


@about.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """Return the page."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


@about.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Return the documentation of the API."""
    return HTMLResponse(document(request.app.openapi()))


@about.get("/health")
async def health(shared: Shared) -> Health:
    """Return the state of the server."""
    waiting, total = shared.queue.counts()
    status = "closing" if shared.queue.closing else "ok"
    return Health(status, str(shared.queue.models.device), waiting, total)


@about.get("/version")
async def version() -> Versions:
    """Return the versions of gmaflow and torch."""
    return Versions(__version__, torch.__version__)


@about.get("/api/models")
async def list_models(shared: Shared) -> list[Model]:
    """List the models, the default first."""
    return shared.queue.models.models()


@jobs.post("/flow", response_class=Response)
async def estimate(  # noqa: PLR0913, PLR0917  one for each parameter of the API
    request: Request,
    shared: Shared,
    client: Client,
    image1: Annotated[UploadFile, File(description="The first frame.")],
    image2: Annotated[UploadFile, File(description="The second frame.")],
    format: Annotated[
        Literal["npz", "flo", "png"], Query(description="png is KITTI's 16-bit format.")
    ] = "npz",
    model: Annotated[str | None, Query(description="A name from /api/models.")] = None,
    iters: Annotated[int, Query(description="Number of refinements.")] = 12,
    bidirectional: Annotated[
        bool, Query(description="Also compute occlusion and confidence; npz only.")
    ] = False,
    fit: Annotated[
        bool, Query(description="Scale down images above the working size instead of refusing.")
    ] = False,
) -> Response:
    """Return the flow between two images as a file. Responds when the flow is computed.

    npz holds `flow` (height x width x 2, in pixels) and `valid`; with `bidirectional` also
    `occluded_in`, `occluded_out` and `confidence`. Disconnecting cancels the job.
    """
    if bidirectional and format != "npz":
        raise ApiError(422, f"{format} cannot hold occlusion; bidirectional needs format=npz")
    models = shared.check_request(iters, model)

    def read(folder: ResultFolder, deadline: Deadline) -> Footage:
        limits = shared.queue.limits
        footage = read_pair(image1, image2, folder, limits, deadline)
        if footage.size != footage.original and not fit:
            raise ApiError(
                413,
                f"the images have {footage.original} pixels, more than the limit of "
                f"{limits.work_pixels:,}; shrink them, or add fit=true to scale them down",
            )
        return footage

    footage = await shared.read_upload(request, client, read)
    # The request may wait for minutes now, and should not count as an upload meanwhile.
    await image1.close()
    await image2.close()
    request.state.body.processed = True
    job_request = JobRequest(models, iters, bidirectional=bidirectional, every_iteration=False)
    job = shared.queue.submit(client, footage, job_request)
    try:
        await wait_for(request, shared, job)
        view = ResultView(job, Task(0, 0))
        name = "flow.png16" if format == "png" else f"flow.{format}"
        packed = await shared.draw(
            lambda: (
                pack_bidirectional(view) if bidirectional else flow_file(view, name).read_bytes()
            )
        )
    finally:
        # In a thread: it deletes files, and may wait while a frame is encoded.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(shared.queue.delete, job)
    headers = {"X-Width": str(footage.size.width), "X-Height": str(footage.size.height)}
    return Response(packed, media_type="image/png" if format == "png" else BYTES, headers=headers)


async def wait_for(request: Request, shared: Services, job: Job) -> None:
    """Wait until a job is done; raises `ApiError` if it fails or the client disconnects."""

    async def wait() -> None:
        with shared.queue.watch(job) as changed:
            while not job.state.over:
                await changed.wait()
                changed.clear()

    await unless_disconnected(request, wait)
    if job.state is not JobState.DONE:
        status = job.failure or (503 if shared.queue.closing else 400)
        raise ApiError(status, job.error or "the job was cancelled")


@dataclass(frozen=True)
class Accepted:
    """A job that was accepted."""

    id: str
    kind: Kind
    url: str


@dataclass(frozen=True)
class Seek:
    """The pair with which a clip continues."""

    pair: int


@jobs.post("/jobs", status_code=202)
async def submit_job(  # noqa: PLR0913, PLR0917  one for each field of the form
    request: Request,
    shared: Shared,
    client: Client,
    image1: Annotated[UploadFile | None, File(description="The first frame.")] = None,
    image2: Annotated[UploadFile | None, File(description="The second frame.")] = None,
    clip: Annotated[UploadFile | None, File(description="Or a video or GIF.")] = None,
    frames: Annotated[
        list[UploadFile] | None, File(description="Or the frames of a clip as images, in order.")
    ] = None,
    example: Annotated[bool, Form(description="Or the built-in example.")] = False,
    model: Annotated[str | None, Form(description="A name from /api/models.")] = None,
    compare_model: Annotated[str | None, Form(description="A second model to compare.")] = None,
    iters: Annotated[int, Form(description="Number of refinements.")] = 12,
    reference: Annotated[
        int | None,
        Form(description="Track every pixel of this frame, from 0, instead of the flow of pairs."),
    ] = None,
) -> Accepted:
    """Submit two images, a clip or the built-in example. Responds at once."""
    models = shared.check_request(iters, model, compare_model)
    if reference is not None and len(models) > 1:
        raise ApiError(422, "tracks are made with one model; leave compare_model out")
    if reference is not None and reference < 0:
        raise ApiError(422, f"there is no frame {reference}; frames are numbered from 0")
    pair = (image1 is not None, image2 is not None)
    sources = (all(pair), clip is not None, bool(frames), example)
    if any(pair) != all(pair) or sum(sources) != 1:
        raise ApiError(422, "give image1 and image2, or clip, or frames, or example=1")

    def read(folder: ResultFolder, deadline: Deadline) -> Footage:
        limits = shared.queue.limits
        if reference is not None:
            limits = replace(limits, work_pixels=limits.track_pixels)
        if clip is not None:
            footage = read_clip(clip, folder, limits, deadline)
        elif frames:
            footage = read_images(frames, folder, limits, deadline)
        elif image1 is not None and image2 is not None:
            footage = read_pair(image1, image2, folder, limits, deadline)
        else:
            footage = read_example(folder, None if reference is None else limits)
        if reference is not None and reference >= footage.frames:
            last = footage.frames - 1
            raise ApiError(422, f"there is no frame {reference}; frames are numbered 0 to {last}")
        return footage

    footage = await shared.read_upload(request, client, read)
    request.state.body.processed = True
    # A clip would take too much space.
    single = footage.kind == "pair" and reference is None
    job_request = JobRequest(
        models, iters, every_iteration=single, prepare_attention=single, reference=reference
    )
    job = shared.queue.submit(client, footage, job_request)
    return Accepted(job.id, footage.kind, f"/api/jobs/{job.id}")


@jobs.get("/jobs/{job_id}")
async def job_status(shared: Shared, job: FoundJob) -> JobStatus:
    """Return the status of a job."""
    return shared.queue.status(job)


@jobs.get("/jobs/{job_id}/events", response_class=EventSourceResponse)
async def job_events(shared: Shared, job: FoundJob) -> AsyncIterator[JobStatus]:
    """Send the status of a job as server-sent events whenever it changes, until the job is over."""
    sent = None
    with shared.queue.watch(job) as changed:
        while True:
            changed.clear()
            status = shared.queue.status(job)
            if status != sent:
                yield status
                sent = status
            if JobState(status.state).over:
                return
            await anyio.sleep(EVENT_SECONDS)
            await changed.wait()


@jobs.delete("/jobs/{job_id}", status_code=204)
async def delete_job(shared: Shared, job: FoundJob) -> Response:
    """Cancel a job. If it is over, delete its results."""
    if job.state.over:
        await shared.draw(lambda: shared.queue.delete(job))
    else:
        shared.queue.cancel(job)
    return Response(status_code=204)


@jobs.post("/jobs/{job_id}/seek", status_code=202)
async def seek(shared: Shared, job_id: str, target: Seek) -> JobStatus:
    """Continue a clip with this pair, then the ones after it, then the ones before."""
    job = shared.queue.find(job_id)  # not FoundJob: an invalid body is reported before a wrong job
    check_tracks(job, expected=False)
    if not 0 <= target.pair < job.footage.pairs:
        raise ApiError(422, f"pair is {target.pair}; it must be 0 to {job.footage.pairs - 1}")
    return shared.queue.seek(job, target.pair)


async def find_pair(
    job: FoundJob,
    pair: Annotated[int, PathParameter(description="Number of the pair, from 0.")],
    model: Annotated[str, PathParameter(description="One of the job's models.")],
) -> ResultView:
    """Return the pair and model of a request."""
    check_tracks(job, expected=False)
    models = job.request.models
    if model not in models:
        raise ApiError(404, f"this job has no model {model!r}; {suggest(model, models)}")
    if not 0 <= pair < job.footage.pairs:
        raise ApiError(404, f"there is no pair {pair}; the last is {job.footage.pairs - 1}")
    return ResultView(job, Task(pair, models.index(model)))


PairView = Annotated[ResultView, Depends(find_pair)]


async def find_view(
    view: PairView,
    iteration: Annotated[int | None, Query(description="Flow after this many refinements.")] = None,
    max_flow: Annotated[
        float | None, Query(gt=0, description="Length in pixels drawn in full colour.")
    ] = None,
) -> ResultView:
    """Return the pair and model of a request, and how to draw them."""
    job, last = view.job, view.job.request.iters
    if iteration is not None and not 1 <= iteration <= last:
        raise ApiError(404, f"there is no iteration {iteration}; the last is {last}")
    if iteration not in (None, last):
        if not job.request.every_iteration:
            raise ApiError(404, "iterations of a clip are not kept; submit two of its frames")
        if job.in_parts:
            raise ApiError(404, "iterations were not kept, because memory was short")
    return replace(view, max_flow=max_flow, iteration=iteration)


View = Annotated[ResultView, Depends(find_view)]


@results.get("/pairs/{pair}/{model}/values")
async def values(shared: Shared, view: View) -> Response:
    """Return u, v, occlusion (0 visible, 1 occluded, 2 out of frame) and confidence of all pixels.

    Little-endian float32, height x width x 4, row by row. The headers X-Width and X-Height hold the
    size.
    """
    check_ready(view)
    packed = await shared.draw(lambda: pack_values(view))
    size = view.job.footage.size
    headers = {"X-Width": str(size.width), "X-Height": str(size.height)}
    return Response(packed, media_type=BYTES, headers={**headers, **caching(view.job)})


@results.get("/pairs/{pair}/{model}/attention")
async def attention(
    shared: Shared,
    view: PairView,
    x: Annotated[float, Query(description="Pixels from the left.")],
    y: Annotated[float, Query(description="Pixels from the top.")],
    format: Annotated[str, Query(pattern="^(raw|png)$")] = "raw",
) -> Response:
    """Return the attention of one pixel of the first frame: where it takes its motion from.

    raw: one byte for each cell of 8 x 8 pixels, where 255 is the largest weight, in the header
    X-Max. The grid of X-Width x X-Height cells begins X-Left, X-Top pixels before the frame. png: a
    picture.
    """
    model = view.job.request.models[view.task.model]
    if not shared.queue.models.has_attention(model):
        raise ApiError(404, f"{model} has no attention; use a gma model")
    size = view.job.footage.size
    if not (0 <= x <= size.width - 1 and 0 <= y <= size.height - 1):
        raise ApiError(422, f"{x:g},{y:g} is outside the frame of {size} pixels")
    return await shared.draw(lambda: draw_attention(shared, view, (x, y), picture=format == "png"))


@results.get("/pairs/{pair}/{model}/{view}")
async def picture_or_file(
    shared: Shared,
    shown: View,
    view: Annotated[str, PathParameter(description="Name of the picture or file.")],
) -> Response:
    """Return a picture (PNG) or a flow file.

    Pictures: frame1, frame2, flow, arrows, warped, occlusion, confidence, difference (of two
    models), error (if the true flow is known), panel (all in one). Files: flow.flo, flow.npz,
    flow.png16 (KITTI's format).
    """
    if view not in PICTURES and view not in FLOW_FILES:
        views = [*PICTURES, *FLOW_FILES, "values", "attention"]
        raise ApiError(404, f"there is no view {view!r}; {suggest(view, views)}")
    if view not in ("frame1", "frame2") and not (view == "flow" and shown.is_early()):
        check_ready(shown)
    if view in FLOW_FILES:
        async with shown.job.making_files:
            path = await shared.draw(lambda: flow_file(shown, view))
        name = f"flow-{shown.task.number:04d}{path.suffix}"
        return FileResponse(path, filename=name, media_type=BYTES)
    picture = await shared.draw(lambda: encode_png(PICTURES[view](shown)))
    return Response(picture, media_type="image/png", headers=caching(shown.job))


@results.get("/all.zip")
async def everything(shared: Shared, job: FoundJob) -> FileResponse:
    """Return the flow files and pictures of all pairs and models, once the job is over."""
    check_tracks(job, expected=False)
    if not job.state.over or not job.done:
        raise ApiError(409, f"the job is {job.state} and has no results to pack")
    async with job.making_files:
        path = await shared.draw(lambda: archive(job))
    return FileResponse(path, filename="gmaflow.zip", media_type="application/zip")


async def find_frame(
    job: FoundJob, frame: Annotated[int, PathParameter(description="Number of the frame, from 0.")]
) -> int:
    """Return the number of a frame of a job."""
    if not 0 <= frame < job.footage.frames:
        raise ApiError(404, f"there is no frame {frame}; the last is {job.footage.frames - 1}")
    return frame


FrameNumber = Annotated[int, Depends(find_frame)]


@dataclass(frozen=True)
class Origin:
    """A pixel of the reference frame."""

    x: int
    y: int


@results.get("/frames/{frame}/origin")
async def origin(
    shared: Shared,
    job: FoundJob,
    frame: FrameNumber,
    x: Annotated[float, Query(description="Pixels from the left.")],
    y: Annotated[float, Query(description="Pixels from the top.")],
) -> Origin:
    """Return the pixel of the reference frame that is at this place of another frame."""
    check_tracked(job, frame)
    return Origin(*await shared.draw(lambda: find_origin(job, frame, x, y)))


@results.get("/frames/{frame}/{view}")
async def frame_picture(
    shared: Shared,
    job: FoundJob,
    frame: FrameNumber,
    view: Annotated[str, PathParameter(description="frame, still or moving.")],
) -> Response:
    """Return a frame (PNG), or what tracks show of it.

    still: as if the camera had stayed where it was in the reference frame. moving: the reference
    frame, in which what has moved by itself until this frame is lit up.
    """
    if view not in FRAME_PICTURES:
        raise ApiError(404, f"there is no view {view!r}; {suggest(view, FRAME_PICTURES)}")
    if view != "frame":
        check_tracked(job, frame)
    picture = await shared.draw(lambda: encode_png(FRAME_PICTURES[view](job, frame)))
    # It never changes.
    headers = {"Cache-Control": "private, max-age=600"}
    return Response(picture, media_type="image/png", headers=headers)


@results.get("/tracks/{file}")
async def tracks(
    shared: Shared,
    job: FoundJob,
    file: Annotated[str, PathParameter(description="values or the name of a file.")],
    points: Annotated[
        str | None, Query(description="x,y;x,y in pixels of the reference; by default a grid.")
    ] = None,
) -> Response:
    """Return the tracks of some points through all frames.

    values: little-endian float32, frames x points x 6: x, y, visible, confidence, and x and y in
    the view still; NaN in frames that are not tracked yet or are beyond a cut. The headers X-Frames
    and X-Points hold the numbers. Files, once the job is over: tracks.npz and tracks.csv in pixels
    of the upload, as `gmaflow track` writes them, and trails.mp4.
    """
    check_tracks(job, expected=True)
    chosen = parse_points(job, points)
    if file == "values":
        packed = await shared.draw(lambda: pack_tracks(job, chosen))
        counts = {"X-Frames": str(job.footage.frames), "X-Points": str(len(chosen))}
        return Response(packed, media_type=BYTES, headers={**counts, **caching(job)})
    if file not in TRACK_FILES:
        files = [*TRACK_FILES, "values"]
        raise ApiError(404, f"there is no file {file!r}; {suggest(file, files)}")
    if not job.state.over or not job.done:
        raise ApiError(409, f"the tracks are not finished; the job is {job.state}")
    async with job.making_files:
        packed = await shared.draw(lambda: track_file(job, chosen, file))
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(packed, media_type=TRACK_FILES[file], headers=headers)


def check_tracked(job: Job, frame: int) -> None:
    """Raise `ApiError` if a frame has no tracks yet, or never will."""
    check_tracks(job, expected=True)
    if frame not in job.tracked_frames():
        yet = "" if job.state.over else " yet"
        raise ApiError(409, f"frame {frame} is not tracked{yet}; the job is {job.state}")


def check_tracks(job: Job, *, expected: bool) -> None:
    """Raise `ApiError` if a job has no tracks although `expected`, or has them although not."""
    if expected and job.request.reference is None:
        raise ApiError(404, "this job has no tracks; submit the clip with reference=0")
    if not expected and job.request.reference is not None:
        raise ApiError(404, "this job tracks and has no pairs; see frames and tracks in /docs")


def draw_attention(
    shared: Services, view: ResultView, point: tuple[float, float], *, picture: bool
) -> Response:
    estimator = shared.queue.models.estimator(view.job.request.models[view.task.model])
    frame = shared.queue.attention.prepare(view.job, view.task, estimator)
    if picture:
        drawn = viz.attention_overlay(view.frame(0), frame.maps([point])[0], point)
        return Response(encode_png(drawn), media_type="image/png")
    cells = frame.cells([point])[0].cpu().numpy()
    largest = float(cells.max())
    headers = {
        "X-Width": str(cells.shape[1]),
        "X-Height": str(cells.shape[0]),
        "X-Left": str(frame.padding.left),
        "X-Top": str(frame.padding.top),
        "X-Max": f"{largest:.6g}",
    }
    shades = np.rint(cells * (255 / largest)).astype(np.uint8)
    return Response(shades.tobytes(), media_type=BYTES, headers=headers)


def check_ready(view: ResultView) -> None:
    """Raise `ApiError` if a result does not exist yet, or never will."""
    job = view.job
    if view.task.number in job.finished_pairs():
        return
    if job.state.over:
        reason = "" if job.error == job.state else f": {job.error}"
        raise ApiError(job.failure or 409, f"job {job.state}{reason}")
    raise ApiError(409, f"pair {view.task.number} is not ready; the job is {job.state}")


def caching(job: Job) -> dict[str, str]:
    """Return headers that let browsers cache the results of a finished job."""
    return {"Cache-Control": "private, max-age=600" if job.state is JobState.DONE else "no-store"}

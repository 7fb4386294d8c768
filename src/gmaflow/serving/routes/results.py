"""What a job found out: pictures, values, attention, files."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import FileResponse

from gmaflow import viz
from gmaflow.errors import suggest
from gmaflow.io import encode_png
from gmaflow.serving.archive import archive
from gmaflow.serving.attending import attention_cells
from gmaflow.serving.jobs import Job, State, Task
from gmaflow.serving.parameters import check_parameters
from gmaflow.serving.refusals import RefusedError
from gmaflow.serving.services import Services, Shared
from gmaflow.serving.views import FLOW_FILES, PICTURES, Look, flow_file, pack_values

router = APIRouter(
    prefix="/api/jobs/{job_id}", tags=["results"], dependencies=[Depends(check_parameters)]
)

BYTES = "application/octet-stream"


def find_pair(
    shared: Shared,
    job_id: str,
    pair: Annotated[int, Path(description="Its number, from 0.")],
    model: Annotated[str, Path(description="One of the job's models.")],
) -> Look:
    """Return the pair that is looked at.

    Raises:
        RefusedError: It is not there.
    """
    job = shared.workshop.find(job_id)
    if model not in job.wish.models:
        raise RefusedError(
            404, f"this job has no model {model!r}; {suggest(model, job.wish.models)}"
        )
    if not 0 <= pair < job.footage.pairs:
        raise RefusedError(404, f"there is no pair {pair}; the last is {job.footage.pairs - 1}")
    return Look(job, Task(pair, job.wish.models.index(model)))


Paired = Annotated[Look, Depends(find_pair)]


def find_look(
    look: Paired,
    iteration: Annotated[int | None, Query(description="Flow after so many refinements.")] = None,
    max_flow: Annotated[
        float | None, Query(gt=0, description="Length in px drawn in full colour.")
    ] = None,
) -> Look:
    """Return what is looked at, and how.

    Raises:
        RefusedError: It is not there, or not there yet.
    """
    job = look.job
    if iteration is not None and not 1 <= iteration <= job.wish.iters:
        raise RefusedError(404, f"there is no iteration {iteration}; the last is {job.wish.iters}")
    if iteration not in (None, job.wish.iters):
        if not job.wish.every_iteration:
            raise RefusedError(404, "the iterations of a clip are not kept; send two of its frames")
        if job.in_parts:
            raise RefusedError(404, "in parts, for want of memory, there are no iterations to see")
    return replace(look, max_flow=max_flow, iteration=iteration)


Looked = Annotated[Look, Depends(find_look)]


@router.get("/pairs/{pair}/{model}/values")
async def values(shared: Shared, look: Looked) -> Response:
    """Return u, v, occlusion (0 visible, 1 hidden, 2 out of frame) and confidence of every pixel.

    Little-endian float32, height x width x 4, row by row; the headers X-Width and X-Height tell the
    size.
    """
    check_ready(look)
    packed = await shared.draw(lambda: pack_values(look))
    size = look.job.footage.size
    headers = {"X-Width": str(size.width), "X-Height": str(size.height)}
    return Response(packed, media_type=BYTES, headers={**headers, **caching(look.job)})


@router.get("/pairs/{pair}/{model}/attention")
async def attention(
    shared: Shared,
    look: Paired,
    x: Annotated[float, Query(description="Pixels from the left.")],
    y: Annotated[float, Query(description="Pixels from the top.")],
    format: Annotated[str, Query(pattern="^(raw|png)$")] = "raw",
) -> Response:
    """Return what a pixel of the first frame borrows motion from.

    Raw: a byte for each cell of 8 x 8 pixels, 255 for the largest weight, which X-Max tells; the
    grid of X-Width x X-Height cells begins X-Left, X-Top pixels before the frame. Or a picture.
    """
    model = look.job.wish.models[look.task.model]
    if not shared.shelf.has_attention(model):
        raise RefusedError(404, f"{model} has no attention; use a gma model")
    size = look.job.footage.size
    if not (0 <= x <= size.width - 1 and 0 <= y <= size.height - 1):
        raise RefusedError(422, f"{x:g},{y:g} is not in the frame of {size} pixels")
    return await shared.draw(lambda: attend(shared, look, (x, y), picture=format == "png"))


@router.get("/pairs/{pair}/{model}/{view}")
async def view(shared: Shared, look: Looked, view: str) -> Response:
    """Return a picture (PNG), or the flow as a file.

    Pictures: frame1, frame2, flow, arrows, warped, occlusion, confidence, difference (of two
    models), error (where the truth is known), panel (all in one). Files: flow.flo, flow.npz,
    flow.png16 (KITTI's format).
    """
    if view not in PICTURES and view not in FLOW_FILES:
        known = [*PICTURES, *FLOW_FILES, "values", "attention"]
        raise RefusedError(404, f"there is no view {view!r}; {suggest(view, known)}")
    if view not in ("frame1", "frame2") and not (view == "flow" and look.is_early()):
        check_ready(look)
    if view in FLOW_FILES:
        path = await shared.draw(lambda: flow_file(look, view))
        name = f"flow-{look.task.pair:04d}{path.suffix}"
        return FileResponse(path, filename=name, media_type=BYTES)
    picture = await shared.draw(lambda: encode_png(PICTURES[view](look)))
    return Response(picture, media_type="image/png", headers=caching(look.job))


@router.get("/all.zip")
async def everything(shared: Shared, job_id: str) -> FileResponse:
    """Return flow files and pictures of every pair and model, once the job is over."""
    job = shared.workshop.find(job_id)
    if not job.state.over or not job.done:
        raise RefusedError(409, f"the job is {job.state}; there is nothing to pack")
    path = await shared.draw(lambda: archive(job))
    return FileResponse(path, filename="gmaflow.zip", media_type="application/zip")


def attend(shared: Services, look: Look, point: tuple[float, float], *, picture: bool) -> Response:
    """Return the attention of a point."""
    estimator = shared.shelf.estimator(look.job.wish.models[look.task.model])
    frame = shared.workshop.attention.prepare(look.job, look.task, estimator)
    if picture:
        drawn = viz.attention_overlay(look.frame(0), frame.maps([point])[0], point)
        return Response(encode_png(drawn), media_type="image/png")
    cells = attention_cells(frame, point)
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


def check_ready(look: Look) -> None:
    """Refuse what is not computed yet.

    Raises:
        RefusedError: It is not, or never will be.
    """
    job = look.job
    if look.task.pair in job.finished_pairs():
        return
    if job.state.over:
        raise RefusedError(504 if job.timed_out else 409, f"the job did not get there: {job.error}")
    raise RefusedError(409, f"pair {look.task.pair} is not ready; the job is {job.state}")


def caching(job: Job) -> dict[str, str]:
    """Let browsers keep pictures of a job that will not change any more."""
    return {"Cache-Control": "private, max-age=600" if job.state is State.DONE else "no-store"}

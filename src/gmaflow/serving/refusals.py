"""How the server says no: a status code and one sentence."""

import errno
from collections.abc import Mapping

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from gmaflow.errors import FlowError, ImageTooLargeError

RETRY_SECONDS = 5
BUG = "the server failed at this; its log says why"


class RefusedError(HTTPException):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, sentence, dict(headers or {}))

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse({"error": self.detail}, self.status_code, self.headers)


def too_busy(sentence: str) -> RefusedError:
    """Return the refusal of what could be done later."""
    return RefusedError(429, sentence, {"Retry-After": str(RETRY_SECONDS)})


def gone() -> RefusedError:
    """Return the refusal of what was deleted."""
    return RefusedError(410, "this job's results were deleted; send it again")


def as_refusal(err: FlowError) -> RefusedError:
    """Return what a caller did wrong as a refusal."""
    return RefusedError(413 if isinstance(err, ImageTooLargeError) else 400, str(err))


async def answer_bug(request: Request, err: Exception) -> JSONResponse:
    """Answer what should not have happened, without its details; a handler for FastAPI.

    Starlette raises the error again after it, so that uvicorn logs it, and closes the connection.
    """
    status, sentence = 500, BUG
    if isinstance(err, OSError) and err.errno == errno.ENOSPC:
        status, sentence = 507, "the server's disk is full; try later"
    return RefusedError(status, sentence, {"Connection": "close"}).response()


async def answer_http_error(request: Request, err: Exception) -> JSONResponse:
    """Answer any HTTP error in the one form; a handler for FastAPI."""
    assert isinstance(err, StarletteHTTPException)
    sentence = str(err.detail)
    if err.status_code == 404 and not isinstance(err, RefusedError):
        sentence = f"there is nothing at {request.url.path}; /docs lists what there is"
    if err.status_code == 405:
        sentence = f"{request.url.path} does not take {request.method}; /docs says what it takes"
    return JSONResponse({"error": sentence}, err.status_code, err.headers)


async def answer_invalid(request: Request, err: Exception) -> JSONResponse:
    """Answer parameters that are missing or wrong; a handler for FastAPI."""
    assert isinstance(err, RequestValidationError)
    found = [
        f"{'.'.join(str(part) for part in problem['loc'][1:])}: {problem['msg'].lower()}"
        for problem in err.errors()
    ]
    return JSONResponse({"error": f"{'; '.join(found)}; /docs says what is wanted"}, 422)


async def answer_flow_error(request: Request, err: Exception) -> JSONResponse:
    """Answer what the caller's data did wrong; a handler for FastAPI."""
    assert isinstance(err, FlowError)
    return as_refusal(err).response()

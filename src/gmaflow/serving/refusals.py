"""How the server says no: a status code and one sentence."""

import errno
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from gmaflow.errors import FlowError, ImageTooLargeError, OutputError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5
LONGEST_FILE_NAME = 100
"""Characters of a text that may have been meant as a file's name; longer ones are data."""
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


def own_failure(err: Exception) -> RefusedError:
    """Return the refusal of what the server itself failed at, without its details."""
    cause = err.__cause__ if isinstance(err, OutputError) else err
    status, sentence = 500, BUG
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        status, sentence = 507, "the server's disk is full; try later"
    return RefusedError(status, sentence, {"Connection": "close"})


async def answer_bug(request: Request, err: Exception) -> JSONResponse:
    """Answer what should not have happened, without its details; a handler for FastAPI.

    Starlette raises the error again after it, so that uvicorn logs it, and closes the connection.
    """
    return own_failure(err).response()


async def answer_http_error(request: Request, err: Exception) -> JSONResponse:
    """Answer any HTTP error in the one form; a handler for FastAPI."""
    assert isinstance(err, StarletteHTTPException)
    sentence = str(err.detail)
    if err.status_code == 404 and not isinstance(err, RefusedError):
        slash = ", with a / at the end" if request.url.path.endswith("/") else ""
        sentence = f"there is nothing at {request.url.path}{slash}; /docs lists what there is"
    if err.status_code == 405:
        sentence = f"{request.url.path} does not take {request.method}; /docs says what it takes"
    return JSONResponse({"error": sentence}, err.status_code, err.headers)


async def answer_invalid(request: Request, err: Exception) -> JSONResponse:
    """Answer parameters that are missing or wrong; a handler for FastAPI."""
    assert isinstance(err, RequestValidationError)
    found = "; ".join(map(describe_problem, err.errors()))
    return JSONResponse({"error": f"{found}; /docs says what is wanted"}, 422)


def describe_problem(problem: Mapping[str, Any]) -> str:
    """Say what is wrong with one parameter, or with the body as a whole."""
    if problem["type"] in ("json_invalid", "dataclass_type"):
        return "the body is not a JSON object, sent as application/json"
    name = ".".join(str(part) for part in problem["loc"][1:]) or "the body"
    given = problem.get("input")
    if isinstance(given, str) and "UploadFile" in problem["msg"]:
        file = given if len(given) <= LONGEST_FILE_NAME else "FILE"
        return f"{name} is text, not a file; with curl write {name}=@{file}"
    return f"{name}: {problem['msg'].lower()}"


async def answer_flow_error(request: Request, err: Exception) -> JSONResponse:
    """Answer what the caller's data did wrong; a handler for FastAPI."""
    assert isinstance(err, FlowError)
    if isinstance(err, OutputError):  # no client names a place to write to: this one is ours
        log.error("%s", err)
        return own_failure(err).response()
    return as_refusal(err).response()

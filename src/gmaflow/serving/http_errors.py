"""Errors of the HTTP API: a status code and one sentence, sent as `{"error": "..."}`."""

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
"""A longer text sent in place of a file is data, not the name of a file."""


class ApiError(HTTPException):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, sentence, dict(headers or {}))

    def response(self) -> JSONResponse:
        return JSONResponse({"error": self.detail}, self.status_code, self.headers)


def too_busy(sentence: str, status: int = 429) -> ApiError:
    """Return an error after which the client should try again."""
    return ApiError(status, f"{sentence}; try again later", {"Retry-After": str(RETRY_SECONDS)})


def gone() -> ApiError:
    """Return the error for a job that was deleted."""
    return ApiError(410, "the results of this job were deleted; submit it again")


def server_error(err: Exception) -> ApiError:
    """Return the error for a failure of the server, without details that clients should not see."""
    status, sentence = 500, "internal server error; see the server's log"
    if is_disk_full(err):
        status, sentence = 507, "the server's disk is full; try again later"
    return ApiError(status, sentence, {"Connection": "close"})


def is_disk_full(err: BaseException | None) -> bool:
    """Return whether an error was caused by a full disk."""
    while err is not None:
        if isinstance(err, OSError) and err.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        err = err.__cause__
    return False


async def answer_bug(request: Request, err: Exception) -> JSONResponse:
    """Handle exceptions that nothing else handles.

    Starlette raises the exception again, so that uvicorn logs it and closes the connection.
    """
    return server_error(err).response()


async def answer_http_error(request: Request, err: Exception) -> JSONResponse:
    """Handle HTTP errors, ours and those of FastAPI."""
    assert isinstance(err, StarletteHTTPException)
    sentence = str(err.detail)
    if not isinstance(err, ApiError) and is_disk_full(err):  # FastAPI could not store an upload
        log.error("an upload could not be stored: the disk is full")
        return server_error(err).response()
    if err.status_code == 404 and not isinstance(err, ApiError):
        slash = " (remove the trailing slash)" if request.url.path.endswith("/") else ""
        sentence = f"{request.url.path} does not exist{slash}; see /docs"
    if err.status_code == 405:
        sentence = f"{request.url.path} does not accept {request.method}; see /docs"
    return JSONResponse({"error": sentence}, err.status_code, err.headers)


async def answer_invalid(request: Request, err: Exception) -> JSONResponse:
    """Handle missing and invalid parameters."""
    assert isinstance(err, RequestValidationError)
    problems = "; ".join(map(describe_problem, err.errors()))
    return JSONResponse({"error": f"{problems}; see /docs"}, 422)


def describe_problem(problem: Mapping[str, Any]) -> str:
    """Describe the error in one parameter, or in the body."""
    if problem["type"] in ("json_invalid", "dataclass_type"):
        return "the body must be a JSON object, sent as application/json"
    name = ".".join(str(part) for part in problem["loc"][1:]) or "the body"
    value = problem.get("input")
    if isinstance(value, str) and "UploadFile" in problem["msg"]:
        file = value if len(value) <= LONGEST_FILE_NAME else "FILE"
        return f"{name} is text, not a file; with curl use {name}=@{file}"
    return f"{name}: {problem['msg'].lower()}"


async def answer_flow_error(request: Request, err: Exception) -> JSONResponse:
    """Handle errors of our own code, most of them caused by the client's data."""
    assert isinstance(err, FlowError)
    if isinstance(err, OutputError):  # clients choose no output path, so this is the server's
        log.error("%s", err)
        return server_error(err).response()
    status = 413 if isinstance(err, ImageTooLargeError) else 400
    return ApiError(status, str(err)).response()

"""How a request is refused: ``{"error": {"code", "message", "help"}}`` with a status for the API, a page for people."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bartack.errors import (
    BartackError,
    ConfigError,
    DeadLetterFilterError,
    DeadLetterNotFoundError,
    DeadlineExceededError,
    FileAccessError,
    ForeignRunError,
    JournalError,
    JournalLockedError,
    JournalNotFoundError,
    LineageMissingError,
    MessageValueError,
    NotShownError,
    PatchworkError,
    PatternNotFoundError,
    PeerRefusedError,
    ProgramImportError,
    QuestionNotFoundError,
    ResilienceError,
    RunBeingReadError,
    RunError,
    RunIdError,
    RunNotFoundError,
    StepNotFoundError,
    TypeMismatchError,
    UntrustedError,
    UsageError,
    WebEnterError,
    WebQueryError,
    WebRefusedError,
    WorkspaceBusyError,
)
from bartack.web._headers import secure
from bartack.web._templates import render

JSON: Final = "application/json"
API: Final = "/api/v1"
"""How the address of everything begins that answers with JSON."""

_STATUS: Final[tuple[tuple[type[BartackError], int], ...]] = (
    (UsageError, 400),
    (WebEnterError, 401),
    (PeerRefusedError, 403),
    (UntrustedError, 403),
    (ForeignRunError, 403),
    (RunNotFoundError, 404),
    (RunIdError, 404),
    (StepNotFoundError, 404),
    (QuestionNotFoundError, 404),
    (DeadLetterNotFoundError, 404),
    (NotShownError, 404),
    (PatternNotFoundError, 404),
    (LineageMissingError, 404),
    (JournalNotFoundError, 410),
    (JournalLockedError, 409),
    (WorkspaceBusyError, 409),
    (TypeMismatchError, 422),
    (MessageValueError, 422),
    (DeadLetterFilterError, 422),
    (ConfigError, 422),
    (WebQueryError, 422),
    (RunBeingReadError, 503),
    (ProgramImportError, 422),
    (PatchworkError, 422),
    (DeadlineExceededError, 503),
    (JournalError, 503),
    (FileAccessError, 503),
    (ResilienceError, 503),
    (RunError, 409),
)
"""The status of an answer, by the first class in this list that an error belongs to; 500 for others."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    code: str
    message: str
    help: str = ""


def status_of(error: BartackError) -> int:
    """The status of the answer to a request that failed with this error."""
    if isinstance(error, WebRefusedError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def path_of(request: Request) -> str:
    """The path that a request is for. Its URL would be made with its Host, which may be anything."""
    return str(request.scope["path"])


def refuse(request: Request, status: int, refusal: Refusal) -> Response:
    """The answer to a request that is not fulfilled: JSON below ``API`` and for scripts, else a page."""
    if path_of(request).startswith(f"{API}/") or request.headers.get("accept") == JSON:
        return Response(msgspec.json.encode({"error": refusal}), status, media_type=JSON)
    return render(request, "refusal.html", {"refusal": refusal}, status=status)


def answer_error(request: Request, error: Exception) -> Response:
    """The answer to a request that one of our errors ended."""
    assert isinstance(error, BartackError)
    return refuse(request, status_of(error), Refusal(error.code, error.message, error.remedy))


def answer_http(request: Request, error: Exception) -> Response:
    """The answer to a request that no route takes, or not with its method."""
    assert isinstance(error, HTTPException)
    refused = WebRefusedError(error.detail, status=error.status_code)
    response = refuse(request, error.status_code, Refusal(refused.code, error.detail))
    response.headers.update(error.headers or {})
    return response


def answer_defect(request: Request, error: Exception) -> Response:
    """The answer to a request that failed for a reason of which only the log says more."""
    # It is answered outside of the guard, which gives all other answers their headers.
    response = refuse(request, 500, Refusal(BartackError.code, "an unexpected error occurred in the server"))
    secure(response.headers)
    return response

"""HTTP to the service that events go to. The only module that uses httpx, looked up when it is called.

A client per call costs little over plain HTTP and belongs to no loop. What is sent when: over plain HTTP nothing before the service
has proved that it knows the token (``_proven.py``), and the token itself never; over TLS the certificate is the proof.
"""

from __future__ import annotations

import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import urlsplit

from bartack.core.user_home import user_home
from bartack.errors import ServiceAnswerError
from bartack.resilience._retry_after import parse_retry_after
from bartack.resilience.service_files import TOKEN_FILE
from bartack.resilience.settings import Settings
from bartack.resilience.tokens import load_token, read_token

if TYPE_CHECKING:
    import httpx

BASE: Final = "/api/pattern-traceability"
TRACK: Final = f"{BASE}/lineage/track"
TRACK_BATCH: Final = f"{BASE}/lineage/track/batch"
HEALTH: Final = f"{BASE}/health"
CALL_TIMEOUT_S: Final = 2.0
PROOF_OFF: Final = "off"
LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
_DETAIL: Final = 200


class Answer(NamedTuple):
    """What a service answered: the status, and the body if it was a JSON object."""

    status: int
    body: dict[str, object] | None
    retry_after: float | None = None
    text: str = ""


def needs_proof(url: str, settings: Settings) -> bool:
    """Whether a service has to prove itself before anything is sent: yes, unless its certificate does or the settings waive it."""
    return urlsplit(url).scheme == "http" and settings.proof != PROOF_OFF


def bearer_for(url: str, settings: Settings) -> str:
    """The token to send in a header; empty if none may be.

    Raises:
        TokenFileError: The file that the settings name cannot be used.
    """
    if needs_proof(url, settings):
        return ""
    if settings.token_file:
        return read_token(settings.token_file)
    parts = urlsplit(url)
    own = parts.scheme == "https" and parts.hostname in LOOPBACK
    return load_token(user_home() / TOKEN_FILE) if own else ""


def load_own_token(settings: Settings) -> str:
    """The token that proves this user and its services to each other.

    Raises:
        TokenFileError: It cannot be used.
    """
    return read_token(settings.token_file) if settings.token_file else load_token(user_home() / TOKEN_FILE)


def origin_of(url: str) -> str:
    """Scheme, host and port: what breakers and health records are named by."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}:{port}"


def open_client(url: str, timeout_s: float, settings: Settings) -> httpx.AsyncClient:
    """A client for one service.

    Raises:
        TokenFileError: The token that the settings name cannot be used.
    """
    import httpx  # noqa: PLC0415 - looked up at call time, so that it can be replaced, and slow to load

    if needs_proof(url, settings):
        from bartack.resilience._proven import ProvenTransport  # noqa: PLC0415 - as above

        transport = ProvenTransport(url, partial(load_own_token, settings))
        return httpx.AsyncClient(timeout=timeout_s, transport=transport, trust_env=False)
    parts, token = urlsplit(url), bearer_for(url, settings)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # Loading the certificates takes longer than a call; over plain HTTP an empty store does, and no redirect is followed.
    verify: ssl.SSLContext | bool = parts.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust = parts.hostname not in LOOPBACK  # a proxy cannot reach this machine's own services
    return httpx.AsyncClient(timeout=timeout_s, headers=headers, verify=verify, trust_env=trust)


async def call_once(
    url: str,
    settings: Settings,
    *,
    method: str = "POST",
    data: object = None,
    timeout_s: float = CALL_TIMEOUT_S,
) -> Answer:
    """One call with a client of its own. Raises what httpx raises when there is no answer.

    Raises:
        ServiceUnprovenError: The service did not prove itself; nothing was sent.
        TokenFileError: The token cannot be used; nothing was sent.
    """
    async with open_client(url, timeout_s, settings) as client:
        if method == "GET":
            return read_answer(await client.get(url))
        return read_answer(await client.post(url, json=data))


def read_answer(response: httpx.Response) -> Answer:
    """The parts of a response that matter."""
    retry_after = parse_retry_after(_header(response, "Retry-After"), time.time())
    try:
        value: object = response.json()
    except ValueError:
        value = None
    body = cast("dict[str, object]", value) if isinstance(value, dict) else None
    return Answer(int(response.status_code), body, retry_after, "" if body else str(response.text)[:_DETAIL])


def _header(response: httpx.Response, name: str) -> str | None:
    value: object = response.headers.get(name)
    return value if isinstance(value, str) else None


def check_answer(url: str, answer: Answer) -> dict[str, object]:
    """The body of an answer that says the event is there.

    Raises:
        ServiceAnswerError: It says something else.
    """
    if 200 <= answer.status < 300 or (answer.status == 409 and _error_code(answer.body) == "duplicate"):
        return answer.body if answer.body is not None else {}
    detail = _error_code(answer.body) or answer.text
    raise ServiceAnswerError(url, answer.status, answer.retry_after, detail)


def _error_code(body: dict[str, object] | None) -> str:
    error = (body or {}).get("error")
    code = cast("dict[str, object]", error).get("code") if isinstance(error, dict) else None
    return str(code) if code else ""

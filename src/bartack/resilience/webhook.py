"""One signed POST to an address that the person chose. No redirect is followed, no answer is read beyond its head.

The signature is an HMAC-SHA256 over ``TIMESTAMP.BODY`` with a secret that both sides know. The time is part of it, so a receiver
can refuse a request that was recorded and is sent again later. Every attempt has its own time and signature.
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bartack.resilience._retry_after import parse_retry_after
from bartack.resilience.addresses import LOOPBACK

ID_HEADER: Final = "Bartack-Id"
TIME_HEADER: Final = "Bartack-Timestamp"
SIGNATURE_HEADER: Final = "Bartack-Signature"


class PostAnswer(NamedTuple):
    """What a receiver answered: its status, 0 if there was no answer; how long it asks to wait; why there was none."""

    status: int
    retry_after: float = 0.0
    problem: str = ""


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The signature of a body that is sent at a time, as it stands in the header."""
    return "v1=" + hmac.new(secret.encode(), b"%d." % timestamp + body, "sha256").hexdigest()


def post_signed(
    url: str, body: bytes, event_id: str, secret: str, *, limit_s: float, wall_s: float
) -> PostAnswer:
    """Post JSON, signed; takes no longer than ``limit_s``, however slowly the receiver answers."""
    import asyncio  # noqa: PLC0415 - slow to load

    timestamp = int(wall_s)
    headers = {
        "Content-Type": "application/json",
        ID_HEADER: event_id,
        TIME_HEADER: str(timestamp),
        SIGNATURE_HEADER: sign(secret, timestamp, body),
    }
    return asyncio.run(_post(url, body, headers, limit_s))


async def _post(url: str, body: bytes, headers: Mapping[str, str], limit_s: float) -> PostAnswer:
    import asyncio  # noqa: PLC0415 - as above

    import httpx  # noqa: PLC0415 - looked up at call time, so that it can be replaced, and slow to load

    parts = urlsplit(url)
    verify: ssl.SSLContext | bool = parts.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # The limit of the client is for each read; a receiver that sends byte after byte is stopped by the outer one.
        async with (
            asyncio.timeout(limit_s),
            httpx.AsyncClient(
                timeout=limit_s,
                verify=verify,
                follow_redirects=False,
                trust_env=parts.hostname not in LOOPBACK,
            ) as client,
            client.stream("POST", url, content=body, headers=dict(headers)) as response,
        ):
            wait = parse_retry_after(response.headers.get("Retry-After"), time.time()) or 0.0
            return PostAnswer(response.status_code, wait)
    except TimeoutError:
        return PostAnswer(0, problem=f"no answer within {limit_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return PostAnswer(0, problem=type(error).__name__)

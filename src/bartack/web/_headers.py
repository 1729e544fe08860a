"""The headers of every answer: what browsers may do with it."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types bartack"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
"""What every answer has. With the policy ``no-referrer`` forms would be sent with ``Origin: null``."""


def secure(headers: MutableHeaders) -> None:
    """Give an answer the headers that every answer has. It is kept by no cache, unless it says for how long."""
    headers.update(HEADERS)
    headers.setdefault("Cache-Control", "no-store")

"""What is kept of the output of a command that may write much, and secrets with it: the end, with the secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bartack.core.redact import Redactor, SecretRule

ASIDE: Final = 192 * 1024
"""How many bytes before the end that is kept are searched, too: a secret that begins there has to be recognised as one."""


def keep_end(output: bytes, size: int, environ: Mapping[str, str], rule: SecretRule) -> bytes:
    """The end of an output, without secrets.

    Args:
        output: The output, or at least its last ``size + ASIDE`` bytes.
        size: How many bytes are kept at most.
        environ: The environment of the command.
        rule: Which variables are secrets.
    """
    seen = output[-(size + ASIDE) :]
    redactor = Redactor(environ, rule)
    whole = redactor.redact_bytes(seen)
    if len(seen) == size + ASIDE:
        # There may be more before it, and half a secret at its beginning that is not recognised as one.
        whole = whole[redactor.longest :]
    hidden = b"".join(map(redactor.hide_lines, whole.splitlines(keepends=True)))
    return cut_front(hidden, size)


def cut_front(output: bytes, limit: int) -> bytes:
    """The last ``limit`` bytes of an output, or a few less: no character is cut in two."""
    if len(output) <= limit:
        return output
    # A character has at most three bytes after its first; more of them are not text anyway.
    start = len(output) - limit
    inside = 0
    while inside < min(limit, 3) and output[start + inside] & 0xC0 == 0x80:
        inside += 1
    return output[start + inside :]

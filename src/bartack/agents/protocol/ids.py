"""Names that both sides of the protocol compute in the same way: keys, conversations, correlations; and moments as text."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bartack.core.canonical_json import canonical

NO_SNAPSHOT: Final = "none"
_NAMESPACE_URL: Final = bytes.fromhex("6ba7b8119dad11d180b400c04fd430c8")


def command_key(
    action: str,
    task_id: str,
    snapshot_id: str,
    inputs: Mapping[str, object] | None = None,
    expected_outputs: Sequence[Mapping[str, object]] | None = None,
) -> str:
    """The idempotency key of a command: the same effect has the same key, on every attempt and every machine.

    Args:
        action: What is to be done.
        task_id: For which task, or for which worker.
        snapshot_id: On which files; ``none`` where no snapshot is taken.
        inputs: What the agent gets. Nothing in it is normalised.
        expected_outputs: Which files it is to leave; the order counts.

    Raises:
        CanonicalJsonError: Some value has no canonical form, so the command has no key and is not sent.
        ValueError: A name has control characters in it.
    """
    names = (action, task_id, snapshot_id)
    for name in names:
        if any(ord(character) < 32 or ord(character) == 127 for character in name):
            raise ValueError(f"{name!r} has a control character in it")
    outputs = [_plain_output(output) for output in expected_outputs or ()]
    parts = [*(name.encode() for name in names), canonical(dict(inputs or {})), canonical(outputs)]
    return "ik:" + hashlib.sha256(b"\n".join(parts)).hexdigest()


def _plain_output(output: Mapping[str, object]) -> dict[str, object]:
    required = output.get("required")
    plain: dict[str, object] = {"path": output["path"], "required": True if required is None else required}
    if output.get("description"):
        plain["description"] = output["description"]
    return plain


def conversation_id(run_id: str, key: str, generation: int = 0) -> str:
    """The id of an agent's own session for one step of a run (a UUID of version 5)."""
    name = f"urn:bartack:{run_id}:{key}" + (f":{generation}" if generation else "")
    digest = hashlib.sha1(_NAMESPACE_URL + name.encode(), usedforsecurity=False).digest()
    return _uuid(digest[:16], version=5)


def correlation_id(run_id: str, task_id: str, action: str, path: str, epoch: int, step: int) -> str:
    """What the messages about one step have in common, on all attempts."""
    identity = f"{run_id}\n{path}\n{epoch}\n{step}"
    return f"corr-{task_id[:64]}-{action}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def new_message_id() -> str:
    """A fresh id for a line (a UUID of version 4)."""
    return _uuid(os.urandom(16), version=4)


def _uuid(raw: bytes, version: int) -> str:
    data = bytearray(raw)
    data[6] = data[6] & 0x0F | version << 4
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def moment(us: int) -> str:
    """Microseconds since 1970 as RFC 3339 in UTC, with six digits."""
    seconds, rest = divmod(us, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06d}Z"


def parse_moment(text: str) -> int | None:
    """Microseconds since 1970 of RFC 3339 text in UTC; ``None`` for any other text."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - few agents name a time

    whole, _, rest = text.removesuffix("Z").partition(".")
    try:
        at = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
        fraction = int((rest + "000000")[:6])
    except ValueError:
        return None
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + fraction

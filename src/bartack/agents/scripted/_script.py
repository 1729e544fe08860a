"""The form of scripts: what a scripted agent does and says, with the faults it shows on purpose.

One file has replies to prompts (``prompts``) and to the actions of the line protocol (``responses``). It is JSON or TOML.
Scripts of the older tool are read as they are: ``delay_ms``, a ``comment``, and payloads in its words (``EventSpec.said``).
"""

from __future__ import annotations

import base64
import binascii
import os
import tomllib
from collections.abc import Mapping
from typing import Final, Literal, cast

import msgspec

from bartack.agents.protocol.messages import Usage, Version
from bartack.core import typed
from bartack.core.paths import safe_join
from bartack.errors import ScriptError, UnsafePathError

At = Literal["start", "before", "before_terminal", "after_terminal"]
Do = Literal[
    "exit",
    "crash",
    "hang",
    "oversize",
    "malformed",
    "null",
    "not_utf8",
    "blank",
    "torn",
    "duplicate",
    "late",
    "wrong_key",
    "wrong_correlation",
    "wrong_sender",
    "wrong_task",
    "unknown_kind",
    "unknown_event",
    "wrong_version",
    "slow_heartbeats",
    "no_heartbeats",
    "frozen_activity",
    "log_flood",
    "stderr_flood",
    "spawn",
    "stop_reading",
    "ignore_eof",
    "ignore_term",
]


class Write(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A change of a file; the path stays inside the agent's directory, unless it is ``unsafe``."""

    path: str
    content: str = ""
    content_b64: str = ""
    append: bool = False
    delete: bool = False
    mode: int | None = None
    unsafe: bool = False


class ArtifactSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file to name in an event; sums that are not given are computed."""

    path: str
    sha256: str | None = None
    size: int | None = None


class EventSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An event to send."""

    type: str = ""
    event: str = ""
    status: str | None = None
    payload: dict[str, object] | None = None
    artifacts: list[ArtifactSpec] | None = None
    usage: Usage | None = None
    observed_version: Version | Literal["echo", "omit"] = "echo"
    delay_s: float = 0.0

    @property
    def name(self) -> str:
        """The event's name, from either member."""
        return self.type or self.event

    @property
    def said(self) -> dict[str, object] | None:
        """The payload; members of the older tool are there under our names, too."""
        if self.payload is None:
            return None
        if self.name in _WITH_FINDINGS and not self.payload.get("findings"):
            listed = [self.payload.get(name) for name in _OLDER_FINDINGS]
            found = [
                _finding(item)
                for items in listed
                if isinstance(items, list)
                for item in cast("list[object]", items)
            ]
            return {**self.payload, "findings": found} if found else self.payload
        if self.name == "error" and "code" not in self.payload:
            message = self.payload.get("message") or self.payload.get("error") or "internal_error"
            return {"code": "internal_error", "message": str(message), **self.payload}
        return self.payload


_WITH_FINDINGS: Final = frozenset({"review.completed", "spec.changes_requested"})
_OLDER_FINDINGS: Final = ("issues", "required_changes")


def _finding(item: object) -> object:
    """A finding from an item of the older lists: a text, or an object that may have its text under another name."""
    if isinstance(item, str):
        return {"message": item}
    if isinstance(item, dict) and "message" not in item:
        given = cast("dict[str, object]", item)
        text = next((given[name] for name in ("description", "title", "summary") if name in given), None)
        return given if text is None else {**given, "message": text}
    return item  # pyright: ignore[reportUnknownVariableType] - whatever it is, the boundary looks at it


class When(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which calls a reply is for."""

    task: str | None = None
    cause: str | None = None
    round: int | None = None
    attempt: int | None = None
    input: dict[str, object] = {}


class ErrorSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An error to send instead of an answer."""

    code: str
    message: str = ""
    retryable: bool | None = None
    retry_after_s: float | None = None
    resets_at: str | None = None


class Logs(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Log lines to send before the events."""

    count: int
    level: Literal["debug", "info", "warn", "error"] = "info"
    bytes: int = 0


class Inject(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A fault to show, and how often; each fault uses some of the members."""

    do: Do
    at: At = "before_terminal"
    times: int = 1
    code: int = 1
    signal: str = "KILL"
    heartbeats: bool = False
    bytes: int = 0
    instead: bool | None = None
    text: str = '{"kind":"event",'
    then: Literal["exit", "newline"] = "exit"
    count: int = 1
    s: float = 0.0
    every_s: float = 60.0
    seconds: float = 1.0
    writes: str = ""


class Reply(msgspec.Struct, omit_defaults=True):
    """What the agent does and writes for one call."""

    when: When | None = None
    times: int | None = None
    delay_s: float = 0.0
    delay_ms: float = 0.0
    """The same in the words of the older tool."""
    says: str = ""
    """What it reports as its progress before it waits."""
    write: list[Write] = []
    events: list[EventSpec] = []
    error: ErrorSpec | str | None = None
    logs: Logs | None = None
    inject: list[Inject] = []
    metadata: dict[str, object] = {}

    @property
    def wait_s(self) -> float:
        """How long to wait first, in seconds."""
        return self.delay_s or self.delay_ms / 1000


class Defaults(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Used where a reply does not set it."""

    delay_s: float = 0.0
    on_exhausted: Literal["repeat_last", "cycle", "error", "hang"] = "repeat_last"


_REPLY_MEMBERS: Final = frozenset(Reply.__struct_fields__)


def load_script(path: str | os.PathLike[str], agent: str) -> dict[str, object]:
    """The content of a script file: JSON if its name ends so, else TOML.

    Raises:
        ScriptError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
        if os.fspath(path).endswith(".json"):
            return typed.decode(data, type=dict[str, object])
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ScriptError(agent, f"{os.fspath(path)}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise ScriptError(agent, f"{os.fspath(path)}: {error}") from None


def ignored_members(script: Mapping[str, object]) -> list[str]:
    """Unknown members of replies, by their place."""
    found: list[str] = []
    responses = script.get("responses")
    for action, given in cast("dict[str, object]", responses if isinstance(responses, dict) else {}).items():
        replies = cast("list[object]", given if isinstance(given, list) else [given])
        for number, reply in enumerate(replies):
            if isinstance(reply, dict):
                unknown = cast("dict[str, object]", reply).keys() - _REPLY_MEMBERS
                found += [f"responses.{action}[{number}].{name}" for name in sorted(unknown)]
    return found


def apply_write(root: str, write: Write) -> None:
    """Change a file.

    Raises:
        UnsafePathError: The path leads out of ``root``.
        OSError: The file cannot be changed.
    """
    path = os.path.join(root, write.path) if write.unsafe else str(safe_join(root, write.path))
    if write.delete:
        os.unlink(path)
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        content = base64.b64decode(write.content_b64, validate=True) if write.content_b64 else b""
    except binascii.Error as error:
        raise UnsafePathError(write.path, f"content_b64 is not Base64: {error}") from None
    with open(path, "ab" if write.append else "wb") as file:
        file.write(content or write.content.encode())
    if write.mode is not None:
        os.chmod(path, write.mode)

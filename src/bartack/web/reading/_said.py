"""Lines of a call as pages show them: of its transcript, or of the wire."""

from __future__ import annotations

from typing import Final, cast, get_args

import msgspec

from bartack.core import typed
from bartack.runtime.protocol.steps import UsageFacts
from bartack.web.following._runs import moment_us
from bartack.web.models._talk import LineData, SaidKind, SaidLine, SaidPhase

_PREFIX: Final = "agent."
_KINDS: Final = frozenset(get_args(SaidKind)) - {"wire", "other"}
_PHASES: Final = frozenset(get_args(SaidPhase))
_SHOWN: Final = frozenset(
    {"n", "at", "event", "text", "tool", "phase", "input", "duration_s", "usage", "id", "line"}
)
"""Members that have a place of their own, or that only programs need."""


def said_line(line: LineData) -> SaidLine:
    """A line for people. It was written by an agent: each member may be anything."""
    event = str(line.get("event", ""))
    kind = event.removeprefix(_PREFIX)
    known = event.startswith(_PREFIX) and kind in _KINDS
    phase, took, number = str(line.get("phase", "")), line.get("duration_s"), line.get("n")
    return SaidLine(
        n=number if isinstance(number, int) else 0,
        at=moment_us(str(line.get("at", ""))),
        kind="wire" if "line" in line else cast("SaidKind", kind) if known else "other",
        text=_text(line.get("line", line.get("text", ""))),
        tool=_text(line.get("tool", "")),
        phase=cast("SaidPhase", phase if phase in _PHASES else ""),
        input=_text(line.get("input", "")),
        took_s=float(took) if isinstance(took, int | float) else None,
        usage=_usage(line.get("usage")),
        facts=[
            _fact(name, value)
            for name, value in line.items()
            if name not in _SHOWN and value not in ("", None)
        ],
    )


def _fact(name: str, value: object) -> tuple[str, str]:
    """A member of a line in words: ``delay_s: 2.0`` is "delay 2.0 s"."""
    words = name.removesuffix("_s").replace("_", " ")
    return words, f"{_text(value)} s" if name.endswith("_s") else _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _usage(value: object) -> UsageFacts | None:
    try:
        return None if value is None else typed.convert(value, type=UsageFacts)
    except msgspec.ValidationError:
        return None

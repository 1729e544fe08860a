"""What the demos share: events, and a proof with the way in which it is shown."""

from __future__ import annotations

from typing import NamedTuple

from bartack.cli.app._terminal import Screen


class Check(NamedTuple):
    """One part of a proof."""

    name: str
    ok: bool
    sentence: str


class Event(NamedTuple):
    """An event of the demo, with its time in seconds after the start."""

    after_s: float
    what: str
    killed: bool = False


def show_proof(screen: Screen, checks: list[Check], source: str) -> None:
    """Write a proof, one line for each part."""
    screen.line()
    screen.line(screen.paint("Proof", "bold") + f", {source}:")
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        mark = screen.paint("ok", "green") if check.ok else screen.paint("FAIL", "red")
        rows.append((mark, check.name, check.sentence))
    screen.table(rows)

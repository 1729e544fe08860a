"""A proof: what was checked, and how that is shown."""

from __future__ import annotations

from typing import NamedTuple

from bartack.cli.app._terminal import Screen


class Check(NamedTuple):
    """One part of a proof."""

    name: str
    ok: bool
    sentence: str


def show_proof(screen: Screen, checks: list[Check], source: str) -> None:
    """Write a proof, one line for each part."""
    screen.line()
    screen.line(screen.paint("Proof", "bold") + f", {source}:")
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        mark = screen.paint("ok", "green") if check.ok else screen.paint("FAIL", "red")
        rows.append((mark, check.name, check.sentence))
    screen.table(rows)

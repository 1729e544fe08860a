"""The page of a run: questions, timeline, what is open, mailboxes, what agents say, the last output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bartack.runtime.protocol.steps import MEANINGS
from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.reading._moment import read_result
from bartack.web.reading._words import AgentWords
from bartack.web.streams._parts import OverviewParts, Part

GROUPS: Final = (
    "question",
    "failure",
    "worker",
    "open_title",
    "open",
    "mailbox",
    "words",
    "output",
    "travel",
)
"""The templates of its parts besides the head."""


async def _read(page: RunPage) -> Mapping[str, object]:
    words = AgentWords() if page.view.is_live else None
    groups: dict[str, list[Part]] = {name: [] for name in GROUPS}
    reader = OverviewParts(words)
    for part in reader.parts(page.view):
        if part.template in groups:
            groups[part.template].append(part)
    return {
        "groups": groups,
        "left_out": reader.left_out,
        "result": read_result(page.view),
        "meanings": MEANINGS,
    }


PAGE: Final = RunTab("", "Overview", "overview.html", _read, view="overview")

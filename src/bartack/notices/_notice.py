"""Facts of a run, and the notices that are made of them. No I/O: time and secrets are parameters.

A *fact* is one thing that a person may want to know; its ``place`` names the entry that it follows from. A *notice* is what is sent
of it. Its id is made of the run, the place and the kind, so the same fact has the same id in every process and after every crash,
and a receiver can recognise a notice that it gets twice.

Texts of agents and programs are quoted in one line at most: without secrets, control characters and line breaks, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from bartack.config.notices import NoticeKind
from bartack.core.text import cut

TEXT_MOST: Final = 200
"""Characters of a text of an agent that are quoted."""
_READ_MOST: Final = 65_536
"""Characters of a text that are looked at; what is quoted of it is far shorter."""

Hide = Callable[[str], str]
"""Takes the secrets out of a text."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person may want to know of a run.

    Attributes:
        kind: What it is.
        place: What it follows from: the number of an entry, of a question, or of a hub.
        at: When it happened, in microseconds since 1970.
        text: What an agent or a program says about it.
        question: The number of the question.
        until: When a pause ends, in microseconds since 1970.
        status: How the run ended; ``held``: the node holds it.
        is_of_node: Whether the node resumes the run, or holds it and sends why: nothing is sent if it does so soon.
    """

    kind: NoticeKind
    place: str
    at: int
    text: str = ""
    question: str = ""
    until: int = 0
    status: str = ""
    is_of_node: bool = False


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The run that facts are about, or the schedule that no run was started of."""

    run: str = ""
    run_dir: str = ""
    project: str = ""
    schedule: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent. Commands and webhooks get it as JSON."""

    id: str
    kind: NoticeKind
    run: str = ""
    project: str
    at: str
    title: str
    schedule: str = ""
    text: str = ""
    question: str = ""
    until: str = ""
    link: str = ""
    next: str = ""
    """The command that a person may want to execute."""


def notice_id(subject: Subject, fact: Fact) -> str:
    """The id of the notice of a fact."""
    return f"{subject.run or f'schedule-{subject.schedule}'}:{fact.place}:{fact.kind}"


def make_notice(subject: Subject, fact: Fact, link: str, hide: Hide) -> Notice:
    """The notice of a fact."""
    project = quoted(subject.project or subject.run, hide, 60)
    title, following = (
        _words(subject.run, project, fact) if subject.run else _words_of_schedule(subject.schedule, project)
    )
    fields = {"run": subject.run, "question": fact.question, "project": project, "kind": fact.kind}
    return Notice(
        id=notice_id(subject, fact),
        kind=fact.kind,
        run=subject.run,
        project=project,
        at=_iso(fact.at),
        title=title,
        schedule=subject.schedule,
        text=quoted(fact.text, hide),
        question=fact.question,
        until=_iso(fact.until) if fact.until else "",
        link=fill_link(link, fields) if subject.run else "",
        next=following,
    )


def _words(run: str, project: str, fact: Fact) -> tuple[str, str]:
    """The title, and the command that follows."""
    match fact.kind:
        case "question":
            return (
                f"{project}: {fact.question} waits for your answer",
                f"bartack answer {run} {fact.question}",
            )
        case "ended":
            return f"{project}: the run is {fact.status or 'completed'}", f"bartack show {run}"
        case "failed" if fact.status == "held":
            return f"{project}: the run is held", f"bartack queue add {run}"
        case "failed":
            return f"{project}: the run failed", f"bartack resume {run}"
        case "budget":
            return f"{project}: the budget is used up", f"bartack show {run}"
        case "paused":
            return f"{project}: an agent is paused until {_iso(fact.until)}", f"bartack status {run}"


def _words_of_schedule(schedule: str, project: str) -> tuple[str, str]:
    """The same for a schedule that started no run."""
    return f"{project}: the schedule {schedule} started no run", "bartack schedule list"


def quoted(text: str, hide: Hide, most: int = TEXT_MOST) -> str:
    """A text of a program or an agent as one line that is safe to show: secrets first, since a cut one would not be recognised."""
    line = " ".join(hide(text[:_READ_MOST]).split())[: most + 1]
    line = "".join(_visible(letter) for letter in line)
    return cut(line, most)


def _visible(letter: str) -> str:
    """A character, or its escape if it is invisible, a control character or not a character at all."""
    return letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()


def fill_link(template: str, fields: Mapping[str, str]) -> str:
    """The link of a notice; no value can change what it leads to beyond its own place in it."""
    return (
        template.format_map({name: quote(value, safe="") for name, value in fields.items()})
        if template
        else ""
    )


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

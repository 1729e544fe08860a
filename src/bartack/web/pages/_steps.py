"""The steps of a run as a table, and one step in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, get_args
from urllib.parse import quote, urlencode

from starlette.responses import RedirectResponse, Response

from bartack.errors import StepNotFoundError
from bartack.runtime.state.timeline import StepStatus
from bartack.web._queries import AtQuery, Number, StepsQuery, Text
from bartack.web.models._model import Shown
from bartack.web.models._steps import StepRow
from bartack.web.pages._frame import EVENTS, RunPage, RunTab
from bartack.web.reading._steps import StepFilter, read_step, read_steps
from bartack.web.streams._parts import Part

_SEE_OTHER: Final = 303


class OneStepQuery(AtQuery, frozen=True, kw_only=True):
    """Which step is shown: by its path and number; by its row alone, which leads there."""

    p: Text = ""
    n: Number = 0
    row: Number | None = None


async def _read(page: RunPage) -> Mapping[str, object]:
    query: StepsQuery = page.query
    wanted = StepFilter(
        query.worker, frozenset(query.kind), frozenset(query.status), query.q, everything=query.all
    )
    found = await read_steps(page.view, wanted, query.page)
    parts = [Part(f"s{step.row}", "step", step) for step in found.steps]
    is_last = found.page == found.pages
    return {
        "steps": found,
        "parts": parts,
        "query": query,
        "statuses": get_args(StepStatus),
        "is_last": is_last,
        "stream": _stream(page, query) if page.view.is_live else "",
        "pages": {
            name: _address(query, number)
            for name, number in (("earlier", found.page - 1), ("later", found.next))
            if number
        },
        "everything": _address(query, 0, everything=True),
    }


def _members(query: StepsQuery) -> dict[str, object]:
    members = {"worker": query.worker, "kind": query.kind, "status": list(query.status), "q": query.q}
    return {name: value for name, value in {**members, "all": query.all and "true"}.items() if value}


def _address(query: StepsQuery, number: int, *, everything: bool = False) -> str:
    """The address of a page of the table, from the page itself."""
    members = {**_members(query), "page": number, "at": query.at, **({"all": "true"} if everything else {})}
    return f"?{urlencode({name: value for name, value in members.items() if value}, doseq=True)}"


def _stream(page: RunPage, query: StepsQuery) -> str:
    members = {**_members(query), "view": "steps", "since": page.view.seq}
    return f"{EVENTS.format(run=quote(page.view.run.id))}?{urlencode(members, doseq=True)}"


async def _read_one(page: RunPage) -> Mapping[str, object] | Response:
    query: OneStepQuery = page.query
    if not query.p and query.row is not None:
        return RedirectResponse(_place_of(page, query.row), _SEE_OTHER)
    found = await read_step(page.view, query.p, query.n, query.row)
    return {"step": found, "outcome": _terminal(found, found.value)}


def _place_of(page: RunPage, row: int) -> str:
    """The address of the step in a row, which holds when the server is another one, too."""
    view = page.view
    if row >= view.spans.columns.rows.opened_by(view.seq):
        raise StepNotFoundError(view.run.id, f"row {row}")
    step = view.spans.step(row, view.seq)
    members = {"p": step.p, "n": step.n, "at": page.query.at}
    given = {name: value for name, value in members.items() if value is not None}
    return f"/r/{quote(view.run.id)}/step?{urlencode(given)}"


def _terminal(step: StepRow, value: Shown | None) -> Mapping[str, object]:
    """What a command wrote, if the step is one."""
    if step.kind != "shell" or value is None or not isinstance(value.value, dict):
        return {}
    return cast("Mapping[str, object]", value.value)


PAGE: Final = RunTab("steps", "Steps", "steps.html", _read, StepsQuery, view="steps")
ONE: Final = RunTab("step", "", "step.html", _read_one, OneStepQuery, parent="steps")

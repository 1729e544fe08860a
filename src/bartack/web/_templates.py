"""Renders the templates, with escaping on and no exception to it.

Every text that a template writes passes ``finalize``, where characters that cannot be seen become escapes, before it is escaped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from starlette.requests import Request
from starlette.responses import HTMLResponse

from bartack.web import _wording
from bartack.web._ansi import ansi_spans
from bartack.web._sessions import Session, find_session
from bartack.web._site import Site, site_of
from bartack.web._static import address_of

_FILTERS: Final[tuple[Callable[..., object], ...]] = (
    _wording.meaning,
    _wording.elapsed,
    _wording.age,
    _wording.took,
    _wording.clock,
    _wording.iso,
    _wording.under_way,
    _wording.usd,
    _wording.short,
    _wording.size,
    ansi_spans,
)


@cache
def environment() -> Environment:
    """The templates."""
    made = Environment(
        loader=PackageLoader("bartack.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
        auto_reload=False,  # a stream would look at the files of its templates for each part of each frame
    )
    known: dict[str, Any] = made.globals
    known["static"] = address_of
    made.filters["as_json"] = _as_json
    made.filters["as_line"] = _as_line
    made.filters["as_ascii"] = json.dumps
    filters: dict[str, Any] = made.filters
    filters |= {one.__name__: one for one in _FILTERS}
    return made


def _finalize(value: object) -> object:
    """What is shown of a value that a template writes; markup, which has this method, comes from our own macros only."""
    return _wording.visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _as_json(model: object) -> str:
    """A model as text, for a template that shows it as it is."""
    return msgspec.json.format(msgspec.json.encode(model), indent=1).decode()


def _as_line(value: object) -> str:
    """A value as JSON in one line."""
    return msgspec.json.encode(value).decode()


def page_values(site: Site, session: Session | None, here: str) -> dict[str, object]:
    """What every template can use.

    Args:
        site: The site.
        session: The session, if the browser has entered.
        here: The address of the page, which its forms lead back to.

    Returns:
        ``site``, ``session``, ``here``; ``csrf``, which every form has as a field; ``may_act``, whether there are forms at all;
        ``now``, the moment.
    """
    return {
        "site": site,
        "session": session,
        "here": here,
        "csrf": "" if session is None else session.csrf,
        "may_act": session is not None and not site.read_only,
        "now": time.time_ns() // 1000,
    }


class PartRenderer:
    """Renders parts of a page for the session that shows it, after the page itself.

    Args:
        site: The site.
        session: The session.
        here: The address of the page.
        base: The address of its run; empty: it is a list.
    """

    def __init__(self, site: Site, session: Session, here: str, base: str = "") -> None:
        self._values = (site, session, here)
        self._base = base

    def render(self, template: str, id: str, model: object) -> str:  # noqa: A002 - the name in templates
        """A part of a page, in which the model is called ``it``, and the address of the run ``base``.

        A part that has no template of its own is shown as JSON.
        """
        return _part(template).render(id=id, it=model, base=self._base, **page_values(*self._values))


@cache
def _part(name: str) -> Template:
    return environment().select_template([f"parts/{name}.html", "part.html"])


def render(
    request: Request, template: str, values: Mapping[str, object] | None = None, *, status: int = 200
) -> HTMLResponse:
    """A page. See ``page_values`` for what its template has besides these values."""
    query = str(request.scope["query_string"], "latin-1")
    here = f"{request.scope['path']}{f'?{query}' if query else ''}"
    page = environment().get_template(template)
    html = page.render(**page_values(site_of(request), find_session(request), here), **(values or {}))
    return HTMLResponse(html, status)

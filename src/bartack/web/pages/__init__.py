"""The pages, as browsers get them: HTML that is complete without script, which the modules in ``static/`` keep up to date.

To add a page of a run, write three things:

1. A module here with ``PAGE``, a ``RunTab``: its path below ``/r/RUN``, the words on its tab (none: it has no tab), its template,
   the members of its query, and a function that reads the values of its template from a ``RunPage`` (a run at an entry, and the
   query). Put it into ``RUN_PAGES``, in the order of the tabs.
2. ``templates/NAME.html``, which extends ``run_frame.html`` and fills ``{% block page %}``. Head, tabs, actions and states (the
   journal is being read, damaged, newer, deleted) come with the frame. Values are models of ``web/models``: typed, without secrets.
3. A line in ``tests/web/pages.py``: from then on the tests of all pages look at it, on the server and in a browser.

What changes while the page is open is a *part*: an element with an id of ours, a model, and a template ``parts/NAME.html``, in
which they are ``id`` and ``it``. The page includes it with the macro ``parts`` of ``_macros.html``, and the streams send it when
its model has changed. Then ``live.js`` puts it in the place of the element with its id, or, if there is none, into the element
whose ``data-parts`` are the letters that the id begins with, by its ``data-order``. Every page of a run gets the parts of its
head; one that has more names its view in ``RunTab.view``.

Templates have no ``|safe``, ``style=`` or ``on…=``; a class has a name of a closed set; an address is made of our own words and
``|urlencode``. Signs are beside words, never instead of them. A form is a POST to an address of ``_actions.py`` and has the macro
``fields``; with ``data-live`` the page stays and waits for the entry. A module in ``static/`` is imported by ``app.js``, or by
``{% block head %}`` of the one page that needs it. Values, output for terminals and source lines have macros in ``_values.html``.

Read ``_frame.py`` first, then ``_overview.py``.
"""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute

from bartack.web.pages import (
    _failure,
    _journal,
    _lists,
    _mail,
    _money,
    _overview,
    _patterns,
    _steps,
    _talk,
    _work,
)
from bartack.web.pages._frame import run_routes

RUN_PAGES: Final = (
    _overview.PAGE,
    _steps.PAGE,
    _steps.ONE,
    _mail.MESSAGES,
    _mail.MAILBOXES,
    _mail.LETTER,
    _talk.PAGE,
    _talk.ONE,
    _failure.PAGE,
    _money.PAGE,
    _work.RECEIPTS,
    _work.RECEIPT,
    _work.SNAPSHOTS,
    _journal.LOG,
    _journal.JOURNAL,
    _journal.PROGRAM,
)
"""The pages of a run, in the order of their tabs."""

ROUTES: Final[list[BaseRoute]] = [*_lists.ROUTES, *_patterns.ROUTES, *run_routes(RUN_PAGES)]

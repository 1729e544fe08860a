"""All pages, for the tests that look at each of them; and how a page is taken apart."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final, NamedTuple

KEY: Final = "ik:" + "0" * 64
"""A call of an agent that every written run has."""

LISTS: Final = {
    "runs": "/runs",
    "first page": "/",
    "runs by status": "/runs?status=failed&status=waiting&q=team",
    "questions": "/questions",
    "patterns": "/patterns",
    "orphans": "/patterns?orphans=true",
}
"""Pages that are not of one run."""

RUN_PAGES: Final = {
    "overview": "",
    "steps": "/steps",
    "steps that fit": "/steps?kind=shell&status=open&q=x&worker=main",
    "step": "/step?p=main&n=1",
    "calls": "/talk",
    "call": f"/talk/{KEY}",
    "wire": f"/talk/{KEY}?raw=true",
    "messages": "/messages",
    "messages that fit": "/messages?mailbox=x&status=queued",
    "mailboxes": "/mailboxes",
    "dead letter": "/letters/dl-b3f78b5a204c",
    "failure": "/failure",
    "money": "/money",
    "receipts": "/receipts",
    "snapshots": "/snapshots",
    "log": "/log",
    "journal": "/journal",
    "journal from an entry": "/journal?from=2",
    "program": "/program",
}
"""Pages of a run, by what follows its address. Every run that tests write has a step ``main:1``, the letter ``m-9`` and a call."""

PIPELINE_PAGES: Final = {
    "pipeline": "",
    "receipts of the pipeline": "/receipts",
    "receipt": "/receipts/weeks/1",
    "snapshots of the pipeline": "/snapshots",
    "two snapshots": "/snapshots?a=snap-e94d6745a5a7&b=snap-026019feae98",
}
"""Pages that only a run of the pipeline has, or fills: those of the recorded one."""

PATTERN_PAGES: Final = {
    "pattern": "/patterns/bottom",
    "two versions": "/patterns/bottom?version=1.1.0&other=1.0.0",
    "pattern that is only named": "/patterns/lost/one",
}
"""Pages of the patterns that ``track_patterns`` of ``showcase.py`` records."""

_WORD: Final = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VOID: Final = frozenset({"meta", "link", "input", "path", "img", "br"})


class Element(NamedTuple):
    """An element, and its attributes."""

    tag: str
    attributes: dict[str, str]


class Markup(HTMLParser):
    """A page or a part of one, taken apart.

    Attributes:
        elements: Its elements, in order.
        text: What it says, without markup.
        texts: What each element with an id says.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.text = ""
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self._ids: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See ``HTMLParser``."""
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute is there twice: {tag} {attrs}"
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)
            self._ids.append(dict(attrs).get("id") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See ``HTMLParser``."""
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """See ``HTMLParser``."""
        assert self._open.pop() == tag, f"{tag} is closed, and was not the last to be opened"
        self._ids.pop()

    def handle_data(self, data: str) -> None:
        """See ``HTMLParser``."""
        self.text += data
        for name in filter(None, self._ids):
            self.texts[name] = self.texts.get(name, "") + data

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which elements with which attributes there are: the same for all texts. Colours and lines of texts do not count."""
        return [
            (element.tag, tuple(element.attributes))
            for element in self.elements
            if not element.attributes.get("class", "").startswith(("t-", "source-line", "number"))
        ]

    def find(self, tag: str, **wanted: str) -> list[Element]:
        """The elements of a name with these attributes."""
        return [
            element
            for element in self.elements
            if element.tag == tag and wanted.items() <= element.attributes.items()
        ]

    def check(self) -> None:
        """Raise if something is there that no page has."""
        ids = [element.attributes["id"] for element in self.elements if "id" in element.attributes]
        assert sorted(set(ids)) == sorted(ids), "an id is there twice"
        for tag, attributes in self.elements:
            for name, value in attributes.items():
                assert not re.match("on|style$", name), (tag, name, value)
                if name in {"id", "for", "class", "aria-labelledby"}:
                    assert all(_WORD.fullmatch(word) for word in value.split()), (tag, name, value)
                if name in {"href", "src", "action"}:
                    assert re.match(r"[?#]|/(?!/)", value), (tag, name, value)
            assert tag != "script" or attributes.get("src", "").startswith("/static/"), (
                "a script is in the page"
            )
            assert tag not in {"style", "iframe", "object", "embed", "base"}, tag

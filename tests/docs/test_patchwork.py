"""The reference of Patchwork names what the language has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bartack.language import CATALOGUE, tree
from bartack.language import _library as library
from bartack.language._types import ARRAY, DELIVERY, MAILBOX, RESULT, SESSION, STRING

PAGE = (Path(__file__).parents[2] / "docs/reference/patchwork.md").read_text(encoding="utf-8")


def named(section: str) -> set[str]:
    """The words in the code of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}


@pytest.mark.requirement("language-is-documented")
def test_every_code_is_on_the_page_with_its_severity_and_its_title() -> None:
    rows = re.findall(r"^\| `(PW\d+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)

    shown = [(code, severity, title.replace("\\|", "|")) for code, severity, title in rows]
    assert shown == [(code, entry.severity, entry.title) for code, entry in sorted(CATALOGUE.items())]


@pytest.mark.requirement("language-is-documented")
def test_everything_built_in_is_on_the_page() -> None:
    assert {*library.FUNCTIONS, *library.VALUES} - named("Library") == set()
    for kind, section in (
        *((kind, "Values") for kind in (STRING, ARRAY, RESULT)),
        *((kind, "Session, mailboxes, delegate") for kind in (MAILBOX, DELIVERY, SESSION)),
    ):
        found = library.members(kind)
        assert found
        assert set(found[1]) - named(section) == set()


def test_every_option_and_member_of_self_is_on_the_page() -> None:
    known = {*library.SELF_MEMBERS, *library.DELEGATE_OPTIONS, *library.SEND_OPTIONS}

    assert known - named("Session, mailboxes, delegate") == set()


def test_every_keyword_is_on_the_page() -> None:
    assert tree.KEYWORDS - named("Text") == set()


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"Nesting {tree.MAX_DEPTH} deep" in PAGE

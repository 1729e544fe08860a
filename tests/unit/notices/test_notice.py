"""What is sent of a fact: ids, words, links, and texts of agents that cannot do harm."""

from __future__ import annotations

import json

import msgspec
import pytest

from bartack.core.redact import Redactor
from bartack.notices import Fact, Notice, Subject, make_notice, quoted

SUBJECT = Subject(run="run-1", run_dir="/runs/run-1", project="shop")
AT = 1_767_225_600_000_000
HOSTILE = [
    "\x1b]0;title\x07\x1b[2J gone",
    "one\r\ntwo\nthree\u2028four\x85five",
    "\u202eevil\u200b\u0000\ud800",
    "x" * 1_000_000,
    "\n" * 1_000_000,
]


def plain(text: str) -> str:
    return text


def notice(**facts: object) -> Notice:
    fact = msgspec.convert({"kind": "question", "place": "q4", "at": AT, "question": "q4", **facts}, Fact)
    return make_notice(SUBJECT, fact, "", plain)


@pytest.mark.requirement("one-notice-for-one-fact")
def test_the_id_is_made_of_run_place_and_kind() -> None:
    assert notice().id == "run-1:q4:question"
    assert notice(kind="budget", place="17").id == "run-1:17:budget"


@pytest.mark.requirement("notices-quote-one-safe-line")
@pytest.mark.parametrize("text", HOSTILE, ids=["escapes", "lines", "invisible", "long", "blank"])
def test_a_text_of_an_agent_is_one_short_printable_line(text: str) -> None:
    found = notice(text=text).text

    assert found.isprintable()
    assert len(found) <= 200
    assert json.loads(msgspec.json.encode(notice(text=text)))["id"] == "run-1:q4:question"


@pytest.mark.requirement("notices-have-no-secrets")
def test_a_secret_is_taken_out_before_the_text_is_cut() -> None:
    redactor = Redactor({"SHOP_TOKEN": "hunter2-hunter2"})

    found = quoted("a" * 193 + " hunter2-hunter2", redactor.redact_text)

    assert "hunter2" not in found
    assert "$env" in found


@pytest.mark.requirement("notices-have-links")
def test_a_link_has_the_run_and_the_question_and_nothing_can_leave_its_place() -> None:
    link = "https://team.example/{project}/{run}?q={question}&k={kind}"
    subject = Subject(run="run-1", run_dir="", project="a/../b?c#d e")
    fact = Fact(kind="question", place="q4", at=AT, question="q4")

    found = make_notice(subject, fact, link, plain).link

    assert found == "https://team.example/a%2F..%2Fb%3Fc%23d%20e/run-1?q=q4&k=question"


def test_without_a_template_there_is_no_link() -> None:
    assert notice().link == ""


@pytest.mark.parametrize(
    ("facts", "title", "following"),
    [
        ({}, "shop: q4 waits for your answer", "bartack answer run-1 q4"),
        ({"kind": "ended", "status": "cancelled"}, "shop: the run is cancelled", "bartack show run-1"),
        ({"kind": "failed"}, "shop: the run failed", "bartack resume run-1"),
        ({"kind": "budget"}, "shop: the budget is used up", "bartack show run-1"),
        (
            {"kind": "paused", "until": AT},
            "shop: an agent is paused until 2026-01-01T00:00:00Z",
            "bartack status run-1",
        ),
    ],
)
def test_each_kind_says_what_happened_and_what_to_do(
    facts: dict[str, object], title: str, following: str
) -> None:
    found = notice(**facts)

    assert (found.title, found.next) == (title, following)

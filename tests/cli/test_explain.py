from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from bartack.agents.protocol.codes import AGENT_CODES, OWN_CODES
from bartack.cli.app._explain import HUNDREDS, summary_of
from bartack.errors import BartackError, iter_errors

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("kind", iter_errors(), ids=lambda kind: kind.code)
def test_every_code_is_explained(call: Call, kind: type[BartackError]) -> None:
    shown = call("explain", kind.code)

    assert shown.returncode == 0
    assert shown.stdout.startswith(f"{kind.code}  {kind.__name__}\n")
    text = " ".join(shown.stdout.split())
    assert " ".join((kind.__doc__ or "").split()) in text
    assert " ".join(kind.remedy.split()) in text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("PW120", "PW120  error\n\nWhat it means\n  In a Patchwork program: a name that is not defined.\n"),
        ("pw201", "`# pw: ignore[CODE]`"),
        ("PW294", "`bartack fmt --upgrade`"),
        (
            "PW200",
            'Wrong\n  var count = 1\n  if count = 1 { print("one") }\n\nRight\n  var count = 1\n  if count == 1 {',
        ),
    ],
)
def test_a_code_of_a_patchwork_program_is_explained(call: Call, asked: str, told: str) -> None:
    shown = call("explain", asked)

    assert shown.returncode == 0
    assert told in shown.stdout


def test_programs_of_a_code_are_there_for_programs_too(call: Call) -> None:
    shown = json.loads(call("explain", "PW155", "--json").stdout)

    assert shown["wrong"] == "$ cd src; make\n"
    assert shown["right"] == "$ cd src && make\n"


def test_an_unknown_code_of_a_patchwork_program_is_answered_with_near_ones(call: Call) -> None:
    shown = call("explain", "PW129x")

    assert shown.returncode == 7
    assert "PW120 or PW121 or PW122?" in shown.stderr


@pytest.mark.parametrize("asked", ["BT201", "bt201", "201", " Bt201 "])
def test_a_code_may_be_written_in_several_ways(call: Call, asked: str) -> None:
    assert call("explain", asked).stdout == call("explain", "BT201").stdout


@pytest.mark.parametrize(("asked", "near"), [("BT2013", "BT201"), ("bt209x", "BT209"), ("21", "BT219")])
def test_an_unknown_code_is_answered_with_near_ones(call: Call, asked: str, near: str) -> None:
    shown = call("explain", asked)

    assert shown.returncode == 7
    assert shown.stderr.startswith(f"error[BT1001]: no error has the code {asked!r}; did you mean BT")
    assert near in shown.stderr.splitlines()[0]


@pytest.mark.parametrize("asked", ["", "BT", "nonsense", "BT0201", "\x1b[31m"])
def test_what_is_no_code_is_an_error_like_any_other(call: Call, asked: str) -> None:
    shown = call("explain", asked)

    assert shown.returncode == 7
    assert shown.stderr.startswith("error[BT1001]: no error has the code ")
    assert "\x1b" not in shown.stderr


def test_without_a_code_all_are_listed_by_hundreds(call: Call) -> None:
    shown = call("explain").stdout

    places = [shown.index(f"  {kind.code} ") for kind in iter_errors()]
    assert places == sorted(places)
    headings = [line for line in shown.splitlines() if line and not line.startswith((" ", "'"))]
    hundreds = {int(kind.code.removeprefix("BT")) // 100 for kind in iter_errors()}
    assert headings == [HUNDREDS[hundred].capitalize() for hundred in sorted(hundreds)]
    assert all(summary_of(kind) in shown for kind in iter_errors())


def test_every_hundred_in_use_has_a_name() -> None:
    assert {int(kind.code.removeprefix("BT")) // 100 for kind in iter_errors()} <= set(HUNDREDS)


def test_for_programs_the_list_is_json(call: Call) -> None:
    listed = json.loads(call("explain", "--json").stdout)

    assert [line["code"] for line in listed] == [kind.code for kind in iter_errors()]
    assert json.loads(call("explain", "202", "--json").stdout) in listed
    locked = next(line for line in listed if line["code"] == "BT202")
    assert (locked["name"], locked["retryable"], locked["exit_code"]) == ("JournalLockedError", True, 5)
    assert set(locked) == {"code", "name", "meaning", "help", "retryable", "exit_code"}


@pytest.mark.parametrize("asked", ["MessageValueError", "messagevalueerror"])
def test_an_error_is_explained_by_its_name(call: Call, asked: str) -> None:
    assert call("explain", asked).stdout.split()[1] == "MessageValueError"


@pytest.mark.parametrize("asked", ["invalid_reply", "[invalid_reply]"])
def test_the_reason_in_brackets_is_explained(call: Call, asked: str) -> None:
    shown = call("explain", asked).stdout

    assert shown.startswith(
        "invalid_reply  the reason why an agent's attempt failed\n  Bartack sends the command again"
    )
    assert "AgentReplyError" in shown
    assert json.loads(call("explain", asked, "--json").stdout)["reason"] == "invalid_reply"


def test_every_reason_of_agents_is_explained(call: Call) -> None:
    for reason, code in {**AGENT_CODES, **OWN_CODES}.items():
        assert code.error.__name__ in call("explain", reason).stdout


def test_a_name_that_is_nearly_right_is_suggested(call: Call) -> None:
    assert "did you mean invalid_reply" in call("explain", "invalid_replay").stderr

"""Which step answers: by what a conversation has in it, never by what the server remembers of it."""

from __future__ import annotations

import re

import msgspec
import pytest

from bartack.errors import ScriptError
from bartack.testing.model._conversation import Conversation, ToolResult, Turn
from bartack.testing.model._director import Director, Place, place_of
from bartack.testing.model._script import TokenUsage, read_scripts

TOOLS = {"Bash": "", "Read": ""}
ASK = Turn("user", "please [[script:one]]")
NEXT = Turn("assistant", "first")


def talk(*turns: Turn, size: int = 400) -> Conversation:
    return Conversation(turns, TOOLS, "m", stream=True, cwd="/here", size_bytes=size)


@pytest.mark.requirement("steps-need-no-memory")
def test_the_number_of_replies_after_the_mark_is_the_step() -> None:
    assert place_of(talk(ASK)) == Place("one", 0)
    assert place_of(talk(ASK, NEXT)) == Place("one", 1)
    assert place_of(talk(ASK, NEXT, Turn("user", results=(ToolResult("x", "y"),)), NEXT)) == Place("one", 2)


def test_the_newest_mark_names_the_script() -> None:
    assert place_of(talk(ASK, NEXT, Turn("user", "[[script:two]]"))) == Place("two", 0)
    assert place_of(talk(ASK, NEXT, Turn("user", "continue"))) == Place("one", 1)
    assert place_of(talk(Turn("user", "[[script:a]] [[script:b-1.x]]"))) == Place("b-1.x", 0)


def test_a_mark_in_a_reply_or_in_a_tool_result_counts_for_nothing() -> None:
    echoed = Turn("user", results=(ToolResult("x", "[[script:two]]"),))

    assert place_of(talk(ASK, Turn("assistant", "[[script:two]]"), echoed)) == Place("one", 1)


def test_a_rule_names_the_script_of_a_prompt_without_a_mark() -> None:
    rules = [(re.compile("Review"), "review"), (re.compile("."), "other")]

    assert place_of(talk(Turn("user", "Review it.")), rules) == Place("review", 0)
    assert place_of(talk(Turn("user", "Build it."), NEXT), rules) == Place("other", 1)
    assert place_of(talk(ASK), rules) == Place("one", 0)


def test_a_request_without_a_mark_or_without_tools_has_no_place() -> None:
    assert place_of(talk(Turn("user", "hello"))) is None
    assert place_of(msgspec.structs.replace(talk(ASK), tools={})) is None


def test_a_request_of_an_agent_itself_is_answered_in_the_form_that_it_wants() -> None:
    director = Director(read_scripts({"one": [{"text": "x"}]}))
    plain = msgspec.structs.replace(talk(ASK), tools={})

    assert director.decide(plain).reply.text == "ok"
    assert director.decide(msgspec.structs.replace(plain, members=("title",))).reply.text == '{"title":"ok"}'


def test_a_question_of_claude_code_on_its_own_account_has_no_place() -> None:
    aside = Turn("user", "[SUGGESTION MODE: Suggest what the user might type next.] [[script:two]]")

    assert place_of(talk(ASK, NEXT, aside)) is None
    assert place_of(talk(ASK, NEXT, aside, Turn("assistant", "ok"))) is not None


def test_what_claude_code_adds_when_it_resumes_is_not_a_reply() -> None:
    added = Turn("assistant", "No response requested.")

    assert place_of(talk(ASK, NEXT, Turn("user", "continue"), added)) == Place("one", 1)


def test_calls_of_one_reply_count_once_however_they_come_back() -> None:
    director = Director(read_scripts({"one": [{"tools": [{"name": "Bash"}, {"name": "Read"}]}]}))
    first, second = director.decide(talk(ASK)).reply.tools
    apart = [
        turn
        for tool in (first, second)
        for turn in (
            Turn("assistant", calls=(f"call_{tool.id}",)),
            Turn("user", results=(ToolResult(tool.id, ""),)),
        )
    ]

    assert place_of(talk(ASK, *apart)) == Place("one", 1)
    assert place_of(talk(ASK, *apart, NEXT, *apart)) == Place("one", 3)


def test_calls_with_ids_of_another_server_are_replies_of_their_own() -> None:
    foreign = [Turn("assistant", calls=(f"toolu_{number}",)) for number in range(3)]

    assert place_of(talk(ASK, *foreign)) == Place("one", 3)


def test_the_last_step_repeats() -> None:
    director = Director(read_scripts({"one": [{"text": "a"}, {"text": "b"}]}))

    replies = [director.decide(talk(ASK, *[NEXT] * count)).reply.text for count in range(4)]
    assert replies == ["a", "b", "b", "b"]


def test_a_request_without_a_place_gets_ok() -> None:
    answer = Director(read_scripts({})).decide(talk(Turn("user", "a title, please")))

    assert (answer.place, answer.reply.text, answer.failure) == (None, "ok", None)


def test_ids_are_the_same_in_every_server_and_never_twice_in_one() -> None:
    scripts = read_scripts({"one": [{"tools": [{"name": "Bash"}, {"name": "Bash"}]}]})
    first, second = Director(scripts), Director(scripts)

    ids = [first.decide(talk(ASK)).reply for _ in range(3)]
    assert [second.decide(talk(ASK)).reply for _ in range(3)] == ids
    assert len({reply.id for reply in ids}) == 3
    assert len({tool.id for reply in ids for tool in reply.tools}) == 6


def test_a_step_fails_as_often_as_it_says() -> None:
    director = Director(read_scripts({"one": [{"text": "a", "fail": {"times": 2, "status": 529}}]}))

    failures = [director.decide(talk(ASK)).failure for _ in range(4)]
    assert [failure.error_type if failure else None for failure in failures] == [
        "overloaded_error",
        "overloaded_error",
        None,
        None,
    ]


def test_a_step_that_fails_zero_times_fails_always() -> None:
    director = Director(read_scripts({"one": [{"fail": {"times": 0, "status": 429}}]}))

    assert all(director.decide(talk(ASK)).failure for _ in range(20))


def test_a_step_is_cut_after_its_failures_as_often_as_it_says() -> None:
    step = {"text": "a", "fail": {"status": 500}, "cut_after": 2, "cut_times": 2}
    director = Director(read_scripts({"one": [step]}))

    answers = [director.decide(talk(ASK)) for _ in range(4)]
    assert [(answer.failure is not None, answer.is_cut) for answer in answers] == [
        (True, True),
        (False, True),
        (False, True),
        (False, False),
    ]


def test_usage_is_what_the_step_says_and_else_an_estimate() -> None:
    director = Director(
        read_scripts({"one": [{"text": "a"}, {"usage": {"input_tokens": 7, "cache_read_input_tokens": 5}}]})
    )

    assert director.decide(talk(ASK, size=400)).reply.usage == TokenUsage(100, 20)
    assert director.decide(talk(ASK, NEXT)).reply.usage == TokenUsage(7, 20, 0, 5)


def test_the_working_directory_is_filled_in_at_any_depth() -> None:
    tool = {"name": "Write", "input": {"path": "{{cwd}}/a", "more": [{"x": "{{cwd}}"}, 3]}}
    scripts = read_scripts({"one": [{"text": "in {{cwd}}", "tools": [tool]}]})

    reply = Director(scripts).decide(talk(ASK)).reply
    assert reply.text == "in /here"
    assert reply.tools[0].input == {"path": "/here/a", "more": [{"x": "/here"}, 3]}
    assert Director(scripts, "/there").decide(talk(ASK)).reply.text == "in /there"


def test_members_of_the_newest_tool_result_that_has_them_are_filled_in() -> None:
    tool = {
        "name": "wait",
        "input": {"run": "{{result.runs.0.run}}", "n": "{{result.count}}", "x": "{{result.x.y}}"},
    }
    director = Director(read_scripts({"one": [{"text": "a", "tools": [tool]}]}))
    results = [
        Turn(
            "user",
            results=(ToolResult("x", '{"runs": [{"run": "r1"}], "count": 1}'), ToolResult("y", "no JSON")),
        ),
        Turn("user", results=(ToolResult("z", '{"count": 2, "runs": []}'),)),
    ]

    reply = director.decide(talk(ASK, *results)).reply

    assert reply.tools[0].input == {"run": "r1", "n": "2", "x": ""}


def test_the_stop_reason_follows_from_the_tools_unless_it_is_given() -> None:
    steps: list[dict[str, object]] = [
        {"text": "a"},
        {"tools": [{"name": "Bash"}]},
        {"text": "no", "stop_reason": "refusal"},
    ]
    director = Director(read_scripts({"one": steps}))

    reasons = [director.decide(talk(ASK, *[NEXT] * count)).reply.stop_reason for count in range(3)]
    assert reasons == ["end_turn", "tool_use", "refusal"]


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ({"tools": ["Bash", "Missing"]}, "expected the tools ['Missing'], offered are ['Bash', 'Read']"),
        ({"tool_result": "^4[0-9]$"}, "expected a tool result with '^4[0-9]$', got ['41x', 'old']"),
    ],
)
def test_an_expectation_that_is_not_met_is_refused_with_the_difference(
    expect: dict[str, object], problem: str
) -> None:
    director = Director(read_scripts({"one": [{"text": "a", "expect": expect}]}))
    results = Turn("user", results=(ToolResult("x", "41x"), ToolResult("y", "old")))

    answer = director.decide(talk(ASK, NEXT, results))
    assert answer.problem == f"script 'one', step 1: {problem}"
    assert answer.failure is not None
    assert answer.failure.status == 400


def test_an_expectation_looks_at_the_results_since_the_last_reply() -> None:
    director = Director(read_scripts({"one": [{"expect": {"tool_result": "42", "tools": ["Read"]}}]}))
    results = [Turn("user", results=(ToolResult("x", text),)) for text in ("42", "no")]

    assert director.decide(talk(ASK, NEXT, results[0])).problem == ""
    assert director.decide(talk(ASK, NEXT, results[0], NEXT, results[1])).problem != ""


def test_a_script_that_is_not_there_is_a_problem() -> None:
    answer = Director(read_scripts({"two": [{"text": "a"}]})).decide(talk(ASK))

    assert answer.problem == "script 'one', step 0: there is no script 'one'"
    assert answer.failure is not None


@pytest.mark.parametrize(
    ("scripts", "problem"),
    [
        ({"a": [{"txet": "b"}]}, "unknown field `txet`"),
        ({"a": [{"text": 3}]}, "Expected `str`, got `int`"),
        ({"a": []}, "script 'a' has no steps"),
        ({"a b": [{"text": "x"}]}, "'a b' is not a name of a script"),
        ({"a": [{"delay_s": -1}]}, ">= 0"),
        ({"a": [{"fail": {"status": 42}}]}, ">= 200"),
        ({"a": [{"expect": {"tool_result": "("}}]}, "script 'a', step 0: expect.tool_result"),
    ],
)
def test_a_wrong_script_is_refused_and_named(
    scripts: dict[str, list[dict[str, object]]], problem: str
) -> None:
    with pytest.raises(ScriptError) as caught:
        read_scripts(scripts, "scripts.toml")

    assert problem in str(caught.value)
    assert "scripts.toml" in str(caught.value)

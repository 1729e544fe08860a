"""Typed replies and answers, as a program meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import msgspec
import pytest

from bartack import Context, worker
from bartack.errors import ReplyInvalidError, TypeMismatchError
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.steps import AskArgs
from bartack.testing import ScriptedAgent, assert_survives_crashes, run_worker, start_worker


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int


@worker
async def rate(ctx: Context) -> int:
    return await ctx.think("Rate it.", type=int)


@worker
async def find(ctx: Context) -> list[Finding]:
    return await ctx.think("Find.", type=list[Finding])


@worker
async def tolerant(ctx: Context) -> list[object]:
    try:
        return [await ctx.think("Rate it.", type=int)]
    except ReplyInvalidError as error:
        return [error.reply, str(error)]


@worker
async def maybe(ctx: Context) -> int | None:
    reply = await ctx.think_reply("Rate it.", type=int, may_decline=True)
    return reply.value


def test_a_reply_that_does_not_fit_is_mended_once_in_the_same_step() -> None:
    agent = ScriptedAgent([{"text": "about three", "usd": 1.0}, {"text": "3", "usd": 0.5}])

    run = run_worker(rate(), agent=agent)

    assert run.result == 3
    assert [(s.kind, s.usd) for s in run.steps] == [("think", 1.5)]
    asked = [prompt.text for prompt in run.prompts]
    assert asked[0] == "Rate it."
    assert "$: expected a JSON value, found about three" in asked[1]
    assert asked[1].endswith('{"type": "integer"}')


def test_a_reply_that_is_not_mended_is_an_error_that_has_it() -> None:
    agent = ScriptedAgent([{"text": "about three"}, {"text": "x" * 3000}])

    run = run_worker(tolerant(), agent=agent)

    assert run.result[0] == "x" * 2000
    assert len(run.prompts) == 2


def test_a_value_of_a_script_that_does_not_fit_is_not_mended() -> None:
    agent = ScriptedAgent([{"value": "three"}, {"text": "3"}])

    run = run_worker(tolerant(), agent=agent)

    assert run.result[0] == '"three"'
    assert len(run.prompts) == 1


def test_a_raw_value_of_a_script_goes_the_way_of_a_text() -> None:
    agent = ScriptedAgent([{"value": "three", "raw": True}, {"text": "3"}])

    assert run_worker(rate(), agent=agent).result == 3


def test_a_mended_reply_survives_a_crash_behind_every_line() -> None:
    agent = ScriptedAgent([{"text": "about three"}, {"text": "3"}])

    assert assert_survives_crashes(rate(), at="entries", agent=agent)
    assert len(agent.prompts) > 2


def test_values_come_out_of_fences_and_without_what_nobody_asked_for() -> None:
    text = 'Here:\n```json\n[{"file": "a", "risk": 2, "mood": "good"}]\n```\nThat is all.'

    assert run_worker(find(), agent=ScriptedAgent([{"text": text}])).result == [Finding("a", 2)]


@pytest.mark.parametrize("text", ["CANNOT_DETERMINE", "cannot_determine\n"])
def test_an_agent_may_decline_where_it_may(text: str) -> None:
    agent = ScriptedAgent([{"text": text}])

    assert run_worker(maybe(), agent=agent).result is None
    assert "reply exactly: CANNOT_DETERMINE" in agent.prompts[0].text


def test_an_agent_that_may_not_decline_has_to_mend_its_reply() -> None:
    agent = ScriptedAgent([{"text": "CANNOT_DETERMINE"}, {"text": "4"}])

    assert run_worker(rate(), agent=agent).result == 4


# Questions.


def asked(**args: object) -> AskArgs:
    return msgspec.convert({"question": "?", **args}, type=AskArgs)


RISK = {"type": "object", "properties": {"risk": {"type": "integer"}}, "required": ["risk"]}


@pytest.mark.parametrize(
    ("args", "answer", "value"),
    [
        (asked(type="bool"), "Yes", True),
        (asked(type="bool"), "n", False),
        (asked(type="int"), " 7 ", 7),
        (asked(type="float"), "2.5", 2.5),
        (asked(options=["red", "green"]), "green", "green"),
        (asked(options=["red", "green"]), "2", "green"),
        (asked(options=["2", "1"]), "2", "2"),
        (asked(type="json", options=["red", "7"], schema={"enum": ["red", 7]}), "red", "red"),
        (asked(type="json", options=["red", "7"], schema={"enum": ["red", 7]}), "7", 7),
        (asked(type="json", options=["red", "7"], schema={"enum": ["red", 7]}), "1", "red"),
        (asked(type="json", schema=RISK), '{"risk": 3}', {"risk": 3}),
        (asked(type="json", schema=RISK), {"risk": 3}, {"risk": 3}),
    ],
)
def test_what_a_person_types_is_read_as_what_was_asked_for(
    args: AskArgs, answer: object, value: object
) -> None:
    read = msgspec.json.decode(check_answer(args, msgspec.Raw(msgspec.json.encode(answer))))

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("args", "answer", "problem"),
    [
        (asked(type="bool"), "perhaps", "answer: expected bool, found str"),
        (asked(type="int"), "2.5", "answer: expected int, found str"),
        (asked(options=["red", "green"]), "3", "answer: expected red or green, found 3"),
        (asked(options=["red", "green"]), "blue", "answer: expected red or green, found blue"),
        (asked(type="json", schema=RISK), '{"risk": "high"}', "answer.risk: expected integer, found"),
        (asked(type="json", schema=RISK), "high", "answer: expected object, found"),
        (
            asked(type="json", options=["1", "2"], schema={"enum": [1, 2]}),
            "3",
            "answer: expected 1 or 2, found",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(args: AskArgs, answer: object, problem: str) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        check_answer(args, msgspec.Raw(msgspec.json.encode(answer)))

    assert str(caught.value).startswith(problem)


COLOUR = cast("type[str]", Literal["red", "green"])


@worker
async def choose(ctx: Context) -> list[object]:
    colour = await ctx.ask("Colour?", type=COLOUR)
    return [colour, await ctx.ask("What?", type=Finding)]


def test_a_refused_answer_leaves_its_question_open() -> None:
    with start_worker(choose()) as run:
        run.wait_for("step.started", step="ask")
        with pytest.raises(TypeMismatchError):
            run.answer("Colour?", "blue")
        run.answer("Colour?", "2")
        run.wait_for("step.started", step="ask")
        with pytest.raises(TypeMismatchError, match=r"answer\.risk: expected integer"):
            run.answer("What?", {"file": "a", "risk": "high"})
        run.answer("What?", {"file": "a", "risk": 1})

        assert run.finish().result == ["green", {"file": "a", "risk": 1}]

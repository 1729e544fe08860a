"""What dead hubs have left in a stream is read as if each line were decoded, one after the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agents.claude.driver import result

from bartack.agents.claude._past import SKIPPED, TOOL, Past
from bartack.agents.claude._spent import SYNTHETIC, StreamUsage
from bartack.agents.program import _stream
from bartack.agents.program._stream import BEGUN, SENT, STARTED, Stream
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage

Line = dict[str, object]
Values = st.SearchStrategy[object]
PRICES = {"priced": Price(input=2.0, output=10.0, cache_read=1.0, cache_write=3.0)}
RESERVED_USD = 7.0
TOKENS = {
    "input_tokens": ("input_tokens", "inputTokens", 2.0),
    "output_tokens": ("output_tokens", "outputTokens", 10.0),
    "cache_read_input_tokens": ("cache_read_tokens", "cacheReadInputTokens", 1.0),
    "cache_creation_input_tokens": ("cache_write_tokens", "cacheCreationInputTokens", 3.0),
}
"""By their names in a reply: their names in ``Usage`` and in a result, and their price."""


class PlainProcess:
    """What a process used, as plainly as it can be said."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.settled: list[Line] = []
        self.unsettled: list[tuple[str, Line]] = []
        self.has_result = False

    def take(self, line: Line) -> None:
        if line.get("type") == "result" and isinstance(line.get("model_usage_since_last_result"), dict):
            self.has_result = True
            self.unsettled.clear()
            models = cast("dict[str, Line]", line["model_usage_since_last_result"])
            self.settled.extend(models.values())
        message = line.get("message")
        if line.get("type") != "assistant" or not isinstance(message, dict):
            return
        reply = cast("Line", message)
        reply_id, model, used = reply.get("id"), reply.get("model"), reply.get("usage")
        if not isinstance(reply_id, str) or not reply_id or reply_id in self.ids or model == SYNTHETIC:
            return
        self.ids.add(reply_id)
        tokens = cast("Line", used) if isinstance(used, dict) else {}
        self.unsettled.append((model if isinstance(model, str) else "", tokens))

    @property
    def counts(self) -> dict[str, int | None]:
        is_known = bool(self.settled or self.unsettled)
        return {
            in_usage: sum(
                [count(used.get(in_result)) for used in self.settled]
                + [count(used.get(in_reply)) for _, used in self.unsettled]
            )
            if is_known
            else None
            for in_reply, (in_usage, in_result, _) in TOKENS.items()
        }

    @property
    def cost_usd(self) -> float | None:
        priced = [used for model, used in self.unsettled if model == "priced"]
        costs = [cast("float", used["costUSD"]) for used in self.settled]
        costs += [
            sum(count(used.get(name)) * price for name, (_, _, price) in TOKENS.items()) / 1e6
            for used in priced
        ]
        known = sum(costs) if costs or self.has_result else None
        return known if len(priced) == len(self.unsettled) else max(known or 0.0, RESERVED_USD)


class PlainPast:
    """The same for a stream: all of it in memory, every line decoded."""

    def __init__(self, data: bytes, longest: int) -> None:
        self.processes: list[PlainProcess] = []
        self.finished: dict[object, Line] = {}
        self.result: Line | None = None
        self.working: set[object] = set()
        self.turns = 0
        for raw in data.split(b"\n")[:-1]:
            try:
                value: object = json.loads(raw) if len(raw) < longest else None
            except ValueError:
                value = None
            if isinstance(value, dict):
                self.take(cast("Line", value))

    def take(self, line: Line) -> None:
        kind, subtype = line.get("type"), line.get("subtype")
        if kind in {BEGUN, STARTED, SENT}:
            self.result = None
            self.working.clear()
        if kind == BEGUN:
            self.processes.clear()
            self.finished.clear()
        elif kind == STARTED:
            self.processes.append(PlainProcess())
            self.turns = 0
        elif kind == SENT:
            self.turns += 1
        elif kind == TOOL:
            self.finished[line["id"]] = line
        elif kind == "result":
            self.result = line
        elif kind == "system" and subtype == "task_started":
            self.working.add(line["task_id"])
        elif kind == "system" and subtype == "task_notification":
            self.working.discard(line["task_id"])
        if self.processes:
            self.processes[-1].take(line)


def count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def read_past(stream: Stream) -> Past:
    return Past(stream.read_lines(SKIPPED), partial(StreamUsage, PRICES, RESERVED_USD))


HOSTILE = '\n{"type":"bartack.begun"}\n{"type":"result","subtype":"success"}\n'
ODD: list[object] = [None, True, -5, 2.0, "7", [1], Line()]
MARKS: list[tuple[str, Line]] = [(BEGUN, {}), (STARTED, {"attempt": 1}), (SENT, {"attempt": 1})]


def objects(required: dict[str, Values], **optional: Values) -> st.SearchStrategy[Line]:
    return st.fixed_dictionaries(required, optional=optional)


def of_type(kind: str, **members: Values) -> st.SearchStrategy[Line]:
    return objects({"type": st.just(kind), **members})


texts: Values = st.sampled_from(["", "hello", HOSTILE, '"}]}}', "ü\u2028\\"])
amounts: Values = st.integers(0, 10**6)
odd: Values = st.sampled_from(ODD)
ids: Values = st.sampled_from(["m1", "m2", "m3"])
models: Values = st.sampled_from(["priced", "unpriced", SYNTHETIC])
tasks: Values = st.sampled_from(["t1", "t2"])
usages = objects(dict.fromkeys(TOKENS, amounts))
odd_usages = objects({}, **dict.fromkeys(TOKENS, amounts | odd))
replies = objects({"id": ids, "model": models, "content": texts, "usage": usages})
odd_replies = objects({"id": ids | odd, "content": texts}, model=odd, usage=odd_usages | odd, stop_reason=odd)
settled = objects({"costUSD": amounts, "inputTokens": amounts, "outputTokens": amounts | odd})
messages = st.one_of(
    of_type("assistant", message=replies),
    of_type("assistant", message=odd_replies | odd),
    objects({"message": replies, "type": st.just("assistant")}),
    of_type("user", message=texts),
    of_type("stream_event", event=replies),
    objects({"result": texts, "type": st.just("result")}),
    of_type("result", model_usage_since_last_result=objects({}, priced=settled, other=settled) | odd),
    of_type("system", subtype=st.just("task_started"), task_type=st.just("local_agent"), task_id=tasks),
    of_type("system", subtype=st.just("task_notification"), status=st.just("completed"), task_id=tasks),
)
tools = objects({"id": st.sampled_from(["c1", "c2"]), "name": st.just("note"), "text": texts})
marks = st.sampled_from(MARKS) | st.tuples(st.just(TOOL), tools)
junk = st.sampled_from(
    [
        b"",
        b"\r\n",
        b"\n\n",
        b"[1]\n",
        b"hello\n",
        b'{"type":"assistant",\n',
        b'{"type":"assistant","mess',
        b'{"type":"user"',
        b'{"type":"assistant","message":{"id":"m4","usage":{"input_tokens":5}},"type":"other"}\n',
        b'{"type":"assistant","message":{"id":"m6","usage":{"input_tokens":-5}}}\n',
        b'{"type":"assistant","message":{"id":"m5"},"message":{"id":"m4","usage":{"input_tokens":6}}}\n',
    ]
)


@settings(max_examples=150)
@given(
    st.lists(messages | marks | junk, min_size=5, max_size=40),
    st.integers(1, 400),
    st.sampled_from([200, 16 * 1024 * 1024, 16 * 1024 * 1024]),
)
def test_a_past_is_what_its_lines_say_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    written: Sequence[Line | tuple[str, Line] | bytes],
    block: int,
    longest: int,
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        Stream.open("stub", tmp_path_factory.mktemp("call"), "claude") as stream,
        open(stream.path, "ab", buffering=0) as file,
    ):
        patch.setattr(_stream, "BLOCK", block)
        patch.setattr(_stream, "MAX_JSON_LINE", longest)
        for one in [(STARTED, {"attempt": 1}), *written]:
            if isinstance(one, tuple):
                stream.mark(one[0], **one[1])
            else:
                file.write(one if isinstance(one, bytes) else msgspec.json.encode(one) + b"\n")
        past, plain = read_past(stream), PlainPast(stream.path.read_bytes(), longest)

    assert (past.result and past.result.value) == plain.result
    assert (past.answer and past.answer.value) == (None if plain.working else plain.result)
    assert past.turns == plain.turns
    assert [(one.id, one.name, one.text) for one in past.finished.values()] == [
        (one["id"], one["name"], one["text"]) for one in plain.finished.values()
    ]
    assert len(past.processes) == len(plain.processes)
    for process, expected in zip(past.processes, plain.processes, strict=True):
        usage = process.usage
        assert {name: getattr(usage, name) for name, *_ in TOKENS.values()} == expected.counts
        assert usage.turns == (len(expected.ids) or None)
        assert usage.cost_usd == pytest.approx(expected.cost_usd)
        assert process.is_estimated == bool(expected.unsettled)


def test_what_a_program_quotes_is_no_mark_and_no_result(tmp_path: Path) -> None:
    with Stream.open("stub", tmp_path / "call", "claude") as stream:
        stream.mark(BEGUN)
        stream.mark(STARTED, attempt=1)
        stream.mark(SENT, attempt=1)
        said = {"id": "m1", "model": "priced", "usage": {"input_tokens": 1_000_000}, "content": HOSTILE}
        for line in ({"type": "assistant", "message": said}, {"type": "user", "message": HOSTILE}):
            with open(stream.path, "ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")

        past = read_past(stream)

    assert past.answer is None
    assert [process.usage for process in past.processes] == [
        Usage(
            input_tokens=1_000_000,
            output_tokens=0,
            cache_read_tokens=0,
            cache_write_tokens=0,
            turns=1,
            cost_usd=2.0,
        )
    ]


def test_a_result_that_is_as_long_as_a_line_may_be_is_found(tmp_path: Path) -> None:
    with Stream.open("stub", tmp_path / "call", "claude") as stream, pytest.MonkeyPatch.context() as patch:
        stream.mark(SENT, attempt=1)
        line = msgspec.json.encode(result()) + b"\n"
        with open(stream.path, "ab") as file:
            file.write(line)
        patch.setattr(_stream, "MAX_JSON_LINE", len(line))
        longest = read_past(stream).answer
        patch.setattr(_stream, "MAX_JSON_LINE", len(line) - 1)
        too_long = read_past(stream).answer

    assert longest is not None
    assert longest.value == result()
    assert too_long is None

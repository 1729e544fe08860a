from __future__ import annotations

import json

import pytest

from bartack.agents import BadLine, Line, read_line
from bartack.agents.protocol.lines import (
    KEPT,
    MAX_LINE,
    OVERLAP,
    LineReader,
    Splitter,
    read_command,
    write_line,
)
from bartack.agents.protocol.messages import Command, Event, ExpectedOutput, Log, Party, Retry, Version
from bartack.errors import LineTooLongError

EVENT: dict[str, object] = {
    "kind": "event",
    "message_id": "m1",
    "correlation_id": "c1",
    "task_id": "T-1",
    "from": {"agent_type": "builder"},
    "event": "progress",
    "occurred_at": "2026-11-15T09:14:02Z",
}


def line(**changes: object) -> bytes:
    return json.dumps({**EVENT, **changes}).encode()


def command(text: str = "x") -> Command:
    return Command(
        protocol=1,
        message_id="m",
        correlation_id="c",
        run_id="r",
        task_id="T-1",
        idempotency_key="ik:0",
        to=Party("builder", "stub"),
        action="implement",
        inputs={"goal": text},
        expected_outputs=[ExpectedOutput("a", required=True)],
        version=Version("none"),
        deadline="2026-11-15T09:14:02.000000Z",
        retry=Retry(1, 3, "first"),
        conversation="v",
        priority=5,
    )


def event_of_size(size: int) -> bytes:
    empty = len(line(pad=""))
    return line(pad="x" * (size - 1 - empty)) + b"\n"


@pytest.mark.parametrize("size", [MAX_LINE - 1, MAX_LINE])
@pytest.mark.requirement("lines-have-one-limit")
def test_a_line_up_to_the_limit_is_read(size: int) -> None:
    data = event_of_size(size)
    assert len(data) == size

    (read,) = LineReader().feed(data)

    assert isinstance(read, Line)


@pytest.mark.requirement("lines-have-one-limit")
def test_a_line_over_the_limit_is_thrown_away_and_the_next_one_read() -> None:
    reader = LineReader()

    too_long, good = reader.feed(event_of_size(MAX_LINE + 1) + line() + b"\n")

    assert isinstance(too_long, BadLine)
    assert (too_long.case, too_long.size, too_long.suspect) == ("line_too_long", MAX_LINE + 1, True)
    assert isinstance(good, Line)


@pytest.mark.requirement("lines-have-one-limit")
def test_what_is_written_has_the_same_limit() -> None:
    overhead = len(write_line(command("")))

    assert len(write_line(command("x" * (MAX_LINE - overhead)))) == MAX_LINE
    with pytest.raises(LineTooLongError, match=str(MAX_LINE + 1)):
        write_line(command("x" * (MAX_LINE - overhead + 1)), "stub")


def test_a_stream_without_newline_is_never_kept() -> None:
    splitter = Splitter()
    chunk = b"x" * 65_536
    for _ in range(4800):
        assert list(splitter.feed(chunk)) == []
        assert len(splitter._buffer) <= MAX_LINE

    rest = splitter.close()

    assert isinstance(rest, BadLine)
    assert (rest.size, len(rest.excerpt)) == (4800 * 65_536, KEPT + OVERLAP)


def test_a_line_is_the_same_however_it_is_cut_into_pieces() -> None:
    data = line() + b"\r\n  \n" + line(message_id="m2") + b"\n"
    whole = list(LineReader().feed(data))
    reader = LineReader()

    pieces = [read for place in range(len(data)) for read in reader.feed(data[place : place + 1])]

    assert pieces == whole
    assert len(whole) == 2


@pytest.mark.parametrize(
    ("raw", "case", "suspect", "text"),
    [
        (b"hello there", "malformed", False, True),
        (b'{"kind":"event"', "malformed", True, False),
        (b'{"kind": "log", "message": "to', "malformed", False, False),
        (b'{"kind":"heartbeat","a":1,"a":2}', "malformed", False, False),
        (b'{"kind":"event","a":1,"a":2}', "malformed", True, False),
        (b'{"kind":"event","x":{"a":1,"a":2}}', "malformed", True, False),
        (b'{"kind":"\xff"}', "malformed", True, False),
        (b'{"kind":"event","x":"\\ud800"}', "malformed", True, False),
        (b'{"kind":"event","x":NaN}', "malformed", True, False),
        (b"\xef\xbb\xbf{}", "malformed", False, True),
        (b"{" * 100_000, "malformed", True, False),
        (b"null", "not_an_object", False, False),
        (b"7", "not_an_object", False, False),
        (b"[]", "not_an_object", False, False),
        (b"{}", "schema", False, False),
        (b'{"kind":7}', "schema", False, False),
        (b'{"kind":"event"}', "schema", True, False),
        (line(message_id=7), "schema", True, False),
        (line(message_id="x" * 129), "schema", True, False),
        (line(occurred_at="yesterday"), "schema", True, False),
        (b'{"kind":"hello"}', "schema", False, False),
        (b'{"kind":"thought"}', "unknown_kind", False, False),
    ],
)
@pytest.mark.requirement("bad-lines-are-borne")
def test_a_bad_line_has_a_name(raw: bytes, case: str, *, suspect: bool, text: bool) -> None:
    read = read_line(raw)

    assert isinstance(read, BadLine)
    assert (read.case, read.suspect, read.is_text) == (case, suspect, text)
    assert read.counted is (case != "unknown_kind")


@pytest.mark.requirement("bad-lines-are-borne")
def test_a_line_torn_by_the_end_is_malformed() -> None:
    reader = LineReader()
    list(reader.feed(line()[:20]))

    torn = reader.close()

    assert torn is not None
    assert (torn.case, torn.suspect) == ("malformed", True)
    assert reader.close() is None


@pytest.mark.parametrize("digits", ["", ".1", ".123456789"])
def test_more_members_order_null_and_fractions_of_seconds_are_fine(digits: str) -> None:
    read = read_line(
        line(status=None, surprise=[1], occurred_at=f"2026-11-15T09:14:02{digits}Z", payload=None)
    )

    assert isinstance(read, Line)
    assert isinstance(read.message, Event)
    assert (read.message.status, read.message.payload) == (None, None)


def test_great_integers_keep_their_value() -> None:
    read = read_line(line(payload={"n": 2**70}))

    assert isinstance(read, Line)
    assert isinstance(read.message, Event)
    assert read.message.payload == {"n": 2**70}


def test_what_is_written_has_the_members_in_order_and_no_null() -> None:
    written = write_line(command("é\u2028\x7f</"))

    members = json.loads(written)
    assert list(members) == [
        "kind",
        "protocol",
        "message_id",
        "correlation_id",
        "run_id",
        "task_id",
        "idempotency_key",
        "to",
        "action",
        "inputs",
        "expected_outputs",
        "version",
        "deadline",
        "retry",
        "conversation",
        "priority",
    ]
    assert b"null" not in written
    assert "é\u2028\x7f</".encode() in written


def test_secrets_are_out_of_a_line_before_anybody_sees_it() -> None:
    reader = LineReader(lambda data: data.replace(b"hunter22", b"$env:A_TOKEN"))
    log = {"kind": "log", "level": "info", "message": "hunter22", "timestamp": "2026-11-15T09:14:02Z"}

    good, bad = reader.feed(json.dumps(log).encode() + b"\nhunter22\n")

    assert isinstance(good, Line)
    assert isinstance(good.message, Log)
    assert good.message.message == "$env:A_TOKEN"
    assert isinstance(bad, BadLine)
    assert bad.excerpt == b"$env:A_TOKEN"


def test_an_agent_ignores_kinds_that_it_does_not_know() -> None:
    assert read_command(b'{"kind":"riddle"}') is None
    assert read_command(write_line(command())) == command()
    with pytest.raises(ValueError, match="Expected `object`"):
        read_command(b"[]")

"""What a program wrote is found again after a crash, whatever else is in its stream."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.agents.program import _stream
from bartack.agents.program._json_lines import JsonLine, JsonLines, count_of, objects_of, text_of
from bartack.agents.program._stream import MARKS, SENT, Stream, load_session, save_session
from bartack.agents.protocol.lines import BadLine
from bartack.errors import AgentBusyError


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream.open("stub", tmp_path / "call", "claude")


def append(stream: Stream, data: bytes) -> None:
    with open(stream.path, "ab") as file:
        file.write(data)


def said_since_the_prompt(stream: Stream) -> list[object] | None:
    """What the lines after the newest prompt say; ``None`` if none was sent."""
    found: list[object] | None = None
    for line in stream.read_forwards():
        if text_of(line.value, "type") == SENT:
            found = []
        elif found is not None:
            found.append(line.value.get("n"))
    return found


def test_only_lines_after_the_newest_prompt_count(stream: Stream) -> None:
    assert said_since_the_prompt(stream) is None

    stream.mark(SENT, attempt=1)
    append(stream, b'{"n":1}\n')
    stream.mark(SENT, attempt=2)
    append(stream, b'{"n":2}\nnot json\n[3]\n{"n":4}\n{"n":5')

    assert said_since_the_prompt(stream) == [2, 4]


def test_a_mark_after_a_torn_line_is_on_a_line_of_its_own(stream: Stream) -> None:
    append(stream, b'{"n":1}\n{"n":')
    stream.mark(SENT, attempt=2)
    append(stream, b'{"n":2}\n')

    assert said_since_the_prompt(stream) == [2]


def test_a_conversation_belongs_to_one_process(stream: Stream) -> None:
    with pytest.raises(AgentBusyError):
        Stream.open("stub", stream.folder, "claude")

    stream.close()
    Stream.open("stub", stream.folder, "claude").close()
    assert stream.path.read_bytes().count(b"bartack.opened") == 1


@given(st.lists(st.integers(0, 10**30), max_size=40))
def test_all_whole_lines_are_read(tmp_path_factory: pytest.TempPathFactory, numbers: list[int]) -> None:
    folder = tmp_path_factory.mktemp("call")
    with Stream.open("stub", folder, "claude") as stream:
        append(
            stream,
            b"".join(json.dumps({"n": str(number)}).encode() + b"\n" for number in numbers) + b'{"n":"to',
        )

        found = [line.value.get("n") for line in stream.read_forwards()]

    assert found[1:] == [str(number) for number in numbers]


def test_a_long_stream_is_read_without_keeping_all_of_it(stream: Stream) -> None:
    with open(stream.path, "ab") as file:
        for _ in range(40):
            file.write(b'{"n":1,"x":"' + b"x" * 1_000_000 + b'"}\n')
    stream.mark(SENT, attempt=1)
    append(stream, b'{"n":2}\n')

    tracemalloc.start()
    found = said_since_the_prompt(stream)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found == [2]
    assert most < 16_000_000


@pytest.mark.parametrize(
    ("beginning", "longest"), [(b'{"type":"user","x":"', 2**24), (b'{"type":"other","x":"', 1_000_000)]
)
def test_a_line_that_is_left_out_is_never_kept_as_a_whole(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, beginning: bytes, longest: int
) -> None:
    monkeypatch.setattr(_stream, "MAX_JSON_LINE", longest)
    with open(stream.path, "ab") as file:
        file.write(beginning)
        for _ in range(20):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n{"n":1}\n')

    tracemalloc.start()
    found = list(stream.read_lines((b'{"type":"user"',)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found[1:] == [b'{"n":1}']
    assert most < 4_000_000


def test_the_id_of_a_session_is_there_after_it_was_saved(tmp_path: Path) -> None:
    assert load_session(tmp_path) == ""

    save_session(tmp_path, "thread-1")

    assert load_session(tmp_path) == "thread-1"
    assert os.stat(tmp_path / "session").st_mode & 0o077 == 0


def test_lines_that_are_no_objects_say_what_is_wrong() -> None:
    reader = JsonLines(limit=64)
    read = list(reader.feed(b'{"a":1}\n\n[1]\nhello\n{"a":\n{"x":"' + b"y" * 100 + b'"}\n{"b":2}\n{"to'))

    cases = [line.case if isinstance(line, BadLine) else line.value for line in read]
    assert cases == [{"a": 1}, "not_an_object", "malformed", "malformed", "line_too_long", {"b": 2}]
    assert [line.is_text for line in read if isinstance(line, BadLine)] == [False, True, False, False]
    torn = reader.close()
    assert torn is not None
    assert torn.case == "torn"


def test_a_line_that_never_ends_is_reported_once() -> None:
    reader = JsonLines(limit=64)
    first = list(reader.feed(b"x" * 100))
    more = list(reader.feed(b"x" * 100)) + list(reader.feed(b'x\n{"a":1}\n'))

    assert [(read.case, read.size) for read in first if isinstance(read, BadLine)] == [("line_too_long", 100)]
    assert [read.value for read in more if isinstance(read, JsonLine)] == [{"a": 1}]
    assert len(more) == 1


def test_lines_of_others_in_the_file_of_a_program_are_left_out() -> None:
    reader = JsonLines(skip=MARKS)

    read = list(
        reader.feed(b'{"type":"bartack.sent"}\n{"type":"result"}\n{"type":"bartack.line","line":{}}\n')
    )

    assert [one.value for one in read if isinstance(one, JsonLine)] == [{"type": "result"}]
    assert len(read) == 1


def test_members_of_foreign_objects_are_read_without_trust() -> None:
    value = {"a": {"b": "text", "n": 3, "list": [{"x": 1}, 7]}, "bad": -1, "flag": True}

    assert text_of(value, "a", "b") == "text"
    assert text_of(value, "a", "n") == text_of(value, "a", "b", "c") == text_of(None) == ""
    assert (count_of(value, "a", "n"), count_of(value, "bad"), count_of(value, "flag")) == (3, 0, 0)
    assert objects_of(value, "a", "list") == [{"x": 1}]

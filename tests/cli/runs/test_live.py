"""What a person sees on a terminal while a run runs."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.runs import programs
from tests.cli.runs.stories import Call

PATIENCE_S = 60.0
ERASURE = re.compile(r"\x1b\[(\d+)A\r\x1b\[J")
STYLE = re.compile(r"\x1b\[\d*m")


class Terminal:
    """A command line on a terminal, and everything that it has written there."""

    def __init__(self, *args: str, columns: int = 100, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bartack", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", **env},
        )
        os.close(theirs)
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def wait_for(self, *texts: str) -> None:
        """Read until all of the texts are to be seen at once: what is written arrives in pieces."""
        until = time.monotonic() + PATIENCE_S
        while not all(text in self.screen() for text in texts):
            ready, _, _ = select.select([self._ours], [], [], max(until - time.monotonic(), 0.0))
            assert ready, f"{texts} were not shown in time; written was {self.written!r}"
            assert self._read(), f"the process ended without {texts}; written was {self.written!r}"

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read everything that is left; return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def screen(self) -> str:
        """What is to be seen at the end: the written text with every erasure done."""
        shown: list[str] = []
        rest = self.written.replace("\r\n", "\n")
        while found := ERASURE.search(rest):
            shown += rest[: found.start()].splitlines()
            del shown[len(shown) - int(found[1]) :]
            rest = rest[found.end() :]
        return STYLE.sub("", "\n".join([*shown, rest]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:
            return False
        self.written += self._decoder.decode(part)
        return bool(part)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def asking(terminals: list[Terminal]) -> Terminal:
    """A run on a terminal that asks two questions."""
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py:twice"))
    terminals[0].wait_for("> ")
    return terminals[0]


def test_the_view_shows_the_worker_and_its_step_and_goes_when_the_run_ends(
    terminals: list[Terminal], call: Call
) -> None:
    Path("gated.py").write_text(programs.GATED)
    terminals.append(Terminal("run", "gated.py"))

    terminals[0].wait_for("main  running", "receive gate", "  messages queued: out 1")
    call("mailbox", "send", "latest", "gate", '"open"')
    assert terminals[0].end() == 0
    lines = terminals[0].screen().splitlines()
    assert lines[1:4] == ["before", "behind", "open"]
    assert lines[0].endswith(" started")
    assert " completed in " in lines[4]
    assert len(lines) == 5


def test_questions_are_asked_and_answered_one_after_the_other(asking: Terminal) -> None:
    assert "? How many? (a whole number)" in asking.screen()

    asking.type("many\n")
    asking.wait_for("'many' is not a valid answer: expected a whole number")
    asking.type("\n3\n")
    asking.wait_for("2  green")
    asking.type("red\n")

    assert asking.end() == 0
    assert '[\n  3,\n  "red"\n]\n' in asking.screen()


@pytest.mark.requirement("first-answer-counts")
def test_an_answer_from_elsewhere_takes_the_question_away(asking: Terminal, call: Call) -> None:
    assert call("answer", "latest", "q1", "5").returncode == 0

    asking.wait_for("answered elsewhere")
    asking.wait_for("2  green")
    asking.type("green\n")
    assert asking.end() == 0
    assert '[\n  5,\n  "green"\n]\n' in asking.screen()


def test_a_line_that_was_typed_before_the_question_is_no_answer(
    terminals: list[Terminal], call: Call
) -> None:
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py:later"))
    terminals[0].wait_for("receive gate")

    terminals[0].type("yes\n")
    terminals[0].wait_for("yes")
    call("mailbox", "send", "latest", "gate", "1")
    terminals[0].wait_for("> ")
    terminals[0].type("no\n")

    assert terminals[0].end() == 0
    assert "\nfalse\n" in terminals[0].screen()


def test_the_end_of_input_stops_a_run_that_waits_for_an_answer(asking: Terminal) -> None:
    asking.type("\x04")

    assert asking.end() == 3
    assert "  answer it, then: bartack resume run-" in asking.screen()


def test_ctrl_c_at_a_question_leaves_the_run_resumable(asking: Terminal, call: Call) -> None:
    asking.process.send_signal(signal.SIGINT)

    assert asking.end() == 130
    assert "  resume with: bartack resume run-" in asking.screen()
    assert "interrupted" in call("status").stdout


def test_no_colour_is_used_where_it_is_not_wanted(terminals: list[Terminal]) -> None:
    Path("hello.py").write_text(programs.HELLO)
    for wish in ("1", ""):
        terminals.append(Terminal("run", "hello.py", NO_COLOR=wish))
        assert terminals[-1].end() == 0

    plain, coloured = (terminal.written for terminal in terminals)
    assert STYLE.search(plain) is None
    assert STYLE.search(coloured)


def test_a_narrow_terminal_gets_short_lines(terminals: list[Terminal], call: Call) -> None:
    Path("gated.py").write_text(programs.GATED.replace("gate.receive", f"{'gate' * 12}.receive"))
    terminals.append(Terminal("run", "gated.py", columns=50))

    terminals[0].wait_for("receive gategate")
    call("cancel", "latest")
    assert terminals[0].end() == 4
    doing = [line for line in STYLE.sub("", terminals[0].written).splitlines() if "receive gate" in line]
    assert doing
    assert max(map(len, doing)) <= 50


def test_a_run_in_a_pipeline_of_a_ci_asks_nobody(terminals: list[Terminal]) -> None:
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py", CI="true"))

    assert terminals[0].end() == 3

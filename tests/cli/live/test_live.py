"""What a person sees on a terminal while a run runs."""

from __future__ import annotations

import re
import signal
from functools import partial
from pathlib import Path

import pytest
from tests.cli.live.terminal import Terminal
from tests.cli.runs import programs
from tests.cli.runs import test_agent_questions as agents
from tests.cli.runs.stories import Call

STYLE = re.compile(rb"\x1b\[\d*m")

BODIES = """
import time
from bartack import Context, step, worker

@step
def crunch(name: str) -> str:
    time.sleep(0.7)
    return name

@worker
async def builder(ctx: Context, name: str) -> str:
    return await crunch(name)

@worker
async def main(ctx: Context) -> list:
    return await ctx.delegate([builder("b1"), builder("b2")])
"""

HOSTILE = "\\x1b]0;title\\x07\\x1b[2J\\x1b]52;c;ZXZpbA==\\x07\\x07\\x9b2J"
NOISY = f"""
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    ctx.print("printed {HOSTILE}")
    ctx.print("\\x1b[32mgreen\\x1b[0m and plain")
    ctx.log("logged {HOSTILE}")
    await ctx.mailbox.gate.receive(timeout_s=600)
    said = await ctx.think("Say it.")
    raise ValueError("raised {HOSTILE}")
"""
NOISY_SCRIPT = f"""
[[prompts]]
text = "said {HOSTILE.replace(chr(92) + "x", chr(92) + "u00")}"
delay_s = 1.0
"""


@pytest.fixture
def asking(terminals: list[Terminal]) -> Terminal:
    """A run on a terminal that asks two questions."""
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py:twice"))
    terminals[0].wait_for(" >")
    return terminals[0]


@pytest.mark.requirement("live-view-shows-the-run")
def test_the_view_shows_the_worker_and_its_step_and_the_end_stays(
    terminals: list[Terminal], call: Call
) -> None:
    Path("gated.py").write_text(programs.GATED)
    terminals.append(Terminal("run", "gated.py"))

    terminals[0].wait_for("gated.py  run-…", "● running 0:", "receive  gate", " out 1 ▮  oldest 0:")
    call("mailbox", "send", "latest", "gate", '"open"')
    assert terminals[0].end() == 0
    lines = terminals[0].screen().splitlines()
    assert lines[1:4] == ["before", "behind", "open"]
    assert lines[0].endswith(" started")
    assert re.search(r" completed in .*, 4 steps; messages not received: 1 in out$", lines[4])
    assert re.fullmatch("  details: bartack show run-.*, or bartack web", lines[5])
    assert len(lines) == 6


@pytest.mark.requirement("newcomers-know-what-is-next")
def test_the_end_of_the_example_names_the_report_and_the_browser_once(
    terminals: list[Terminal], call: Call
) -> None:
    call("init", "--example")
    terminals.append(Terminal("run"))

    assert terminals[0].end() == 0
    *_, last = terminals[0].screen().splitlines()
    assert re.fullmatch("  .*report: bartack report run-.*, or bartack web", last)
    assert terminals[0].screen().count("bartack web") == 1


@pytest.mark.requirement("newcomers-know-what-is-next")
def test_without_an_agent_no_instruction_is_asked_for(terminals: list[Terminal]) -> None:
    terminals.append(Terminal("run", columns=200))

    assert terminals[0].end() == 2
    assert "'bartack init' finds the agents of this machine" in terminals[0].screen()


@pytest.mark.requirement("live-view-shows-the-run")
def test_a_body_is_shown_by_its_name_and_a_worker_by_its_argument(terminals: list[Terminal]) -> None:
    Path("bodies.py").write_text(BODIES)
    terminals.append(Terminal("run", "bodies.py"))

    terminals[0].wait_for(
        "builder b1   step  bodies.crunch", "builder b2   step  bodies.crunch", "delegate  2 workers"
    )

    assert terminals[0].end() == 0


@pytest.mark.requirement("live-view-asks")
def test_a_permission_of_an_agent_is_asked_with_what_it_is_for(terminals: list[Terminal]) -> None:
    Path("tidy.py").write_text(agents.PROGRAM)
    Path("script.toml").write_text(agents.SCRIPT)
    Path("bartack.toml").write_text(agents.CONFIG)
    terminals.append(Terminal("run", "tidy.py"))
    terminal = terminals[0]

    terminal.wait_for(
        " ? q1 agent tidy for main: May the agent delete the old files?",
        agents.USE,
        "1 allow   2 deny",
        "waits for an answer: q1",
    )
    terminal.type("perhaps\n")
    terminal.wait_for("'perhaps' is not a valid answer: expected allow | deny")
    terminal.type("1\n")
    terminal.wait_for("tidied up")

    assert terminal.end() == 0


@pytest.mark.requirement("live-view-asks")
def test_questions_are_asked_below_the_view_and_answered_one_after_the_other(asking: Terminal) -> None:
    asking.wait_for("asking.py:twice", "? q1 twice: How many?  a whole number")

    asking.type("many\n")
    asking.wait_for("'many' is not a valid answer: expected a whole number")
    asking.type("\n3\n")
    asking.wait_for("1 red   2 green", "? How many?  3")
    asking.type("1\n")

    assert asking.end() == 0
    assert '[\n  3,\n  "red"\n]\n' in asking.screen()
    assert "? Colour?  red" in asking.screen()


@pytest.mark.requirement("live-view-asks")
def test_open_questions_are_counted(terminals: list[Terminal]) -> None:
    Path("both.py").write_text(
        "from bartack import Context, worker\n"
        "@worker\nasync def main(ctx: Context) -> list:\n"
        "    return await ctx.gather(ctx.ask('One?'), ctx.ask('Two?'))\n"
    )
    terminals.append(Terminal("run", "both.py"))

    terminals[0].wait_for("One?  (1 of 2)")
    terminals[0].type("first\n")
    terminals[0].wait_for("? q2 main: Two?\n")
    terminals[0].type("second\n")

    assert terminals[0].end() == 0


@pytest.mark.requirement("first-answer-counts")
def test_an_answer_from_elsewhere_takes_the_question_away(asking: Terminal, call: Call) -> None:
    assert call("answer", "latest", "q1", "5").returncode == 0

    asking.wait_for("q1 was answered elsewhere", "2 green")
    asking.type("green\n")
    assert asking.end() == 0
    assert '[\n  5,\n  "green"\n]\n' in asking.screen()


def test_a_line_that_was_typed_before_the_question_is_no_answer(
    terminals: list[Terminal], call: Call
) -> None:
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py:later"))
    terminals[0].wait_for("receive  gate")

    terminals[0].type("yes\n")
    call("mailbox", "send", "latest", "gate", "1")
    terminals[0].wait_for(" >")
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


@pytest.mark.requirement("live-view-fits")
def test_a_terminal_without_utf_8_gets_other_signs(terminals: list[Terminal], call: Call) -> None:
    Path("gated.py").write_text(programs.GATED)
    terminals.append(Terminal("run", "gated.py", PYTHONIOENCODING="ascii"))

    terminals[0].wait_for("gated.py  run-...", "* running 0:", " o  main", " out 1 |")
    call("cancel", "latest")

    assert terminals[0].end() == 4
    assert all(byte < 128 for byte in terminals[0].written)


def has_head(width: int, screen: str) -> bool:
    """Whether a view was drawn for this width: its head ends one column before the terminal does."""
    return any(len(line) == width - 1 for line in screen.splitlines() if "● running" in line)


@pytest.mark.requirement("live-view-survives-resizing")
def test_one_view_is_on_the_screen_of_a_run_whose_terminal_changes(
    terminals: list[Terminal], call: Call
) -> None:
    Path("gated.py").write_text(programs.GATED)
    terminals.append(Terminal("run", "gated.py", columns=120))
    terminal = terminals[0]
    terminal.wait_for("receive  gate")

    for columns, rows in ((50, 30), (160, 12), (44, 8), (100, 30)):
        terminal.resize(columns, rows)
        terminal.wait_until(partial(has_head, columns))
        on_screen = "\n".join(terminal.screen().splitlines()[-rows:])
        assert on_screen.count("● running") == 1
        assert on_screen.count("receive") == 1
    call("cancel", "latest")

    assert terminal.end() == 4
    assert "● running" not in terminal.screen().splitlines()[-1]


@pytest.mark.requirement("terminal-needs-no-repair")
def test_a_killed_run_leaves_a_terminal_that_can_be_used(terminals: list[Terminal]) -> None:
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py:twice"))
    terminal = terminals[0]
    modes = terminal.modes()
    terminal.wait_for(" >")
    terminal.type("half an ans")
    terminal.wait_for("half an ans")

    terminal.process.kill()

    assert terminal.end() == -signal.SIGKILL
    assert terminal.modes() == modes
    hidden = {
        b"\x1b[?25l",
        b"\x1b[?1049h",
        b"\x1b[?7l",
        b"\x1b[?1h",
        b"\x1b=",
        b"\x1b[?1000h",
        b"\x1b[?2004h",
    }
    assert [sequence for sequence in hidden if sequence in terminal.written] == []
    assert terminal.written.count(b"\x1b[?2026h") == terminal.written.count(b"\x1b[?2026l")
    assert re.search(rb"\x1b\[\d*;?\d*r", terminal.written) is None


@pytest.mark.requirement("terminal-is-not-steered")
def test_nothing_that_a_worker_an_agent_or_an_error_writes_steers_the_terminal(
    terminals: list[Terminal], call: Call
) -> None:
    Path("noisy.py").write_text(NOISY)
    Path("script.toml").write_text(NOISY_SCRIPT)
    Path("bartack.toml").write_text('[agents.ann]\nkind = "scripted"\nscript = "script.toml"\n')
    terminals.append(Terminal("run", "noisy.py", columns=160))
    terminal = terminals[0]
    escaped = r"\x1b]0;title\x07\x1b[2J"

    terminal.wait_for(f"printed {escaped}", f"logged {escaped}", "receive  gate", "green and plain")
    call("mailbox", "send", "latest", "gate", "1")
    terminal.wait_for("think ann", f"said {escaped}")
    assert terminal.end() == 1

    assert f"raised {escaped}" in terminal.screen()
    assert b"\x1b[32mgreen\x1b[0m and plain" in terminal.written
    for sequence in (b"\x1b]", b"\x07", b"\x1b[2J", b"\x9b"):
        assert sequence not in terminal.written


@pytest.mark.requirement("view-is-chosen")
@pytest.mark.parametrize(("ci", "kind"), [("true", "xterm"), ("", "dumb")])
def test_a_ci_and_a_dumb_terminal_get_plain_lines_each_once(
    terminals: list[Terminal], ci: str, kind: str
) -> None:
    Path("hello.py").write_text(programs.HELLO)
    terminals.append(Terminal("run", "hello.py", CI=ci, TERM=kind))

    assert terminals[0].end() == 0
    lines = terminals[0].screen().splitlines()
    assert lines[0].endswith(" started")
    assert [lines.count(line) for line in lines] == [1] * len(lines)
    assert b"\x1b[?2026" not in terminals[0].written


def test_a_run_in_a_pipeline_of_a_ci_asks_nobody(terminals: list[Terminal]) -> None:
    Path("asking.py").write_text(programs.ASKING)
    terminals.append(Terminal("run", "asking.py", CI="true"))

    assert terminals[0].end() == 3


@pytest.mark.requirement("view-is-chosen")
def test_the_view_is_chosen_by_an_option(terminals: list[Terminal]) -> None:
    Path("hello.py").write_text(programs.HELLO)
    seen: dict[str, Terminal] = {}
    for name in ("live", "plain", "json", "quiet"):
        seen[name] = Terminal("run", "hello.py", "--view", name, CI="true")
        terminals.append(seen[name])
        assert seen[name].end() == 0

    assert b"\x1b[?2026h" in seen["live"].written
    assert "main: begin" in seen["plain"].screen()
    assert '"event":"result"' in seen["json"].written.decode().replace(" ", "")
    assert seen["quiet"].screen() == 'hello you\n{\n  "name": "you"\n}'
    assert not any(b"\x1b[?2026h" in seen[name].written for name in ("plain", "json", "quiet"))


@pytest.mark.requirement("view-is-chosen")
def test_two_views_exclude_each_other(call: Call) -> None:
    Path("hello.py").write_text(programs.HELLO)

    refused = call("run", "hello.py", "--json", "--view", "plain")

    assert (refused.returncode, "--json and --view plain exclude each other" in refused.stderr) == (2, True)

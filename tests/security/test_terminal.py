"""Text of programs, agents, commands and files does not steer a terminal, whichever command shows it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import warm
from tests.security.terminals import HOSTILE, STEERING, Seen, on_terminal

from bartack.cli.app._edge import obeyed, own, visible, without_colour

SOURCE = Path(__file__).parents[2] / "src/bartack"

PROGRAM = f"""
import sys
from bartack import Context, worker

HOSTILE = {HOSTILE!r}
print("imported " + HOSTILE)
print("imported " + HOSTILE, file=sys.stderr)


@worker
async def main(ctx: Context) -> str:
    print("plain " + HOSTILE)
    ctx.print("printed " + HOSTILE)
    ctx.log("logged " + HOSTILE)
    done = await ctx.shell(sys.executable, "-c", "import sys; print(" + repr(HOSTILE) + ")")
    await ctx.mailbox.box.send({{"member " + HOSTILE: done.stdout}})
    return "result " + HOSTILE


@worker
async def asking(ctx: Context) -> str:
    return await ctx.ask("really " + HOSTILE, options=["yes " + HOSTILE, "no"])


@worker
async def failing(ctx: Context) -> None:
    await ctx.shell(sys.executable, "-c", "import sys; sys.exit(" + repr("failed " + HOSTILE) + ")")


@worker
async def raising(ctx: Context) -> None:
    raise ValueError("raised " + HOSTILE)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run of each hostile worker."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(PROGRAM)
    return folder


def run_id(project: Path, worker: str, *, code: int) -> str:
    """A run of a hostile worker that has ended."""
    done = warm.run(
        [sys.executable, "-m", "bartack", "run", f"hostile.py:{worker}"],
        cwd=project,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    runs = sorted((project / ".bartack/runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    return runs[-1].name


@pytest.fixture(scope="module")
def runs(project: Path) -> dict[str, str]:
    codes = {"main": 0, "asking": 3, "failing": 1, "raising": 1}
    return {worker: run_id(project, worker, code=code) for worker, code in codes.items()}


@pytest.mark.requirement("terminal-is-not-steered")
@pytest.mark.parametrize("colour", ["", "1"])
@pytest.mark.parametrize("worker", ["main", "failing", "raising"])
def test_a_run_does_not_steer_the_terminal_it_is_started_on(project: Path, worker: str, colour: str) -> None:
    seen = on_terminal("run", f"hostile.py:{worker}", cwd=project, NO_COLOR=colour)

    assert seen.steering == []
    assert "\\x1b]0;title\\x07" in seen.text
    assert "imported \\x1b]0;" in seen.text
    if worker == "main":
        assert "printed \\x1b]0;" in seen.text
        assert "plain \\x1b]0;" in seen.text
        assert "logged \\x1b]0;" in seen.text


@pytest.mark.requirement("terminal-is-not-steered")
def test_a_question_does_not_steer_the_terminal_it_is_asked_on(project: Path) -> None:
    seen = on_terminal("run", "hostile.py:asking", cwd=project, typed="no\n")

    assert seen.code == 0, seen.text
    assert "really \\x1b]0;" in seen.text
    assert seen.steering == []


LOOKING = (
    ("main", "watch", "RUN"),
    ("raising", "watch", "RUN"),
    ("main", "status", "RUN"),
    ("main", "status"),
    ("main", "show", "RUN"),
    ("main", "show", "RUN", "--json"),
    ("main", "show", "RUN", "main.1"),
    ("main", "show", "RUN", "main.4"),
    ("main", "log", "RUN"),
    ("main", "log", "RUN", "--json"),
    ("main", "ps", "RUN"),
    ("main", "report", "RUN"),
    ("main", "report", "RUN", "--json"),
    ("main", "report", "RUN", "--markdown"),
    ("main", "diff", "RUN"),
    ("main", "diff", "RUN", HOSTILE),
    ("main", "journal", "show", "RUN"),
    ("main", "journal", "show", "RUN", "--full"),
    ("main", "journal", "show", "RUN", "--json"),
    ("main", "journal", "export", "RUN"),
    ("main", "journal", "verify", "RUN"),
    ("main", "mailbox", "list", "RUN"),
    ("main", "mailbox", "peek", "RUN", "box"),
    ("main", "mailbox", "peek", "RUN", HOSTILE),
    ("main", "dlq", "list", "RUN"),
    ("main", "explain", HOSTILE),
    ("main", HOSTILE),
    ("main", "show", HOSTILE),
    ("main", "run", HOSTILE),
    ("main", "resume", "RUN"),
    ("main", "bundle", "RUN", "-o", "RUN.tgz"),
    ("main", "replay", "RUN"),
    ("main", "replay", HOSTILE),
    ("main", "agents", "list"),
    ("main", "doctor"),
    ("asking", "answer", "RUN"),
    ("asking", "answer", "--all"),
    ("asking", "status", "--all"),
    ("asking", "answer", "RUN", "q1", HOSTILE),
    ("asking", "status", "RUN", "--json"),
    ("failing", "status", "RUN"),
    ("failing", "show", "RUN"),
    ("failing", "resume", "RUN"),
    ("raising", "status", "RUN"),
    ("raising", "status", "RUN", "--json"),
    ("raising", "show", "RUN"),
    ("raising", "report", "RUN"),
    ("asking", "report", "RUN"),
    ("raising", "fork", "RUN", "--at", HOSTILE),
    ("raising", "fail", "RUN", HOSTILE),
)


@pytest.mark.requirement("terminal-is-not-steered")
@pytest.mark.parametrize("words", LOOKING, ids=lambda words: visible(" ".join(words))[:40])
def test_no_command_lets_text_of_a_run_steer_the_terminal(
    project: Path, runs: dict[str, str], words: tuple[str, ...]
) -> None:
    worker, *args = words
    name = runs[worker]

    seen = on_terminal(*(word.replace("RUN", name) for word in args), cwd=project)

    assert seen.text
    assert seen.steering == []
    assert "Traceback" not in seen.text
    assert HOSTILE in words or "error[BT1002]" not in seen.text


@pytest.mark.requirement("terminal-is-not-steered")
@pytest.mark.parametrize("command", ["check", "compile", "run", "fmt"])
def test_a_program_with_control_characters_does_not_steer_the_terminal(tmp_path: Path, command: str) -> None:
    name = "\x1b]0;name\x07.pw"
    (tmp_path / name).write_bytes(f'worker w() {{ print("{HOSTILE}") \x1b[2J ; undefined_{{ }}\n'.encode())

    seen = on_terminal(command, name, cwd=tmp_path)

    assert seen.code != 0
    assert seen.steering == []


@pytest.mark.requirement("terminal-is-not-steered")
def test_settings_with_control_characters_do_not_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text(
        '"\\u001b]0;x\\u0007" = 1\nstate_dir = 3\n[agents."\\u009b2J"]\nkind = "\\u202e"\n'
    )

    for command in (("check", "bartack.toml"), ("doctor",), ("agents", "doctor"), ("status",)):
        assert on_terminal(*command, cwd=tmp_path).steering == []


@pytest.mark.requirement("pipes-are-faithful")
def test_what_a_program_prints_to_a_pipe_is_what_it_printed(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "run", "hostile.py:main"],
        cwd=project,
        capture_output=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )

    assert f"printed {HOSTILE}\n".encode() in done.stdout


@given(st.text(st.characters()))
def test_nothing_but_line_breaks_and_tabs_is_left_to_obey(text: str) -> None:
    assert STEERING.search(visible(text)) is None


SGR = st.sampled_from(
    ["\x1b[31m", "\x1b[1;38;5;200m", "\x1b[8m", "\x1b[5m", "\x1b[38;2;1;2;3m", "\x1b[m", "\x1b[", "\x1b"]
)


@given(st.lists(st.one_of(SGR, st.text(st.characters()))).map("".join))
def test_nothing_but_colour_is_left_to_obey_and_it_ends_with_its_line(text: str) -> None:
    shown = visible(text, colour=True)

    assert STEERING.search(without_colour(shown)) is None
    assert "\x1b[8m" not in shown
    assert "\x1b[5m" not in shown
    assert all(line.endswith("\x1b[0m") for line in shown.split("\n") if "\x1b" in line)


@given(st.text())
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    if STEERING.search(text) is None:
        assert visible(text) == text
    assert obeyed(text) == text


def test_our_own_sequences_pass_and_a_torn_one_does_not() -> None:
    red = own("\x1b[31m")

    assert visible(f"a\x1b[31m{red}b\x1b[8m") == "a\\x1b[31m\x1b[31mb\\x1b[8m"
    assert STEERING.search(visible(red[:-1])) is None


class Writes(ast.NodeVisitor):
    """Finds what gets past the edge: descriptors, the streams that Python keeps, the terminal itself, bare escapes."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in {"__stdout__", "__stderr__"}:
            self.found.append((node.lineno, node.attr))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and ("\x1b" in node.value or node.value == "/dev/tty"):
            self.found.append((node.lineno, repr(node.value)))

    def visit_Call(self, node: ast.Call) -> None:
        if _last_name(node.func) in WRITING:  # nearly all calls are others, and to write one out is slow
            self._look_at(node)
        self.generic_visit(node)

    def _look_at(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        first = ast.unparse(node.args[0]) if node.args else ""
        if name in {"click.echo", "click.secho", "click.style", "click.echo_via_pager", "print"}:
            self.found.append((node.lineno, name))
        if name == "os.write" and first in {"1", "2", "sys.stdout.fileno()", "sys.stderr.fileno()"}:
            self.found.append((node.lineno, f"os.write({first})"))
        if name in {"subprocess.run", "subprocess.Popen", "subprocess.check_call", "subprocess.call"}:
            given = {word.arg for word in node.keywords}
            if "capture_output" not in given and not {"stdout", "stderr"} <= given:
                self.found.append((node.lineno, f"{name} with our own streams"))


WRITING = {"echo", "secho", "style", "echo_via_pager", "print", "write", "run", "Popen", "check_call", "call"}
"""The last names of the calls that ``Writes`` looks for."""


SUSPICIOUS = re.compile(
    r"__std|\x1b|x1b|033|001b|\\N\{|/dev/tty|click|print|os\.write|subprocess", re.IGNORECASE
)
"""What has none of these has nothing that ``Writes`` looks for: most files need not be parsed."""


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


ALLOWED = {
    "cli/app/_edge.py": "the edge itself",
    "supervision/forms/_interpreter.py": "runs where stdout and stderr are files of the command",
    "supervision/process/cgroup_probe.py": "runs with its output captured",
    "supervision/parent/_trees.py": "writes names of processes as their representation",
    "runtime/rundir/notices.py": "starts a module of ours that writes only its own problems",
    "supervision/process/lock.py": "starts a few words of ours that write nothing",
    "cli/look/_diff.py": "gives escaped text to the user's own pager",
    "cli/demo/_worker.py": "runs with its output captured",
    "cli/demo/_story.py": "starts a module of ours",
    "agents/doctor/_checked_program.py": "hands on streams that were opened for it",
    "agents/guard/_words.py": "reads what these characters mean in a quoted word, and writes nothing",
    "node/_warm.py": "starts a module of ours that forks hubs, whose output goes to their logs",
    "plugin/guard_hook.py": "is read by Claude Code, and writes only words of ours",
    "plugin/install/_dev.py": "becomes Claude Code, which a person works with",
    "web/_ansi.py": "reads which colours a text has, and writes nothing",
    "testing/sandbox/_network.py": "starts a module of ours that writes nothing",
}
OWN_SEQUENCES = ("own(", "escape(")


@pytest.mark.requirement("terminal-is-not-steered")
def test_nothing_is_written_past_the_edge() -> None:
    past: list[str] = []
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        text = file.read_text()
        if SUSPICIOUS.search(text) is None:
            continue
        lines = text.splitlines()
        writes = Writes()
        writes.visit(ast.parse("\n".join(lines)))
        for line, what in writes.found:
            ours = any(word in lines[line - 1] for word in OWN_SEQUENCES) and "x1b" in what
            if name not in ALLOWED and not ours:
                past.append(f"{name}:{line}: {what}")

    assert past == []


@pytest.mark.parametrize(
    "source",
    [
        "click.echo(text)",
        "print(text)",
        "os.write(1, text)",
        "os.write(sys.stderr.fileno(), text)",
        "subprocess.run(words)",
        "subprocess.Popen(words, stdout=1)",
        "sys.__stdout__.write(text)",
        "found = '\\x1b[2J'",
        "open('/dev/tty')",
    ],
)
def test_a_write_past_the_edge_is_found(source: str) -> None:
    writes = Writes()
    writes.visit(ast.parse(source))

    assert SUSPICIOUS.search(source)
    assert len(writes.found) == 1


def test_seen_finds_what_steers() -> None:
    assert len(Seen(0, "\x1b[31mred\x1b[0m \x1b[8m").steering) == 1
    assert len(Seen(0, HOSTILE).steering) > 15

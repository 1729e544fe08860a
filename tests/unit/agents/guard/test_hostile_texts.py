"""Texts that are made to break a reader: none raises, none is judged differently the second time, none takes long."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.agents.guard.project import Project, make_project

from bartack.agents.guard._reader import read
from bartack.agents.guard._text import NotParsedError

PIECES = [
    'rm -rf /', 'a', 'x=1', ' ', '\n', ';', '&&', '||', '|', '&', '(', ')', '{ ', ' }', '$(', '`', '${', '}', '$((',
    '))', "'", '"', '\\', "$'", '<(', '>', '>>', '<<EOF\n', 'EOF\n', "<<-'E'\n", '<<<', '2>&1', 'if ', 'then ', 'fi',
    'for i in ', 'do ', 'done', 'case x in ', 'esac', ';;', '[[ ', ' ]]', 'f() ', 'function f ', '! ', 'time ', '*',
    '?', '[a]', '{a,b}', '{1..3}', '~', '#', '$X', '"$X"', '$HOME', 'eval ', 'bash -c ', 'sudo ', 'xargs ',
    'find . -exec ', ' {} \\;', 'cd ', '..', 'git ', 'alias a=', '=(', '\0', '\ufdd0', 'é', '\r', '\t', '--', '-',
    'coproc ', 'trap ', 'ssh h ', 'env -S ',
]  # fmt: skip
PROJECTS: list[Project] = []
"""Made once for all examples."""
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join),
    st.text(st.sampled_from("ab ;&|(){}$`'\"\\<>\n#*?[]~=!-/"), max_size=40),
    st.text(max_size=30),
)


@pytest.mark.requirement("guard-never-guesses")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
@example("f(){ f|f& };f" * 3)
@example("alias a='a b'; a; a")
@example("bash -c " * 30 + "ls")
@example("$'\\ud800'")
@example("x ''~")
def test_no_text_breaks_the_guard(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    if not PROJECTS:
        PROJECTS.append(make_project(tmp_path_factory.mktemp("hostile")))
    project = PROJECTS[0]

    assert project.judge(text) == project.judge(text)


HOSTILE = [
    '$(', '(', '`', '${', '"$(', '{ ', 'if ', '[[ ', '$((', '((', '<(', 'a=(', '\\`', '{a,', '$((1) ;', '@(a', '<<a ',
    'x<<a\n', "'", 'a"b"', '! ', 'time ', 'case x in a) ', '{a,b}', '\\', '~', '$[1]', 'f() ', 'a;', 'a|', 'cd a;',
    'rm -rf * ', 'f(){ f;};f;', '${a:-', 'alias a=b;a;', "bash -c 'a';", 'echo a|sh;', 'rm -rf {a,b};',
    'for i in a;do cd a;', 'eval ', 'sudo ', 'cat <<a|sh\nb\na\n',
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_text_takes_as_long_as_it_is_long(tmp_path: Path, piece: str) -> None:
    guard = make_project(tmp_path)

    def calls(size: int) -> int:
        """How many functions are called, which does not depend on how busy the machine is."""
        text, made = piece * (size // len(piece)), 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal made
            made += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            guard.judge(text)
        finally:
            sys.setprofile(None)
        return made

    calls(100)

    # Eight times as long: quadratic work would be 64 times as much.
    assert calls(8_000) < 16 * calls(1_000) + 1_000


def test_a_text_that_is_too_long_is_not_read() -> None:
    with pytest.raises(NotParsedError, match="too long"):
        read("ls " * 300_000)

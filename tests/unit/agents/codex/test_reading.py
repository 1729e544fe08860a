"""Commands that only look at files, and those that only seem to."""

from __future__ import annotations

import pytest

from bartack.agents.codex._reading import inner_command, read_places


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("ls", []),
        ("ls -la src", ["src"]),
        ("cat a.txt b.txt", ["a.txt", "b.txt"]),
        ("sed -n '1,20p' a.txt", ["1,20p", "a.txt"]),
        ("sed -n '5,$p' a.txt", ["5,$p", "a.txt"]),
        ("nl -ba a.txt | sed -n '1,80p'", ["a.txt", "1,80p"]),
        ("rg -n foo src && wc -l a", ["foo", "src", "a"]),
        ("git diff HEAD; git status", ["diff", "HEAD", "status"]),
        ("find . -name '*.py'", [".", "*.py"]),
        ("grep -rn 'a.*b' .", ["a.*b", "."]),
    ],
)
def test_a_command_that_only_looks_names_its_places(command: str, places: list[str]) -> None:
    assert read_places(command) == places


@pytest.mark.parametrize(
    "command",
    [
        "",
        "touch a",
        "ls > out",
        "ls; touch a",
        "ls && rm a",
        "ls | tee out",
        "ls & rm a",
        "ls || rm a",
        "cat $(touch a)",
        "cat `touch a`",
        "cat <(touch a)",
        "cat a\nrm b",
        "cat $HOME/.ssh/id",
        "cat ~/.ssh/id",
        "cat .e*v",
        "find . -delete",
        "find . -exec rm a ;",
        "find . -fprintf out x",
        "sed -i s/a/b/ a.txt",
        "sed -n '1w out' a.txt",
        "sed '1e touch a' a.txt",
        "rg --pre=touch a",
        "rg --pre touch a",
        "rg -z a",
        "git -c core.pager=touch log",
        "git diff --output=out",
        "git diff --ext-diff",
        "git commit -m x",
        "git grep -Otouch a",
        "env touch a",
        "FOO=1 ls",
        "ls 'unfinished",
        "bash -c ls",
        "xargs rm",
        "/tmp/ls",
    ],
)
def test_everything_else_is_a_command(command: str) -> None:
    assert read_places(command) is None


@pytest.mark.parametrize(
    ("given", "inner"),
    [
        ("/bin/bash -lc 'touch a; echo b'", "touch a; echo b"),
        ("bash -c ls", "ls"),
        ("ls -l", "ls -l"),
        ("bash -c ls extra", "bash -c ls extra"),
        ("python -c 'x'", "python -c 'x'"),
        ("bash -c 'unfinished", "bash -c 'unfinished"),
    ],
)
def test_a_command_is_what_its_shell_executes(given: str, inner: str) -> None:
    assert inner_command(given) == inner

"""Shell commands that only look at files. Codex has no tools for that: it reads, lists and searches by commands.

A command is one of them only if every part of it is known here, with every option. Everything else is a command like any other.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import Final

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_OPERATORS: Final = frozenset({"|", "&&", "||", ";"})
_STRANGE: Final = frozenset("`$(){}<>\\\n\r\0!#~")
"""Characters with which a shell does more than execute the words."""
_LINES: Final = re.compile(r"[0-9]+(,([0-9]+|\$))?p")
_FIND_ACTS: Final = (
    "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf", "-files0-from",
)  # fmt: skip
_GIT_LOOKS: Final = frozenset({"status", "diff", "log", "show", "ls-files", "blame", "rev-parse"})
_GIT_ACTS: Final = (
    "--output",
    "--ext-diff",
    "--textconv",
    "--no-index",
    "--exec",
    "-o",
    "-O",
    "--open-files",
)


def inner_command(command: str) -> str:
    """What a shell is started for: Codex names the shell, too."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == 3 and os.path.basename(words[0]) in SHELLS and words[1] in {"-c", "-lc"}
    return words[2] if is_shell else command


def read_places(command: str) -> list[str] | None:
    """What a command that only looks names, paths among it; ``None`` if it may do anything else."""
    if not _STRANGE.isdisjoint(_without_quoted_dollar(command)):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    places: list[str] = []
    for part in _parts(words):
        if part is None or not _only_looks(part):
            return None
        places += [word for word in part[1:] if not word.startswith("-")]
    return places


def _without_quoted_dollar(command: str) -> str:
    """``sed -n '5,$p'`` is the one place where a dollar means nothing to the shell."""
    return re.sub(r"'([0-9]+),\$p'", r"'\1,p'", command)


def _parts(words: list[str]) -> list[list[str] | None]:
    parts: list[list[str] | None] = [[]]
    for word in words:
        if word in _OPERATORS:
            parts.append([])
        elif set(word) <= set("|&;"):
            return [None]
        else:
            last = parts[-1]
            assert last is not None
            last.append(word)
    return parts


def _only_looks(words: list[str]) -> bool:
    known = _KNOWN.get(words[0]) if words else None
    if known is None or not known(words[1:]):
        return False
    # A pattern that the shell expands names files that no rule has seen.
    return words[0] in _TAKE_PATTERNS or not any(set(word) & set("*?[") for word in words)


def _anything(_: list[str]) -> bool:
    return True


def _none_of(*refused: str) -> Callable[[list[str]], bool]:
    def check(words: list[str]) -> bool:
        return not any(
            word == option or word.startswith(f"{option}=") for word in words for option in refused
        )

    return check


def _is_find(words: list[str]) -> bool:
    return not any(word in _FIND_ACTS for word in words)


def _is_search(words: list[str]) -> bool:
    names = ("--pre", "--pre-glob", "--hostname-bin", "--search-zip")
    short = any(re.fullmatch(r"-[A-Za-z]*z[A-Za-z]*", word) for word in words)
    return _none_of(*names)(words) and not short


def _is_excerpt(words: list[str]) -> bool:
    """``sed -n 1,20p FILE`` prints lines; everything else of it can write files and start programs."""
    return len(words) in {2, 3} and words[0] == "-n" and _LINES.fullmatch(words[1]) is not None


def _is_git(words: list[str]) -> bool:
    looks = bool(words) and words[0] in _GIT_LOOKS
    return looks and not any(word.startswith(_GIT_ACTS) for word in words[1:])


_TAKE_PATTERNS: Final = frozenset({"grep", "egrep", "fgrep", "rg", "find", "git", "echo"})
_KNOWN: Final[dict[str, Callable[[list[str]], bool]]] = {
    **dict.fromkeys(
        ("ls", "cat", "head", "tail", "wc", "pwd", "nl", "grep", "egrep", "fgrep", "stat", "cut", "tr", "echo", "true"),
        _anything,
    ),
    "find": _is_find,
    "rg": _is_search,
    "sed": _is_excerpt,
    "git": _is_git,
}  # fmt: skip

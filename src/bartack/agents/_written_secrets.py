"""Secrets that are written down in the settings of an agent, where all readers of the project find them.

A secret is known by its name (``env``, ``config``, an option of ``command``) or by the form that services give keys. No message
has its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from bartack.core.flaws import Flaw, KeyPath
from bartack.core.redact import is_secret_name

_FORMS: Final = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      sk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{20,}
    | gh[opusr]_[A-Za-z0-9]{20,}
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{20,}
    | xox[abprs]-[A-Za-z0-9-]{11,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | AIza[A-Za-z0-9_-]{30,}
    | hf_[A-Za-z0-9]{30,}
    )""",
    re.VERBOSE,
)
_OPTIONS: Final = re.compile(r"--?(?:[a-z]+[-_])*(?:api[-_]?key|token|secret|password)", re.IGNORECASE)
"""Options of programs whose values are secrets."""
_NAMES_OF_VARIABLES: Final = ("env_key",)
"""Settings of Codex that end like the name of a secret and name a variable."""


def find_secrets(table: Mapping[str, object], path: KeyPath) -> Iterator[Flaw]:
    """The secrets that the table of an agent has. ``path`` is where it is."""
    instead = "name the variable that has it in pass_env instead"
    for name, value in _texts(table.get("env")):
        if is_secret_name(name) or _is_key(value):
            yield _flaw((*path, "env", name), f"env.{name}", "name it in pass_env instead")
    for name, value in _texts(table.get("config")):
        last = name.rpartition(".")[2]
        named = is_secret_name(last) and last not in _NAMES_OF_VARIABLES
        if (named and value) or _is_key(value):
            yield _flaw((*path, "config", name), f"config.{name}", instead)
    command = table.get("command")
    words = cast("Sequence[object]", command) if isinstance(command, list) else [command]
    number = _in_words([word if isinstance(word, str) else "" for word in words])
    if number:
        yield _flaw((*path, "command"), f"word {number} of command", instead)


def _in_words(words: Sequence[str]) -> int:
    """The number of the first word that has a secret in it, from 1; 0 if none has."""
    for number, word in enumerate(words, 1):
        option, given, value = word.partition("=")
        before = words[number - 2] if number > 1 else ""
        follows = not word.startswith(("-", "$")) and _OPTIONS.fullmatch(before) is not None
        assigned = bool(given and value) and _OPTIONS.fullmatch(option) is not None
        if _is_key(word) or assigned or (word and follows):
            return number
    return 0


def _texts(table: object) -> Iterator[tuple[str, str]]:
    for name, value in cast("dict[str, object]", table).items() if isinstance(table, dict) else ():
        yield name, value if isinstance(value, str) else ""


def _is_key(value: str) -> bool:
    return _FORMS.search(value) is not None


def _flaw(path: KeyPath, what: str, instead: str) -> Flaw:
    return Flaw(path, f"{what} is a secret and must not be written down; {instead}")

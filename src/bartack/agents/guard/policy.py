"""The policy of the guard: the section ``guard`` of ``bartack.toml``, read without any library, because a hook has no time for one.

The settings of a project have the same section as a type; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from typing import Final, Literal, NamedTuple, cast

DECISIONS: Final = ("deny", "ask", "allow")
_KEYS: Final = ("builtin", "unparsed", "protect", "roots", "rule")
_RULE_KEYS: Final = ("tool", "match", "decision", "reason")


class PolicyFlawError(Exception):
    """The section cannot be used: where and why."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


class GuardRule(NamedTuple):
    """A rule of the project.

    Attributes:
        id: What the verdict calls it.
        tool: A pattern of tools.
        match: A pattern of simple commands, or of paths.
        decision: What it decides.
        reason: What it is there for.
    """

    id: str
    tool: re.Pattern[str]
    match: re.Pattern[str]
    decision: Literal["deny", "ask", "allow"]
    reason: str

    def fits(self, tool: str, subject: str) -> bool:
        """Whether it is about a tool call."""
        return self.tool.match(tool) is not None and self.match.match(subject) is not None


class GuardPolicy(NamedTuple):
    """What the guard denies and asks about.

    Attributes:
        builtin: Whether the built-in rules count.
        unparsed: What is decided about commands that cannot be read.
        protect: Patterns of files that are neither written, nor deleted, nor moved.
        roots: Directories in which named subdirectories may be deleted with everything in them.
        rules: The project's own rules.
    """

    builtin: bool = True
    unparsed: Literal["ask", "deny"] = "ask"
    protect: tuple[str, ...] = ()
    roots: tuple[str, ...] = (".",)
    rules: tuple[GuardRule, ...] = ()


def make_rule(number: int, tool: str, match: str, decision: str, reason: str) -> GuardRule:
    """A rule from its settings; ``number`` counts from 1."""
    kind = cast('Literal["deny", "ask", "allow"]', decision)
    text = (reason or f"the project's rule for {match}").rstrip(".")
    return GuardRule(f"rule-{number}", re.compile(translate(tool)), re.compile(translate(match)), kind, text)


def read_policy(section: object) -> GuardPolicy:
    """Read the section ``guard``.

    Raises:
        PolicyFlawError: Something in it is unknown or cannot be used.
    """
    table = _table(section, "guard")
    _known(table, _KEYS, "guard")
    default = GuardPolicy()
    builtin = table.get("builtin", default.builtin)
    unparsed = table.get("unparsed", default.unparsed)
    if not isinstance(builtin, bool):
        raise PolicyFlawError("guard.builtin", "it is neither true nor false")
    if unparsed not in ("ask", "deny"):
        raise PolicyFlawError("guard.unparsed", "it is neither 'ask' nor 'deny'")
    return GuardPolicy(
        builtin,
        unparsed,
        _texts(table.get("protect", ()), "guard.protect"),
        _texts(table.get("roots", default.roots), "guard.roots"),
        tuple(_rule(given, number) for number, given in enumerate(_list(table.get("rule", ())), 1)),
    )


def _rule(given: object, number: int) -> GuardRule:
    place = f"guard.rule[{number - 1}]"
    table = _table(given, place)
    _known(table, _RULE_KEYS, place)
    for key in ("tool", "match", "decision", "reason"):
        value = table.get(key, "" if key == "reason" else None)
        if not isinstance(value, str) or (not value and key != "reason"):
            raise PolicyFlawError(f"{place}.{key}", "it is missing, or not a text")
    if table["decision"] not in DECISIONS:
        raise PolicyFlawError(f"{place}.decision", f"expected one of {', '.join(DECISIONS)}")
    values = [str(table.get(key, "")) for key in _RULE_KEYS]
    return make_rule(number, *values)


def _known(table: Mapping[str, object], known: tuple[str, ...], place: str) -> None:
    for key in table:
        if key not in known:
            raise PolicyFlawError(f"{place}.{key}", f"there is no such key (there are: {', '.join(known)})")


def _table(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise PolicyFlawError(place, "it is not a table")
    return cast("dict[str, object]", value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise PolicyFlawError("guard.rule", "it is not a list of tables")
    return list(cast("list[object]", value))


def _texts(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise PolicyFlawError(place, "it is not a list of texts")
    found = cast("list[object]", value)
    if not all(isinstance(one, str) and one.strip() and "\0" not in one for one in found):
        raise PolicyFlawError(place, "it has something other than a path or a pattern in it")
    return tuple(cast("list[str]", found))

"""The rules for git: which of its commands lose work, and which run another command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.agents.guard._case import Case
from bartack.agents.guard._options import Options, parse_options
from bartack.agents.guard._rules import check_delete
from bartack.agents.guard._text import GLOBS, show

GLOBAL_VALUES: Final = frozenset(
    {"C", "c", "git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"}
)
_WHOLE: Final = frozenset({".", "./", ":/", ":", "*", ":/*", ".."})


def split_git(words: list[str]) -> tuple[list[str], Options]:
    """The command of git with its arguments, and the options before it."""
    before = parse_options(words[1:], GLOBAL_VALUES, stops_at_operand=True)
    return before.operands, before


def check_git(case: Case, words: list[str]) -> None:
    """Judge a command of git: its name, then its arguments."""
    rule = _COMMANDS.get(words[0])
    if rule is not None and rule(words[1:]):
        case.deny("git-loss", f"git {words[0]}")
    elif words[0] == "rm":
        given = parse_options(words[1:])
        if given.has("r") and not given.has("cached"):
            check_delete(case, given.operands)


def _reset(words: list[str]) -> bool:
    return parse_options(words).has("hard")


def _clean(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"e", "exclude"}))
    return given.has("f", "force") and not given.has("n", "dry-run")


def _checkout(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"b", "B", "orphan", "conflict", "pathspec-from-file"}))
    return given.has("f", "force") or _has_whole(given.operands)


def _switch(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"c", "C", "orphan", "conflict"}))
    return given.has("f", "force", "discard-changes")


def _restore(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"s", "source", "conflict", "pathspec-from-file"}))
    in_worktree = given.has("W", "worktree") or not given.has("S", "staged")
    return in_worktree and _has_whole(given.operands)


def _has_whole(operands: list[str]) -> bool:
    """Whether one of the paths is everything."""
    return any(show(word) in _WHOLE or (GLOBS.match(word) and len(word) <= 2) for word in operands)


def _stash(words: list[str]) -> bool:
    return words[:1] in (["drop"], ["clear"])


def _branch(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"u", "set-upstream-to"}))
    return "D" in given.flags or (given.has("d", "delete") and given.has("f", "force"))


def _worktree(words: list[str]) -> bool:
    return words[:1] == ["remove"] and parse_options(words[1:]).has("f", "force")


def _push(words: list[str]) -> bool:
    given = parse_options(words, frozenset({"o", "push-option", "repo", "receive-pack", "exec"}))
    forced = "f" in given.flags or "force" in given.flags or given.has("mirror")
    return forced or any(word.startswith("+") for word in given.operands)


def _reflog(words: list[str]) -> bool:
    return words[:1] in (["expire"], ["delete"])


_COMMANDS: Final[dict[str, Callable[[list[str]], bool]]] = {
    "reset": _reset,
    "clean": _clean,
    "checkout": _checkout,
    "switch": _switch,
    "restore": _restore,
    "stash": _stash,
    "branch": _branch,
    "worktree": _worktree,
    "push": _push,
    "reflog": _reflog,
}

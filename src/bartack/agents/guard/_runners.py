"""Commands that run other commands: prefixes, shells, ``eval``, ``xargs``, ``find``, ``ssh``, ``git`` and the like."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from bartack.agents.guard._case import Judging
from bartack.agents.guard._feeds import feed_of
from bartack.agents.guard._git_rules import check_git, split_git
from bartack.agents.guard._options import (
    INTERPRETERS,
    PREFIXES,
    SHELL_VALUES,
    SHELLS,
    SSH_VALUES,
    Options,
    parse_options,
)
from bartack.agents.guard._rules import check_find
from bartack.agents.guard._scope import Scope
from bartack.agents.guard._syntax import Node
from bartack.agents.guard._text import (
    ANY,
    BRACKET,
    FOUND,
    HOME,
    MARKS,
    PROCESS,
    SPLIT,
    STAR,
    TILDE,
    UNKNOWN,
    WORKDIR,
    show,
)

_ASSIGNED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ACTIONS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_VERSIONED: Final = re.compile(r"python[0-9.]*\Z")
_SUBSHELL_OPTIONS: Final = frozenset({"-s", "-i", "--shell", "--login"})
"""Options with which ``sudo`` or ``su`` starts a shell."""


class Runners:
    """Looks through the commands that run others."""

    def __init__(self, judge: Judging) -> None:
        self._judge = judge
        self._special: dict[str, Callable[[list[str], Node, Scope, Sequence[Node]], None]] = {
            "eval": self._eval,
            "trap": self._trap,
            "alias": self._alias,
            "source": self._source,
            ".": self._source,
            "find": self._find,
            "gfind": self._find,
            "ssh": self._ssh,
            "git": self._git,
            "watch": self._watch,
            "su": self._su,
            "runuser": self._su,
            "script": self._su,
            "flock": self._flock,
            "env": self._env,
            "command": self._command,
            "xargs": self._xargs,
            "parallel": self._xargs,
        }

    def run(self, name: str, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> bool:
        """Judge what a command runs; whether it runs anything at all."""
        special = self._special.get(name)
        if special is not None:
            special(words, node, scope, upstream)
        elif name in SHELLS:
            self._shell(words, node, scope, upstream)
        elif name in PREFIXES:
            self._prefix(name, words, node, scope, upstream)
        elif name in INTERPRETERS or _VERSIONED.match(name):
            self._interpreter(words, node, upstream)
        else:
            return False
        return True

    def _prefix(
        self, name: str, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]
    ) -> None:
        prefix = PREFIXES[name]
        given = parse_options(words[1:], prefix.values, stops_at_operand=True)
        rest = given.operands[prefix.operands :]
        while rest and _ASSIGNED.match(rest[0]):
            self._judge.assign(rest[:1], scope)
            rest = rest[1:]
        inner = scope.elsewhere() if prefix.is_elsewhere else scope
        if rest:
            self._judge.apply(rest, node, inner, upstream)
        elif not _SUBSHELL_OPTIONS.isdisjoint(words):
            self._from_stdin(words, node, inner, upstream)

    def _env(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        """``env -S`` splits a text into words."""
        for place, word in enumerate(words[1:], 1):
            if word in {"-S", "--split-string"} or word.startswith(("-S", "--split-string=")):
                plain = word.removeprefix("--split-string=") if "=" in word else word[2:]
                text = plain if plain and plain != "split-string" else " ".join(words[place + 1 : place + 2])
                rest = words[place + (1 if plain and plain != "split-string" else 2) :]
                self._text(" ".join([text, *map(_quoted, rest)]), scope)
                return
        self._prefix("env", words, node, scope, upstream)

    def _command(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        given = parse_options(words[1:], stops_at_operand=True)
        if not given.has("v", "V") and given.operands:
            self._judge.apply(given.operands, node, scope, upstream)

    # Texts that a shell reads.

    def _text(self, text: str, scope: Scope, node: Node | None = None) -> None:
        """Judge a text that another shell reads."""
        if MARKS.search(text.replace(TILDE, "").replace(FOUND, "")):
            plain = _without_places(text)
            if plain is None:
                self._unknown(text, node)
                return
            text = plain
        self._judge.judge(text.replace(TILDE, "~").replace(FOUND, "$found"), scope)

    def _unknown(self, text: str, node: Node | None) -> None:
        if node is not None and self._judge.is_fetching(node):
            self._judge.report("network-code", show(text))
        else:
            self._judge.report_unparsed(show(text))

    def _shell(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        given = parse_options(words[1:], SHELL_VALUES, stops_at_operand=True)
        operands = [word for word in given.operands if not word.startswith("+")]
        if "c" in given.flags:
            if operands:
                self._text(operands[0], scope.copy(), node)
        elif "s" in given.flags or not operands or operands[0] in {"-", "/dev/stdin", "/dev/fd/0"}:
            if not given.has("version", "help"):
                self._from_stdin(words, node, scope, upstream)
        elif PROCESS in operands[0]:
            self._unknown(" ".join(words), node)

    def _from_stdin(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        feed = feed_of(node, upstream)
        if feed is None:
            return
        if feed.is_network:
            self._judge.report("network-code", " ".join(map(show, words)))
        elif feed.texts is None:
            self._judge.report_unparsed(" ".join(map(show, words)))
        else:
            for text in feed.texts:
                self._judge.judge(text, scope.copy())

    def _interpreter(self, words: list[str], node: Node, upstream: Sequence[Node]) -> None:
        """Programs of other languages are not read; only where they come from is looked at."""
        feed = feed_of(node, upstream)
        operands = [word for word in words[1:] if not word.startswith("-")]
        reads = not operands or "-" in words[1:]
        fetched = any(PROCESS in word or UNKNOWN in word or SPLIT in word for word in words[1:])
        if (feed is not None and feed.is_network and reads) or (fetched and self._judge.is_fetching(node)):
            self._judge.report("network-code", " ".join(map(show, words)))

    def _eval(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        self._text(" ".join(words[1:]), scope, node)

    def _trap(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        operands = parse_options(words[1:]).operands
        if len(operands) > 1 and operands[0] != "-":
            self._text(operands[0], scope.copy(), node)

    def _alias(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals:
                self._text(value, scope.copy(), node)
                scope.aliases[name] = value if not MARKS.search(value) else ""

    def _source(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        if len(words) < 2:
            return
        if PROCESS in words[1]:
            self._unknown(" ".join(words), node)
        elif words[1] in {"/dev/stdin", "/dev/fd/0", "-"}:
            self._from_stdin(words, node, scope, upstream)

    def _watch(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        given = parse_options(words[1:], frozenset({"n", "q", "interval", "equexit"}), stops_at_operand=True)
        self._text(" ".join(given.operands), scope.copy(), node)

    def _su(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        values = frozenset({"c", "command", "s", "shell", "g", "G", "u", "w", "session-command"})
        given = parse_options(words[1:], values)
        text = next(
            (given.values[key] for key in ("c", "command", "session-command") if key in given.values), None
        )
        if text is not None:
            self._text(text, scope.copy(), node)
        elif given.has("u") and len(given.operands) > 0:
            self._judge.apply(given.operands, node, scope, upstream)
        else:
            self._from_stdin(words, node, scope, upstream)

    def _flock(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        given = parse_options(
            words[1:], frozenset({"w", "E", "timeout", "conflict-exit-code"}), stops_at_operand=True
        )
        rest = given.operands[1:]
        if rest[:1] in (["-c"], ["--command"]):
            self._text(" ".join(rest[1:2]), scope.copy(), node)
        elif rest:
            self._judge.apply(rest, node, scope, upstream)

    def _ssh(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        given = parse_options(words[1:], SSH_VALUES, stops_at_operand=True)
        rest = given.operands[1:]
        inner = scope.elsewhere()
        if not given.operands:
            return
        if not rest:
            self._from_stdin(words, node, inner, upstream)
            return
        text = " ".join(rest)
        if any(name in text for name in SHELLS):
            self._remote_shell(text, node, inner, upstream)
        self._text(text, inner, node)

    def _remote_shell(self, text: str, node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        """``ssh host 'bash -s' < file``: the remote shell reads what is fed to ssh here."""
        words = text.split()
        if words[0].rsplit("/", 1)[-1] in SHELLS and (len(words) == 1 or words[1:] == ["-s"]):
            self._shell(words, node, scope, upstream)

    # Commands that get arguments from elsewhere.

    def _xargs(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        name = words[0].rsplit("/", 1)[-1]
        prefix = PREFIXES.get(name, PREFIXES["xargs"])
        given = parse_options(words[1:], prefix.values - {"i"}, stops_at_operand=True)
        rest = given.operands
        if not rest:
            return
        marker = self._marker(given, name)
        if ":::" in rest:
            rest = rest[: rest.index(":::")]
        used = [word.replace(marker, UNKNOWN) for word in rest] if marker else [*rest, SPLIT]
        if marker and name == "parallel" and used == rest:
            used = [*rest, SPLIT]
        if used:
            self._judge.apply(used, node, scope)

    @staticmethod
    def _marker(given: Options, name: str) -> str:
        if name == "parallel":
            return given.values.get("I", "{}")
        if given.has("i", "replace"):
            return given.values.get("replace") or "{}"
        return given.values.get("I", "")

    def _find(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        case = self._judge.case(words, scope)
        if "-delete" in words:
            check_find(case, words)
        index = 0
        while index < len(words):
            index += 1
            if words[index - 1] in _ACTIONS:
                end = next((at for at in range(index, len(words)) if words[at] in {";", "+"}), len(words))
                self._action([word.replace("{}", FOUND) for word in words[index:end]], words, node, scope)
                index = end

    def _action(self, action: list[str], words: list[str], node: Node, scope: Scope) -> None:
        """One command that ``find`` runs on what it finds."""
        if not action:
            return
        plain = [word for word in action if word != FOUND]
        given = parse_options(plain[1:])
        if plain and plain[0].rsplit("/", 1)[-1] == "rm" and FOUND in action:
            if given.has("r", "R", "recursive"):
                check_find(self._judge.case(words, scope), words)
            action = plain
        self._judge.apply(action, node, scope)

    def _git(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node]) -> None:
        del upstream
        rest, given = split_git(words)
        if not rest:
            return
        inner = scope
        if "C" in given.values:
            inner = scope.copy()
            inner.enter(self._judge.directories(given.values["C"], scope))
        if MARKS.search(rest[0]):
            self._judge.report_unparsed(" ".join(map(show, words)))
            return
        alias = given.values.get("c", "")
        if alias.startswith(f"alias.{rest[0]}="):
            value = alias.partition("=")[2]
            text = value[1:] if value.startswith("!") else f"git {value}"
            self._text(" ".join([text, *map(_quoted, rest[1:])]), inner, node)
            return
        self._git_texts(rest, node, inner)
        check_git(self._judge.case(words, inner), rest)

    def _git_texts(self, rest: list[str], node: Node, scope: Scope) -> None:
        """Commands of git that run others."""
        if rest[:2] == ["submodule", "foreach"]:
            self._text(" ".join(word for word in rest[2:] if word != "--recursive"), scope.copy(), node)
        elif rest[:2] == ["bisect", "run"] and len(rest) > 2:
            self._judge.apply(rest[2:], node, scope)
        elif rest[0] == "rebase":
            values = parse_options(rest[1:], frozenset({"x", "exec"})).values
            for key in ("x", "exec"):
                if key in values:
                    self._text(values[key], scope.copy(), node)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _without_places(text: str) -> str | None:
    """A text whose only marks are the home and the working directory, which the other shell knows by the same names."""
    names = {HOME: "$HOME", WORKDIR: "$PWD", STAR: "*", ANY: "?", BRACKET: "["}
    for mark, name in names.items():
        text = text.replace(mark, name)
    return None if MARKS.search(text.replace(TILDE, "").replace(FOUND, "")) else text

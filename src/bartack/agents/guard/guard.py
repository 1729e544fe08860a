"""The verdict of the guard about one tool call: commands are read and judged, paths are resolved and compared.

A verdict depends on the call, the policy and the files that are there, and on nothing else. Read ``_judge.py`` for how a command is
judged and ``_rules.py`` for the built-in rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from bartack.agents.guard._judge import BrokenRule, ScriptJudge
from bartack.agents.guard._places import STATE, Places
from bartack.agents.guard._rules import REASONS
from bartack.agents.guard._scope import Scope
from bartack.agents.guard.policy import GuardPolicy
from bartack.agents.guard.verdict import NO_OPINION, ORDER, GuardVerdict

if TYPE_CHECKING:
    from typing import Literal

    from bartack.agents.tool_use import ToolUse

SHELL_TOOL: Final = "Bash"


class Explained(NamedTuple):
    """One simple command of a text, and the verdict about it alone."""

    command: str
    verdict: GuardVerdict


class Guard:
    """Judges the tool calls in one project.

    Args:
        policy: The settings of the project.
        root: The project.
        cwd: Where commands run; the project by default.
        home: The home directory of the user; that of this process by default.
        state_dir: Where runs are kept, relative to the project.
        vital: Further directories that must not be deleted, such as that of a session below the project.
    """

    def __init__(
        self,
        policy: GuardPolicy,
        root: str,
        *,
        cwd: str = "",
        home: str | None = None,
        state_dir: str = STATE,
        vital: tuple[str, ...] = (),
    ) -> None:
        self._policy = policy
        self._cwd = os.path.realpath(cwd or root)
        own = os.path.expanduser("~") if home is None else home
        self._places = Places(
            root, own, state_dir=state_dir, roots=policy.roots, protect=policy.protect, vital=vital
        )

    @property
    def has_built_in_rules(self) -> bool:
        """Whether the built-in rules count."""
        return self._policy.builtin

    def judge(self, use: ToolUse, *, strict: bool = False) -> GuardVerdict:
        """The verdict about a tool call. ``strict``: what cannot be read is denied, because no person can be asked."""
        if use.tool == SHELL_TOOL or use.command:
            if not isinstance(use.input.get("command"), str):
                unknown = BrokenRule("unparsed", self._unparsed(strict=strict), REASONS["unparsed"], use.tool)
                return _strictest([unknown])
            judge = self._judged(use.command, use.tool, strict=strict)
            return _strictest(judge.findings)
        return _strictest([*self._of_paths(use), *self._of_other(use)])

    def explain(self, command: str, *, strict: bool = False) -> list[Explained]:
        """The simple commands of a text, each with the verdict about it. A text that is not read is one of them."""
        judge = self._judged(command, SHELL_TOOL, strict=strict)
        rows: list[Explained] = []
        explained: set[int] = set()
        for shown, start, end in judge.commands:
            explained |= set(range(start, end))
            rows.append(Explained(shown, _strictest(judge.findings[start:end])))
        rest = [finding for index, finding in enumerate(judge.findings) if index not in explained]
        return rows + [Explained(finding.subject, _strictest([finding])) for finding in rest]

    def commands_in(self, text: str) -> list[str]:
        """Every simple command that a text runs, without quotes: as it is written, and without each of its prefixes."""
        judge = ScriptJudge(self._policy, self._places, SHELL_TOOL)
        judge.stages = []
        judge.judge(text, Scope(self._cwd))
        return judge.stages

    def _judged(self, text: str, tool: str, *, strict: bool) -> ScriptJudge:
        judge = ScriptJudge(self._policy, self._places, tool, strict=strict)
        judge.judge(text, Scope(self._cwd))
        return judge

    def _unparsed(self, *, strict: bool) -> str:
        return "deny" if strict else self._policy.unparsed

    def _of_paths(self, use: ToolUse) -> Iterator[BrokenRule]:
        if not use.writes or not self._policy.builtin:
            return
        for path in use.paths:
            if "\0" in path or self._places.is_protected(self._places.real(path, self._cwd)):
                yield BrokenRule("protected", "deny", REASONS["protected"], path)

    def _of_other(self, use: ToolUse) -> Iterator[BrokenRule]:
        """The project's rules about a tool that is not a command."""
        for rule in self._policy.rules:
            subjects = [form for path in use.paths for form in self._forms(path)] or [use.subject]
            for name in {use.tool, use.name}:
                found = next((one for one in subjects if rule.fits(name, one)), None)
                if found is not None and rule.decision != "allow":
                    yield BrokenRule(rule.id, rule.decision, rule.reason, found)

    def _forms(self, path: str) -> tuple[str, ...]:
        if "\0" in path:
            return (path,)
        real = self._places.real(path, self._cwd)
        return (path, real, os.path.relpath(real, self._places.root))


def _strictest(findings: list[BrokenRule]) -> GuardVerdict:
    if not findings:
        return NO_OPINION
    worst = max(findings, key=lambda finding: ORDER[finding.decision])
    decision = cast('Literal["ask", "deny"]', worst.decision)
    return GuardVerdict(decision, worst.rule, worst.reason, worst.subject)

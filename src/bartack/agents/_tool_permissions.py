"""The one decision about a tool call of an agent, for every kind of agent. Adapters only translate.

In this order: a ``deny`` rule; the guard, in every mode; an ``allow`` rule; the mode. Below them are the bounds of writing: outside
of the directories of the call, below ``.git``, the state directory and refused paths an agent changes no file, unless a person
decides (``ask``) or the mode is ``all``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from bartack.agents._permissions import Decision, Permissions
from bartack.agents.guard.guard import Guard
from bartack.agents.guard.policy import GuardPolicy
from bartack.agents.tool_use import BOOKKEEPING, SUBAGENTS, ToolUse

if TYPE_CHECKING:
    from bartack.agents.guard.verdict import GuardVerdict
    from bartack.agents.protocol.messages import Role

NEVER: Final = (".git", ".bartack")
"""No agent changes a file below directories of these names."""
UNBOUND: Final = frozenset({"all", "ask"})
"""Modes in which writes have no bounds: everything is allowed, or a person decides."""


class Judge(Protocol):
    """Who says whether a tool call may destroy something: the guard."""

    def judge(self, use: ToolUse, *, strict: bool = False) -> GuardVerdict:
        """The verdict about a tool call; ``strict``: what cannot be read is denied, because no person can be asked."""
        ...


class Decides(Protocol):
    """What decides a tool call: ``ToolPermissions``."""

    def decide(self, use: ToolUse) -> Decision:
        """Whether a tool call may be made."""
        ...


def decide_or_deny(permissions: Decides, use: ToolUse) -> Decision:
    """The decision about a tool call, for every adapter: an error in the decision denies the call, and is the reason."""
    try:
        return permissions.decide(use)
    except Exception as error:  # noqa: BLE001 - the boundary of every decision: whatever goes wrong, the call is not made
        return Decision("deny", "guard", f"Blocked: the call could not be decided ({type(error).__name__})")


class ToolPermissions:
    """Decides every tool call of one call of an agent.

    Args:
        permissions: The agent's settings.
        role: The role in which it is asked: its mode counts where the settings have none.
        cwd: Where it works.
        extra_dirs: Further directories that it may change files in.
        refused_paths: Below which paths of ``cwd`` it must not change anything.
        policy: The policy of the guard: the settings of the project.
        guard: Another guard than the one of this policy.
        own_tools: Names of tools of ours, as the agent calls them: always allowed.
    """

    def __init__(
        self,
        permissions: Permissions,
        role: Role,
        cwd: str,
        *,
        extra_dirs: Sequence[str] = (),
        refused_paths: Sequence[str] = (),
        policy: GuardPolicy | None = None,
        guard: Judge | None = None,
        own_tools: Collection[str] = (),
    ) -> None:
        self._permissions = permissions.for_role(role)
        self._mode = self._permissions.mode or "all"
        self._cwd = os.path.realpath(cwd)
        self._dirs = (self._cwd, *(os.path.realpath(place) for place in extra_dirs))
        self._refused = tuple(os.path.realpath(os.path.join(self._cwd, path)) for path in refused_paths)
        self._reader = Guard(policy or GuardPolicy(), self._cwd)
        self._guard = guard or self._reader
        self._own = frozenset(own_tools)

    def decide(self, use: ToolUse) -> Decision:
        """Whether a tool call may be made, who decides it, and the reason for the agent."""
        if use.tool in self._own:
            return Decision("allow", "rule", "a tool of this run")
        if use.name in SUBAGENTS:
            return Decision("allow", "rule", "its own tool calls are decided one by one")
        if any("\0" in path for path in use.paths):
            return Decision("deny", "mode", "the path has a NUL character in it")
        forms = self._forms(use)
        denials = (self._permissions.denied(name, [*forms, *self._commands(use)]) for name in use.rule_names)
        verdict = next(filter(None, denials), None) or self._guarded(use)
        if verdict.decision == "deny":
            return verdict
        decided = self._by_rule_or_mode(use, forms)
        return verdict if verdict.decision == "ask" and decided.decision == "allow" else decided

    def _guarded(self, use: ToolUse) -> Decision:
        """What the guard says; without an opinion it allows, which the rest may narrow."""
        try:
            verdict = self._guard.judge(use, strict=self._mode == "all")
        except Exception as error:  # noqa: BLE001 - the boundary of the guard: its error denies the call, and is the reason
            return Decision("deny", "guard", f"Blocked: the guard could not decide ({type(error).__name__})")
        if verdict.decision == "ask":
            return self._permissions.asked("guard", verdict.text)
        return Decision("deny" if verdict.decision == "deny" else "allow", "guard", verdict.text)

    def _commands(self, use: ToolUse) -> list[tuple[str, ...]]:
        """The simple commands of a command: a rule that forbids one forbids it wherever it stands."""
        if not use.command or not self._permissions.deny:
            return []
        return [tuple(self._reader.commands_in(use.command))]

    def _by_rule_or_mode(self, use: ToolUse, forms: list[tuple[str, ...]]) -> Decision:
        bound = self._bound(use) if self._mode not in UNBOUND else ""
        if bound:
            return Decision("deny", "mode", bound)
        permits = (self._permissions.allowed(name, forms) for name in use.rule_names)
        allowed = next(filter(None, permits), None)
        if allowed is not None:
            return allowed
        if use.name in BOOKKEEPING:
            return Decision("allow", "mode", f"mode {self._mode}")
        return self._permissions.by_mode(use.name)

    def _forms(self, use: ToolUse) -> list[tuple[str, ...]]:
        """The subjects of a call, each in every form in which a rule may write it; the resolved form is the last one."""
        if use.command or not use.paths:
            return [(use.subject,)]
        return [self._forms_of_path(path) for path in use.paths]

    def _forms_of_path(self, path: str) -> tuple[str, ...]:
        real = self._resolve(path)
        inside = os.path.relpath(real, self._cwd)
        return (path, real) if inside.startswith(os.pardir) else (path, real, inside)

    def _resolve(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._cwd, os.path.expanduser(path)))

    def _bound(self, use: ToolUse) -> str:
        """Why a call would write where no agent may; empty if it would not."""
        if not use.writes:
            return ""
        if not use.paths:
            return "it does not say which file it changes"
        return next((problem for path in use.paths if (problem := self._bound_of(path))), "")

    def _bound_of(self, path: str) -> str:
        real = self._resolve(path)
        home = next((place for place in self._dirs if _is_below(real, place)), None)
        if home is None:
            return f"{path} is outside of the working directory"
        inside = real[len(home) :].split(os.sep)
        refused = next((name for name in NEVER if name in inside), "")
        if refused:
            return f"agents must not use files below {refused}"
        if any(_is_below(real, place) for place in self._refused):
            return f"this agent must not use {path}"
        return ""


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)

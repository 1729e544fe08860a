"""What an agent may do in its working directory: a mode, and rules that override it. The adapter of its kind enforces them.

The line protocol cannot express permissions: a program that speaks it does what it wants, and its changes are checked afterwards.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from bartack.agents.protocol._messages import Role

Mode = Literal["read", "edit", "auto", "all", "ask"]
RuleText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A[A-Za-z][A-Za-z0-9_]*(\(.+\))?\Z",
        description="the name of a tool, or a tool and a pattern: Write or Write(docs/*)",
    ),
]

READING: Final = frozenset({"Read", "Grep", "Glob"})
EDITING: Final = READING | {"Write", "Edit"}
_COMMAND: Final = "Bash"
_JOINTS: Final = frozenset(";&|<>`$(){}\\\n")
"""Characters that can make several commands of one."""
_RULE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:\((.+)\))?")

ROLE_MODES: Final[dict[Role, Mode]] = {
    "builder": "auto",
    "spec_maintainer": "edit",
    "reviewer": "read",
    "orchestration": "read",
    "general": "edit",
}
"""The mode of an agent without one, by the role in which it is asked."""


class Decision(NamedTuple):
    """Whether something may be done, and which rule decides it."""

    decision: Literal["allow", "deny", "ask"]
    by: str


class Denial(msgspec.Struct, frozen=True):
    """Something that an agent wanted to do and was not allowed to. A denial alone fails nothing."""

    tool: str
    input: str
    reason: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.tool} {self.input} was not allowed ({self.reason})"


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent may do: ``deny`` wins over ``allow``, and both win over the mode.

    Attributes:
        mode: ``read``: look at files; ``edit``: also change them; ``auto`` and ``all``: also run commands; ``ask``: a person
            decides what is more than looking. ``None``: by the role in which it is asked.
        allow: Rules of what it may do although the mode forbids it.
        deny: Rules of what it must never do.
        on_ask: What ``ask`` leads to: a question to a person, or a refusal.
    """

    mode: Mode | None = None
    allow: list[RuleText] = []
    deny: list[RuleText] = []
    on_ask: Literal["question", "deny"] = "question"

    def for_role(self, role: Role) -> Permissions:
        """The same with the mode of a role, where none is set."""
        return self if self.mode is not None else msgspec.structs.replace(self, mode=ROLE_MODES[role])

    def decide(self, tool: str, subject: str) -> Decision:
        """Whether a tool may be used on something: a path, or a command."""
        for rule in self.deny:
            if _fits(rule, tool, subject):
                return Decision("deny", f"deny {rule}")
        for rule in self.allow:
            if _fits(rule, tool, subject) and (
                _is_single(tool, subject) or rule in {tool, f"{tool}({subject})"}
            ):
                return Decision("allow", f"allow {rule}")
        mode = self.mode or "all"
        known = {"read": READING, "edit": EDITING, "ask": READING}.get(mode)
        if known is None or tool in known:
            return Decision("allow", f"mode {mode}")
        if mode == "ask" and self.on_ask == "question":
            return Decision("ask", "mode ask")
        return Decision("deny", f"mode {mode}")

    def refuse(self, tool: str, subject: str) -> Denial | None:
        """Why something is forbidden where there is no person to ask; ``None`` if it is allowed."""
        decided = self.decide(tool, subject)
        return None if decided.decision == "allow" else Denial(tool, subject, decided.by)


def _fits(rule: str, tool: str, subject: str) -> bool:
    found = _RULE.fullmatch(rule)
    return found is not None and found[1] == tool and (found[2] is None or fnmatchcase(subject, found[2]))


def _is_single(tool: str, subject: str) -> bool:
    """Whether a subject is one command or one path: a pattern that allows one thing must not allow another after it."""
    if tool == _COMMAND:
        return _JOINTS.isdisjoint(subject)
    return ".." not in subject.split("/")

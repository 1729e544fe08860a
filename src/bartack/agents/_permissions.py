"""What an agent may do in its working directory: a mode, and rules that override it. Who enforces it is the adapter of its kind.

The line protocol has no word for it: a program that speaks it is its own master, and what it did is looked at afterwards.
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
"""What makes more than one of a command."""
_RULE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:\((.+)\))?")

ROLE_MODES: Final[dict[Role, Mode]] = {
    "builder": "auto",
    "spec_maintainer": "edit",
    "reviewer": "read",
    "orchestration": "read",
    "general": "edit",
}
"""The mode of an agent that is told none, by the role in which it is asked."""


class Verdict(NamedTuple):
    """Whether something may be done, and what says so."""

    decision: Literal["allow", "deny", "ask"]
    by: str


class Denial(msgspec.Struct, frozen=True):
    """Something that an agent wanted to do and was not allowed to. That by itself fails nothing."""

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
        allow: Rules of what it may do all the same.
        deny: Rules of what it may not do in any case.
        on_ask: What becomes of a question: it is put to a person, or it is a no.
    """

    mode: Mode | None = None
    allow: list[RuleText] = []
    deny: list[RuleText] = []
    on_ask: Literal["question", "deny"] = "question"

    def for_role(self, role: Role) -> Permissions:
        """The same with the mode of a role, where none is said."""
        return self if self.mode is not None else msgspec.structs.replace(self, mode=ROLE_MODES[role])

    def decide(self, tool: str, subject: str) -> Verdict:
        """Whether a tool may be used on something: a path, or a command."""
        for rule in self.deny:
            if _fits(rule, tool, subject):
                return Verdict("deny", f"deny {rule}")
        for rule in self.allow:
            if _fits(rule, tool, subject) and (
                _is_single(tool, subject) or rule in {tool, f"{tool}({subject})"}
            ):
                return Verdict("allow", f"allow {rule}")
        mode = self.mode or "all"
        known = {"read": READING, "edit": EDITING, "ask": READING}.get(mode)
        if known is None or tool in known:
            return Verdict("allow", f"mode {mode}")
        if mode == "ask" and self.on_ask == "question":
            return Verdict("ask", "mode ask")
        return Verdict("deny", f"mode {mode}")

    def refuse(self, tool: str, subject: str) -> Denial | None:
        """Why something may not be done where nobody can be asked; ``None`` if it may."""
        verdict = self.decide(tool, subject)
        return None if verdict.decision == "allow" else Denial(tool, subject, verdict.by)


def _fits(rule: str, tool: str, subject: str) -> bool:
    found = _RULE.fullmatch(rule)
    return found is not None and found[1] == tool and (found[2] is None or fnmatchcase(subject, found[2]))


def _is_single(tool: str, subject: str) -> bool:
    """Whether something is no more than it begins as: a pattern that allows one thing must not let another in behind it."""
    if tool == _COMMAND:
        return _JOINTS.isdisjoint(subject)
    return ".." not in subject.split("/")

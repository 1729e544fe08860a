"""What an agent may do in its working directory: a mode, and rules that override it. ``_tool_permissions.py`` decides with them.

The line protocol cannot express permissions: a program that speaks it does what it wants, and its changes are checked afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from bartack.agents.protocol.messages import Role

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
    """Whether something may be done.

    Attributes:
        decision: ``ask``: a person decides.
        by: What decided it.
        reason: Which rule, mode or guard rule that is, for the agent and for people.
    """

    decision: Literal["allow", "deny", "ask"]
    by: Literal["rule", "mode", "guard"]
    reason: str = ""


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

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The tools that ``allow`` rules name."""
        found = (_RULE.fullmatch(rule) for rule in self.allow)
        return tuple(dict.fromkeys(match[1] for match in found if match is not None))

    def decide(self, tool: str, subject: str) -> Decision:
        """Whether a tool may be used on something, a path or a command, by the rules and the mode alone."""
        forms = [(subject,)]
        return self.denied(tool, forms) or self.allowed(tool, forms) or self.by_mode(tool)

    def denied(self, tool: str, forms: Sequence[tuple[str, ...]]) -> Decision | None:
        """The first rule that forbids one of several subjects, in any of the forms in which it can be written."""
        for rule in self.deny:
            if any(_fits(rule, tool, form) for subject in forms for form in subject):
                return Decision("deny", "rule", f"deny {rule}")
        return None

    def allowed(self, tool: str, forms: Sequence[tuple[str, ...]]) -> Decision | None:
        """The rules that allow each of several subjects. The last forms of a path are those with links and ``..`` resolved."""
        rules = [self._allowing(tool, subject) for subject in forms]
        found = [rule for rule in rules if rule is not None]
        if not found or len(found) < len(rules):
            return None
        return Decision("allow", "rule", f"allow {found[0]}")

    def _allowing(self, tool: str, subject: tuple[str, ...]) -> str | None:
        resolved = subject[1:] or subject
        for rule in self.allow:
            for form in resolved:
                single = _is_single(tool, form) or rule in {tool, f"{tool}({form})"}
                if single and _fits(rule, tool, form):
                    return rule
        return None

    def by_mode(self, tool: str) -> Decision:
        """What the mode says about a tool."""
        mode = self.mode or "all"
        known = {"read": READING, "edit": EDITING, "ask": READING}.get(mode)
        if known is None or tool in known:
            return Decision("allow", "mode", f"mode {mode}")
        return self.asked("mode", "mode ask") if mode == "ask" else Decision("deny", "mode", f"mode {mode}")

    def asked(self, by: Literal["mode", "guard"], reason: str) -> Decision:
        """A question to a person, or a refusal where the settings want none."""
        return Decision("ask" if self.on_ask == "question" else "deny", by, reason)

    def refuse(self, tool: str, subject: str) -> Denial | None:
        """Why something is forbidden where there is no person to ask; ``None`` if it is allowed."""
        decided = self.decide(tool, subject)
        return None if decided.decision == "allow" else Denial(tool, subject, decided.reason)


def _fits(rule: str, tool: str, subject: str) -> bool:
    found = _RULE.fullmatch(rule)
    return found is not None and found[1] == tool and (found[2] is None or fnmatchcase(subject, found[2]))


def _is_single(tool: str, subject: str) -> bool:
    """Whether a subject is one command or one path: a pattern that allows one thing must not allow another after it."""
    if tool == _COMMAND:
        return _JOINTS.isdisjoint(subject)
    return ".." not in subject.split("/")

"""The section ``guard`` of ``bartack.toml`` as all settings are read. A hook reads the same section with ``policy.py``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bartack.agents.guard.policy import GuardPolicy, make_rule

Pattern = Annotated[
    str,
    Meta(
        pattern=r"\A[^\x00]*[^\x00\s][^\x00]*\Z",
        description="a path or a pattern, neither blank nor with NUL in it",
    ),
]
Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]


class GuardRuleConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One of ``[[guard.rule]]``.

    Attributes:
        tool: A pattern of tools it is about.
        match: A pattern of simple commands, or of paths.
        decision: What it decides; the strictest rule counts.
        reason: What it is there for.
    """

    tool: Text
    match: Text
    decision: Literal["deny", "ask", "allow"]
    reason: str = ""


class GuardConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The section ``guard``: which tool calls of agents are denied, or decided by a person, in every mode.

    Attributes:
        builtin: Whether the built-in rules count.
        unparsed: What is decided about commands that cannot be read.
        protect: Patterns of files that are neither written, nor deleted, nor moved.
        roots: Directories in which named subdirectories may be deleted with everything in them.
        rule: Rules of the project.
    """

    builtin: bool = True
    unparsed: Literal["ask", "deny"] = "ask"
    protect: list[Pattern] = []
    roots: list[Pattern] = msgspec.field(default_factory=lambda: ["."])
    rule: list[GuardRuleConfig] = []

    @property
    def policy(self) -> GuardPolicy:
        """The policy that the settings say."""
        rules = (
            make_rule(number, one.tool, one.match, one.decision, one.reason)
            for number, one in enumerate(self.rule, 1)
        )
        return GuardPolicy(self.builtin, self.unparsed, tuple(self.protect), tuple(self.roots), tuple(rules))

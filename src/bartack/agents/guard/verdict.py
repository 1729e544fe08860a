"""What the guard decides about one tool call, and why."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Severity = Literal["none", "allow", "ask", "deny"]

ORDER: Final[dict[str, int]] = {"none": 0, "allow": 1, "ask": 2, "deny": 3}
"""How strict a decision is: the strictest one counts."""


class GuardVerdict(NamedTuple):
    """The decision about one tool call.

    Attributes:
        decision: ``none``: the guard has no opinion, and other rules still apply.
        rule: The id of the rule that decided; empty without one.
        reason: What the rule is there for. It never says how to get round it.
        subject: The simple command, or the path, that the rule is about.
    """

    decision: Literal["none", "ask", "deny"] = "none"
    rule: str = ""
    reason: str = ""
    subject: str = ""

    @property
    def text(self) -> str:
        """The verdict for the agent that wanted to do it."""
        verb = "Blocked" if self.decision == "deny" else "To be confirmed"
        return f"{verb} by Bartack guard, rule {self.rule}: {self.reason}." if self.rule else ""


NO_OPINION: Final = GuardVerdict()

"""What rules and runners see of a judgement: the contracts between them and ``_judge.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bartack.agents.guard._places import Places, Target
from bartack.agents.guard._scope import Scope
from bartack.agents.guard._syntax import Node


class Case(Protocol):
    """One simple command that is being judged."""

    places: Places
    is_elsewhere: bool

    def targets(self, word: str) -> list[Target] | None:
        """The places that a word may name; ``None``: unknown."""
        ...

    def deny(self, rule: str, about: str = "") -> None:
        """Report a finding."""
        ...


class Judging(Protocol):
    """The judgement that is being made of a text."""

    def judge(self, text: str, scope: Scope) -> None:
        """Judge a text that another shell reads."""
        ...

    def apply(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node] = ()) -> None:
        """Judge the words of a command that another one runs."""
        ...

    def case(self, words: list[str], scope: Scope) -> Case:
        """A simple command for the rules."""
        ...

    def directories(self, word: str, scope: Scope) -> tuple[str | None, ...]:
        """The directories that a word may name."""
        ...

    def assign(self, assigns: list[str], scope: Scope) -> None:
        """Note that variables are set."""
        ...

    def is_fetching(self, node: Node) -> bool:
        """Whether something inside the words of a command comes from the network."""
        ...

    def report(self, rule: str, subject: str) -> None:
        """Note a broken built-in rule."""
        ...

    def report_unparsed(self, subject: str) -> None:
        """Note that something is not known."""
        ...

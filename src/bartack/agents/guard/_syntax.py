"""What a shell text consists of, as far as the guard has to know: commands, how they are connected, and what is inside them."""

from __future__ import annotations

from collections.abc import Iterator


class Redirect:
    """A redirection: ``> file``, or a here-document with its text."""

    __slots__ = ("body", "is_certain", "operator", "target")

    def __init__(self, operator: str, target: str) -> None:
        self.operator = operator
        self.target = target
        self.body: str | None = None
        """What is fed to the command, if it is in the text."""
        self.is_certain = True
        """Whether that is all of it: nothing is substituted in it."""


class Nested:
    """A text that runs inside a word: ``$( )``, backticks, ``<( )`` or ``>( )``."""

    __slots__ = ("kind", "script")

    def __init__(self, kind: str, script: Script) -> None:
        self.kind = kind
        self.script = script


class SimpleCommand:
    """A simple command: its words without quotes, with marks for what is not plain text (see ``_text.py``)."""

    __slots__ = ("assigns", "nested", "redirects", "words")

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.assigns: list[str] = []
        self.redirects: list[Redirect] = []
        self.nested: list[Nested] = []


class Compound:
    """A group, subshell, loop, branch or function, with the scripts in it.

    Attributes:
        kind: ``group``, ``subshell``, ``loop``, ``branch`` or ``function``.
        parts: The scripts, in the order of the text.
        name: The name of a function.
        redirects: Redirections of the whole.
        nested: What runs inside its own words, such as the list of a loop.
    """

    __slots__ = ("kind", "name", "nested", "parts", "redirects")

    def __init__(self, kind: str, parts: list[Script], name: str = "") -> None:
        self.kind = kind
        self.parts = parts
        self.name = name
        self.redirects: list[Redirect] = []
        self.nested: list[Nested] = []


Node = SimpleCommand | Compound


class Step:
    """One command of a script.

    Attributes:
        operator: How it is connected to the one before: ``;``, ``&&``, ``||`` or ``|``.
        node: The command.
        is_background: Whether it is followed by ``&``.
    """

    __slots__ = ("is_background", "node", "operator")

    def __init__(self, operator: str, node: Node) -> None:
        self.operator = operator
        self.node = node
        self.is_background = False


Script = list[Step]


def walk(script: Script) -> Iterator[SimpleCommand]:
    """Every simple command of a script, at any depth."""
    stack: list[Script] = [script]
    while stack:
        for step in stack.pop():
            node = step.node
            stack += [nested.script for nested in node.nested]
            if isinstance(node, Compound):
                stack += node.parts
            else:
                yield node

"""What people write by the habit of Python or JavaScript: reported once, with what is written here, and gone past.

Owns the recognition of such forms in expressions. Words of other languages that only need a hint are in `syntax/_near.py`.
"""

from __future__ import annotations

import re
from abc import abstractmethod

from bartack.language.parsing._type import TypeParser
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Span

COMPREHENSION = "there are no comprehensions; write `xs.map(f)` or `xs.filter(f)` with a `fun`, or a `for` loop with `push`"
CHOICE = "there is no `a if c else b`; write `if c { … } else { … }` as a statement"
BY_POSITION = "arguments are given by their position, not by name"
INCLUDES = "write `xs.includes(x)`, or `has(o, key)` for a key of an object"
NOT_INCLUDES = "write `!xs.includes(x)`, or `!has(o, key)` for a key of an object"
NEW = 'leave `new` out; any value can be thrown, as in `throw "…"`, and objects are written `{ … }`'
NO_LAMBDA = "there are no anonymous functions; declare a `fun` and pass its name"
SLICE = "a part of an array or text is written `xs.slice(from, to)`, without the element at `to`"
SPREAD = "arguments are not spread; give each of them, or pass the array itself"
POWER = "there is no operator for powers; multiply, or declare a `fun` that does"
NOT_IN = re.compile(r"[ \t]+in\b")
IS_NOT = re.compile(r"[ \t]+not\b")
OPEN_ENDS = {
    "=": "a range is written `1...3`, with both ends",
    "<": "a range has both ends: `1..<3` is `1...2`",
}


class HabitParser(TypeParser):
    """Reads expressions of other languages far enough to say what is meant."""

    @abstractmethod
    def expression(self, *, whole: bool = False) -> tree.Expression:
        """Read an expression."""

    @abstractmethod
    def operand(self) -> tree.Expression:
        """Read an operand."""

    # Operators

    def habit_operator(self) -> str | None:
        """Report an operator that does not exist here, up to its last character; returns the nearest that does."""
        start, kind = self.start, self.kind
        if kind == "*" and self.text.startswith("*", self.end):
            return self.no_operator(start, self.end + 1, POWER, "*")
        if kind == ".." and self.text[self.end : self.end + 1] in OPEN_ENDS:
            return self.no_operator(start, self.end + 1, OPEN_ENDS[self.text[self.end]], "...", "`...`")
        if kind == "in":
            return self.no_operator(start, self.end, INCLUDES, "==")
        return self.habit_word(start) if kind == "name" else None

    def habit_word(self, start: int) -> str | None:
        """The same for an operator that is a word."""
        if self.value == "not" and (matched := NOT_IN.match(self.text, self.end)):
            return self.no_operator(start, matched.end(), NOT_INCLUDES, "==")
        if self.value == "instanceof":
            return self.no_operator(start, self.end, 'the kind of a value is `typeof(x) == "array"`', "==")
        if self.value != "is":
            return None
        negated = IS_NOT.match(self.text, self.end)
        ours, end = ("!=", negated.end()) if negated else ("==", self.end)
        return self.no_operator(start, end, f"write `{ours}`; nothing is written `null`", ours, f"`{ours}`")

    def no_operator(
        self, start: int, end: int, advice: str, ours: str, expected: str = "an operator of Patchwork"
    ) -> str:
        """Report the operator between two offsets, and leave the last token of it as the current one."""
        found = self.text[start:end]
        self.fail("PW105", f"expected {expected}, found `{found}`", span=Span(start, end), helps=(advice,))
        self.end = end
        return ours

    def is_habit_level(self) -> bool:
        """Whether an operator that compares in other languages stands here."""
        if self.kind == "in":
            return True
        if self.kind != "name":
            return False
        return self.value in {"is", "instanceof"} or (
            self.value == "not" and bool(NOT_IN.match(self.text, self.end))
        )

    def is_walrus(self) -> bool:
        """Whether `:=` stands here."""
        return self.kind == ":" and self.text.startswith(":=", self.start)

    def walrus(self, name: str) -> tree.Expression:
        """Report the `:=` here, and read the value after it."""
        advice = f"a variable is declared by `var {name} = …` as a statement, and assigned by `{name} = …`"
        self.fail("PW105", "expected `=`, found `:=`", span=Span(self.start, self.start + 2), helps=(advice,))
        self.resume(self.start + 2)
        return self.expression()

    # Brackets

    def comprehension(self, closer: str) -> bool:
        """Skip the `for` of a comprehension, if it stands here before a closing bracket."""
        if self.kind != "for" or (self.newline and not self.free and closer != "}"):
            return False
        self.fail("PW105", f"expected `,` or `{closer}`, found `for`", helps=(COMPREHENSION,))
        while self.kind == "for":
            self.advance()
            self.operand()
            while self.kind == ",":
                self.advance()
                self.operand()
            if self.kind == "in":
                self.advance()
                self.expression()
            while self.kind == "if":
                self.advance()
                self.expression()
        return True

    def slice(self, first: tree.Expression | None) -> tree.Expression:
        """Skip the bounds of a slice, if its first `:` is here; returns the index, or what stands instead of it."""
        if first is not None and self.kind != ":":
            return first
        start = self.start if first is None else first.start
        self.fail("PW105", "expected an index, found `:`", helps=(SLICE,))
        while self.kind == ":":
            self.advance()
            if self.kind not in {":", "]"}:
                self.expression()
        return tree.Error(start, self.before)

    # Prefixes

    def new_value(self, start: int) -> tree.Error:
        """Report a `new` before the value here, and skip both."""
        self.fail("PW105", "expected an expression, found `new`", span=Span(start, start + 3), helps=(NEW,))
        return tree.Error(start, max(self.operand().end, self.before))

    def lambda_value(self, start: int) -> tree.Error:
        """Report a `lambda` before its parameters here, and skip all of it."""
        span = Span(start, start + len("lambda"))
        self.fail("PW105", "expected an expression, found `lambda`", span=span, helps=(NO_LAMBDA,))
        while self.kind in {"name", ","}:
            self.advance()
        if self.kind == ":":
            self.advance()
            self.expression()
        return tree.Error(start, self.before)

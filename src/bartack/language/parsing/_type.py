"""Names, keys, lists in brackets, types and patterns.

What these stand in is read in ``_expression.py``, ``_statement.py`` and ``_parser.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from bartack.language.parsing._cursor import BAD, CLOSERS, WORD
from bartack.language.parsing._shell import ShellParser
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Fix
from bartack.language.syntax._source import Span

T = TypeVar("T")


class Bracketed(NamedTuple, Generic[T]):
    """The elements of a list in brackets, whether a newline follows the opening one, and where the closing one ends."""

    items: tuple[T, ...]
    broken: bool
    end: int


class TypeParser(ShellParser):
    """Reads names, keys, types and patterns."""

    def identifier(self, expected: str = "a name") -> tree.Identifier:
        """Read a name that is declared."""
        start = self.start
        keyword = self.kind in tree.KEYWORDS or (self.kind == "name" and self.value == "null")
        if keyword and not self.starts_statement():
            self.fail("PW112", f"`{self.value}` is a keyword; choose another name")
        elif self.kind != "name":
            self.unexpected(expected)
            return tree.Identifier(self.before, self.before, "")
        found = tree.Identifier(start, self.end, self.value)
        self.advance()
        return found

    def is_word(self) -> bool:
        """Whether a word stands here, keyword or not."""
        return self.kind == "name" or self.kind in tree.KEYWORDS

    def key(self) -> tree.Key | None:
        """Read the key of a field; none when there is none."""
        if self.is_word():
            key = tree.Key(self.start, self.end, self.value, False)
            self.advance()
            return key
        if self.kind in {'"', "'"}:
            string = self.code_string()
            value = string.literal
            if value is None:
                self.report(
                    "PW105", "expected a plain string as key, found one with values", string.start, string.end
                )
            return tree.Key(string.start, string.end, value or "", True)
        self.unexpected("a key")
        return None

    def code_string(self) -> tree.String:
        """Read the string that starts at the token here."""
        self.at = self.start
        string = self.string() if self.kind == '"' else self.raw_string()
        self.resume(self.at)
        return string

    # Lists

    def enter(self, closer: str, *, free: bool) -> tuple[bool, bool, int]:
        """Skip an opening bracket into what it encloses; returns what `leave` needs."""
        state = (self.free, self.equality, self.depth)
        self.deeper(self.start)
        self.closers.append(closer)
        self.free = free
        self.equality = False
        self.advance()
        return state

    def leave(self, state: tuple[bool, bool, int]) -> None:
        """Come back from what a bracket encloses, before its closing bracket is read."""
        self.closers.pop()
        self.free, self.equality, self.depth = state

    def more(self, closer: str) -> bool:
        """Skip a comma; returns whether another element follows."""
        if self.kind != ",":
            return False
        self.advance()
        return self.follows(closer)

    def follows(self, closer: str) -> bool:
        """Whether an element of a list stands here, and not its end."""
        return self.kind != closer and not self.never_closes(closer)

    def bracketed(self, read: Callable[[], T | None], *, some: bool = False) -> Bracketed[T]:
        """Read a list whose opening bracket is here; `read` reads an element, or nothing. With `some` it cannot be empty."""
        opener, start = self.kind, self.start
        closer = CLOSERS[opener]
        state = self.enter(closer, free=opener != "{")
        broken = self.newline
        items: list[T] = []
        follows = some or self.follows(closer)
        while follows:
            item = read()
            if item is None:
                break
            items.append(item)
            follows = self.more(closer)
        self.leave(state)
        return Bracketed(tuple(items), broken, self.close(opener, start, f"`,` or `{closer}`"))

    # Types

    type_parameters: frozenset[str] = frozenset()
    """What a declaration calls its type parameters, which have been reported."""

    def type(self) -> tree.Type:
        """Read a type."""
        start = self.start
        leading = self.kind == "|"
        if leading:
            self.advance()
        members = [self.habitual(self.single_type())]
        while self.kind == "|":
            self.advance()
            members.append(self.habitual(self.single_type()))
        if len(members) == 1 and not leading:
            return members[0]
        start = min(start, members[0].start)
        return tree.UnionType(start, members[-1].end, tuple(members), leading)

    def habitual(self, found: tree.Type) -> tree.Type:
        """Report what other languages write after a type, `int?` and `int[]`, and skip it."""
        written = self.text[found.start : found.end]
        while not self.newline and self.start == self.before and found.end > found.start:
            if self.kind == "?":
                help_ = f"a type that may be null is written `{written} | null`"
                self.fail("PW111", "`?` has no meaning here", helps=(help_,))
                null = tree.LiteralType(self.start, self.end, None)
                self.advance()
                found = tree.UnionType(found.start, null.end, (found, null), False)
            elif self.text.startswith("[]", self.start):
                help_ = f"an array is written `[{written}]`"
                span = Span(self.start, self.start + 2)
                self.fail("PW105", "expected the end of the type, found `[]`", span=span, helps=(help_,))
                self.resume(self.start + 2)
                found = tree.ArrayType(found.start, span.end, found)
            else:
                break
        return found

    def single_type(self) -> tree.Type:
        """Read a type that is not a union."""
        read = TYPES.get(self.kind)
        return self.no_type() if read is None else read(self)

    def plain_literal_type(self) -> tree.Type:
        """Read a number, `true` or `false` that accepts itself."""
        kind, start, end = self.kind, self.start, self.end
        value = float(self.value) if kind == "number" else kind == "true"
        self.advance()
        if value - value != 0:
            self.report("PW107", "not a number: too large", start, end)
            return tree.Error(start, end)
        return tree.LiteralType(start, end, value)

    def bracketed_type(self) -> tree.Type:
        """Read `[T]` or `(T)`."""
        kind, start = self.kind, self.start
        state = self.enter(CLOSERS[kind], free=True)
        inner = self.type()
        self.leave(state)
        end = self.close(kind, start)
        return tree.ArrayType(start, end, inner) if kind == "[" else tree.ParenType(start, end, inner)

    def no_type(self) -> tree.Error:
        """Report that no type stands here."""
        start = self.start
        self.unexpected("a type")
        if self.kind == BAD:
            self.advance()
            return tree.Error(start, self.before)
        return tree.Error(self.before, self.before)

    def named_type(self) -> tree.Type:
        """Read a name with its members and its argument."""
        start, end = self.start, self.end
        if self.value == "null":
            self.advance()
            return tree.LiteralType(start, end, None)
        if self.value in self.type_parameters:
            self.advance()
            return tree.Error(start, end)
        names = [self.identifier()]
        while self.kind == ".":
            self.advance()
            names.append(self.identifier())
        argument = None
        if self.kind == "<":
            depth = self.depth
            self.deeper(self.start)
            self.advance()
            argument = self.type()
            self.close_argument()
            self.depth = depth
        return tree.NamedType(start, self.before, tuple(names), argument)

    def close_argument(self) -> None:
        """Skip the `>` after a type's argument; a longer sign is split."""
        if self.kind.startswith(">"):
            self.resume(self.start + 1)
        else:
            self.unexpected("`>`")

    def string_type(self) -> tree.Type:
        """Read a string that accepts itself."""
        string = self.code_string()
        if string.literal is None:
            self.report(
                "PW105", "expected a plain string as type, found one with values", string.start, string.end
            )
            return tree.Error(string.start, string.end)
        return tree.LiteralType(string.start, string.end, string.literal)

    def object_type(self) -> tree.Type:
        """Read `{a: T, b?: U}`."""
        start = self.start
        fields = self.bracketed(self.type_field)
        return tree.ObjectType(start, fields.end, fields.items, fields.broken)

    def type_field(self) -> tree.TypeField | None:
        """Read `key: T` or `key?: T`."""
        key = self.key()
        if key is None:
            return None
        optional = self.kind == "?"
        if optional:
            self.advance()
        if self.kind != ":":
            self.unexpected("`:`")
            return None
        self.advance()
        found = self.type()
        return tree.TypeField(key.start, found.end, key, optional, found)

    def function_type(self) -> tree.Type:
        """Read `fun(T) -> U`."""
        start = self.start
        self.advance()
        if self.kind != "(":
            self.unexpected("`(`")
            return tree.Error(start, self.before)
        parameters: Bracketed[tree.Type] = self.bracketed(self.type)
        if self.kind != "->":
            self.unexpected("`->`")
            return tree.Error(start, self.before)
        depth = self.depth
        self.deeper(self.start)
        self.advance()
        result = self.type()
        self.depth = depth
        return tree.FunctionType(start, result.end, parameters.items, result)

    # Patterns

    def pattern(self, *, rounded: bool = False) -> tree.Pattern:
        """Read a pattern; `rounded` allows the old `(a, b)`."""
        kind, start = self.kind, self.start
        if kind == "[":
            return self.array_pattern("[")
        if kind == "{":
            return self.object_pattern()
        if kind == "(" and rounded:
            return self.array_pattern("(")
        if kind == "name" and self.value == "_":
            self.advance()
            return tree.Discard(start, self.before)
        if not self.is_word():
            rest = "there is no rest in a pattern; take the whole array and `xs.slice(1)`"
            self.unexpected("a name or pattern", *((rest,) if kind == "..." else ()))
            return tree.Error(self.before, self.before)
        name = self.identifier()
        found = None
        if self.kind == ":":
            self.advance()
            found = self.type()
        return tree.Binding(name.start, found.end if found else name.end, name, found)

    def inner_pattern(self) -> tree.Error | None:
        """Report a pattern that stands where the type of a field does, and skip it; none when it is a type."""
        if self.kind != "{" or not INNER_PATTERN.match(self.text, self.start):
            return None
        start = self.start
        self.unexpected("a type", "a type follows `:`; take the field first: `var {a} = o`, `var {b} = a`")
        self.object_pattern()
        return tree.Error(start, self.before)

    def array_pattern(self, opener: str) -> tree.Pattern:
        """Read `[a, _, b]`, or the old `(a, _, b)`."""
        start = self.start
        elements: Bracketed[tree.Pattern] = self.bracketed(self.pattern)
        end = elements.end
        if opener == "[":
            return tree.ArrayPattern(start, end, elements.items, elements.broken, "")
        fixed = Fix(start, end, f"[{self.text[start + 1 : end - 1]}]")
        self.report("PW293", "`( )` around a pattern is an old spelling; write `[ ]`", start, end, fix=fixed)
        return tree.ArrayPattern(start, end, elements.items, elements.broken, "(")

    def object_pattern(self) -> tree.Pattern:
        """Read `{a, b: T}`."""
        start = self.start
        fields = self.bracketed(self.pattern_field)
        return tree.ObjectPattern(start, fields.end, fields.items, fields.broken)

    def pattern_field(self) -> tree.PatternField | None:
        """Read `key` or `key: T`."""
        key = self.key()
        if key is None:
            return None
        found = None
        if self.kind == ":":
            self.advance()
            inside = self.inner_pattern()
            found = self.type() if inside is None else inside
        return tree.PatternField(key.start, found.end if found else key.end, key, found)


INNER_PATTERN = re.compile(rf"\{{[ \t]*{WORD}[ \t]*[,}}]")
TYPES: dict[str, Callable[[TypeParser], tree.Type]] = {
    "name": TypeParser.named_type,
    **dict.fromkeys(("number", "true", "false"), TypeParser.plain_literal_type),
    **dict.fromkeys(('"', "'"), TypeParser.string_type),
    **dict.fromkeys(("[", "("), TypeParser.bracketed_type),
    "{": TypeParser.object_type,
    "fun": TypeParser.function_type,
}

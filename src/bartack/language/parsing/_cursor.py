"""The cursor: where the parser is in the text, the next token of code, and what has been found so far.

Owns the lexical side of code, reporting, and skipping after an error. The grammar is in `_parser*.py`; it decides in
which mode text is read, which is why tokens are made one at a time.

A newline is not a token: each token says whether one stands before it (`newline`), and the grammar decides whether that
matters. Reports of something unexpected are given once per token (`fail`): whatever an error makes its surroundings
complain about at the same place is silent.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod

from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, Fix, Secondary, diagnose
from bartack.language.syntax._near import OTHER_WORDS
from bartack.language.syntax._source import Source, Span

WORD = r"[A-Za-z_][A-Za-z0-9_]*"
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

CODE = re.compile(
    rf"""[ \t\r]*(\n[ \t\r\n]*)?
    (?:
      ({WORD})
    | ({NUMBER})(?![A-Za-z0-9_])(?!\.(?![.A-Za-z_]))
    | (\.\.\.?|===?|!==?|=>|<=|>=|&&=?|\|\|=?|\+\+|\+=|--|-=|->|\*=|//|/\*|/=|%=|>>
       |\(\$(?![(?])|\$\(|\$\?|\.(?![0-9])|[-+*/%=<>!|&?,:;@()\[\]{{}}$"'])
    | (\#[^\n]*)
    | ((?:[0-9]|\.[0-9])[A-Za-z0-9_.]*)
    | ([^\x00-\x7f][^\s()\[\]{{}},;"'$]*|[^ \t\r\n])
    )?""",
    re.VERBOSE,
)
BLANK, NAME, NUMERAL, SIGN, COMMENT, BAD_NUMBER, BAD_CHARACTER = 1, 2, 3, 4, 5, 6, 7

BAD = "bad"
"""The kind of a token that has been reported while it was read."""

DECLARATION_WORDS = frozenset({"import", "export", "worker", "skill", "trait", "fun", "default", "@"})
STATEMENT_WORDS = DECLARATION_WORDS | {
    *("var", "if", "else", "for", "while", "type", "return", "succeed", "break"),
}
NEXT_DECLARATION = re.compile(
    rf"^(?=@|(?:import|export|default|worker|skill|trait|fun|type|task|agent)[ \t]+{WORD}|import[ \t])",
    re.MULTILINE,
)
KEY_ENDS = re.compile(r"[ \t]*(?:[:?,}\r\n]|\Z)")
CLOSERS = {"(": ")", "[": "]", "{": "}", "$(": ")", "($": ")"}
ADVICE = {
    **dict.fromkeys(("=>", "fun"), ("there are no anonymous functions; declare a `fun` and pass its name",)),
    "//": ("a comment begins with `#`; a quotient without its fraction is `floor(a / b)`",),
    "/*": ("a comment begins with `#`",),
    ";": ("elements are separated by `,`",),
    "if": ("there is no `a if c else b`; write `if c { … } else { … }` as a statement",),
}
"""What is usually meant by a token that stands in a wrong place."""
TEXT_OPENERS = frozenset({'"', "'", "$(", "($", "think", "ask"})
RESERVED = {
    "?": "a choice is made by `if`; a default is written `x || y`",
    "->": "a result type is written after `:`",
    "&": "write `&&`",
}
DOUBLE, SINGLE = "\u201c\u201d\u201e", "\u2018\u2019\u201a"
QUOTED = re.compile(
    rf"[{DOUBLE}][^{DOUBLE}\n]{{0,200}}[{DOUBLE}]|[{SINGLE}][^{SINGLE}\n]{{0,200}}[{SINGLE}]"
    rf"|«[^»\n]{{0,200}}»|`[^`]{{0,400}}`"
)
QUOTES = frozenset((*DOUBLE, *SINGLE, *"«»`"))
PLAINER = {
    **dict.fromkeys(("\u2013", "\u2014", "\u2212"), "-"),
    "…": "...",
    "\u00d7": "*",
    "÷": "/",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
}
"""Signs that editors make of ours, and ours."""
ODD_BLANKS = frozenset({"Zs", "Zl", "Zp", "Cf"})
"""Unicode's categories of what looks like a blank, or like nothing."""
LONGEST_NAME = 255


class TooDeep(Exception):  # noqa: N818 - it never leaves the parser
    """The text is nested deeper than is read; caught where units are parsed."""


class Brackets:
    """The brackets that are open while text is skipped."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.counts = {")": 0, "]": 0, "}": 0}

    def see(self, kind: str) -> None:
        """Take note of a token."""
        if kind in CLOSERS:
            self.stack.append(CLOSERS[kind])
            self.counts[CLOSERS[kind]] += 1
        elif self.counts.get(kind):
            closed = ""
            while closed != kind:
                closed = self.stack.pop()
                self.counts[closed] -= 1


class Cursor(ABC):
    """A place in the text, with the token of code that stands there.

    `kind` is `name`, `number`, a keyword or sign itself, `bad`, or "" at the end of the text. `start` and `end` are the
    token's offsets, `before` the end of the token before it. `free` says that newlines do not matter here, `equality`
    that `=` compares. `at` is the place while text or shell is read, `embedded` the number of texts that are open around
    it. `hushed` makes the next token silent: a text before it swallowed what it needs.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.kind = ""
        self.value = ""
        self.start: int = 0
        self.end: int = 0
        self.before: int = 0
        self.at: int = 0
        self.newline: bool = True
        self.free: bool = False
        self.equality: bool = False
        self.depth: int = 0
        self.closers: list[str] = []
        self.comments: list[tree.Comment] = []
        self.found: list[Diagnostic] = []
        self.error_at = -1
        self.hushed = False
        self.embedded: int = 0

    def advance(self) -> None:
        """Read the next token of code."""
        self.before = pos = self.end
        newline = False
        while True:
            matched = CODE.match(self.text, pos)
            assert matched is not None, "the pattern matches everywhere"
            group = matched.lastindex
            newline = newline or matched.start(BLANK) >= 0
            if group == COMMENT:
                pos = matched.end()
                self.comment(matched.start(COMMENT), pos, alone=newline or self.before == 0)
            elif group == BAD_CHARACTER and self.is_odd_blank(matched.start(group)):
                pos = self.skip_odd_blanks(matched.start(group))
            else:
                break
        self.newline = newline
        self.end = matched.end()
        if group == NAME:
            self.start = matched.start(NAME)
            self.value = word = matched[NAME]
            self.kind = word if word in tree.KEYWORDS else "name"
            if len(word) > LONGEST_NAME:
                self.long_name()
        elif group == SIGN:
            self.start = matched.start(SIGN)
            self.kind = matched[SIGN]
        elif group == NUMERAL:
            self.start = matched.start(NUMERAL)
            self.value = matched[NUMERAL]
            self.kind = "number"
        elif group is None or group == BLANK:
            self.kind = ""
            self.start = self.end
        else:
            self.start = matched.start(group)
            self.kind = BAD
            self.meaningless(is_number=group == BAD_NUMBER)

    def resume(self, at: int) -> None:
        """Continue reading code at `at`."""
        self.end = at
        self.advance()
        if self.hushed:
            self.error_at = self.start
            self.hushed = False

    def comment(self, start: int, end: int, *, alone: bool) -> None:
        """Keep a comment."""
        if self.text[end - 1] == "\r":
            end -= 1
        self.comments.append(tree.Comment(start, end, self.text[start:end], alone))

    def meaningless(self, *, is_number: bool) -> None:
        """Report a token that means nothing anywhere."""
        self.error_at = self.start
        spelled = self.text[self.start : self.end]
        if is_number:
            better = _plain_number(spelled)
            plain = re.fullmatch(NUMBER, better) and better != spelled
            message = f"not a number: write `{better}`" if plain else f"not a number: `{cut(spelled)}`"
            self.report("PW107", message, self.start, self.end)
            return
        character = spelled[0]
        helps: tuple[str, ...] = ()
        if character in QUOTES:
            quoted = QUOTED.match(self.text, self.start)
            self.end = quoted.end() if quoted else self.end
            helps = ('text is written in plain quotes: `"…"`',)
        elif character in PLAINER:
            helps = (f"write `{PLAINER[character]}`",)
        self.odd_character(character, helps)

    def odd_character(self, character: str, helps: tuple[str, ...]) -> None:
        """Report a character that means nothing in code."""
        name = "" if character.isascii() else f" ({unicodedata.name(character, 'no name').lower()})"
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        message = "unexpected back quote" if shown == "`" else f"unexpected character `{shown}`{name}"
        self.report("PW101", message, self.start, self.start + 1, helps=helps)

    def is_odd_blank(self, at: int) -> bool:
        """Whether a character at `at` looks like a blank, or like nothing, and is none of ours."""
        character = self.text[at]
        return not character.isascii() and unicodedata.category(character) in ODD_BLANKS

    def skip_odd_blanks(self, at: int) -> int:
        """Report what looks like blanks at `at`; returns the end of it."""
        self.start = self.end = at
        while self.end < len(self.text) and self.is_odd_blank(self.end):
            self.end += 1
        self.odd_character(self.text[at], ("it looks like a blank or is invisible; write a plain blank",))
        return self.end

    def long_name(self) -> None:
        """Report a name that could not be used for a file, mailbox or plugin."""
        message = f"this name is longer than {LONGEST_NAME} characters; choose another name"
        self.report("PW112", message, self.start, self.end)

    # Reporting

    def report(
        self,
        code: str,
        message: str,
        start: int,
        end: int,
        *,
        label: str = "",
        helps: tuple[str, ...] = (),
        secondary: tuple[Secondary, ...] = (),
        fix: Fix | None = None,
    ) -> None:
        """Report something about a stretch of text."""
        span = Span(start, end)
        file = self.source.name
        self.found.append(
            diagnose(code, message, file, span, label=label, helps=helps, secondary=secondary, fix=fix)
        )

    def fail(
        self,
        code: str,
        message: str,
        *,
        span: Span | None = None,
        helps: tuple[str, ...] = (),
        secondary: tuple[Secondary, ...] = (),
        fix: Fix | None = None,
    ) -> None:
        """Report what is wrong with the token here, unless something has been said about it already."""
        if self.error_at == self.start:
            return
        self.error_at = self.start
        start, end = span or (self.start, self.end)
        self.report(code, message, start, end, helps=helps, secondary=secondary, fix=fix)

    def unexpected(self, expected: str, *helps: str) -> None:
        """Report that the token here is not what must stand here."""
        kind = self.kind
        if kind in RESERVED:
            advice = (
                "a missing field is null; write `.`"
                if self.text.startswith("?.", self.start)
                else RESERVED[kind]
            )
            self.fail("PW111", f"`{kind}` has no meaning here", helps=(advice,))
        elif kind in {")", "]", "}"} and kind not in self.closers:
            self.fail("PW104", f"`{kind}` closes nothing")
        elif kind == "else":
            self.fail("PW106", "`else` must follow the `}` of an `if`")
        else:
            end = min(self.before + 1, len(self.text))
            span = (
                None if kind else Span(min(self.before, end), end)
            )  # after the last word, not on an empty line
            found = f"expected {expected}, found {self.described()}"
            self.fail("PW105", found, span=span, helps=helps or self.advice())

    def advice(self) -> tuple[str, ...]:
        """What people usually mean by a token that stands in a wrong place."""
        if self.kind == "..":
            return ("a range is written `1...3`",)
        if self.kind == "$" and self.text.startswith((" ", "\t"), self.end):
            return ("what a command prints is `$(…)`, its result `($ …)`; `$ …` alone is a statement",)
        if self.kind == "$":
            return ("in code a variable is written without `$`; a command line starts with `$` and a blank",)
        if self.kind == "name" and self.value in OTHER_WORDS:
            return (f"`{self.value}` is not a Patchwork keyword; write `{OTHER_WORDS[self.value]}`",)
        if self.kind in {"name", '"'} and self.text.endswith('"', 0, self.start):
            return ('a quote inside of text is written `\\"`',)
        return ADVICE.get(self.kind, ())

    def described(self) -> str:
        """The token here, in words."""
        if self.kind == "":
            return "the end of the file"
        if self.kind in {'"', "'"}:
            return "a string"
        return f"`{cut(self.text[self.start : self.end])}`"

    # Nesting

    def deeper(self, at: int, levels: int = 1) -> None:
        """Enter another level of nesting at `at`; `self.depth` goes back when it is left."""
        self.depth += levels
        if self.depth > tree.MAX_DEPTH:
            self.report("PW109", f"nested deeper than {tree.MAX_DEPTH} levels", at, at + 1)
            raise TooDeep

    def close(self, opener: str, opened: int, expected: str = "") -> int:
        """Expect the closing bracket that belongs to `opener` and skip it; returns the offset after it."""
        closer = CLOSERS[opener]
        if self.kind != closer:
            return self.close_badly(opener, opened, expected or f"`{closer}`")
        end = self.end
        self.advance()
        return end

    def close_badly(self, opener: str, opened: int, expected: str) -> int:
        """Report that a bracket is not closed here and go to where it might have been."""
        closer = CLOSERS[opener]
        place = Span(opened, opened + len(opener))
        if self.never_closes(closer):
            self.fail("PW104", f"this `{opener}` is never closed", span=place)
            return self.before
        if self.kind in {")", "]", "}"}:
            self.fail(
                "PW104",
                f"`{self.kind}` does not match `{opener}`",
                secondary=(Secondary(place, "opened here"),),
            )
        else:
            self.missing_closer(expected, place)
            if self.kind != "{" or closer == "}":  # a brace is where the body begins
                self.skip_to(closer)
            if self.kind != closer:
                return self.before
        end = self.end
        self.advance()
        return end

    def missing_closer(self, expected: str, opener: Span) -> None:
        """Report what is found instead of a closing bracket; shows the one it belongs to if that is on another line."""
        before = len(self.found)
        self.unexpected(expected)
        if len(self.found) > before and self.text.find("\n", opener.end, self.start) >= 0:
            last = self.found.pop()
            missing = self.newline and self.kind in {"name", "number", '"', "'"}
            span = Span(self.before, self.before + 1) if missing else last.span  # where it should have been
            self.found.append(last._replace(span=span, secondary=(Secondary(opener, "opened here"),)))

    def never_closes(self, closer: str) -> bool:
        """Whether what stands here shows that a bracket was forgotten: it belongs to what is around it."""
        kind = self.kind
        if kind in {")", "]", "}"}:
            return kind != closer and kind in self.closers
        return kind == "" or self.at_declaration() or self.starts_statement()

    # Skipping

    def skip_to(self, closer: str) -> None:
        """Skip to `closer`, or to what shows that it is missing."""
        nested = Brackets()
        while self.kind and not self.at_declaration() and not self.skips_into_statement(nested):
            if not nested.stack and (self.kind == closer or self.closes_outside()):
                return
            self.skip_token(nested)

    def skip_line(self) -> None:
        """Skip to the end of the statement: a newline, `;` or `}` outside of brackets."""
        nested = Brackets()
        self.skip_token(nested)
        while self.kind and not self.at_declaration() and not self.skips_into_statement(nested):
            if not nested.stack and (self.newline or self.kind in {";", "}"}):
                return
            self.skip_token(nested)

    def skips_into_statement(self, nested: Brackets) -> bool:
        """Whether a statement starts here, not inside of braces that are being skipped."""
        return not nested.counts["}"] and self.starts_statement()

    def starts_statement(self) -> bool:
        """Whether a word that starts a statement begins a line here, and is not a key."""
        return self.newline and self.kind in STATEMENT_WORDS and not KEY_ENDS.match(self.text, self.end)

    def closes_outside(self) -> bool:
        """Whether the token here closes a bracket that was open before the skipping began."""
        return self.kind in {")", "]", "}"} and self.kind in self.closers

    def skip_token(self, nested: Brackets) -> None:
        """Skip one token, or one whole text, keeping track of brackets."""
        if self.kind in TEXT_OPENERS:
            self.skip_text()
        else:
            nested.see(self.kind)
            self.advance()

    @abstractmethod
    def skip_text(self) -> None:
        """Skip a string, prompt or shell form that starts here."""

    def at_declaration(self) -> bool:
        """Whether a declaration starts here, at the very beginning of a line."""
        return (
            self.newline
            and (self.kind in DECLARATION_WORDS or self.kind == "type")
            and (self.start == 0 or self.text[self.start - 1] == "\n")
            and not KEY_ENDS.match(self.text, self.end)
        )


def _plain_number(spelled: str) -> str:
    """A number as it is written here, if it is one of another language."""
    if re.fullmatch(r"\.[0-9]+", spelled):
        return f"0{spelled}"
    if re.fullmatch(r"0[xX][0-9A-Fa-f]{1,12}|0[bB][01]{1,48}|0[oO][0-7]{1,16}", spelled):
        return str(int(spelled, 0))
    return spelled.rstrip(".").replace("_", "")


def cut(text: str, most: int = 40) -> str:
    """`text` on one line, not longer than `most` characters."""
    text = text.split("\n", 1)[0]
    return text if len(text) <= most else f"{text[: most - 1]}…"

"""Strings and prompts: text with values in it.

Owns the modes string, raw and prompt. While text is read, `at` is the place; code inside of text is read by the rest of
the parser and ends in front of its `}`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TypeVar

from bartack.language.parsing._cursor import NEXT_DECLARATION, WORD, Cursor
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Secondary
from bartack.language.syntax._source import Span

STRING = re.compile(r'[^"\\$\r]+')
RAW = re.compile(r"[^'\\\n]+")
RAW_CONTINUES = re.compile(r"(?:\n[^'\n]{0,200}){1,20}'(?=[ \t]*(?:[;,)\]}.+]|\r?\n|\Z))")
PROMPT = re.compile(r"[{}$]|(?<!\w)do(?=[ \t\r\n]*\{)")
VALUE = re.compile(rf"\$(?:({WORD})|(\{{)|(@\{{)|(\())")
LITERAL = re.compile(r"\$'(.)'", re.DOTALL)
DO = re.compile(r"do[ \t\r\n]*")
LINE_END = re.compile(r"\r?\n|\Z")
CLOSING_BRACE = re.compile(r'[^}"\n]{0,200}\}')
UNICODE = re.compile(r"u\{([0-9A-Fa-f]{1,6})\}")
BROKEN_UNICODE = re.compile(r"u\{[^}\"\s]{0,20}\}?")
PARAMETER = re.compile(
    r"\$\{(?:#[^}\"\s]{0,80}\}?|[A-Za-z_][A-Za-z0-9_]*(?::[-=?+]|##?|%%|//|\^|,)[^}\"\n]{0,200}\}?)"
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "$": "$", "0": "\0"}
MOST_REREADS = 8
FAR = 400
UNCLOSED = "this `{{` of `{}` is never closed; a lone brace in text is written `$'{{'`"

T = TypeVar("T", bound=tree.Node)


class TextParser(Cursor):
    """Reads strings and prompts."""

    rereads = 0
    suspect: tuple[str, int, int] | None = None
    """A prompt that seems to be closed too late: its word, its brace, and the last brace in its text, else the one at its end."""

    @abstractmethod
    def expression(self) -> tree.Expression:
        """Read an expression of code."""

    @abstractmethod
    def braced_statements(self) -> tuple[tree.Block, bool]:
        """Read a block whose `{` is the token here, up to its `}`; returns whether that is there."""

    @abstractmethod
    def capture(self) -> tree.Capture:
        """Read a `$(…)` at `at`."""

    # Strings

    def string(self, *, in_shell: bool = False) -> tree.String:
        """Read the `"…"` that starts at `at`; leaves `at` after it."""
        start = self.at
        self.at += 1
        parts: list[tree.TextPart] = []
        pieces: list[str] = []
        text, since = self.text, self.at
        while True:
            matched = STRING.match(text, self.at)
            if matched:
                pieces.append(matched[0])
                self.at = matched.end()
            character = text[self.at : self.at + 1]
            if character == '"' or not character:
                break
            if character == "$":
                value = VALUE.match(text, self.at)
                if value:
                    self.flush(parts, pieces, since)
                    parts.append(self.value_part(value))
                    since = self.at
                    continue
            pieces.append(self.plain(character, in_shell=in_shell))
        self.flush(parts, pieces, since)
        if character:
            self.at += 1
        else:
            self.unclosed_string(start)
            parts = self.parts_before(parts)
        return tree.String(start, self.at, tuple(parts), False)

    def flush(self, parts: list[tree.TextPart], pieces: list[str], since: int) -> None:
        """Make one text of the pieces read since `since`."""
        if pieces:
            parts.append(tree.Text(since, self.at, "".join(pieces)))
            pieces.clear()

    def plain(self, character: str, *, in_shell: bool) -> str:
        """Read a `$` that is text, a carriage return, or an escape."""
        at = self.at
        self.at += 1
        if character == "$":
            return "$"
        if character == "\r":
            return "" if self.text[at + 1 : at + 2] == "\n" else "\r"
        return self.escape(at, in_shell=in_shell)

    def escape(self, at: int, *, in_shell: bool) -> str:
        """Read the backslash at `at` and what it takes with it."""
        escaped = self.text[at + 1 : at + 2]
        if not escaped:
            return "\\"
        self.at = at + 2
        if escaped in ESCAPES:
            return ESCAPES[escaped]
        if escaped == "u" and self.text.startswith("{", at + 2):
            return self.unicode_escape(at)
        if not in_shell:
            shown = escaped if escaped.isprintable() else "…"
            self.report("PW204", f"unknown escape `\\{shown}`; it stays as it is written", at, at + 2)
        if escaped == "\r" and self.text.startswith("\n", at + 2):
            return "\\"
        return f"\\{escaped}"

    def unicode_escape(self, at: int) -> str:
        r"""Read a `\u{…}` at `at`."""
        matched = UNICODE.match(self.text, at + 1)
        number = int(matched[1], 16) if matched else -1
        if matched and number < 0x110000 and not 0xD800 <= number < 0xE000:
            self.at = matched.end()
            return chr(number)
        broken = BROKEN_UNICODE.match(self.text, at + 1)
        self.at = broken.end() if broken else at + 2
        self.report("PW108", "not a Unicode character", at, self.at)
        return "\ufffd"

    def unclosed_string(self, start: int) -> None:
        """Report a string that reaches the end of the text, and continue after its first line if there is more."""
        if self.error_at == len(self.text):
            return
        ended = LINE_END.search(self.text, start)
        line_end = ended.start() if ended else len(self.text)
        self.report("PW102", "this string is never closed", start, max(line_end, start + 1))
        self.read_again(line_end)

    def parts_before(self, parts: list[T]) -> list[T | tree.Text]:
        """The parts of an unclosed text that are not read again as code."""
        kept: list[T | tree.Text] = [part for part in parts if part.end <= self.at]
        if len(kept) < len(parts):
            cut = parts[len(kept)]
            if isinstance(cut, tree.Text) and cut.start < self.at:
                kept.append(tree.Text(cut.start, self.at, self.text[cut.start : self.at]))
        return kept

    def raw_string(self) -> tree.String:
        """Read the `'…'` of code that starts at `at`; leaves `at` after it."""
        start = self.at
        text = self.text
        pieces: list[str] = []
        self.at += 1
        while True:
            matched = RAW.match(text, self.at)
            if matched:
                pieces.append(matched[0])
                self.at = matched.end()
            if not text.startswith("\\", self.at):
                break
            escaped = text[self.at + 1 : self.at + 2]
            taken = escaped in {"'", "\\"} and escaped != ""
            pieces.append(escaped if taken else "\\")
            self.at += 2 if taken else 1
        return self.raw_end(start, "".join(pieces))

    def raw_end(self, start: int, value: str) -> tree.String:
        """Finish a raw string whose text is read."""
        end = self.at
        if self.text.startswith("'", end):
            self.at = end + 1
        else:
            value = value.removesuffix("\r")
            self.unclosed_raw(start, end)
        parts = (tree.Text(start + 1, end, value),) if value else ()
        return tree.String(start, self.at, parts, True)

    def unclosed_raw(self, start: int, end: int) -> None:
        """Report a `'…'` without its end on its line; lines below that seem to be the rest of it are gone past."""
        rest = RAW_CONTINUES.match(self.text, end)
        helps = ('a text over several lines is written `"…"`',) if rest else ()
        if not rest and '"' in self.text[start:end]:
            helps = ("it begins with `'`, so it must end with `'`",)
        if self.found and self.found[-1].span.start == start:
            self.found.pop()  # that a string is not expected here matters less
        self.report("PW102", "this string is never closed", start, max(end, start + 1), helps=helps)
        self.at = rest.end() if rest else end
        self.hushed = True

    # Values inside of text

    def value_part(
        self, matched: re.Match[str]
    ) -> tree.Variable | tree.Interpolation | tree.Splice | tree.Capture:
        """Read what a `$` at `at` inserts."""
        start = self.at
        if matched[1]:
            self.at = matched.end()
            return tree.Variable(start, self.at, matched[1])
        if matched[4]:
            return self.capture()
        if matched[2]:
            parameter = PARAMETER.match(self.text, start)
            if parameter:
                return self.shell_parameter(parameter)
            return tree.Interpolation(start, *self.interpolated(start, matched.end()))
        return tree.Splice(start, *self.interpolated(start, matched.end()))

    def shell_parameter(self, matched: re.Match[str]) -> tree.Interpolation:
        """Report a `${x:-y}` of the shell."""
        start, self.at = matched.span()
        message = f"`{matched[0]}` has no meaning here; `${{…}}` takes an expression"
        self.report("PW158", message, start, self.at, helps=("for a default write `${x || y}`",))
        return tree.Interpolation(start, self.at, tree.Error(start + 2, self.at))

    def interpolated(self, start: int, inside: int) -> tuple[int, tree.Expression]:
        """Read the expression of a `${` past its `}`; returns the end and the expression."""
        free, equality, depth = self.free, self.equality, self.depth
        self.deeper(start)
        self.free = self.equality = False
        self.embedded += 1
        self.closers.append("}")
        self.resume(inside)
        value = self.expression()
        if self.kind == "}":
            self.at = self.end
        else:
            self.fail_interpolation(start, inside)
        self.closers.pop()
        self.embedded -= 1
        self.free, self.equality, self.depth = free, equality, depth
        return self.at, value

    def fail_interpolation(self, start: int, inside: int) -> None:
        """Report that a `${` is not closed where its expression ends, and find where the text continues."""
        opener = self.text[start:inside]
        if self.kind == "":
            self.fail("PW104", f"this `{opener}` is never closed", span=Span(start, inside))
            self.at = len(self.text)
            return
        closing = CLOSING_BRACE.match(self.text, self.start)
        if self.kind == '"' and not closing:
            self.fail("PW104", f"this `{opener}` is never closed", span=Span(start, inside))
        else:
            self.unexpected("`}`")
        self.at = closing.end() if closing else self.start

    # Prompts

    def prompt(self, word: str, start: int) -> tree.Prompt:
        """Read the prompt whose `{` is the token here; goes past its `}`."""
        opener = self.start
        free, equality, depth = self.free, self.equality, self.depth
        self.deeper(opener)
        self.free = self.equality = False
        self.closers.append("}")
        self.at = self.end
        parts, closed = self.prompt_parts(word, opener)
        self.closers.pop()
        self.free, self.equality, self.depth = free, equality, depth
        end = self.at
        if closed:
            self.resume(end)
        return tree.Prompt(
            start, end, "ask" if word == "ask" else "think", opener, dedented(self.text, parts)
        )

    def prompt_parts(self, word: str, opener: int) -> tuple[list[tree.PromptPart], bool]:
        """Read the parts of a prompt past its `}`; returns whether code continues there."""
        text = self.text
        parts: list[tree.PromptPart] = []
        braces: list[int] = []
        brace = -1
        since = self.at
        while True:
            matched = PROMPT.search(text, self.at)
            if not matched:
                self.raw_text(parts, since, len(text))
                self.unclosed_prompt(word, opener, braces)
                return self.parts_before(parts), True
            at = matched.start()
            sign = matched[0]
            self.at = matched.end()
            if sign == "}" and not braces:
                self.raw_text(parts, since, at)
                if self.closes_too_late(opener, since, at):
                    self.suspect = (word, opener, brace if brace >= 0 else at)
                return parts, True
            if sign == "{":
                braces.append(at)
                brace = at
            elif sign == "}":
                braces.pop()
            elif sign == "do":
                self.raw_text(parts, since, at)
                closed = self.do_block(parts, at, since, opener + 1)
                since = self.at
                if not closed:
                    return parts, False
            elif self.dollar(parts, since, at):
                since = self.at

    def closes_too_late(self, opener: int, since: int, at: int) -> bool:
        """Whether the `}` at `at` stands too far left to be that of a prompt, so that a brace in the text took its own."""
        line = self.text.rfind("\n", since, at) + 1
        head = self.text.rfind("\n", max(opener - FAR, 0), opener) + 1
        if not line or not head or self.text[line:at].strip(" \t"):
            return False
        written = self.text[head:opener]
        return at - line < len(written) - len(written.lstrip(" \t"))

    def raw_text(self, parts: list[tree.PromptPart], start: int, end: int) -> None:
        """Keep text of a prompt as it is; it is dedented when all is read."""
        if end > start:
            parts.append(tree.Text(start, end, ""))

    def dollar(self, parts: list[tree.PromptPart], since: int, at: int) -> bool:
        """Read what a `$` at `at` in a prompt inserts; returns whether it is more than text."""
        literal = LITERAL.match(self.text, at)
        matched = VALUE.match(self.text, at)
        if literal:
            self.raw_text(parts, since, at)
            parts.append(tree.Escape(at, literal.end(), literal[1]))
            self.at = literal.end()
        elif matched:
            self.raw_text(parts, since, at)
            self.at = at
            parts.append(self.value_part(matched))
        return bool(literal or matched)

    def do_block(self, parts: list[tree.PromptPart], start: int, since: int, inside: int) -> bool:
        """Read a `do { … }` at `start`, after text from `since`, in a prompt that begins at `inside`.

        Returns whether the block is closed, so that the prompt continues.
        """
        line = self.text.rfind("\n", since, start) + 1
        if (line == 0 and since > inside) or self.text[line or since : start].strip(" \t\r"):
            message = "this `do {` is not at the start of its line; it becomes a tool all the same"
            self.report("PW224", message, start, start + 2, helps=("for a plain brace write `do $'{'`",))
        blank = DO.match(self.text, start)
        self.resume(blank.end() if blank else start + 2)
        body, closed = self.braced_statements()
        self.at = body.end
        parts.append(tree.DoBlock(start, body.end, 0, body))
        return closed

    def unclosed_prompt(self, word: str, opener: int, braces: list[int]) -> None:
        """Report a prompt that reaches the end of the text, and continue at the next declaration."""
        self.at = len(self.text)
        if self.error_at == self.at:
            return
        secondary = tuple(
            Secondary(Span(at, at + 1), "this brace is not closed either") for at in braces[-1:]
        )
        self.report(
            "PW103",
            f"this `{{` of `{word}` is never closed; a lone brace in text is written `$'{{'`",
            opener,
            opener + 1,
            secondary=secondary,
        )
        following = NEXT_DECLARATION.search(self.text, opener)
        self.read_again(following.start() - 1 if following else len(self.text))

    def read_again(self, at: int) -> None:
        """Read text again as code from `at` on, forgetting what was found in it; only some times, to stay linear."""
        self.at = self.error_at = len(self.text)
        if self.rereads >= MOST_REREADS or self.embedded or at >= len(self.text):
            return
        self.rereads += 1
        self.at = at
        self.hushed = True
        reported = self.found.pop()
        self.found = [*(found for found in self.found if found.span.start < at), reported]
        self.comments = [comment for comment in self.comments if comment.start < at]


def dedented(text: str, parts: list[tree.PromptPart]) -> tuple[tree.PromptPart, ...]:
    """The parts of a prompt with the values of their texts, without the indentation they have in common, and numbered blocks.

    Every part that is not text counts as one character that is not blank.
    """
    joined = "".join(
        text[part.start : part.end].replace("\r\n", "\n") if isinstance(part, tree.Text) else "\0"
        for part in parts
    )
    values = dedent(joined).split("\0")
    done: list[tree.PromptPart] = []
    gap = blocks = 0
    for part in parts:
        if isinstance(part, tree.Text):
            if values[gap]:
                done.append(tree.Text(part.start, part.end, values[gap]))
            continue
        gap += 1
        if isinstance(part, tree.DoBlock):
            blocks += 1
            done.append(tree.DoBlock(part.start, part.end, blocks, part.body))
        else:
            done.append(part)
    return tuple(done)


def dedent(text: str) -> str:
    """Take from a prompt's text the blank first and last line, and the blanks all other lines start with."""
    if "\n" not in text:
        return text.strip(" \t")
    first, *lines = text.split("\n")
    if lines and not lines[-1].strip(" \t"):
        lines.pop()
    written = [line for line in lines if line.strip(" \t")]
    margin = len(common_blanks(written))
    shown = [line[margin:] if line.strip(" \t") else "" for line in lines]
    first = first.lstrip(" \t")
    return "\n".join([first, *shown] if first else shown)


def common_blanks(lines: list[str]) -> str:
    """The longest string of blanks that all lines start with."""
    common: str | None = None
    for line in lines:
        blanks = line[: len(line) - len(line.lstrip(" \t"))]
        if common is None:
            common = blanks
        while not blanks.startswith(common):
            common = common[:-1]
    return common or ""

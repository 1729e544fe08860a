"""Command lines: `$ …`, `$( … )` and `($ … )`.

Owns the mode shell. Nothing of it is ever handed to a shell; what only a shell could do is refused here, with advice.
While a command line is read, `at` is the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from bartack.language.parsing._cursor import WORD
from bartack.language.parsing._text import VALUE, TextParser
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Span

BLANKS_OF_LINE = re.compile(r"(?:[ \t]+|\\\r?\n)*")
BLANKS = re.compile(r"(?:[ \t\r\n]+|\\\r?\n)*")
BARE = re.compile(r"[^ \t\r\n\"'$|&;<>()\\`]+")
JOIN = re.compile(r"&&|\|\|")
REDIRECT = re.compile(r"2>&1|1>&2|>&2|[12]?>>?|<")
UNSUPPORTED = re.compile(r"<<<|<<-?|[<>]\(|[0-9]*>&[0-9-]?|&>>?|<>|<&|>\||[0-9]+[<>]")
ASSIGNMENT = re.compile(rf"({WORD})=")
END_OF_LINE = re.compile(r"\r?\n|\Z")
CLOSING_WORD = re.compile(r"\}(?=[ \t\r\n;]|\Z)")
SEMICOLON_ENDS = re.compile(r";[ \t]*(?:\r?\n|\Z|\}|\$[ \t]|#)")
PARAMETERS = re.compile(r"\$([0-9]+|[@#$*!?-])")
BRACES = re.compile(r"\{[^{},\s]*,[^{}\s]*\}")
COMMENT = re.compile(r"#[^\n]*")
HERE_NAME = re.compile(rf"[ \t]*['\"]?({WORD})['\"]?")

HINTS = {
    "<<": "use `write` and `<`",
    "<<-": "use `write` and `<`",
    "<<<": "use `write` and `<`",
    "<(": "write the output to a file first",
    ">(": "write the output to a file first",
    "&": "use a worker",
    "&>": "write `> file 2>&1`",
    "&>>": "write `>> file 2>&1`",
    "`": "use `$(…)`",
    "[[": "use `test`",
    "if": "use Patchwork's `if`",
    "for": "use Patchwork's `for`",
    "while": "use Patchwork's `while`",
    "case": "use Patchwork's `if` and `else if`",
    "function": "use a `fun`",
    "$((": "write `${1 + 1}`, or a blank after `$(` for a group of commands",
    "$'": 'use `"…"` with its escapes',
}
COMMAND_WORDS = frozenset({"[[", "if", "for", "while", "case", "function"})
BUILTINS = {
    "export": 'write `NAME=value` before the command, and `env("NAME")` to read it',
    "source": "run the script as a program, or read what it sets with `read`",
    ".": "run the script as a program, or read what it sets with `read`",
    "eval": "write the command itself",
    "exec": "write the command itself",
    "set": "a failing command throws already",
    "unset": "write `env -u NAME` before the command",
    "alias": "use a `fun`",
}
COMPOUND = re.compile(r"(?:if|for|while|case|function)(?=[ \t])")
CODE_WORDS = frozenset({"throw", "return", "break", "continue", "succeed"})


# Long because a recursive-descent parser has one method per production, and the words of a command have many.
class ShellParser(TextParser):
    """Reads command lines. `in_line` says that a newline ends the command; `braces` counts the words `{` on the line."""

    in_line = False
    braces = 0

    def capture(self) -> tree.Capture:
        """Read the `$(…)` at `at`; leaves `at` after it."""
        start = self.at
        shell, end = self.enclosed("$(")
        if self.text.startswith("$((", start) and self.text.endswith("))", start, end) and is_group(shell):
            self.unsupported("$((", start, end)
        return tree.Capture(start, end, shell)

    def shell_result(self) -> tree.ShellResult:
        """Read the `($ …)` at `at`; leaves `at` after it."""
        start = self.at
        shell, end = self.enclosed("($")
        return tree.ShellResult(start, end, shell)

    def enclosed(self, opener: str) -> tuple[tree.ShellList, int]:
        """Read commands from the opener at `at` past their `)`, where newlines are blanks."""
        in_line, braces = self.in_line, self.braces
        self.in_line = False
        self.embedded += 1
        done = self.parenthesised(opener)
        self.embedded -= 1
        self.in_line, self.braces = in_line, braces
        return done

    def parenthesised(self, opener: str) -> tuple[tree.ShellList, int]:
        """Read commands from the opener at `at` past their `)`."""
        opened, depth = self.at, self.depth
        self.deeper(opened)
        self.closers.append(")")
        self.at += len(opener)
        shell = self.shell_list()
        self.closers.pop()
        self.depth = depth
        if self.text.startswith(")", self.at):
            self.at += 1
        else:
            self.unclosed_shell(opener, opened)
        return shell, self.at

    def unclosed_shell(self, opener: str, opened: int) -> None:
        """Report that commands in parentheses do not end here."""
        self.start, self.end = self.at, self.at + 1
        while self.found and self.found[-1].span.start > opened:
            self.found.pop()  # what was found in it is probably not meant to be in it
            self.error_at = -1
        self.fail("PW104", f"this `{opener}` is never closed", span=Span(opened, opened + len(opener)))

    def shell_line(self) -> tree.ShellStatement:
        """Read the `$ …` whose `$` is the token here; code continues after it."""
        start = self.start
        around = self.in_line, self.braces  # a line in a block of a prompt may stand in a word of another one
        self.in_line, self.braces = True, 0
        self.at = start + 1
        shell = self.shell_list()
        if self.text.startswith(")", self.at):
            self.stray(")")
        self.in_line, self.braces = around
        self.resume(self.at)
        return tree.ShellStatement(start, max(shell.end, start + 1), shell)

    def stray(self, sign: str) -> None:
        """Report a `)` that no `(` of the line opened, and skip the line."""
        self.report("PW104", f"`{sign}` closes nothing", self.at, self.at + 1)
        ended = END_OF_LINE.search(self.text, self.at)
        self.at = ended.start() if ended else len(self.text)

    # Lists and pipelines

    def shell_list(self) -> tree.ShellList:
        """Read pipelines joined by `&&` and `||`."""
        pipelines = [self.pipeline()]
        operators: list[tree.Operator] = []
        while True:
            joined = self.join()  # bartack: allow[wait_without_deadline] a rule of the grammar
            if joined is None:
                break
            operators.append(joined)
            pipelines.append(self.pipeline())
        mixed = next((operator for operator in operators if operator.symbol != operators[0].symbol), None)
        if mixed:
            message = "`&&` and `||` are mixed, read from left to right; use a group `( … )`"
            self.report("PW219", message, mixed.start, mixed.end)
        return tree.ShellList(pipelines[0].start, pipelines[-1].end, tuple(pipelines), tuple(operators))

    def join(self) -> tree.Operator | None:
        """Read what joins two pipelines; what does not is reported and taken as `&&`, unless nothing follows."""
        at, text = self.at, self.text
        matched = JOIN.match(text, at)
        if matched:
            self.at = matched.end()
            return tree.Operator(at, self.at, matched[0])
        while text.startswith((";", "&"), self.at):
            if self.in_line and SEMICOLON_ENDS.match(text, self.at):
                return None
            self.refuse_join()
        return None if self.at == at or self.command_ends() else tree.Operator(at, at + 1, "&&")

    def refuse_join(self) -> None:
        """Report a `;` or `&` between commands and skip it."""
        at = self.at
        if self.text[at] == ";":
            self.report("PW155", "`;` does not join commands; write `&&` or start a new line", at, at + 1)
        else:
            self.unsupported("&", at, at + 1)
        self.at = at + 1
        self.blanks()

    def pipeline(self) -> tree.Pipeline:
        """Read commands joined by `|`."""
        commands = [self.command()]
        while self.text.startswith("|", self.at) and not self.text.startswith("||", self.at):
            self.at += 1
            commands.append(self.command())
        return tree.Pipeline(commands[0].start, commands[-1].end, tuple(commands))

    def unsupported(self, sign: str, start: int, end: int) -> None:
        """Report what only a shell can do."""
        hint = HINTS.get(sign, "use a program, or Patchwork itself")
        named = "a back quote" if sign == "`" else f"`{sign}`"
        self.report("PW150", f"{named} is not supported; {hint}", start, end)

    # Commands

    def blanks(self) -> None:
        """Skip blanks and, in a command line, the comment that ends it."""
        pattern = BLANKS_OF_LINE if self.in_line else BLANKS
        matched = pattern.match(self.text, self.at)
        if matched:
            self.at = matched.end()
        if self.in_line and self.text.startswith("#", self.at):
            comment = COMMENT.match(self.text, self.at)
            if comment:
                self.comment(self.at, comment.end(), alone=False)
                self.at = comment.end() - self.text.endswith("\r", self.at, comment.end())

    def command_ends(self) -> bool:
        """Whether no word of a command can stand here."""
        text, at = self.text, self.at
        character = text[at : at + 1]
        if not character or character in "|;)":
            return True
        if character == "&":
            return not text.startswith("&>", at)
        if not self.in_line:
            return False
        if character == "}":
            return not self.braces and bool(CLOSING_WORD.match(text, at))
        return character == "\n" or (character == "\r" and text.startswith("\r\n", at))

    def command(self) -> tree.Command | tree.ShellGroup | tree.Error:
        """Read one command, or a group in parentheses."""
        self.blanks()
        start = self.at
        if self.text.startswith("(", start):
            return self.group(start)
        compound = COMPOUND.match(self.text, start) if self.in_line else None
        if compound:
            return self.skip_compound(compound)
        assignments = self.assignments()
        words: list[tree.Word | tree.Splice] = []
        redirects: list[tree.Redirect] = []
        end = self.at
        while not self.command_ends():
            self.command_part(words, redirects)
            end = self.at
            self.blanks()
        if not words:
            self.empty_command(start, end, bool(assignments))
            return tree.Error(start, max(start, end))
        self.judge(words[0])
        return tree.Command(start, end, tuple(assignments), tuple(words), tuple(redirects))

    def skip_compound(self, matched: re.Match[str]) -> tree.Error:
        """Report a statement of the shell, and skip its line."""
        self.unsupported(matched[0], *matched.span())
        ended = END_OF_LINE.search(self.text, matched.end())
        self.at = ended.start() if ended else len(self.text)
        return tree.Error(matched.start(), self.at)

    def command_part(self, words: list[tree.Word | tree.Splice], redirects: list[tree.Redirect]) -> None:
        """Read the next word or redirect of a command."""
        text, at = self.text, self.at
        if text[at] in "<>&0123456789" and (redirect := self.redirect()) is not None:
            redirects.extend(redirect)
        elif text[at] == "(":
            self.misplaced_group(at)
        else:
            words.append(self.word())

    def empty_command(self, start: int, end: int, assigns: bool) -> None:
        """Report a command without a program."""
        helps = ("a variable is set with `var`, outside of a command line",) if assigns else ()
        self.start = start
        self.end = max(end, min(start + 1, len(self.text)))
        self.fail("PW156", "empty command", helps=helps)

    def assignments(self) -> list[tree.Assignment]:
        """Read the `NAME=value` before a program."""
        found: list[tree.Assignment] = []
        while matched := ASSIGNMENT.match(self.text, self.at):
            start, self.at = matched.span()
            name = tree.Identifier(start, matched.end(1), matched[1])
            value = self.word()
            if isinstance(value, tree.Splice):
                self.report("PW152", "`$@{…}` must stand alone as a word", value.start, value.end)
                value = tree.Word(value.start, value.end, (tree.Error(value.start, value.end),))
            found.append(tree.Assignment(start, self.at, name, value))
            self.blanks()
        return found

    def group(self, start: int) -> tree.ShellGroup:
        """Read a `( … )` and its redirects."""
        shell, end = self.parenthesised("(")
        redirects: list[tree.Redirect] = []
        self.blanks()
        while not self.command_ends():
            found = self.redirect()
            if found is None:
                self.report("PW105", "expected an operator, found a word", self.at, self.at + 1)
                self.skip_words()
                break
            redirects.extend(found)
            end = self.at
            self.blanks()
        return tree.ShellGroup(start, end, shell, tuple(redirects))

    def misplaced_group(self, at: int) -> None:
        """Report a `(` among words and skip what it encloses."""
        place = Span(at, at + 1)
        self.start, self.end = place
        self.fail(
            "PW105", "expected a word, found `(`", helps=("text with parentheses is written in quotes",)
        )
        self.parenthesised("(")

    def skip_words(self) -> None:
        """Skip the rest of a command."""
        while not self.command_ends():
            before = self.at
            self.word()
            self.at = max(self.at, before + 1)
            self.blanks()

    def redirect(self) -> list[tree.Redirect] | None:
        """Read the redirect at `at`; none when a word stands there, and an empty list for one that is reported."""
        text, start = self.text, self.at
        matched = REDIRECT.match(text, start)
        refused = UNSUPPORTED.match(text, start)
        if refused and (not matched or refused.end() > matched.end()):
            self.refused_redirect(refused)
            return []
        if not matched:
            return None
        self.at = matched.end()
        operator = matched[0]
        if "&" in operator:
            return [_redirect(start, self.at, operator, None)]
        self.blanks()
        target = None if self.command_ends() or text[self.at] in "<>&(" else self.word()
        if isinstance(target, tree.Word):
            return [_redirect(start, self.at, operator, target)]
        self.report(
            "PW157", f"redirect without a target: `{operator}` needs one file", start, start + len(operator)
        )
        return []

    def refused_redirect(self, matched: re.Match[str]) -> None:
        """Report a redirect that only a shell knows, and skip what belongs to it."""
        sign = matched[0]
        self.unsupported(sign, matched.start(), matched.end())
        self.at = matched.end()
        if sign in {"<(", ">("}:
            self.at -= 1
            self.parenthesised("(")
        elif sign.startswith("<<") and sign != "<<<":
            self.skip_here_document()
        else:
            self.blanks()
            if not self.command_ends() and self.text[self.at] not in "<>&(":
                self.word()

    def skip_here_document(self) -> None:
        """Skip a here-document, if its end is near."""
        name = HERE_NAME.match(self.text, self.at)
        if name:
            ends = re.compile(rf"^[ \t]*{name[1]}[ \t]*\r?$", re.MULTILINE)
            found = ends.search(self.text, name.end(), min(name.end() + 4_000, len(self.text)))
            self.at = found.end() - self.text.endswith("\r", 0, found.end()) if found else name.end()

    # Words

    def word(self) -> tree.Word | tree.Splice:
        """Read adjacent parts that make one word, or a `$@{…}` that stands alone."""
        start = self.at
        parts: list[tree.WordPart] = []
        splices: list[tree.Splice] = []
        while True:
            matched = BARE.match(self.text, self.at)
            if matched:
                parts.append(tree.Bare(self.at, matched.end(), matched[0]))
                self.at = matched.end()
                continue
            part = self.word_part()
            if part is None:
                break
            if isinstance(part, tree.Splice):
                splices.append(part)
                part = tree.Error(part.start, part.end)
            parts.append(part)
        if splices and len(parts) == 1:
            return splices[0]
        for splice in splices:
            self.report("PW152", "`$@{…}` must stand alone as a word", splice.start, splice.end)
        self.look_at_bare(parts)
        return tree.Word(start, self.at, tuple(parts))

    def word_part(self) -> tree.WordPart | tree.Splice | None:
        """Read a part of a word that is not plain text; none when the word ends here."""
        read = WORD_PARTS.get(self.text[self.at : self.at + 1])
        return None if read is None else read(self)

    def inner_string(self) -> tree.String:
        """Read a `"…"` in a word."""
        return self.string(in_shell=True)

    def carriage_return(self) -> tree.Bare | None:
        """Read a carriage return; one that does not end the line is text."""
        at = self.at
        if not self.in_line or self.text.startswith("\r\n", at):
            return None
        self.at += 1
        return tree.Bare(at, self.at, "\r")

    def escaped_character(self) -> tree.Escape | tree.Bare | None:
        """Read a backslash and the character it makes literal; at the end of a line it ends the word."""
        at, text = self.at, self.text
        if text.startswith(("\n", "\r\n"), at + 1):
            return None
        self.at = min(at + 2, len(text))
        if self.at == at + 1:
            return tree.Bare(at, self.at, "\\")
        return tree.Escape(at, self.at, text[at + 1])

    def quoted(self) -> tree.String:
        """Read a `'…'` as a shell does: no escapes, and it may span lines."""
        start = self.at
        end = self.text.find("'", start + 1)
        if end < 0:
            ended = END_OF_LINE.search(self.text, start)
            end = ended.start() if ended else len(self.text)
            helps = ('a `\'` begins text; text that has one in it is written `"…"`',)
            self.report("PW102", "this string is never closed", start, end, helps=helps)
            self.at = end
        else:
            self.at = end + 1
        value = self.text[start + 1 : end].replace("\r\n", "\n")
        parts = (tree.Text(start + 1, end, value),) if value else ()
        return tree.String(start, self.at, parts, True)

    def dollar_part(self) -> tree.WordPart | tree.Splice:
        """Read what a `$` in a word inserts; alone it is text."""
        start = self.at
        matched = VALUE.match(self.text, start)
        if matched:
            return self.value_part(matched)
        parameter = PARAMETERS.match(self.text, start)
        if parameter:
            self.at = parameter.end()
            self.shell_argument(parameter[0], start)
            return tree.Error(start, self.at)
        self.at += 1
        if self.text.startswith(("'", '"'), self.at):
            self.unsupported(f"${self.text[self.at]}", start, self.at + 1)
        return tree.Bare(start, self.at, "$")

    def shell_argument(self, spelled: str, start: int) -> None:
        """Report a parameter of the shell."""
        if spelled == "$?":
            self.report("PW158", "`$?` is not allowed in a command", start, self.at, helps=("write `${$?}`",))
        else:
            message = f"`{spelled}` has no meaning here; arguments are parameters or `args`"
            self.report("PW158", message, start, self.at)

    def back_quotes(self) -> tree.Error:
        """Report a back quote and skip what it encloses on its line."""
        start = self.at
        closing = re.compile(r"[^`\n]{0,400}`").match(self.text, start + 1)
        self.at = closing.end() if closing else start + 1
        self.unsupported("`", start, self.at)
        return tree.Error(start, self.at)

    def look_at_bare(self, parts: list[tree.WordPart]) -> None:
        """Count the words that are braces, and warn of braces that a shell would expand."""
        for part in parts:
            if isinstance(part, tree.Bare) and "{" in part.value:
                found = BRACES.search(part.value) if "," in part.value else None
                if found:
                    start = part.start + found.start()
                    self.report("PW218", "braces are not expanded", start, part.start + found.end())
        if len(parts) == 1 and isinstance(parts[0], tree.Bare) and parts[0].value in {"{", "}"}:
            self.braces += 1 if parts[0].value == "{" else -1

    def judge(self, word: tree.Word | tree.Splice) -> None:
        """Report a command that is not a program."""
        if isinstance(word, tree.Splice) or len(word.parts) != 1:
            return
        part = word.parts[0]
        name = part.value if isinstance(part, tree.Bare) else ""
        if name in COMMAND_WORDS:
            self.unsupported(name, word.start, word.end)
        elif name in BUILTINS:
            message = f"`{name}` is a shell builtin, not a program"
            self.report("PW153", message, word.start, word.end, helps=(BUILTINS[name],))
        elif name in CODE_WORDS:
            message = f"this runs a program named `{name}`; write `($ …) || {name} …`"
            self.report("PW154", message, word.start, word.end)


WORD_PARTS: dict[str, Callable[[ShellParser], tree.WordPart | tree.Splice | None]] = {
    '"': ShellParser.inner_string,
    "'": ShellParser.quoted,
    "$": ShellParser.dollar_part,
    "`": ShellParser.back_quotes,
    "\\": ShellParser.escaped_character,
    "\r": ShellParser.carriage_return,
}


def _redirect(start: int, end: int, operator: str, target: tree.Word | None) -> tree.Redirect:
    return tree.Redirect(start, end, cast("tree.RedirectOperator", operator), target)


def is_group(shell: tree.ShellList) -> bool:
    """Whether commands are nothing but one `( … )`."""
    commands = shell.pipelines[0].commands
    return len(shell.pipelines) == len(commands) == 1 and isinstance(commands[0], tree.ShellGroup)

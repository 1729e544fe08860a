"""Statements and blocks."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

from bartack.language import _tree as tree
from bartack.language._cursor import DECLARATION_WORDS, WORD, cut
from bartack.language._diagnostics import Fix, Secondary
from bartack.language._near import OTHER_WORDS
from bartack.language._parser_expression import ExpressionParser
from bartack.language._parser_text import UNCLOSED
from bartack.language._source import Span

BRACE_FOLLOWS = re.compile(r"(?:[ \t\r\n]+|#[^\n]*\n)*\{")
CATCH_FOLLOWS = re.compile(rf"[ \t]*(?:{WORD}[ \t]*)?\{{")
ENDS = re.compile(r"[ \t\r]*(?:[\n;}#]|\Z)")
ARGUMENT_KINDS = frozenset({"name", "number", '"', "'", "$", "bad", "."})
CALLS = frozenset({"print", "log", "assert"})
"""Functions that other languages have as statements."""


def _first_word(statement: tree.Statement) -> str | None:
    """The name that a statement begins with, if it is one of an expression."""
    if not isinstance(statement, tree.ExpressionStatement):
        return None
    value = statement.value
    while isinstance(value, tree.Binary):
        value = value.operands[0]
    return value.name if isinstance(value, tree.Name) else None


class StatementParser(ExpressionParser):
    """Reads statements and blocks."""

    def block(self, after: str) -> tree.Block | tree.Error:
        """Read the block that must stand here."""
        if self.kind != "{":
            self.unexpected(f"`{{` after {after}")
            return tree.Error(self.before, self.before)
        body, closed = self.braced_statements()
        if closed:
            self.advance()
        return body

    def braced_statements(self) -> tuple[tree.Block, bool]:
        """Read a block whose `{` is the token here, up to its `}`; says whether that is there."""
        start = self.start
        state = self.enter("}", free=False)
        statements = self.statements()
        self.leave(state)
        closed = self.kind == "}"
        if not closed:
            self.unclosed_block(start)
        return tree.Block(start, self.end if closed else self.before, tuple(statements)), closed

    def unclosed_block(self, start: int) -> None:
        """Report a block without its `}`, or the prompt in it that seems to have taken it."""
        suspect, self.suspect = self.suspect, None
        if suspect and suspect[1] > start:
            word, opener, brace = suspect
            secondary = (Secondary(Span(brace, brace + 1), "this brace has none of its own"),)
            self.fail("PW103", UNCLOSED.format(word), span=Span(opener, opener + 1), secondary=secondary)
        else:
            self.fail("PW104", "this `{` is never closed", span=Span(start, start + 1))

    def statements(self) -> list[tree.Statement]:
        """Read statements up to a `}`, the end of the text or a declaration at the start of a line."""
        found: list[tree.Statement] = []
        while self.kind not in {"}", ""} and not self.at_module_level():
            if self.kind == ";":
                self.advance()
                continue
            at = self.start
            found.append(self.statement())
            self.end_statement(found[-1])
            if self.start == at and self.kind:
                self.skip_line()
        return found

    def at_module_level(self) -> bool:
        """Whether a declaration starts here that cannot be inside of a block."""
        return self.kind != "type" and self.at_declaration()

    def end_statement(self, statement: tree.Statement) -> None:
        """Expect the end of a statement; skips to it when there is more."""
        if self.newline or self.kind in {";", "}", ""}:
            return
        if self.kind in {")", "]"}:
            self.fail("PW104", f"`{self.kind}` closes nothing")
        else:
            self.unexpected("the end of the statement", *self.help_at_end(statement))
        self.skip_line()

    def help_at_end(self, statement: tree.Statement) -> tuple[str, ...]:
        """What was probably meant by a statement that does not end here."""
        if self.kind in STATEMENTS or self.text.endswith("}", 0, statement.end):
            return ("begin a new line for each statement, or write `;` between them",)
        word = _first_word(statement) if self.kind in ARGUMENT_KINDS else None
        if word is None:
            return ()
        if word in OTHER_WORDS:
            return (f"`{word}` is no word of Patchwork; write `{OTHER_WORDS[word]}`",)
        if word in CALLS:
            return (f"a call has parentheses: `{word}(…)`",)
        line = cut(self.text[statement.start : statement.start + 60], 50).strip()
        return (f"to run a program write `$ {line}`",)

    def statement(self) -> tree.Statement:
        """Read one statement."""
        read = STATEMENTS.get(self.kind)
        if read is not None:
            return read(self)
        if self.kind == "name":
            contextual = CONTEXTUAL.get(self.value)
            if contextual is not None:
                found = contextual(self)
                if found is not None:
                    return found
        return self.expression_statement()

    def expression_statement(self) -> tree.Statement:
        """Read an expression, or a write to a file."""
        value = self.expression(whole=True)
        if isinstance(value, tree.Binary) and value.operators[0].symbol in {">", ">>"}:
            return self.write(value)
        return tree.ExpressionStatement(value.start, value.end, value)

    def write(self, value: tree.Binary) -> tree.Statement:
        """Make a write of a comparison with a string."""
        path = value.operands[1]
        if len(value.operands) == 2 and isinstance(path, tree.String):
            return tree.Write(value.start, value.end, value.operands[0], value.operators[0], path)
        append = next((operator for operator in value.operators if operator.symbol == ">>"), None)
        if append:
            self.say("PW105", "expected one string after `>>`", append.start, append.end)
            return tree.Error(value.start, value.end)
        return tree.ExpressionStatement(value.start, value.end, value)

    def condition(self) -> tree.Expression:
        """Read a condition, in which `=` compares."""
        equality, self.equality = self.equality, True
        value = self.expression()
        self.equality = equality
        return value

    def if_statement(self) -> tree.Statement:
        """Read `if` with all its `else if`s and its `else`."""
        start = self.start
        branches = [self.branch()]
        otherwise: tree.Block | tree.Error | None = None
        while self.kind == "else":
            self.advance()
            if self.kind == "if":
                branches.append(self.branch())
            else:
                otherwise = self.block("`else`")
                break
        return tree.If(start, (otherwise or branches[-1]).end, tuple(branches), otherwise)

    def branch(self) -> tree.Branch:
        """Read `if condition { … }`."""
        start = self.start
        self.advance()
        condition = self.condition()
        body = self.block("the condition")
        return tree.Branch(start, body.end, condition, body)

    def for_statement(self) -> tree.Statement:
        """Read `for pattern in iterable { … }`."""
        start = self.start
        self.advance()
        var = self.kind == "var"
        if var:
            self.advance()
        if self.kind == "(":
            self.unexpected(
                "a name or pattern", "a loop is written `for x in xs { … }` or `for i in 1...3 { … }`"
            )
            pattern: tree.Pattern = tree.Error(self.before, self.before)
        else:
            pattern = self.pattern()
        if self.kind == "in":
            self.advance()
            iterable = self.expression()
        else:
            self.unexpected("`in`")
            iterable = tree.Error(self.before, self.before)
        body = self.block("what `for` goes through")
        return tree.For(start, body.end, var, pattern, iterable, body)

    def while_statement(self) -> tree.Statement:
        """Read `while condition { … }`."""
        start = self.start
        self.advance()
        condition = self.condition()
        body = self.block("the condition")
        return tree.While(start, body.end, condition, body)

    def var_statement(self) -> tree.Statement:
        """Read `var pattern = value`."""
        start = self.start
        self.advance()
        pattern = self.pattern(rounded=True)
        if self.kind != "=" or self.newline:
            return tree.Var(start, max(pattern.end, self.before), pattern, None)
        self.advance()
        value = self.expression()
        return tree.Var(start, max(value.end, self.before), pattern, value)

    def type_statement(self) -> tree.Statement:
        """Read `type name = type` inside of a block."""
        return self.type_declaration(self.start, self.doc(), export=False)

    def type_declaration(
        self, start: int, doc: tuple[tree.Comment, ...], *, export: bool
    ) -> tree.TypeDeclaration:
        """Read `type name = type`, whose modifiers begin at `start`."""
        self.advance()
        name = self.identifier()
        found: tree.Type
        if self.kind == "=":
            self.advance()
            found = self.type()
        else:
            self.unexpected("`=`")
            found = tree.Error(self.before, self.before)
        return tree.TypeDeclaration(start, max(found.end, name.end), name, found, export, doc)

    def doc(self) -> tuple[tree.Comment, ...]:
        """The unbroken block of comments on the lines directly above the token here."""
        found: list[tree.Comment] = []
        below = self.start
        for comment in reversed(self.comments):
            between = self.text[comment.end : below]
            if not comment.alone or between.count("\n") != 1 or between.strip(" \t\r\n"):
                break
            if comment.start == 0 and comment.text.startswith("#!"):
                break
            found.append(comment)
            below = comment.start
        return tuple(reversed(found))

    def return_statement(self) -> tree.Statement:
        """Read `return`, with a value if one follows on its line."""
        start, end = self.start, self.end
        self.advance()
        if self.newline or self.kind in {";", "}", ""}:
            return tree.Return(start, end, None)
        value = self.expression()
        return tree.Return(start, max(value.end, end), value)

    def simple(self, node: type[tree.Succeed] | type[tree.Break] | type[tree.Continue]) -> tree.Statement:
        """Read a statement of one word."""
        start, end = self.start, self.end
        self.advance()
        return node(start, end)

    def dollar_statement(self) -> tree.Statement:
        """Read a command line."""
        following = self.text[self.end : self.end + 1]
        if not following or following in " \t\r\n\\":
            return self.shell_line()
        return self.expression_statement()

    def stray_else(self) -> tree.Statement:
        """Report an `else` without its `if`, and read what belongs to it."""
        start = self.start
        self.unexpected("a statement")
        self.advance()
        if self.kind == "if":
            self.if_statement()
        elif self.kind == "{":
            self.block("`else`")
        return tree.Error(start, self.before)

    def try_statement(self) -> tree.Statement | None:
        """Read `try { … } catch name { … }`; none when `try` is a name."""
        if not BRACE_FOLLOWS.match(self.text, self.end):
            return None
        start = self.start
        self.advance()
        body = self.block("`try`")
        if self.kind != "name" or self.value != "catch":
            self.unexpected("`catch`")
            missing = tree.Error(self.before, self.before)
            return tree.Try(start, self.before, body, None, missing)
        self.advance()
        name = None if self.kind == "{" else self.identifier()
        handler = self.block("`catch`")
        return tree.Try(start, handler.end, body, name, handler)

    def stray_catch(self) -> tree.Statement | None:
        """Report a `catch` without its `try`; none when it is a name."""
        if not CATCH_FOLLOWS.match(self.text, self.end):
            return None
        start = self.start
        self.fail("PW106", "`catch` must follow the `}` of a `try`")
        self.advance()
        if self.kind != "{":
            self.advance()
        self.block("`catch`")
        return tree.Error(start, self.before)

    def continue_statement(self) -> tree.Statement | None:
        """Read a lone `continue`; none when it is a name."""
        return self.simple(tree.Continue) if ENDS.match(self.text, self.end) else None

    def lone_fail(self) -> tree.Statement | None:
        """Read a lone `fail`, an old spelling; none when it is a name."""
        if not ENDS.match(self.text, self.end):
            return None
        start, end = self.start, self.end
        fix = Fix(start, end, 'throw "failed"')
        self.say("PW291", '`fail` is an old word; write `throw "failed"`', start, end, fix=fix)
        self.advance()
        string = tree.String(start, end, (tree.Text(start, end, "failed"),), False)
        return tree.ExpressionStatement(start, end, tree.Throw(start, end, string, "fail"))

    def misplaced(self) -> tree.Statement:
        """Report a declaration inside of a block, and read it all the same."""
        start = self.start
        word = "an annotation" if self.kind == "@" else f"`{self.kind}`"
        self.fail(
            "PW105", f"expected a statement, found {word}", helps=("declarations stand at the top of a file",)
        )
        self.declaration()
        return tree.Error(start, self.before)

    @abstractmethod
    def declaration(self) -> tree.Unit:
        """Read a declaration."""


Reader = Callable[[StatementParser], tree.Statement]
STATEMENTS: dict[str, Reader] = {
    "if": StatementParser.if_statement,
    "for": StatementParser.for_statement,
    "while": StatementParser.while_statement,
    "var": StatementParser.var_statement,
    "type": StatementParser.type_statement,
    "return": StatementParser.return_statement,
    "succeed": lambda parser: parser.simple(tree.Succeed),
    "break": lambda parser: parser.simple(tree.Break),
    "else": StatementParser.stray_else,
    "$": StatementParser.dollar_statement,
    **dict.fromkeys(DECLARATION_WORDS, StatementParser.misplaced),
}
CONTEXTUAL: dict[str, Callable[[StatementParser], tree.Statement | None]] = {
    "try": StatementParser.try_statement,
    "catch": StatementParser.stray_catch,
    "continue": StatementParser.continue_statement,
    "fail": StatementParser.lone_fail,
}

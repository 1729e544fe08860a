"""Statements and blocks, and the recovery from errors in them.

Expressions are read in ``_expression.py``; declarations, which contain blocks, in ``_parser.py``.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

from bartack.language.parsing._cursor import DECLARATION_WORDS, WORD, Brackets, cut
from bartack.language.parsing._expression import NAME_ADJACENT, ExpressionParser
from bartack.language.parsing._habits import CHOICE
from bartack.language.parsing._text import UNCLOSED
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Fix, Secondary
from bartack.language.syntax._near import OTHER_STATEMENTS, OTHER_WORDS
from bartack.language.syntax._source import Span

INDENTATION = re.compile(r"[ \t]{0,200}")
BRACE_FOLLOWS = re.compile(r"(?:[ \t\r\n]+|#[^\n]*\n)*\{")
CATCH_FOLLOWS = re.compile(rf"[ \t]*(?:{WORD}[ \t]*)?\{{")
CHOICE_FOLLOWS = re.compile(r"if\b[^\n{]{1,200}\belse\b")
WALRUS_FOLLOWS = re.compile(r"[ \t]*:=")
ENDS = re.compile(r"[ \t\r]*(?:[\n;}#]|\Z)")
ARGUMENT_KINDS = frozenset({"name", "number", '"', "'", "$", "bad", "."})
ROUNDED = re.compile(rf"\([ \t]*({WORD})[ \t]*\)")
CONDITION_FOLLOWS = re.compile(r"[ \t]+[^\s=][^\n]{0,200}\{")
PROGRAM_PATH = re.compile(r"\.{0,2}/[A-Za-z0-9_.]")
COUNTER = re.compile(rf"\([ \t]*(?:(?:var|let|int)[ \t]+)?({WORD})[ \t]*=")
VARIABLE_FOLLOWS = re.compile(rf"[ \t]+(?:{WORD}|[\[{{])")
CONDITIONS = frozenset({"name", "number", "(", "!", "true", "false", "self", '"', "'", "$(", "($", "$?"})
BRACES = ("a body stands in braces: `{ … }`",)
TOO_FAR_LEFT = "this brace stands too far left to be its own"
LOOP = "a loop is written `for x in xs { … }` or `for i in 1...3 { … }`"
CALLS = frozenset({"print", "log", "assert"})
"""Functions that other languages have as statements."""


def _first_word(statement: tree.Statement) -> str | None:
    """The name that a statement begins with, if it is one of an expression."""
    if not isinstance(statement, tree.ExpressionStatement):
        return None
    value = statement.value
    while isinstance(value, tree.Binary | tree.Throw):
        value = value.operands[0] if isinstance(value, tree.Binary) else value.value
    return value.name if isinstance(value, tree.Name) else None


def _is_call(statement: tree.Statement) -> bool:
    """Whether a statement is nothing but the call of a name."""
    value = statement.value if isinstance(statement, tree.ExpressionStatement) else None
    return (
        isinstance(value, tree.Chain)
        and isinstance(value.base, tree.Name)
        and len(value.links) == 1
        and isinstance(value.links[0], tree.Call)
    )


def _without_value(statement: tree.Statement) -> tree.Statement:
    """A statement that does not end where it should: nothing is said of what it seemed to be."""
    start, end = statement.span
    if isinstance(statement, tree.ExpressionStatement | tree.Write):
        return tree.Error(start, end)
    if isinstance(statement, tree.Var):
        return tree.Var(start, end, statement.pattern, tree.Error(end, end))
    if isinstance(statement, tree.Return):
        return tree.Return(start, end, tree.Error(end, end))
    return statement


# Long because a recursive-descent parser has one method per production, with the recovery of each beside it.
class StatementParser(ExpressionParser):
    """Reads statements and blocks. `late` is a block whose `}` may belong to another one, and that `}`."""

    late: tuple[int, int] | None = None

    def block(self, after: str, head: int = -1) -> tree.Block | tree.Error:
        """Read the block that must stand here; `head` is where that begins which it belongs to."""
        if self.kind != "{":
            return self.no_block(after, head)
        body, closed = self.braced_statements()
        if closed:
            self.advance()
        return body

    def braced_statements(self) -> tuple[tree.Block, bool]:
        """Read a block whose `{` is the token here, up to its `}`; returns whether that is there."""
        start = self.start
        state = self.enter("}", free=False)
        statements = self.statements()
        self.leave(state)
        closed = self.kind == "}"
        if not closed:
            self.unclosed_block(start)
        elif not self.late and self.closes_left(start):
            self.late = (start, self.start)
        return tree.Block(start, self.end if closed else self.before, tuple(statements)), closed

    def unclosed_block(self, start: int) -> None:
        """Report a block without its `}`, or the prompt in it that seems to have taken it."""
        suspect, self.suspect = self.suspect, None
        if suspect and suspect[1] > start:
            word, opener, brace = suspect
            label = "this brace has none of its own" if self.text[brace] == "{" else TOO_FAR_LEFT
            taken = (Secondary(Span(brace, brace + 1), label),)
            self.fail("PW103", UNCLOSED.format(word), span=Span(opener, opener + 1), secondary=taken)
            return
        late, self.late = self.late, None
        secondary: tuple[Secondary, ...] = ()
        if late and late[0] > start:
            start, brace = late
            secondary = (Secondary(Span(brace, brace + 1), TOO_FAR_LEFT),)
        self.fail("PW104", "this `{` is never closed", span=Span(start, start + 1), secondary=secondary)

    def closes_left(self, opener: int) -> bool:
        """Whether the `}` here stands further left than the line of its `{`, so that it may belong to another one."""
        return self.newline and self.column(self.start) < self.indentation(opener)

    def column(self, at: int) -> int:
        """How many characters stand before an offset on its line."""
        return at - self.source.line_starts[self.source.line_of(at) - 1]

    def line_column(self) -> int:
        """How many blanks stand before the token here, if it begins its line; else -1."""
        return self.column(self.start) if self.newline else -1

    def indentation(self, at: int) -> int:
        """How many blanks the line of an offset begins with."""
        blanks = INDENTATION.match(self.text, self.source.line_starts[self.source.line_of(at) - 1])
        return len(blanks[0]) if blanks else 0

    def no_block(self, after: str, head: int) -> tree.Block | tree.Error:
        """Report that a block is missing, and read the lines below that are further right as its statements."""
        self.unexpected(f"`{{` after {after}", *BRACES)
        if self.kind == ":" and not self.newline and ENDS.match(self.text, self.end):
            self.advance()
        if head < 0 or not self.newline or self.embedded:
            return tree.Error(self.before, self.before)
        margin, depth = self.indentation(head), self.depth
        self.deeper(self.start)
        found: list[tree.Statement] = []
        while self.kind not in {"}", ""} and self.line_column() > margin:
            self.next_statement(found)
        self.depth = depth
        if not found:
            return tree.Error(self.before, self.before)
        if self.kind == "}" and self.line_column() == margin:
            self.advance()
        return tree.Block(found[0].start, max(found[-1].end, self.before), tuple(found))

    def statements(self) -> list[tree.Statement]:
        """Read statements up to a `}`, the end of the text or a declaration at the start of a line."""
        found: list[tree.Statement] = []
        while self.kind not in {"}", ""} and not self.at_module_level():
            if self.kind == ";":
                self.advance()
                continue
            self.next_statement(found)
        return found

    def next_statement(self, found: list[tree.Statement]) -> None:
        """Read one statement and what ends it; goes past at least one token."""
        at = self.start
        found.append(self.ended(self.statement()))
        if self.start == at and self.kind:
            self.skip_line()

    def at_module_level(self) -> bool:
        """Whether a declaration starts here that cannot be inside of a block."""
        return self.kind != "type" and self.at_declaration()

    def ended(self, statement: tree.Statement) -> tree.Statement:
        """Expect the end of a statement; skips to it when there is more, and returns what is then left of the statement."""
        if self.newline or self.kind in {";", "}", ""}:
            return statement
        if self.kind in {"//", "/*"}:
            self.unexpected("the end of the statement")
            self.skip_comment()
            return self.ended(statement) if self.kind not in {"//", "/*"} else statement
        if self.kind in {")", "]"}:
            self.fail("PW104", f"`{self.kind}` closes nothing")
        elif self.kind == "{" and _is_call(statement):
            text = cut(self.text[statement.start : statement.end], 30)
            helps = (f"a function is declared by `fun {text} {{ … }}`, a worker by `worker {text} {{ … }}`",)
            self.fail("PW105", "expected the end of the statement, found `{`", helps=helps)
        else:
            self.unexpected("the end of the statement", *self.help_at_end(statement))
        self.skip_line()
        return _without_value(statement)

    def help_at_end(self, statement: tree.Statement) -> tuple[str, ...]:
        """What was probably meant by a statement that does not end here."""
        if self.kind == "name" and self.value in OTHER_WORDS:
            return ()
        word = _first_word(statement)
        if word in OTHER_STATEMENTS:
            return (OTHER_STATEMENTS[word].format(word),)
        if self.kind == "if" and CHOICE_FOLLOWS.match(self.text, self.start):
            return (CHOICE,)
        if (
            self.kind in STATEMENTS
            or self.text.endswith("}", 0, statement.end)
            or (self.kind == "name" and word is None and self.text.endswith(")", 0, statement.end))
        ):
            return ("begin a new line for each statement, or write `;` between them",)
        return self.help_with_words(word, statement.start) if word and self.kind in ARGUMENT_KINDS else ()

    def help_with_words(self, word: str, start: int) -> tuple[str, ...]:
        """What was probably meant by a word, at the start of a statement, that something else just follows."""
        if word in OTHER_WORDS:
            return (f"`{word}` is not a Patchwork keyword; write `{OTHER_WORDS[word]}`",)
        if word in CALLS:
            return (f"a call has parentheses: `{word}(…)`",)
        line = cut(self.text[start : start + 60], 50).strip()
        return (f"to run a program write `$ {line}`",)

    def statement(self) -> tree.Statement:
        """Read one statement."""
        read = STATEMENTS.get(self.kind)
        if read is not None:
            return read(self)
        if self.kind == "name" and WALRUS_FOLLOWS.match(self.text, self.end):
            return self.walrus_statement()
        if self.kind == "name":
            contextual = CONTEXTUAL.get(self.value)
            if contextual is not None:
                found = contextual(self)
                if found is not None:
                    return found
        return self.expression_statement()

    def walrus_statement(self) -> tree.Statement:
        """Report `name := value`, and read it as the declaration of a variable."""
        name = self.identifier()
        value = self.walrus(name.name)
        pattern = tree.Binding(name.start, name.end, name, None)
        return tree.Var(name.start, max(value.end, self.before), pattern, value)

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
            self.report("PW105", "expected one string after `>>`", append.start, append.end)
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
        branches = [self.branch(start)]
        otherwise: tree.Block | tree.Error | None = None
        while self.kind == "else" or self.is_other_else():
            other = self.kind != "else"
            if other:
                self.unexpected("`else if`", *self.advice())
            else:
                self.advance()
            if self.kind == "if" or other:
                branches.append(self.branch(start))
            else:
                otherwise = self.else_block(start)
                break
        return tree.If(start, (otherwise or branches[-1]).end, tuple(branches), otherwise)

    def is_other_else(self) -> bool:
        """Whether another language's word for `else if` stands here."""
        return (
            self.kind == "name"
            and OTHER_WORDS.get(self.value) == "else if"
            and (not self.newline or bool(CONDITION_FOLLOWS.match(self.text, self.end)))
        )

    def else_block(self, head: int) -> tree.Block | tree.Error:
        """Read the block after `else`; a condition there is reported, and read with its block."""
        if self.kind == "{" or self.newline or self.kind not in CONDITIONS:
            return self.block("`else`", head)
        self.unexpected("`{` after `else`", "a condition follows `else if`")
        self.condition()
        return self.block("the condition") if self.kind == "{" else tree.Error(self.before, self.before)

    def branch(self, head: int) -> tree.Branch:
        """Read `if condition { … }` of the statement that begins at `head`."""
        start = self.start
        self.advance()
        condition = self.condition()
        body = self.block("the condition", head)
        return tree.Branch(start, max(body.end, condition.end), condition, body)

    def for_statement(self) -> tree.Statement:
        """Read `for pattern in iterable { … }`."""
        start = self.start
        self.advance()
        var = self.kind == "var"
        if var:
            self.advance()
        if self.kind == "(":
            self.unexpected("a name or pattern", LOOP)
            counter = COUNTER.match(self.text, self.start)
            name = tree.Identifier(*counter.span(1), counter[1]) if counter else None
            pattern: tree.Pattern = (
                tree.Binding(name.start, name.end, name, None)
                if name
                else tree.Error(self.before, self.before)
            )
        else:
            pattern = self.pattern()
        if self.kind == "in":
            self.advance()
            iterable = self.expression()
        else:
            self.unexpected("`in`", LOOP)
            iterable = tree.Error(self.before, self.before)
            self.skip_to_body()
        body = self.block("what `for` goes through", start)
        return tree.For(start, body.end, var, pattern, iterable, body)

    def skip_to_body(self) -> None:
        """Skip to the `{` of a block on this line, if there is one."""
        nested = Brackets()
        while nested.stack or self.kind not in {"{", "}", ";"}:
            if not self.kind or self.newline:
                return
            self.skip_token(nested)

    def while_statement(self) -> tree.Statement:
        """Read `while condition { … }`."""
        start = self.start
        self.advance()
        condition = self.condition()
        body = self.block("the condition", start)
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
        body = self.block("`try`", start)
        if self.kind != "name" or self.value != "catch":
            missing = self.no_catch()
            return tree.Try(start, max(body.end, missing.end), body, None, missing)
        self.advance()
        rounded = ROUNDED.match(self.text, self.start) if self.kind == "(" else None
        if rounded:
            self.unexpected("a name or `{`", f"write `catch {rounded[1]} {{`")
            self.advance()
        name = None if self.kind == "{" else self.identifier()
        if rounded and self.kind == ")":
            self.advance()
        handler = self.block("`catch`", start)
        self.skip_finally()
        return tree.Try(start, handler.end, body, name, handler)

    def skip_finally(self) -> None:
        """Report a `finally` after a `catch`, and skip it."""
        if self.kind == "name" and self.value == "finally" and BRACE_FOLLOWS.match(self.text, self.end):
            self.unexpected("the end of the statement", OTHER_STATEMENTS["finally"].format("finally"))
            self.advance()
            self.block("`finally`")

    def no_catch(self) -> tree.Error:
        """Report a `try` without its `catch`; goes past a `finally`."""
        start, is_finally = self.before, self.kind == "name" and self.value == "finally"
        help_ = (
            OTHER_STATEMENTS["finally"].format("finally") if is_finally else "a `try` has its `catch { … }`"
        )
        self.unexpected("`catch`", help_)
        if is_finally and BRACE_FOLLOWS.match(self.text, self.end):
            self.advance()
            self.block("`finally`")
        return tree.Error(start, self.before)

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
        self.report("PW291", '`fail` is an old word; write `throw "failed"`', start, end, fix=fix)
        self.advance()
        string = tree.String(start, end, (tree.Text(start, end, "failed"),), False)
        return tree.ExpressionStatement(start, end, tree.Throw(start, end, string, "fail"))

    def other_var(self) -> tree.Statement | None:
        """Read a variable that is declared by a word of another language; none when that word is a name."""
        if not VARIABLE_FOLLOWS.match(self.text, self.end):
            return None
        self.fail(
            "PW105",
            f"expected a statement, found `{self.value}`",
            helps=self.advice(),
            fix=Fix(self.start, self.end, "var"),
        )
        return self.var_statement()

    def prefix_step(self) -> tree.Statement:
        """Report a `++` or `--` that begins a statement."""
        start, sign = self.start, self.kind
        word = NAME_ADJACENT.match(self.text, self.end)
        help_ = f"write `{word[0]}{sign}`" if word else "a comment begins with `#`"
        self.unexpected("a statement", help_)
        self.skip_line()
        return tree.Error(start, self.before)

    def path_statement(self) -> tree.Statement:
        """Report a program that is named by its path, without the `$` before it."""
        if not PROGRAM_PATH.match(self.text, self.start):
            return self.expression_statement()
        start = self.start
        line = cut(self.text[start : start + 60], 50).strip()
        self.unexpected("a statement", f"to run a program write `$ {line}`")
        self.skip_line()
        return tree.Error(start, self.before)

    def from_import(self) -> tree.Statement:
        """Report an import that begins with `from`."""
        start = self.start
        self.unexpected("a statement", 'write `import {x} from "./m"`')
        self.skip_line()
        return tree.Error(start, self.before)

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
    "from": StatementParser.from_import,
    **dict.fromkeys(("++", "--"), StatementParser.prefix_step),
    **dict.fromkeys((".", "..", "/"), StatementParser.path_statement),
    "$": StatementParser.dollar_statement,
    **dict.fromkeys(DECLARATION_WORDS, StatementParser.misplaced),
}
CONTEXTUAL: dict[str, Callable[[StatementParser], tree.Statement | None]] = {
    "try": StatementParser.try_statement,
    "catch": StatementParser.stray_catch,
    "continue": StatementParser.continue_statement,
    "fail": StatementParser.lone_fail,
    **dict.fromkeys(("let", "const"), StatementParser.other_var),
}

"""Expressions: operators by precedence, and what they join.

Operators are read with a stack of open levels instead of a call per level. What is at one level becomes one flat node.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, cast

from bartack.language.parsing._cursor import BAD, DECLARATION_WORDS, WORD, cut
from bartack.language.parsing._habits import BY_POSITION, SPREAD, HabitParser
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Fix
from bartack.language.syntax._source import Span

FILTER, OR, AND, COMPARE, RANGE, ADD, MULTIPLY = range(1, 8)
LEVELS = {
    "|": FILTER,
    "||": OR,
    "&&": AND,
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">=", ">>", "===", "!=="), COMPARE),
    "...": RANGE,
    "..": RANGE,
    "+": ADD,
    "-": ADD,
    **dict.fromkeys(("*", "/", "%"), MULTIPLY),
}
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "||=", "&&="})
WORD_LEVELS = {"and": AND, "or": OR}
"""Operators that are words in other languages."""
OTHER_PREFIXES = frozenset({"not", "new", "lambda", "f", "r", "b", "u", "F", "R", "B", "U", "rf", "fr"})
"""What stands before a value, or before a string, in other languages."""
PREFIXES = frozenset({"!", "-", "await"})
READERS = frozenset({"json", "cat", "read"})
STRING_FOLLOWS = re.compile(r"[ \t]*[\"']")
OPERAND_FOLLOWS = re.compile(rf"[ \t]+(?:[\"'0-9]|({WORD}))")
NAME_FOLLOWS = re.compile(rf"[ \t]+{WORD}")
OPENS = re.compile(r"[ \t]*\(")
OPERAND_WORDS = frozenset({"true", "false", "self"})

Level = tuple[int, list[tree.Expression], list[tree.Operator]]


# Long because a recursive-descent parser has one method per production, and these call each other.
class ExpressionParser(HabitParser):
    """Reads expressions."""

    def expression(self, *, whole: bool = False) -> tree.Expression:
        """Read an expression; `whole` when it is a statement, where `>>` may write to a file."""
        if self.kind == "throw":
            return self.throw()
        operand = self.operand()
        level = self.level(whole=whole)
        if level < 0 and self.kind not in {"=>", ":"}:
            return operand
        stack: list[Level] = []
        while level > 0:
            operand = self.reduced(stack, operand, level)
            operator = self.operator()
            if stack and stack[-1][0] == level:
                stack[-1][1].append(operand)
                stack[-1][2].append(operator)
            else:
                stack.append((level, [operand], [operator]))
            operand = self.throw() if self.kind == "throw" and level in {OR, AND} else self.operand()
            level = self.level(whole=whole)
        operand = self.reduced(stack, operand, 0)
        if self.kind == "=>":
            return self.nameless_function(operand.start)
        if self.is_walrus() and isinstance(operand, tree.Name):
            return tree.Error(operand.start, self.walrus(operand.name).end)
        return self.assignment(operand) if level == 0 else operand

    def level(self, *, whole: bool) -> int:
        """The level of the operator here: 0 for assignment, -1 when the expression ends."""
        kind = self.kind
        level = LEVELS.get(kind)
        if level is None:
            if self.newline and not self.free:
                return -1
            if kind in ASSIGNMENTS:
                return COMPARE if self.equality and kind == "=" else 0
            if self.is_habit_level():
                return COMPARE
            return WORD_LEVELS.get(self.value, -1) if kind == "name" else -1
        if self.newline and not self.free and level not in {OR, AND}:
            return -1
        return -1 if kind == ">>" and not whole else level

    def operator(self) -> tree.Operator:
        """Read the operator here."""
        start, end, symbol = self.start, self.end, self.kind
        habit = self.habit_operator()
        if habit is not None:
            symbol, end = habit, self.end
        elif symbol == "=":
            fix = Fix(start, end, "==")
            self.report("PW200", "`=` in a condition compares; write `==`", start, end, fix=fix)
            symbol = "=="
        elif symbol in FOREIGN or symbol == "name":
            symbol = self.foreign_operator(self.text[start:end])
        self.advance()
        return tree.Operator(start, end, symbol)

    def foreign_operator(self, found: str) -> str:
        """Report an operator of another language; returns ours for the same."""
        ours, advice = FOREIGN[found]
        self.fail(
            "PW105",
            f"expected `{ours}`, found `{found}`",
            helps=(advice,),
            fix=Fix(self.start, self.end, ours),
        )
        return ours

    def reduced(self, stack: list[Level], operand: tree.Expression, level: int) -> tree.Expression:
        """Finish all levels that bind stronger than `level`."""
        while stack and (stack[-1][0] > level or stack[-1][0] == RANGE == level):
            done, operands, operators = stack.pop()
            start = operands[0].start
            if done == RANGE:
                operand = tree.Range(start, operand.end, operands[0], operand)
                if level == RANGE:
                    self.fail("PW105", "a range has two ends", span=operand.span)
                    operand = tree.Error(operand.start, operand.end)
                continue
            operands.append(operand)
            operand = tree.Binary(start, operand.end, tuple(operands), tuple(operators))
            if done == COMPARE and len(operators) > 1:
                message = "chained comparison: the result of the first is compared with the next; join them with `&&`"
                self.report("PW214", message, operand.start, operand.end)
        return operand

    def assignment(self, target: tree.Expression) -> tree.Expression:
        """Read the assignment whose operator is here."""
        operator = tree.Operator(self.start, self.end, self.kind)
        known = len(operator.symbol) < 3
        if not known:
            written = self.text[target.start : target.end]
            better = f"write `{cut(written)} = {cut(written)} {operator.symbol[:2]} …`"
            self.fail("PW105", f"expected `=`, found `{operator.symbol}`", helps=(better,))
        depth = self.depth
        self.deeper(self.start)
        self.advance()
        value = self.expression()
        self.depth = depth
        if not known:
            return tree.Error(target.start, value.end)
        return tree.Assign(target.start, value.end, target, operator, value)

    def nameless_function(self, start: int) -> tree.Error:
        """Report a function without a name whose `=>` is here, and skip it."""
        self.unexpected("an operator")
        depth = self.depth
        self.deeper(self.start)
        self.advance()
        if self.kind == "{":
            self.block("`=>`")
        else:
            self.expression()
        self.depth = depth
        return tree.Error(start, self.before)

    @abstractmethod
    def block(self, after: str, head: int = -1) -> tree.Block | tree.Error:
        """Read the block that must stand here."""

    def throw(self) -> tree.Expression:
        """Read `throw` and everything to its right."""
        start, depth = self.start, self.depth
        self.deeper(start)
        self.advance()
        value = self.expression()
        self.depth = depth
        return tree.Throw(start, value.end, value, "")

    # Operands

    def operand(self) -> tree.Expression:
        """Read prefix operators, a value, and what is written after it."""
        if self.kind in PREFIXES:
            return self.prefixed()
        value = self.primary()
        if value.start == value.end:
            return value  # there is none: what stands here is reported already
        kind = self.kind
        if kind in {".", "(", "[", "++", "--"} and (kind == "." or not self.newline or self.free):
            return self.chain(value)
        return value

    def prefixed(self) -> tree.Expression:
        """Read prefix operators and their operand; they are kept in a list, so that a row of them calls nothing."""
        prefixes: list[tuple[str, int]] = []
        depth = self.depth
        while self.kind in PREFIXES:
            kind, start = self.kind, self.start
            self.deeper(start)
            self.advance()
            if kind == "await":
                if self.kind == "name" and self.value == "task" and self.awaits_tasks():
                    return self.wrapped(prefixes, self.old_delegate(start), depth)
                self.note_await(start)
            prefixes.append((kind, start))
        return self.wrapped(prefixes, self.operand(), depth)

    def wrapped(
        self, prefixes: list[tuple[str, int]], operand: tree.Expression, depth: int
    ) -> tree.Expression:
        """Put prefix operators around their operand."""
        self.depth = depth
        for kind, start in reversed(prefixes):
            if kind == "await":
                operand = tree.Await(start, operand.end, operand)
            else:
                symbol: Literal["!", "-"] = "!" if kind == "!" else "-"
                operand = tree.Unary(start, operand.end, symbol, operand)
        return operand

    def note_await(self, start: int) -> None:
        """Note an old prefix `await`."""
        message = "`await` before an expression does nothing; leave it out"
        self.report("PW294", message, start, start + 5, fix=Fix(start, self.start, ""))

    def awaits_tasks(self) -> bool:
        """Whether the `task` here belongs to an old `await task`."""
        return bool(NAME_FOLLOWS.match(self.text, self.end) or OPENS.match(self.text, self.end))

    def primary(self) -> tree.Expression:
        """Read a value without anything before or after it."""
        read = VALUES.get(self.kind)
        return self.no_value() if read is None else read(self)

    def word_value(self) -> tree.Expression:
        """Read `self`, `true`, `false` or `$?`."""
        kind, start, end = self.kind, self.start, self.end
        self.advance()
        if kind == "self":
            return tree.SelfValue(start, end)
        return tree.LastStatus(start, end) if kind == "$?" else tree.Boolean(start, end, kind == "true")

    def prompt_value(self) -> tree.Expression:
        """Read a prompt."""
        kind, start, end = self.kind, self.start, self.end
        self.advance()
        if self.kind == "{":
            return self.prompt(kind, start)
        self.unexpected(f"`{{` after `{kind}`", f"the text stands in braces: `{kind} {{ … }}`")
        if self.kind in {"(", '"', "'"} and not self.newline:
            self.operand()
            end = self.before
        return tree.Error(start, end)

    def shell_value(self) -> tree.Expression:
        """Read `$(…)` or `($ …)`."""
        self.at = self.start
        found = self.capture() if self.kind == "$(" else self.shell_result()
        self.resume(self.at)
        return found

    def skip_text(self) -> None:
        """Skip a string, prompt or shell form that starts here."""
        self.primary()

    def no_value(self) -> tree.Error:
        """Report that no value stands here; what cannot be part of anything else is gone past."""
        start, kind = self.start, self.kind
        self.unexpected("an expression")
        if kind == BAD:
            self.advance()
            return tree.Error(start, self.before)
        if kind == "throw":
            return tree.Error(start, self.throw().end)
        if kind in {"//", "/*"}:
            self.skip_comment()
            return tree.Error(start, self.before)
        if kind == "$" and NAME_ADJACENT.match(self.text, self.end):
            self.advance()
            self.advance()
            return tree.Error(start, self.before)
        return tree.Error(self.before, self.before)

    def skip_comment(self) -> None:
        """Skip a comment of another language."""
        closed = self.text.find("*/", self.end, self.end + FAR) if self.kind == "/*" else -1
        ended = self.text.find("\n", self.end)
        self.resume(closed + 2 if closed >= 0 else ended if ended >= 0 else len(self.text))

    def other_prefix(self, name: str, start: int, end: int) -> tree.Error | None:
        """Report a name that stands before a value in other languages; none when it is just a name."""
        if name == "not":
            return self.word_not() if self.kind in OPERANDS and not self.newline else None
        if name in {"new", "lambda"}:
            if self.kind != "name" or self.newline:
                return None
            return self.new_value(start) if name == "new" else self.lambda_value(start)
        return self.lettered_string(start) if self.kind in {'"', "'"} and self.start == end else None

    def lettered_string(self, start: int) -> tree.Error:
        """Report a string with a letter before it, and skip it."""
        letter = self.text[start : self.start]
        advice = f'text with values has no `{letter}` before it: `"… ${{x}} …"`'
        self.fail("PW105", "expected an operator, found a string", helps=(advice,))
        return tree.Error(start, self.code_string().end)

    def word_not(self) -> tree.Error:
        """Report a `not` before its operand, and skip both."""
        start, depth = self.before - 3, self.depth
        self.deeper(start)
        self.fail(
            "PW105", "expected `!`, found `not`", span=Span(start, self.before), helps=(FOREIGN["not"][1],)
        )
        end = self.operand().end
        self.depth = depth
        return tree.Error(start, end)

    def name(self) -> tree.Expression:
        """Read a name, and what some names mean by what follows them."""
        start, end, name = self.start, self.end, self.value
        if name == "fail" and self.fails_with():
            return self.fail_with()
        self.advance()
        if name in OTHER_PREFIXES and (habit := self.other_prefix(name, start, end)):
            return habit
        if name == "null":
            return tree.Null(start, end)
        if name in READERS and self.kind == "<" and STRING_FOLLOWS.match(self.text, self.end):
            reader = tree.Name(start, end, name)
            self.advance()
            path = self.code_string()
            return tree.ReadFile(start, path.end, reader, path)
        if name == "spawn" and self.kind == "(" and not self.newline and not self.own_spawn():
            return self.delegated(start, "spawn")
        return tree.Name(start, end, name)

    def number(self) -> tree.Expression:
        """Read a number."""
        start, end = self.start, self.end
        value = float(self.value)
        self.advance()
        if value - value != 0:
            self.report("PW107", "not a number: too large", start, end)
            return tree.Error(start, end)
        return tree.Number(start, end, value)

    def paren(self) -> tree.Expression:
        """Read `(value)`; a condition in it is still a condition."""
        start, equality = self.start, self.equality
        state = self.enter(")", free=True)
        self.equality = equality
        value = self.expression()
        self.leave(state)
        return tree.Paren(start, self.close("(", start), value)

    def array(self) -> tree.Expression:
        """Read `[a, ...b]`."""
        start = self.start
        state = self.enter("]", free=True)
        broken = self.newline
        elements: list[tree.Expression | tree.Spread] = []
        follows = self.follows("]")
        comprised = False
        while follows:
            elements.append(self.spread() if self.kind == "..." else self.expression())
            comprised = comprised or self.comprehension("]")
            follows = self.more("]")
        self.leave(state)
        end = self.close("[", start, "`,` or `]`")
        return tree.Error(start, end) if comprised else tree.Array(start, end, tuple(elements), broken)

    def spread(self) -> tree.Spread:
        """Read `...value`."""
        start = self.start
        self.advance()
        value = self.expression()
        return tree.Spread(start, value.end, value)

    def object(self) -> tree.Expression:
        """Read `{key: value, name, ...rest}`."""
        start = self.start
        state = self.enter("}", free=False)
        broken = self.newline
        fields: list[tree.ObjectField | tree.Spread] = []
        follows = self.follows("}")
        comprised = False
        while follows:
            field = self.spread() if self.kind == "..." else self.object_field()
            if field is None:
                break
            fields.append(field)
            comprised = comprised or self.comprehension("}")
            follows = self.more("}")
        self.leave(state)
        end = self.close("{", start, "`,` or `}`")
        return tree.Error(start, end) if comprised else tree.Object(start, end, tuple(fields), broken)

    def object_field(self) -> tree.ObjectField | None:
        """Read `key: value` or a lone `name`."""
        kind, start, end, word = self.kind, self.start, self.end, self.value
        key = self.key()
        if key is None:
            return None
        if self.kind == ":":
            self.advance()
            value = self.expression()
            return tree.ObjectField(start, value.end, key, value, False)
        if self.kind == "=":
            self.unexpected("`:`", f"a field is written `{self.text[start:end]}: …`")
            self.advance()
            return tree.ObjectField(start, self.expression().end, key, tree.Error(end, end), False)
        if key.quoted or self.kind not in {",", "}"}:
            self.unexpected("`:`" if key.quoted else "`:`, `,` or `}`")
            return None
        if kind != "name" or word == "null":
            self.report("PW112", f"`{word}` is a keyword; as a key it needs a value: `{word}: …`", start, end)
            return tree.ObjectField(start, end, key, tree.Error(start, end), True)
        return tree.ObjectField(start, end, key, tree.Name(start, end, word), True)

    # What is written after a value

    def chain(self, base: tree.Expression) -> tree.Expression:
        """Read members, calls, indexes, `++` and `--` after a value."""
        links: list[tree.Link] = []
        while True:
            kind = self.kind
            if kind == ".":
                links.append(self.member())
            elif self.newline and not self.free:
                break
            elif kind == "(":
                links.append(self.call())
            elif kind == "[":
                links.append(self.index())
            elif kind in {"++", "--"}:
                symbol: Literal["++", "--"] = "++" if kind == "++" else "--"
                links.append(tree.Increment(self.start, self.end, symbol))
                self.advance()
            else:
                break
        return tree.Chain(base.start, links[-1].end, base, tuple(links), "")

    def member(self) -> tree.Link:
        """Read `.name` or `.await`."""
        start = self.start
        self.advance()
        if self.kind == "await":
            self.advance()
            return tree.AwaitMember(start, self.before)
        if not self.is_word() or (self.newline and self.kind in DECLARATION_WORDS):
            self.unexpected("a name after `.`")
            return tree.Member(start, self.before, tree.Identifier(self.before, self.before, ""))
        name = tree.Identifier(self.start, self.end, self.value)
        self.advance()
        return tree.Member(start, name.end, name)

    def call(self) -> tree.Call:
        """Read `(arguments)`."""
        start = self.start
        state = self.enter(")", free=True)
        broken = self.newline
        arguments: list[tree.Expression] = []
        follows = self.follows(")")
        while follows:
            reported = any(isinstance(argument, tree.Error) for argument in arguments[:1])
            arguments.append(self.argument(reported=reported))
            follows = self.more(")")
        self.leave(state)
        end = self.close("(", start, "`,` or `)`")
        if arguments and isinstance(arguments[0], tree.SelfValue):
            return tree.Call(start, end, tuple(arguments[1:]), arguments[0], broken)
        return tree.Call(start, end, tuple(arguments), None, broken)

    def argument(self, *, reported: bool) -> tree.Expression:
        """Read an argument; one that is given by name is reported, unless that is already `reported`."""
        if self.kind == "...":
            self.unexpected("an argument", SPREAD)
            self.advance()
            value = self.expression()
            return tree.Error(value.start, value.end)
        value = self.expression()
        if self.comprehension(")"):
            return tree.Error(value.start, self.before)
        if self.kind != ":" or not isinstance(value, tree.Name):
            return value
        if not reported:
            self.unexpected("`,` or `)`", BY_POSITION)
        self.advance()
        return tree.Error(value.start, self.expression().end)

    def index(self) -> tree.Index:
        """Read `[index]`."""
        start = self.start
        state = self.enter("]", free=True)
        value = self.slice(None if self.kind == ":" else self.expression())
        self.leave(state)
        return tree.Index(start, self.close("[", start), value)

    # Old spellings

    def fails_with(self) -> bool:
        """Whether the `fail` here throws what follows it."""
        matched = OPERAND_FOLLOWS.match(self.text, self.end)
        if not matched:
            return False
        word = matched[1]
        return word is None or word not in tree.KEYWORDS or word in OPERAND_WORDS

    def fail_with(self) -> tree.Expression:
        """Read `fail value`."""
        start, depth = self.start, self.depth
        self.deeper(start)
        self.report(
            "PW291",
            "`fail` is an old word; write `throw`",
            start,
            self.end,
            fix=Fix(start, self.end, "throw"),
        )
        self.advance()
        value = self.expression()
        self.depth = depth
        return tree.Throw(start, value.end, value, "fail")

    def old_delegate(self, start: int) -> tree.Expression:
        """Read what follows the `await` at `start`: `task a(x), b(y)` or `task(a(x), b(y))`."""
        self.advance()
        if self.kind == "(":
            return self.delegated(start, "await task()")
        calls = [self.operand()]
        while self.kind == "," and not (self.newline and not self.free):
            self.advance()
            calls.append(self.operand())
        return self.modern_delegate(
            start, "await task", tree.Array(calls[0].start, calls[-1].end, tuple(calls), False)
        )

    def delegated(self, start: int, spelled: str) -> tree.Expression:
        """Read the calls in the parentheses here as those of a delegate."""
        call = self.call()
        arguments = (*((call.old_self,) if call.old_self else ()), *call.arguments)
        found = tree.Array(call.start, call.end, arguments, call.broken)
        return self.modern_delegate(start, spelled, found)

    def modern_delegate(self, start: int, spelled: str, calls: tree.Array) -> tree.Expression:
        """The tree of `self.delegate([…])` for an old spelling, with its note."""
        end = calls.end
        fix = Fix(start, end, f"self.delegate([{self.modern_calls(calls, spelled)}])")
        message = f"`{spelled.removesuffix('()')}` is an old spelling; write `self.delegate([…])`"
        self.report("PW292", message, start, end, fix=fix)
        member = tree.Member(start, calls.start, tree.Identifier(start, calls.start, "delegate"))
        call = tree.Call(calls.start, end, (calls,), None, calls.broken)
        old = cast('Literal["await task", "await task()", "spawn"]', spelled)
        return tree.Chain(start, end, tree.SelfValue(start, start), (member, call), old)

    def modern_calls(self, calls: tree.Array, spelled: str) -> str:
        """The text of all calls, with what stands between them: comments stay where they are."""
        if not calls.elements:
            return ""
        rounded = spelled != "await task"
        at, end = (calls.start + 1, calls.end - 1) if rounded else (calls.elements[0].start, calls.end)
        pieces: list[str] = []
        for call in calls.elements:
            pieces += [self.text[at : call.start], self.modern_call(call)]
            at = call.end
        text = "".join((*pieces, self.text[at:end]))
        return text if "\n" in text else text.strip().removesuffix(",")

    def modern_call(self, call: tree.Node) -> str:
        """The text of a call without an old first argument `self`."""
        last = call.links[-1] if isinstance(call, tree.Chain) else None
        if not isinstance(last, tree.Call) or last.old_self is None:
            return self.text[call.start : call.end]
        rest = last.arguments[0].start if last.arguments else last.end - 1
        return self.text[call.start : last.start + 1] + self.text[rest : call.end]

    def own_spawn(self) -> bool:
        """Whether the program has a `spawn` of its own."""
        if self.spawns is None:
            self.spawns = bool(OWN_SPAWN.search(self.text))
        return self.spawns

    spawns: bool | None = None


NAME_ADJACENT = re.compile(WORD)
FAR = 4_000
"""How far the end of something that is not ours is looked for."""
OPERANDS = frozenset({"name", "number", '"', "'", "!", "true", "false", "self", "$("})
FOREIGN = {
    "..": ("...", "a range is written `1...3`"),
    "===": ("==", "write `==`; it never converts"),
    "!==": ("!=", "write `!=`; it never converts"),
    "and": ("&&", "`and` is not a Patchwork keyword; write `&&`"),
    "or": ("||", "`or` is not a Patchwork keyword; write `||`"),
    "not": ("!", "`not` is not a Patchwork keyword; write `!`"),
}
"""Operators of other languages: ours for the same, and what to say."""
OWN_SPAWN = re.compile(r"\b(?:fun|worker|skill|task|agent|var)[ \t]+spawn\b|\bimport\b[^\n]*\bspawn\b")

VALUES: dict[str, Callable[[ExpressionParser], tree.Expression]] = {
    "name": ExpressionParser.name,
    "number": ExpressionParser.number,
    '"': ExpressionParser.code_string,
    "'": ExpressionParser.code_string,
    "(": ExpressionParser.paren,
    "[": ExpressionParser.array,
    "{": ExpressionParser.object,
    **dict.fromkeys(("self", "true", "false", "$?"), ExpressionParser.word_value),
    **dict.fromkeys(("think", "ask"), ExpressionParser.prompt_value),
    **dict.fromkeys(("$(", "($"), ExpressionParser.shell_value),
}

"""Expressions of Patchwork as Python expressions, evaluated from left to right.

Every operator is a call of the runtime. Long chains of operators become one flat tuple of assignments to a temporary,
because Python's compiler cannot nest that deep. `_statements.py` is next.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.core.text import cut
from bartack.language.checking._types import STRING, definition_of
from bartack.language.checking.program import Builtin, Called, CheckedModule, Declared, Local, Program
from bartack.language.compiling._nodes import Maker, NoCodeError
from bartack.language.compiling._prompts import tool_descriptions
from bartack.language.compiling._scope import Frame
from bartack.language.compiling._shell import Commands
from bartack.language.compiling._types import TypeTable
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Span

STEPS: Final = frozenset(
    (
        *("print", "log", "read", "exists", "list", "write", "append", "env", "time", "timestamp", "sleep"),
        *("random", "uuid", "broadcast", "publish", "monitor", "demonitor", "link", "unlink"),
        *("unsafe_shell", "restart", "version"),
    )
)
"""The functions of the library that are steps."""

LONG: Final = 12
"""Chains of more operands than this are made flat."""
LONGEST_NAME: Final = 60

_OPERATORS: Final = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "remainder",
    "==": "equal",
    "!=": "differ",
    "<": "less",
    ">": "greater",
    "<=": "at_most",
    ">=": "at_least",
}
_COMPARISONS: Final = frozenset(("==", "!=", "<", ">", "<=", ">="))


def function_name(declared: Declared, program: Program) -> str:
    """The Python name of a declaration's function."""
    if declared.trait is None:
        return f"pw_{declared.name}"
    traits = [unit for unit in program.module(declared.module).syntax.units if isinstance(unit, tree.Trait)]
    return f"pw{traits.index(declared.trait) + 1}_{declared.trait.name.name}_{declared.name}"


# Long because it has one short method per kind of expression; splitting it would only spread one table over files.
class Expressions(ABC):
    """Compiles expressions of one module."""

    frame: Frame

    def __init__(self, program: Program, module: CheckedModule, make: Maker, types: TypeTable) -> None:
        self._program = program
        self._module = module
        self._make = make
        self._types = types
        self._commands = Commands(make, self.value, self._text_variable)
        self._kinds: Mapping[type, Callable[..., ast.expr]] = {
            tree.Throw: self._throw,
            tree.Assign: self._assign,
            tree.Binary: self._binary,
            tree.Range: self._range,
            tree.Unary: self._unary,
            tree.Await: self._inside,
            tree.Paren: self._inside,
            tree.Chain: self._chain,
            tree.Name: self._name,
            tree.Number: self._literal,
            tree.Boolean: self._literal,
            tree.Null: self._null,
            tree.SelfValue: self._refuse,
            tree.LastStatus: self._last_status,
            tree.String: self.string,
            tree.Array: self._array,
            tree.Object: self._object,
            tree.ReadFile: self._read_file,
            tree.Prompt: self._prompt,
            tree.Capture: self._capture,
            tree.ShellResult: self._result_object,
            tree.Error: self._refuse,
        }

    def value(self, node: tree.Expression) -> ast.expr:
        """The value of an expression."""
        return self._kinds[type(node)](node)

    def _inside(self, node: tree.Paren | tree.Await) -> ast.expr:
        return self.value(tree.bare(node))

    def _literal(self, node: tree.Number | tree.Boolean) -> ast.expr:
        return self._make.constant(node, node.value)

    def _null(self, node: tree.Null) -> ast.expr:
        return self._make.constant(node, None)

    def _refuse(self, node: tree.Node) -> ast.expr:
        """The checker reports every expression that means nothing; one it missed must not become a silent null."""
        raise NoCodeError(node)

    def _last_status(self, node: tree.LastStatus) -> ast.expr:
        return self._make.runtime(node, "status")

    def _result_object(self, node: tree.ShellResult) -> ast.expr:
        return self._shell(node, node.shell, "result")

    # Conditions.

    def condition(self, node: tree.Expression) -> ast.expr:
        """Whether an expression counts as true."""
        node = tree.bare(node)
        if isinstance(node, tree.Unary) and node.symbol == "!":
            return self._make.negation(node, self.condition(node.operand))
        if isinstance(node, tree.Boolean):
            return self._make.constant(node, node.value)
        if isinstance(node, tree.Binary):
            symbol = node.operators[0].symbol
            if symbol in _COMPARISONS and len(node.operators) == 1:
                return self._binary(node)
            if symbol in {"&&", "||"} and not any(self._falls_through(part) for part in node.operands):
                joint = ast.And() if symbol == "&&" else ast.Or()
                parts = [self.condition(part) for part in node.operands]
                return ast.BoolOp(joint, parts, **self._make.places.of(node))
        return self._make.rt(node, "truth", self.value(node))

    def _falls_through(self, node: tree.Expression) -> bool:
        inner = tree.bare(node)
        return isinstance(inner, tree.Prompt) and inner in self._module.may_decline

    # Operators.

    def _unary(self, node: tree.Unary) -> ast.expr:
        if node.symbol == "!":
            return self._make.negation(node, self.condition(node.operand))
        operand = tree.bare(node.operand)
        if isinstance(operand, tree.Number):
            return self._make.constant(node, -operand.value)
        return self._make.rt(node, "negate", self.value(operand))

    def _binary(self, node: tree.Binary) -> ast.expr:
        symbol = node.operators[0].symbol
        if symbol in {"||", "&&"}:
            return self._logical(node, symbol)
        if symbol == "|":
            return self._filter(node)
        if len(node.operands) > LONG:
            return self._flat(node)
        result = self.value(node.operands[0])
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            result = self._operate(node, operator.symbol, result, self.value(operand))
        return result

    def _operate(self, node: tree.Node, symbol: str, left: ast.expr, right: ast.expr) -> ast.expr:
        return self._make.rt(node, _OPERATORS[symbol], left, right)

    def _flat(self, node: tree.Binary) -> ast.expr:
        """A long chain, one assignment after the other."""
        make, name = self._make, self.frame.temporary()
        values = [make.named(node.operands[0], name, self.value(node.operands[0]))]
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            result = self._operate(operand, operator.symbol, make.name(operand, name), self.value(operand))
            values.append(make.named(operand, name, result))
        return make.last(node, values)

    def _logical(self, node: tree.Binary, symbol: str) -> ast.expr:
        """`a || b` and `a && b`: one of the operands, and no more of them evaluated than needed."""
        if len(node.operands) > LONG:
            return self._flat_logical(node, symbol)
        result = self.value(node.operands[-1])
        for operand in reversed(node.operands[:-1]):
            name = self.frame.temporary()
            kept = self._make.name(operand, name)
            test = self._test(operand, self._make.named(operand, name, self.value(operand)))
            then, otherwise = (kept, result) if symbol == "||" else (result, kept)
            result = self._make.choice(node, test, then, otherwise)
        return result

    def _flat_logical(self, node: tree.Binary, symbol: str) -> ast.expr:
        make, name = self._make, self.frame.temporary()
        first = node.operands[0]
        values = [make.named(first, name, self.value(first))]
        for before, operand in zip(node.operands[:-1], node.operands[1:], strict=True):
            test = self._test(before, make.name(before, name))
            kept, new = make.name(operand, name), self.value(operand)
            then, otherwise = (kept, new) if symbol == "||" else (new, kept)
            values.append(make.named(operand, name, make.choice(operand, test, then, otherwise)))
        return make.last(node, values)

    def _test(self, operand: tree.Expression, value: ast.expr) -> ast.expr:
        """Whether an operand stays: a prompt that may be unanswered when it is answered, all else when it is true."""
        if self._falls_through(operand):
            return self._make.is_there(operand, value)
        return self._make.rt(operand, "truth", value)

    def _filter(self, node: tree.Binary) -> ast.expr:
        result = self.value(node.operands[0])
        for operand in node.operands[1:]:
            function = self._argument(operand)
            result = self._make.rt(
                node,
                "method",
                result,
                self._make.constant(operand, "filter"),
                function,
                what=self._what(node),
            )
        return result

    def _range(self, node: tree.Range) -> ast.expr:
        return self._make.rt(node, "array", self.lazy_range(node))

    def lazy_range(self, node: tree.Range) -> ast.expr:
        """A range that is not made an array, for a loop."""
        return self._make.rt(node, "range", self.value(node.low), self.value(node.high))

    def _throw(self, node: tree.Throw) -> ast.expr:
        return self._make.effect(node, "throw", self.value(node.value))

    # Literals and text.

    def _array(self, node: tree.Array) -> ast.expr:
        elements = [self._element(element) for element in node.elements]
        return self._make.listed(node, elements)

    def _element(self, element: tree.Expression | tree.Spread) -> ast.expr:
        if isinstance(element, tree.Spread):
            return self._make.starred(element, self._make.rt(element, "elements", self.value(element.value)))
        return self.value(element)

    def _object(self, node: tree.Object) -> ast.expr:
        keys: list[ast.expr | None] = []
        values: list[ast.expr] = []
        for field in node.fields:
            if isinstance(field, tree.Spread):
                keys.append(None)
                values.append(self._make.rt(field, "fields", self.value(field.value)))
            else:
                keys.append(self._make.constant(field.key, field.key.name))
                values.append(self.value(field.value))
        return ast.Dict(keys, values, **self._make.places.of(node))

    def string(self, node: tree.String) -> ast.expr:
        """A string, with its values put in."""
        literal = node.literal
        if literal is not None:
            return self._make.constant(node, literal)
        return self._make.rt(node, "join", *(self._text(part) for part in node.parts))

    def _text(self, part: tree.TextPart) -> ast.expr:
        match part:
            case tree.Text():
                return self._make.constant(part, part.value)
            case tree.Variable():
                return self._text_variable(part)
            case tree.Interpolation():
                return self.value(part.value)
            case tree.Splice():
                return self._make.rt(part, "spliced", self.value(part.value))
            case tree.Capture():
                return self._shell(part, part.shell, "text")

    def _text_variable(self, node: tree.Variable) -> ast.expr:
        return self._symbol_value(node)

    # Names.

    def _name(self, node: tree.Name) -> ast.expr:
        return self._symbol_value(node)

    def _symbol_value(self, node: tree.Name | tree.Variable) -> ast.expr:
        symbol = self._module.names.get(node)
        if isinstance(symbol, Local):
            return self._make.name(node, self.frame.python_name(symbol))
        if isinstance(symbol, Builtin):
            return self._make.runtime(node, "args")
        return self._refuse(node)

    def _local(self, node: tree.Expression) -> Local | None:
        symbol = self._module.names.get(node)
        return symbol if isinstance(symbol, Local) else None

    def function(self, node: tree.Node, declared: Declared) -> ast.expr:
        """The Python function of a declaration."""
        name = function_name(declared, self._program)
        if declared.module == self._module.id:
            return self._make.name(node, name)
        parts = (self._make.constant(node, declared.module), self._make.constant(node, name))
        return self._make.rt(node, "find", *parts)

    def _function(self, node: tree.Expression) -> ast.expr:
        """A function that is passed by its name."""
        called = self._module.functions.get(tree.bare(node)) or self._module.functions.get(node)
        if called is None:
            return self._refuse(node)
        if isinstance(called.callee, Builtin):
            return self._make.rt(node, "builtin", self._make.constant(node, called.callee.name))
        function = self.function(node, called.callee)
        return self._make.rt(node, "spec_of", function) if called.how == "spec" else function

    # Assignment.

    def _assign(self, node: tree.Assign) -> ast.expr:
        target = tree.bare(node.target)
        local = self._local(target)
        if local is not None:
            return self._make.named(node, self.frame.assign(local), self.assigned(node))
        if not isinstance(target, tree.Chain):
            return self._refuse(node)
        holder, what = self._holder(target)
        last = target.links[-1]
        if node.operator.symbol == "=":
            return self._store(node, last, holder, self._key(last), self.value(node.value), what)
        if _may_grow(node) and not _changes(node.value, _CHANGE_VALUES):
            method = "grow_index" if isinstance(last, tree.Index) else "grow_member"
            parts = holder, self._key(last), self.value(node.value)
            return self._make.rt(node, method, *parts, what=self._make.constant(node, what))
        return self._update(node, last, holder, what, node.operator.symbol[0], self.value(node.value))

    def assigned(self, node: tree.Assign) -> ast.expr:
        """What is assigned to a variable."""
        value = self.value(node.value)
        if node.operator.symbol == "=":
            return value
        target = tree.bare(node.target)
        local = self._local(target)
        if local is not None and _may_grow(node) and not _changes(node.value, _CHANGE_VARIABLES):
            return self._grown(node, self.frame.assign(local), value)
        return self._operate(node, node.operator.symbol[0], self.value(target), value)

    def _grown(self, node: tree.Assign, name: str, value: ast.expr) -> ast.expr:
        """`s += v`: text is passed on with its only reference, so that it grows where it is instead of being copied."""
        make, right = self._make, self.frame.temporary()
        both = make.rt(node, "texts", make.name(node, name), make.named(node, right, value))
        nothing = make.named(node, name, make.constant(node, None))
        box = make.listed(node, [make.name(node, name), nothing, make.name(node, right)])
        added = self._operate(node, "+", make.name(node, name), make.name(node, right))
        return make.choice(node, both, make.rt(node, "grown", box), added)

    def _holder(self, target: tree.Chain) -> tuple[ast.expr, str]:
        """What holds the last member or element of a chain, and its source text."""
        links = [link for link in target.links if not isinstance(link, tree.AwaitMember)]
        return self._links(target, links[:-1]), self._text_of(target.start, links[-1].start)

    def _key(self, link: tree.Link) -> ast.expr:
        if isinstance(link, tree.Index):
            return self.value(link.index)
        assert isinstance(link, tree.Member)
        return self._make.constant(link, link.name.name)

    def _store(
        self, node: tree.Node, link: tree.Link, holder: ast.expr, key: ast.expr, value: ast.expr, what: str
    ) -> ast.expr:
        method = "set_index" if isinstance(link, tree.Index) else "set_member"
        return self._make.rt(node, method, holder, key, value, what=self._make.constant(node, what))

    def _load(self, link: tree.Link, holder: ast.expr, key: ast.expr, what: str) -> ast.expr:
        method = "index" if isinstance(link, tree.Index) else "member"
        return self._make.rt(link, method, holder, key, what=self._make.constant(link, what))

    def _update(
        self, node: tree.Node, link: tree.Link, holder: ast.expr, what: str, symbol: str, value: ast.expr
    ) -> ast.expr:
        """`o.k += v`: holder and key are evaluated once, the old value is read before the new one is made."""
        make = self._make
        held, key = self.frame.temporary(), self.frame.temporary()
        old = self._load(link, make.name(link, held), make.name(link, key), what)
        return self._store(
            node,
            link,
            make.named(link, held, holder),
            make.named(link, key, self._key(link)),
            self._operate(node, symbol, old, value),
            what,
        )

    def _increment(self, node: tree.Chain, link: tree.Increment, before: Sequence[tree.Link]) -> ast.expr:
        """`x++`: yields the old value."""
        make = self._make
        by = make.constant(link, 1 if link.symbol == "++" else -1)
        old = self.frame.temporary()
        increased = make.rt(link, "increase", make.name(link, old), by)
        local = self._local(node.base) if not before else None
        if local is not None:
            name = self.frame.assign(local)
            values = [make.named(link, old, make.name(link, name)), make.named(link, name, increased)]
            return make.last(node, values, 0)
        if not before:
            return self._refuse(node)
        last = before[-1]
        what = self._text_of(node.start, last.start)
        held, key = self.frame.temporary(), self.frame.temporary()
        values = [
            make.named(link, held, self._links(node, before[:-1])),
            make.named(link, key, self._key(last)),
            make.named(link, old, self._load(last, make.name(link, held), make.name(link, key), what)),
            self._store(node, last, make.name(link, held), make.name(link, key), increased, what),
        ]
        return make.last(node, values, 2)

    # Chains.

    def _chain(self, node: tree.Chain) -> ast.expr:
        links = [link for link in node.links if not isinstance(link, tree.AwaitMember)]
        if links and isinstance(links[-1], tree.Increment):
            return self._increment(node, links[-1], links[:-1])
        return self._links(node, links)

    def _links(self, node: tree.Chain, links: Sequence[tree.Link]) -> ast.expr:
        result = self._mailbox(node, links)
        place = 0 if result is None else 3
        if result is None:
            result = self._base(node.base)
        while place < len(links):
            link = links[place]
            following = links[place + 1] if place + 1 < len(links) else None
            if isinstance(link, tree.Call):
                result = self._call(node, link, self._module.calls.get(link))
            elif isinstance(link, tree.Index):
                what = self._text_of(node.start, link.start)
                result = self._load(link, self._known(result, link), self.value(link.index), what)
            elif isinstance(link, tree.Member):
                if isinstance(following, tree.Call):
                    result = self._member_call(node, place, link, following, result)
                    place += 1
                else:
                    result = self._member(node, place, link, result)
            place += 1
        return self._known(result, node)

    def _mailbox(self, node: tree.Chain, links: Sequence[tree.Link]) -> ast.expr | None:
        """`self.session.mailbox.name`, which is what chains begin with most."""
        if not isinstance(node.base, tree.SelfValue) or len(links) < 3:
            return None
        words = [link.name.name for link in links[:2] if isinstance(link, tree.Member)]
        named = links[2]
        if words != ["session", "mailbox"] or not isinstance(named, tree.Member | tree.Index):
            return None
        return self._make.rt(named, "mailbox", self._key(named))

    def _known(self, value: ast.expr | None, node: tree.Node) -> ast.expr:
        return self._refuse(node) if value is None else value

    def _base(self, base: tree.Expression) -> ast.expr | None:
        """The value a chain begins with; None for `self`, a module and a function, which are none."""
        if isinstance(base, tree.SelfValue):
            return None
        if isinstance(base, tree.Name) and not isinstance(self._module.names.get(base), Local | Builtin):
            return None
        return self.value(base)

    def _member(
        self, node: tree.Chain, place: int, link: tree.Member, result: ast.expr | None
    ) -> ast.expr | None:
        if link in self._module.members:
            return None
        if result is None and isinstance(node.base, tree.SelfValue):
            return self._make.runtime(link, link.name.name)
        if result is None:
            return None
        return self._load(link, result, self._key(link), self._text_of(node.start, link.start))

    def _member_call(
        self, node: tree.Chain, place: int, link: tree.Member, call: tree.Call, result: ast.expr | None
    ) -> ast.expr:
        called = self._module.calls.get(call)
        if called is not None:
            return self._call(node, call, called)
        if result is None and isinstance(node.base, tree.SelfValue):
            return self._make.effect(node, "delegate", *(self.value(part) for part in call.arguments))
        make = self._make
        arguments = [self._argument(part) for part in call.arguments]
        what = make.constant(link, self._text_of(node.start, link.start))
        return make.effect(link, "method", self._known(result, link), self._key(link), *arguments, what=what)

    def _argument(self, node: tree.Expression) -> ast.expr:
        inner = tree.bare(node)
        is_function = inner in self._module.functions or node in self._module.functions
        return self._function(node) if is_function else self.value(node)

    def _call(self, node: tree.Chain, link: tree.Call, called: Called | None) -> ast.expr:
        make = self._make
        if called is None:
            return self._refuse(link)
        if isinstance(called.callee, Builtin):
            return self._builtin(node, link, called.callee.name)
        arguments = [self.value(argument) for argument in link.arguments]
        function = self.function(node, called.callee)
        if called.how == "spec":
            return make.rt(node, "spec", function, *arguments)
        if called.how == "start":
            return make.effect(node, "start", function, *arguments)
        return make.rt(node, "call", function, *arguments)

    def _builtin(self, node: tree.Chain, link: tree.Call, name: str) -> ast.expr:
        if name == "spec":
            return self.value(link.arguments[0]) if link.arguments else self._refuse(node)
        arguments = [self._argument(argument) for argument in link.arguments]
        if name == "restart":
            arguments = self._checked_arguments(link, arguments)
        word = self._make.constant(node, name)
        if name in STEPS:
            return self._make.effect(node, "step", word, *arguments)
        return self._make.rt(node, "pure", word, *arguments)

    def _checked_arguments(self, link: tree.Call, arguments: list[ast.expr]) -> list[ast.expr]:
        """The arguments of `restart`: each is checked before the worker restarts with it, and could not stop it."""
        parameters = self._module.restarts[link].parameters.items
        types = [None if one.type is None else self._module.types.get(one.type) for one in parameters]
        return [
            argument
            if kind is None
            else self._make.rt(link, "check", argument, self._types.reference(link, kind))
            for argument, kind in zip(arguments, types, strict=False)
        ]

    def _read_file(self, node: tree.ReadFile) -> ast.expr:
        path = self.string(node.path)
        if node in self._module.comparisons:
            return self._operate(node, "<", self.value(node.reader), path)
        make = self._make
        content = make.effect(node, "step", make.constant(node, "read"), path)
        if node.reader.name != "json":
            return content
        return make.rt(node, "pure", make.constant(node, "json"), content)

    # Commands and prompts.

    def _capture(self, node: tree.Capture) -> ast.expr:
        return self._shell(node, node.shell, "maybe" if node in self._module.may_fail else "text")

    def _shell(self, node: tree.Node, shell: tree.ShellList, form: str) -> ast.expr:
        return self._make.effect(
            node, "shell", self._commands.form(shell), form=self._make.constant(node, form)
        )

    def looped_result(self, node: tree.ShellResult) -> ast.expr:
        """`($ cmd)` right after the `in` of a loop: its failure throws."""
        return self._shell(node, node.shell, "checked")

    def _prompt(self, node: tree.Prompt) -> ast.expr:
        make = self._make
        parts = [self._prompt_part(part) for part in node.parts]
        words = [
            part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ]
        literal = len(words) == len(parts)
        text = make.constant(node, "".join(words)) if literal else make.rt(node, "join", *parts)
        kind = self._module.prompts.get(node, STRING)
        plain = definition_of(kind) is STRING
        tools = self._tools(node)
        return make.effect(
            node,
            node.word,
            text,
            type=None if plain else self._types.reference(node, kind),
            tools=make.listed(node, tools) if tools else None,
            may_decline=make.constant(node, True) if node in self._module.may_decline else None,
        )

    def _prompt_part(self, part: tree.PromptPart) -> ast.expr:
        if isinstance(part, tree.DoBlock):
            return self._make.constant(part, f"[tool do_{part.number}]")
        if isinstance(part, tree.Escape):
            return self._make.constant(part, part.value)
        return self._text(part)

    def _tools(self, node: tree.Prompt) -> list[ast.expr]:
        make = self._make
        descriptions = tool_descriptions(node)
        tools: list[ast.expr] = []
        for part in node.parts:
            if isinstance(part, tree.DoBlock):
                function = self.do_block(part)
                words = [f"do_{part.number}", descriptions[part.number]]
                entry = [*(make.constant(part, word) for word in words), make.name(part, function)]
                tools.append(make.tupled(part, entry))
        return tools

    @abstractmethod
    def do_block(self, node: tree.DoBlock) -> str:
        """Make a function of a do-block, to be defined before the current statement; returns its name."""

    # Source text.

    def _what(self, node: tree.Node) -> ast.expr:
        return self._make.constant(node, self._text_of(node.start, node.end))

    def _text_of(self, start: int, end: int) -> str:
        """How a value is named in a message: as it is written."""
        text = " ".join(self._module.source[Span(start, min(end, start + 4 * LONGEST_NAME))].split())
        return cut(text, LONGEST_NAME)


_CHANGE_VARIABLES = (tree.Assign, tree.Increment, tree.Prompt)
_CHANGE_VALUES = (*_CHANGE_VARIABLES, tree.Call)


def _may_grow(node: tree.Assign) -> bool:
    """Whether an assignment may make a text longer."""
    return node.operator.symbol == "+=" and not isinstance(tree.bare(node.value), tree.Number)


def _changes(node: tree.Node, kinds: tuple[type[tree.Node], ...]) -> bool:
    """Whether evaluating an expression may change what was read before it."""
    return any(isinstance(part, kinds) for part in tree.walk(node))

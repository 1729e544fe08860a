"""Statements of Patchwork as Python statements.

What Python cannot nest is moved out: loops and `try` beyond a depth become functions inside the function, long chains
of `else if` become a sequence of `if`s.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.language.checking._types import Type
from bartack.language.checking.program import CheckedModule, Local, Program
from bartack.language.compiling._expressions import Expressions
from bartack.language.compiling._nodes import Maker
from bartack.language.compiling._scope import BREAK, CONTINUE, Frame, Kind
from bartack.language.compiling._types import TypeTable
from bartack.language.syntax import _tree as tree

DEEPEST: Final = 12
"""How many of its 20 blocks a Python function may use."""
LONGEST_ELSE_IF: Final = 15


# Long because it has one short method per kind of statement, all of them in one table.
class Statements(Expressions):
    """Compiles the bodies of one module."""

    def __init__(self, program: Program, module: CheckedModule, make: Maker, types: TypeTable) -> None:
        super().__init__(program, module, make, types)
        self.lines: dict[ast.stmt, int] = {}
        """The line of the Patchwork statement that a Python statement begins."""
        self._declared = frozenset(
            unit.name.name for unit in module.syntax.units if isinstance(unit, tree.Declaration)
        )
        self._result: Type | None = None
        self._statements: Mapping[type, Callable[..., list[ast.stmt]]] = {
            tree.If: self._if,
            tree.For: self._loop,
            tree.While: self._loop,
            tree.Var: self._var,
            tree.TypeDeclaration: self._no_statement,
            tree.Return: self._return,
            tree.Succeed: self._succeed,
            tree.Break: self._break,
            tree.Continue: self._continue,
            tree.Try: self._try,
            tree.ShellStatement: self._shell_statement,
            tree.Write: self._write,
            tree.ExpressionStatement: self._expression,
            tree.Error: self._no_statement,
        }

    # Bodies.

    def body(
        self,
        parameters: Sequence[tree.Parameter],
        statements: Sequence[tree.Statement],
        result: Type | None,
        end: tree.Node,
        *,
        tail: bool,
    ) -> tuple[list[tuple[str, bool]], list[ast.stmt]]:
        """A whole body: its parameters, each with whether it may be left out, and its statements."""
        self.frame = Frame("body", None, self._declared)
        self._result = result
        names: list[tuple[str, bool]] = []
        made: list[ast.stmt] = []
        for parameter in parameters:
            name, checks = self._parameter(parameter)
            names.append((name, parameter.default is not None))
            made += checks
        made += self.sequence(statements, tail=tail)
        if result is not None:
            made.append(self._make.returned(end, self._checked(end, self._make.constant(end, None), result)))
        return names, made or [ast.Pass(**self._make.places.of(end))]

    def _parameter(self, node: tree.Parameter) -> tuple[str, list[ast.stmt]]:
        """A parameter: its name, and how it gets its default and is checked."""
        make = self._make
        local = self._module.names.get(node.name)
        if not isinstance(local, Local):
            return f"pw_{node.name.name}", []
        name = self.frame.declare(local)
        made: list[ast.stmt] = []
        if node.default is not None:
            missing = ast.Compare(
                make.name(node, name), [ast.Is()], [make.name(node, "rt_missing")], **make.places.of(node)
            )
            value = self.value(node.default)
            made += [*self._take_hoisted(), make.branch(node, missing, [make.assign(node, name, value)])]
        kind = None if node.type is None else self._module.types.get(node.type)
        if kind is not None:
            made.append(make.assign(node, name, self._checked(node, make.name(node, name), kind)))
        return name, made

    def _take_hoisted(self) -> list[ast.stmt]:
        hoisted, self.frame.hoisted = self.frame.hoisted, []
        return hoisted

    def sequence(self, statements: Sequence[tree.Statement], *, tail: bool = False) -> list[ast.stmt]:
        """Statements one after the other; with `tail` the value of the last one is returned."""
        made: list[ast.stmt] = []
        for place, statement in enumerate(statements):
            made += self._statement(statement, tail=tail and place == len(statements) - 1)
        return made

    def _block(self, block: tree.Block | tree.Error, *, tail: bool = False) -> list[ast.stmt]:
        made = self.sequence(block.statements, tail=tail) if isinstance(block, tree.Block) else []
        return made or [ast.Pass(**self._make.places.of(block))]

    def _statement(self, node: tree.Statement, *, tail: bool) -> list[ast.stmt]:
        before, self.frame.hoisted = self.frame.hoisted, []
        if tail and isinstance(node, tree.If):
            made = self._if(node, tail=True)
        elif tail and isinstance(node, tree.ExpressionStatement):
            made = [self._make.returned(node, self.value(node.value))]
        else:
            made = self._statements[type(node)](node)
        made = [*self.frame.hoisted, *made]
        self.frame.hoisted = before
        if made:
            self.lines.setdefault(made[0], self._make.places.at(node)[0])
        return made

    # Plain statements.

    def _no_statement(self, _node: tree.Statement) -> list[ast.stmt]:
        return []

    def _expression(self, node: tree.ExpressionStatement) -> list[ast.stmt]:
        inner = tree.bare(node.value)
        if isinstance(inner, tree.Assign):
            local = self._local(tree.bare(inner.target))
            if local is not None:
                return [self._make.assign(node, self.frame.assign(local), self.assigned(inner))]
        if (
            isinstance(inner, tree.Chain)
            and len(inner.links) == 1
            and isinstance(inner.links[0], tree.Increment)
        ):
            local = self._local(inner.base)
            if local is not None:
                return [self._step_variable(node, inner.links[0], local)]
        return [self._make.expression(node, self.value(node.value))]

    def _step_variable(self, node: tree.Node, link: tree.Increment, local: Local) -> ast.stmt:
        make, name = self._make, self.frame.assign(local)
        by = make.constant(link, 1 if link.symbol == "++" else -1)
        return make.assign(node, name, make.rt(link, "increase", make.name(link, name), by))

    def _var(self, node: tree.Var) -> list[ast.stmt]:
        value = self._make.constant(node, None) if node.value is None else self.value(node.value)
        return self._bind(node, node.pattern, value, checked=node.value is not None)

    def _bind(
        self, node: tree.Node, pattern: tree.Pattern, value: ast.expr, *, checked: bool = True
    ) -> list[ast.stmt]:
        """Give the variables of a pattern their values."""
        make = self._make
        if isinstance(pattern, tree.Binding):
            local = self._module.names.get(pattern.name)
            kind = None if pattern.type is None or not checked else self._module.types.get(pattern.type)
            if kind is not None:
                value = self._checked(node, value, kind)
            if isinstance(local, Local):
                return [make.assign(node, self.frame.declare(local), value)]
            return [make.expression(node, value)]
        if isinstance(pattern, tree.Discard | tree.Error):
            return [make.expression(node, value)]
        names: list[ast.expr] = []
        shape = self._pattern(pattern, names)
        matched = make.rt(node, "match", value, shape)
        if not names:
            return [make.expression(node, matched)]
        return [
            ast.Assign(
                [ast.List(names, ast.Store(), **make.places.of(node))], matched, **make.places.of(node)
            )
        ]

    def _pattern(self, pattern: tree.Pattern, names: list[ast.expr]) -> ast.expr:
        """A pattern as a value, and the names that its values go to, in order."""
        make = self._make
        match pattern:
            case tree.ArrayPattern():
                word = make.constant(pattern, "array")
                return make.tupled(
                    pattern, [word, *(self._pattern(part, names) for part in pattern.elements)]
                )
            case tree.ObjectPattern():
                word = make.constant(pattern, "object")
                return make.tupled(pattern, [word, *(self._field(field, names) for field in pattern.fields)])
            case tree.Binding():
                return self._bound(
                    pattern, pattern.name, pattern.type, names, [make.constant(pattern, "value")]
                )
            case tree.Discard() | tree.Error():
                return make.tupled(pattern, [make.constant(pattern, "skip")])

    def _field(self, field: tree.PatternField, names: list[ast.expr]) -> ast.expr:
        key = self._make.constant(field.key, field.key.name)
        return self._bound(field, field.key, field.type, names, [key])

    def _bound(
        self,
        node: tree.Node,
        binder: tree.Identifier | tree.Key,
        written: tree.Type | None,
        names: list[ast.expr],
        parts: list[ast.expr],
    ) -> ast.expr:
        """A part of a pattern: whether it binds a name, and its type."""
        make = self._make
        local = self._module.names.get(binder)
        if isinstance(local, Local):
            names.append(make.stored(node, self.frame.declare(local)))
        kind = None if written is None else self._module.types.get(written)
        parts.append(make.constant(node, isinstance(local, Local)))
        if kind is not None:
            parts.append(self._types.reference(node, kind))
        return make.tupled(node, parts)

    def _checked(self, node: tree.Node, value: ast.expr, kind: Type) -> ast.expr:
        return self._make.rt(node, "check", value, self._types.reference(node, kind))

    def _shell_statement(self, node: tree.ShellStatement) -> list[ast.stmt]:
        form = "status" if node in self._module.may_fail else "statement"
        return [self._make.expression(node, self._shell(node, node.shell, form))]

    def _write(self, node: tree.Write) -> list[ast.stmt]:
        make = self._make
        word = make.constant(node, "write_line" if node.operator.symbol == ">" else "append_line")
        value = self.value(node.value)
        # The value is read before its place, as it is written.
        return [make.expression(node, make.effect(node, "step", word, value, self.string(node.path)))]

    # Leaving.

    def _succeed(self, node: tree.Succeed) -> list[ast.stmt]:
        return [self._make.expression(node, self._make.rt(node, "succeed"))]

    def _break(self, node: tree.Break) -> list[ast.stmt]:
        return [self._leave(node, BREAK)]

    def _continue(self, node: tree.Continue) -> list[ast.stmt]:
        return [self._leave(node, CONTINUE)]

    def _return(self, node: tree.Return) -> list[ast.stmt]:
        value = self._make.constant(node, None) if node.value is None else self.value(node.value)
        if self._result is not None:
            value = self._checked(node, value, self._result)
        if self.frame.kind == "outlined":
            self.frame.signals.add("return")
            value = self._make.tupled(node, [value])
        return [self._make.returned(node, value)]

    def _leave(self, node: tree.Node, signal: int) -> ast.stmt:
        """`break` or `continue`: of a loop here, or of the loop around what was moved out."""
        where = self._make.places.of(node)
        if self.frame.loops or self.frame.kind != "outlined":
            return ast.Break(**where) if signal == BREAK else ast.Continue(**where)
        self.frame.signals.add("break" if signal == BREAK else "continue")
        return self._make.returned(node, self._make.constant(node, signal))

    # Branches.

    def _if(self, node: tree.If, *, tail: bool = False) -> list[ast.stmt]:
        if len(node.branches) > LONGEST_ELSE_IF:
            return self._flat_if(node, tail=tail)
        otherwise = [] if node.otherwise is None else self._block(node.otherwise, tail=tail)
        made: list[tuple[tree.Branch, ast.expr, list[ast.stmt]]] = [
            (branch, self.condition(branch.condition), self._block(branch.body, tail=tail))
            for branch in node.branches
        ]
        for branch, test, body in reversed(made):
            otherwise = [self._make.branch(branch, test, body, otherwise)]
        return otherwise

    def _flat_if(self, node: tree.If, *, tail: bool) -> list[ast.stmt]:
        """A long chain of `else if`: each looks whether one before it was taken."""
        make, name = self._make, self.frame.temporary()
        made = [make.assign(node, name, make.constant(node, True))]
        for branch in node.branches:
            open_ = make.name(branch, name)
            test = ast.BoolOp(ast.And(), [open_, self.condition(branch.condition)], **make.places.of(branch))
            taken = make.assign(branch, name, make.constant(branch, False))
            made.append(make.branch(branch, test, [taken, *self._block(branch.body, tail=tail)]))
        if node.otherwise is not None:
            made.append(
                make.branch(
                    node.otherwise, make.name(node.otherwise, name), self._block(node.otherwise, tail=tail)
                )
            )
        return made

    # Blocks that Python counts.

    def _loop(self, node: tree.For | tree.While) -> list[ast.stmt]:
        if self.frame.depth >= DEEPEST:
            return self._outlined(node, lambda: self._loop(node))
        frame = self.frame
        head: ast.expr
        if isinstance(node, tree.While):
            head = self.condition(node.condition)
        else:
            head = self._make.rt(node.iterable, "iterate", self._iterable(node.iterable))
        frame.depth += 1
        frame.loops += 1
        made = self._while(node, head) if isinstance(node, tree.While) else self._for(node, head)
        frame.depth -= 1
        frame.loops -= 1
        return [made]

    def _while(self, node: tree.While, head: ast.expr) -> ast.stmt:
        return ast.While(head, self._block(node.body), [], **self._make.places.of(node))

    def _for(self, node: tree.For, head: ast.expr) -> ast.stmt:
        target, first = self._loop_variable(node)
        body = [*first, *self._block(node.body)]
        return ast.For(target, head, body, [], **self._make.places.of(node))

    def _loop_variable(self, node: tree.For) -> tuple[ast.expr, list[ast.stmt]]:
        """What Python's loop assigns to, and how the pattern gets its values from that."""
        make, pattern = self._make, node.pattern
        if isinstance(pattern, tree.Binding) and pattern.type is None:
            local = self._module.names.get(pattern.name)
            if isinstance(local, Local):
                return make.stored(pattern, self.frame.declare(local)), []
        name = self.frame.temporary()
        if isinstance(pattern, tree.Discard | tree.Error):
            return make.stored(pattern, name), []
        return make.stored(pattern, name), self._bind(pattern, pattern, make.name(pattern, name))

    def _iterable(self, node: tree.Expression) -> ast.expr:
        inner = tree.bare(node)
        if isinstance(inner, tree.Range):
            return self.lazy_range(inner)
        if isinstance(inner, tree.ShellResult):
            return self.looped_result(inner)
        return self.value(node)

    def _try(self, node: tree.Try) -> list[ast.stmt]:
        if self.frame.depth >= DEEPEST:
            return self._outlined(node, lambda: self._try(node))
        make = self._make
        where = make.places.of(node)
        self.frame.depth += 1
        body = self._block(node.body)
        self.frame.depth += 2
        error = self.frame.temporary()
        caught = make.rt(node, "caught", make.name(node, error))
        local = None if node.name is None else self._module.names.get(node.name)
        first = (
            make.assign(node, self.frame.declare(local), caught)
            if isinstance(local, Local)
            else make.expression(node, caught)
        )
        handler = [first, *self._block(node.handler)]
        self.frame.depth -= 3
        clause = ast.ExceptHandler(make.name(node, "Exception"), error, handler, **where)
        return [ast.Try(body, [clause], [], [], **where)]

    # Functions inside functions.

    def do_block(self, node: tree.DoBlock) -> str:
        """See `Expressions.do_block`."""
        return self._inner(node, "do", lambda: self.sequence(node.body.statements, tail=True))[0]

    def _outlined(self, node: tree.Statement, make_body: Callable[[], list[ast.stmt]]) -> list[ast.stmt]:
        """A statement in a function of its own; its return value says how the statement was left."""
        make = self._make
        name, inner = self._inner(node, "outlined", make_body)
        call = make.call(node, make.name(node, name))
        if not inner.signals:
            return [make.expression(node, call)]
        signal = self.frame.temporary()
        made = [make.assign(node, signal, call)]
        for word, code in (("break", BREAK), ("continue", CONTINUE)):
            if word in inner.signals:
                test = ast.Compare(
                    make.name(node, signal), [ast.Eq()], [make.constant(node, code)], **make.places.of(node)
                )
                made.append(make.branch(node, test, [self._leave(node, code)]))
        if "return" in inner.signals:
            made.append(
                make.branch(node, make.is_there(node, make.name(node, signal)), [self._pass_on(node, signal)])
            )
        return made

    def _pass_on(self, node: tree.Node, signal: str) -> ast.stmt:
        """Return what the function inside has returned."""
        make = self._make
        whole = make.name(node, signal)
        if self.frame.kind == "outlined":
            self.frame.signals.add("return")
            return make.returned(node, whole)
        where = make.places.of(node)
        return make.returned(node, ast.Subscript(whole, ast.Constant(0, **where), ast.Load(), **where))

    def _inner(
        self, node: tree.Node, kind: Kind, make_body: Callable[[], list[ast.stmt]]
    ) -> tuple[str, Frame]:
        outer = self.frame
        name = outer.function_name("do" if kind == "do" else "loop")
        inner = self.frame = Frame(kind, outer, self._declared)
        result, self._result = self._result, self._result if kind == "outlined" else None
        made = make_body()
        made = [*inner.hoisted, *made]
        self.frame, self._result = outer, result
        if inner.nonlocals:
            made.insert(0, ast.Nonlocal(sorted(inner.nonlocals), **self._make.places.of(node)))
        outer.hoisted.append(
            self._make.function(node, name, [], made or [ast.Pass(**self._make.places.of(node))])
        )
        return name, inner

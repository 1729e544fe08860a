"""Statements: variables and patterns, conditions, loops, leaving, and what is never reached or read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from bartack.language.checking._mail import pattern_fields, pattern_literals
from bartack.language.checking._patterns import bind, bind_name, bound_names, pattern_type, written_command
from bartack.language.checking._results import discarded, note_taken_apart
from bartack.language.checking._types import (
    ANY,
    ARRAY,
    ERROR,
    MAILBOX,
    NULL,
    NUMBER,
    OBJECT,
    RESULT,
    STRING,
    ArrayOf,
    LiteralOf,
    Type,
    definition_of,
    is_text,
    kind_of_type,
    parts_of,
)
from bartack.language.checking._walk import Handler, Walk, field_type, found_name, may_be
from bartack.language.checking._written_types import declare_type, define_types
from bartack.language.checking.program import Local
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Secondary
from bartack.language.syntax._source import Span

# Blocks


def check_block(walk: Walk, block: tree.Block | tree.Error, *, value: bool = False) -> None:
    """Check a block in a scope of its own. With `value`, the value of its last statement is used."""
    if isinstance(block, tree.Block):
        walk.enter()
        check_statements(walk, block.statements, value=value)
        walk.leave()


def check_statements(walk: Walk, statements: Sequence[tree.Unit], *, value: bool = False) -> None:
    """Check the statements of a block in the current scope."""
    _announce(walk, statements)
    last = statements[-1] if value and statements else None
    ended = False
    before: tree.ShellStatement | None = None
    for statement in statements:
        if _is_broken_word(walk, statement):
            continue
        if ended and not isinstance(statement, (tree.TypeDeclaration, tree.Error)):
            _unreached(walk, statement, statements[-1])
            ended = False
        _check_one(walk, statement, value=statement is last)
        if before is not None and _reads_status(walk, statement):
            walk.module.may_fail.add(before)
        before = statement if isinstance(statement, tree.ShellStatement) else None
        ended = ended or leaves(walk, statement)


def _is_broken_word(walk: Walk, statement: tree.Unit) -> bool:
    """Whether the text after a lone name made no sense, as in a command without its `$`."""
    if not isinstance(statement, tree.ExpressionStatement) or not isinstance(statement.value, tree.Name):
        return False
    return _is_broken(walk, statement)


def _is_broken(walk: Walk, statement: tree.Node) -> bool:
    """Whether there is a syntax error in a statement or after it on its last line."""
    text = walk.module.source.text
    end = text.find("\n", statement.end)
    return not walk.is_sound(statement.start, len(text) if end < 0 else end)


def _check_one(walk: Walk, statement: tree.Unit, *, value: bool) -> None:
    if not value:
        walk.statement(statement)
    elif isinstance(statement, tree.ExpressionStatement):
        _value_of(walk, statement.value)
    elif isinstance(statement, tree.If):
        _check_if(walk, statement, value=True)
    else:
        walk.statement(statement)


def _announce(walk: Walk, statements: Sequence[tree.Unit]) -> None:
    """Note the variables that the block will declare, and declare its types."""
    types: list[tree.TypeDeclaration] = []
    for statement in statements:
        if isinstance(statement, tree.Var):
            walk.scope.pending.update(bound_names(statement.pattern))
        elif isinstance(statement, tree.TypeDeclaration):
            types.append(statement)
    if types and walk.scope.parent is not None:
        _declare_types(walk, types)


def _declare_types(walk: Walk, nodes: list[tree.TypeDeclaration]) -> None:
    for node in nodes:
        name = node.name.name
        if name in walk.scope.types:
            walk.declared_twice(name, node.name, walk.scope.types[name].node.name)
        elif name:
            walk.scope.types[name] = declare_type(walk, node)
    define_types(walk, walk.scope.types.values())


def _unreached(walk: Walk, first: tree.Node, last: tree.Node) -> None:
    walk.report("PW203", "this code is never reached", Span(first.start, last.end))


def leaves(walk: Walk, statement: tree.Node) -> bool:
    """Whether nothing after a statement that was checked is ever reached."""
    match statement:
        case tree.Return() | tree.Succeed() | tree.Break() | tree.Continue():
            return True
        case tree.ExpressionStatement(value=value):
            inner = tree.bare(value)
            return isinstance(inner, tree.Throw) or _restarts(walk, inner)
        case tree.If(branches=branches, otherwise=otherwise):
            bodies = [branch.body for branch in branches]
            return otherwise is not None and all(_block_leaves(walk, body) for body in [*bodies, otherwise])
        case tree.Try(body=body, handler=handler):
            return _block_leaves(walk, body) and _block_leaves(walk, handler)
        case _:
            return False


def _restarts(walk: Walk, value: tree.Expression) -> bool:
    """Whether an expression is a call of `restart`."""
    last = value.links[-1] if isinstance(value, tree.Chain) else None
    return isinstance(last, tree.Call) and last in walk.module.restarts


def _block_leaves(walk: Walk, block: tree.Block | tree.Error) -> bool:
    # Only the last statement is looked at: an earlier one that leaves has its own warning.
    return isinstance(block, tree.Block) and bool(block.statements) and leaves(walk, block.statements[-1])


def _reads_status(walk: Walk, statement: tree.Node) -> bool:
    return bool(walk.status_reads) and any(_is_read_in(walk.status_reads, part) for part in _heads(statement))


def _is_read_in(reads: list[int], part: tree.Node) -> bool:
    at = bisect_left(reads, part.start)
    return at < len(reads) and reads[at] < part.end


def _heads(statement: tree.Node) -> list[tree.Node]:
    """The parts of a statement that run before anything nested in it."""
    match statement:
        case tree.If(branches=branches):
            return [branch.condition for branch in branches]
        case tree.While(condition=condition):
            return [condition]
        case tree.For(iterable=iterable):
            return [iterable]
        case tree.Try() | tree.ShellStatement():
            return []
        case _:
            return [statement]


# Simple statements


def _expression_statement(walk: Walk, node: tree.ExpressionStatement, _expected: Type | None) -> Type:
    known = len(walk.found)
    undefined = len(walk.body.undefined)
    _value_of(walk, node.value)
    silent = len(walk.found) > known or len(walk.body.undefined) > undefined
    if not silent and not has_effect(node.value) and not _is_broken(walk, node):
        _no_effect(walk, node)
    return ANY


def _value_of(walk: Walk, value: tree.Expression) -> None:
    walk.unused = discarded(value)
    inner = tree.bare(value)
    if isinstance(inner, tree.Assign):
        assign(walk, inner)
    elif isinstance(inner, tree.Binary) and _is_command(walk, inner):
        walk.expression(inner.operands[0])
    else:
        walk.expression(value)


def _is_command(walk: Walk, node: tree.Binary) -> bool:
    """Whether a difference looks like a program with options that was written without its `$`."""
    program = node.operands[0]
    return (
        isinstance(program, tree.Name)
        and walk.find(program.name) is None
        and written_command(walk, program) is not None
    )


def _no_effect(walk: Walk, node: tree.ExpressionStatement) -> None:
    value = tree.bare(node.value)
    helps: tuple[str, ...] = ()
    if isinstance(value, tree.Binary) and value.operators[0].symbol == "==":
        helps = ("to assign, write `=`",)
    elif isinstance(value, tree.Name) or (isinstance(value, tree.Chain) and value.links):
        helps = ("to show a value, write `print(…)`",)
    walk.report("PW215", "this statement has no effect", node, helps=helps)


_EFFECTS = (
    tree.Call,
    tree.Increment,
    tree.AwaitMember,
    tree.Assign,
    tree.Throw,
    tree.Prompt,
    tree.Capture,
    tree.ShellResult,
    tree.ReadFile,
    tree.Error,
)


def has_effect(value: tree.Node) -> bool:
    """Whether evaluating an expression may do something."""
    if isinstance(value, tree.Chain) and isinstance(value.links[-1], _EFFECTS):
        return True
    return any(isinstance(part, _EFFECTS) for part in tree.walk(value))


def _var(walk: Walk, node: tree.Var, _expected: Type | None) -> Type:
    expected = pattern_type(walk, node.pattern)
    found: Type = NULL
    if node.value is not None:
        asked = expected if expected is not None else None
        if isinstance(node.pattern, tree.ArrayPattern):
            walk.unused = tree.bare(node.value)
        found = walk.expression(node.value, asked)
        if isinstance(node.pattern, tree.ArrayPattern):
            note_taken_apart(walk, node.pattern, node.value)
        _check_pattern_value(walk, node.pattern, found, node.value)
        use = walk.received.get(tree.bare(node.value))
        if use is not None:
            use.fields = pattern_fields(node.pattern)
            use.literals = pattern_literals(node.pattern, walk.module.types)
    bind(walk, node.pattern, "variable", found)
    return ANY


def _check_pattern_value(walk: Walk, pattern: tree.Pattern, found: Type, value: tree.Node) -> None:
    if isinstance(pattern, tree.Binding) and pattern.type is not None:
        walk.fits(walk.module.types.get(pattern.type, ANY), found, value)
    elif isinstance(pattern, tree.ObjectPattern):
        walk.fits(OBJECT, found, value)
    elif isinstance(pattern, tree.ArrayPattern):
        walk.fits(ARRAY, found, value)
        for element, part in zip(pattern.elements, parts_of(found), strict=False):
            # A missing element is null, and null fits wherever an array is taken apart.
            if isinstance(element, tree.Binding) and element.type is not None and part is not NULL:
                walk.fits(walk.module.types.get(element.type, ANY), part, element)


def assign(walk: Walk, node: tree.Assign) -> Type:
    """Check an assignment and give the type of its value."""
    symbol = node.operator.symbol
    expected = _target(walk, node.target, reads=symbol != "=")
    found = walk.expression(node.value, expected)
    written = expected if expected is not None else _written_type(walk, tree.bare(node.target))
    if symbol not in {"=", "+="}:
        walk.fits(NUMBER, found, node.value)
    elif written is not None:
        walk.fits(written, found if symbol == "=" else _sum(written, found), node.value)
    return found


def _sum(left: Type, right: Type) -> Type:
    """The type of `left + right`, as far as it is certain."""
    if is_text(left) or is_text(right):
        return STRING
    return NUMBER if kind_of_type(left) is NUMBER and kind_of_type(right) is NUMBER else ANY


def _written_type(walk: Walk, target: tree.Expression) -> Type | None:
    """What the written type of a variable says of a field or element of it that is assigned to."""
    if not isinstance(target, tree.Chain) or not isinstance(target.base, tree.Name):
        return None
    local = walk.module.names.get(target.base)
    kind = local.type if isinstance(local, Local) else None
    for link in target.links:
        if kind is None or isinstance(link, tree.AwaitMember):
            continue
        found = definition_of(kind)
        if isinstance(link, tree.Member):
            kind = field_type(found, link.name.name)
        elif isinstance(link, tree.Index) and isinstance(found, ArrayOf):
            kind = found.element
        else:
            kind = None
    return kind


def _target(walk: Walk, target: tree.Expression, *, reads: bool) -> Type | None:
    target = tree.bare(target)
    if isinstance(target, tree.Name):
        symbol = walk.use(target.name, target, reads=reads)
        if symbol is not None and not isinstance(symbol, Local):
            walk.report("PW123", f"cannot assign to `{target.name}`: it is not a variable", target)
        return symbol.type if isinstance(symbol, Local) else None
    if isinstance(target, tree.Error):
        return None
    if isinstance(target, tree.Chain) and isinstance(target.links[-1], (tree.Member, tree.Index)):
        if isinstance(target.base, tree.SelfValue):
            walk.report("PW123", f"cannot assign to `{walk.module.source[target.span]}`", target)
        else:
            walk.expression(target)
        return None
    walk.report("PW123", f"cannot assign to {_what(target)}", target)
    walk.expression(target)
    return None


_WHAT: dict[type[tree.Node], str] = {
    tree.Number: "a number",
    tree.String: "a string",
    tree.Boolean: "a boolean",
    tree.Null: "`null`",
    tree.SelfValue: "`self`",
    tree.LastStatus: "`$?`",
    tree.Array: "an array; to take it apart write `var [a, b] = …`",
    tree.Object: "an object; to take it apart write `var {a, b} = …`",
    tree.Prompt: "a prompt",
    tree.Capture: "a command",
    tree.ShellResult: "a command",
    tree.Chain: "a call",
}


def _what(target: tree.Node) -> str:
    return _WHAT.get(type(target), "an expression")


def _write(walk: Walk, node: tree.Write, _expected: Type | None) -> Type:
    walk.expression(node.value)
    walk.expression(node.path)
    name = "append" if node.operator.symbol == ">>" else "write"
    walk.report("PW221", f"prefer `{name}(path, value)`", node.operator)
    return ANY


def _type_declaration(_walk: Walk, _node: tree.TypeDeclaration, _expected: Type | None) -> Type:
    return ANY


def _import(_walk: Walk, _node: tree.Import, _expected: Type | None) -> Type:
    return ANY


# Control


def _check_if(walk: Walk, node: tree.If, *, value: bool) -> None:
    for branch in node.branches:
        check_condition(walk, branch.condition)
        check_block(walk, branch.body, value=value)
    if node.otherwise is not None:
        check_block(walk, node.otherwise, value=value)


def _if(walk: Walk, node: tree.If, _expected: Type | None) -> Type:
    _check_if(walk, node, value=False)
    return ANY


def check_condition(walk: Walk, condition: tree.Expression) -> None:
    """Check what `if` or `while` tests."""
    whole = tree.bare(condition)
    if isinstance(whole, tree.Capture):
        walk.module.may_fail.add(whole)
    for tested in _tested(whole):
        if isinstance(tested, tree.Capture):
            shown = walk.module.source[tested.shell.span].strip()
            walk.report(
                "PW209",
                "this tests the output; for the status write `($ …)`",
                tested,
                helps=(f"write `($ {shown})`",) if "\n" not in shown and len(shown) < 60 else (),
            )
    walk.expression(condition)


def _tested(condition: tree.Expression) -> Iterator[tree.Expression]:
    waiting = [condition]
    while waiting:
        found = tree.bare(waiting.pop())
        if isinstance(found, tree.Unary) and found.symbol == "!":
            waiting.append(found.operand)
        elif isinstance(found, tree.Binary) and found.operators[0].symbol in {"&&", "||"}:
            waiting.extend(reversed(found.operands))
        else:
            yield found


def _while(walk: Walk, node: tree.While, _expected: Type | None) -> Type:
    check_condition(walk, node.condition)
    walk.body.loops += 1
    check_block(walk, node.body)
    walk.body.loops -= 1
    return ANY


def _for(walk: Walk, node: tree.For, _expected: Type | None) -> Type:
    kind = walk.expression(node.iterable)
    if not may_be(kind, ARRAY, STRING, RESULT, OBJECT) or kind is MAILBOX:
        text = f"expected an array, range, string, result or object, found `{found_name(ARRAY, kind)}`"
        walk.report("PW141", text, node.iterable)
    walk.enter()
    pattern_type(walk, node.pattern)
    bind(walk, node.pattern, "loop", _element(kind))
    walk.body.loops += 1
    check_block(walk, node.body)
    walk.body.loops -= 1
    walk.leave()
    return ANY


def _element(kind: Type) -> Type:
    kind = definition_of(kind)
    if isinstance(kind, ArrayOf):
        return kind.element
    simple = isinstance(kind, LiteralOf) and isinstance(kind.value, str)
    return STRING if simple or kind in {STRING, RESULT} else ANY


def _return(walk: Walk, node: tree.Return, _expected: Type | None) -> Type:
    if walk.body.do_depth:
        _leaves_prompt(walk, node, "return")
    if node.value is None:
        if walk.body.result is not None and not walk.body.do_depth:
            walk.fits(walk.body.result, NULL, node)
    else:
        walk.body.returns = True
        result = walk.body.result
        found = walk.expression(node.value, result)
        if result is not None and not walk.body.do_depth:
            walk.fits(result, found, node.value)
    return ANY


def _succeed(walk: Walk, node: tree.Succeed, _expected: Type | None) -> Type:
    if walk.body.do_depth:
        _leaves_prompt(walk, node, "succeed")
    return ANY


def _leaves_prompt(walk: Walk, node: tree.Node, word: str) -> None:
    span = Span(node.start, node.start + len(word))
    text = "cannot leave a prompt from a `do` block"
    helps = ("the value of a `do` block is its last statement",) if word == "return" else ()
    walk.report("PW132", text, span, helps=helps)


def _break(walk: Walk, node: tree.Break | tree.Continue, _expected: Type | None) -> Type:
    if not walk.body.loops:
        word = "break" if isinstance(node, tree.Break) else "continue"
        if walk.body.loops_outside:
            _leaves_prompt(walk, node, word)
        else:
            walk.report("PW131", f"`{word}` outside a loop", node)
    return ANY


def _try(walk: Walk, node: tree.Try, _expected: Type | None) -> Type:
    before = len(walk.risky)
    check_block(walk, node.body)
    _check_rescue(walk, node, walk.risky[before:])
    del walk.risky[before:]
    walk.enter()
    if node.name is not None:
        bind_name(walk, node.name, "error", ERROR, None)
    check_block(walk, node.handler)
    walk.leave()
    return ANY


def _check_rescue(walk: Walk, node: tree.Try, risky: list[tree.Node]) -> None:
    """Say that a `catch` cannot save the run, unless it passes an error on anyway."""
    handler = node.handler
    if not risky or not isinstance(handler, tree.Block) or _block_leaves_by_throw(handler):
        return
    at = walk.module.source.text.find("catch", node.body.end, handler.start)
    span = handler.span if at < 0 else Span(at, at + len("catch"))
    walk.report(
        "PW226",
        "this `catch` around `delegate` or a worker call only cleans up; the run still fails",
        span,
        helps=('to survive failures, use `self.delegate([…], { on_failure: "collect" })`',),
        secondary=(Secondary(risky[0].span, "its failure fails the run"),),
    )


def _block_leaves_by_throw(block: tree.Block) -> bool:
    last = block.statements[-1] if block.statements else None
    return isinstance(last, tree.ExpressionStatement) and isinstance(tree.bare(last.value), tree.Throw)


HANDLERS: dict[type[tree.Node], Handler] = {
    tree.ExpressionStatement: _expression_statement,
    tree.Var: _var,
    tree.Write: _write,
    tree.TypeDeclaration: _type_declaration,
    tree.Import: _import,
    tree.If: _if,
    tree.While: _while,
    tree.For: _for,
    tree.Return: _return,
    tree.Succeed: _succeed,
    tree.Break: _break,
    tree.Continue: _break,
    tree.Try: _try,
}

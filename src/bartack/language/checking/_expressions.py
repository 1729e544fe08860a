"""Expressions: literals, operators, objects and arrays, and which prompts may be declined."""

from __future__ import annotations

from collections.abc import Iterator

from bartack.language.checking._functions import function_argument
from bartack.language.checking._results import note_use
from bartack.language.checking._statements import assign
from bartack.language.checking._types import (
    ANY,
    ARRAY,
    BOOL,
    INT,
    NULL,
    NUMBER,
    RESULT,
    STRING,
    ArrayOf,
    Field,
    LiteralOf,
    MapOf,
    Record,
    Type,
    Union,
    is_text,
    join,
    kind_of_type,
)
from bartack.language.checking._walk import Handler, Walk, found_name, is_known, may_be
from bartack.language.checking.program import Builtin, Declared, DeclaredTrait, Namespace
from bartack.language.syntax import _tree as tree


def _name(walk: Walk, node: tree.Name, _expected: Type | None) -> Type:
    symbol = walk.use(node.name, node)
    if symbol is None:
        return ANY
    if isinstance(symbol, Builtin) and symbol.name != "args":
        return not_a_value(walk, node, f"`{node.name}` is a function")
    if isinstance(symbol, Namespace) and not symbol.module:
        return ANY
    if isinstance(symbol, (Declared, DeclaredTrait, Namespace)):
        return not_a_value(walk, node, f"`{node.name}` is a {_sort(symbol)}")
    return walk.kind_of(symbol)


def _sort(symbol: Declared | DeclaredTrait | Namespace) -> str:
    if isinstance(symbol, Declared):
        return "function" if symbol.node.word == "fun" else symbol.node.word
    return "trait" if isinstance(symbol, DeclaredTrait) else "module"


def not_a_value(walk: Walk, node: tree.Node, what: str) -> Type:
    """Say that something stands where a value must."""
    if what.endswith(("trait", "module")):
        text = f"{what}, not a value"
    else:
        text = f"{what}; call it, or pass it to `map`, `filter`, `find`, `|`"
    walk.report("PW135", text, node)
    return ANY


def _number(_walk: Walk, node: tree.Number, _expected: Type | None) -> Type:
    return LiteralOf(node.value)


def _boolean(_walk: Walk, node: tree.Boolean, _expected: Type | None) -> Type:
    return LiteralOf(node.value)


def _null(_walk: Walk, _node: tree.Null, _expected: Type | None) -> Type:
    return NULL


def _self(walk: Walk, node: tree.SelfValue, _expected: Type | None) -> Type:
    walk.report(
        "PW130",
        "`self` is not a value",
        node,
        helps=("it has `self.session`, `self.delegate(…)`, `self.path` and `self.inbox`",),
    )
    return ANY


def _last_status(walk: Walk, node: tree.LastStatus, _expected: Type | None) -> Type:
    walk.status_reads.append(node.start)
    return INT


def _error(_walk: Walk, _node: tree.Error, _expected: Type | None) -> Type:
    return ANY


def _paren(walk: Walk, node: tree.Paren, expected: Type | None) -> Type:
    return walk.expression(node.value, expected)


def _await(walk: Walk, node: tree.Await, expected: Type | None) -> Type:
    return walk.expression(node.operand, expected)


def _throw(walk: Walk, node: tree.Throw, _expected: Type | None) -> Type:
    walk.expression(node.value)
    return ANY


def _assign(walk: Walk, node: tree.Assign, _expected: Type | None) -> Type:
    helps = ("to compare, write `==`",) if node.operator.symbol == "=" else ()
    walk.report("PW225", "an assignment is used as a value", node, helps=helps)
    return assign(walk, node)


def _array(walk: Walk, node: tree.Array, _expected: Type | None) -> Type:
    kinds: list[Type] = []
    parts: list[Type] = []
    for element in node.elements:
        if isinstance(element, tree.Spread):
            kinds.append(ANY)
            walk.fits(_LISTS, walk.expression(element.value), element.value)
        else:
            parts.append(walk.expression(element))
            kinds.append(parts[-1])
    return ArrayOf(join(kinds), tuple(parts), exact=len(parts) == len(kinds))


_LISTS = Union((ARRAY,))


def _object(walk: Walk, node: tree.Object, _expected: Type | None) -> Type:
    fields: dict[str, Field] = {}
    exact = True
    for field in node.fields:
        if isinstance(field, tree.Spread):
            exact = False
            walk.fits(_OBJECTS, walk.expression(field.value), field.value)
            continue
        name = field.key.name
        if name in fields:
            walk.report("PW223", f"key `{name}` is given twice, the last wins", field.key)
        fields[name] = Field(name, walk.expression(field.value))
    return Record(tuple(fields.values()), exact=True) if exact else MapOf(ANY)


_OBJECTS = MapOf(ANY)


def _range(walk: Walk, node: tree.Range, _expected: Type | None) -> Type:
    walk.fits(NUMBER, walk.expression(node.low), node.low)
    walk.fits(NUMBER, walk.expression(node.high), node.high)
    return ArrayOf(INT)


def _unary(walk: Walk, node: tree.Unary, _expected: Type | None) -> Type:
    if node.symbol == "!":
        tolerate(walk, node.operand)
        walk.expression(node.operand)
        return BOOL
    kind = walk.expression(node.operand)
    walk.fits(NUMBER, kind, node.operand)
    if isinstance(kind, LiteralOf) and isinstance(kind.value, float):
        return LiteralOf(-kind.value)
    return NUMBER


def tolerate(walk: Walk, operand: tree.Expression) -> None:
    """Note that a capture here may fail: it is null then."""
    operand = tree.bare(operand)
    if isinstance(operand, tree.Capture):
        walk.module.may_fail.add(operand)


# Operators


def _binary(walk: Walk, node: tree.Binary, expected: Type | None) -> Type:
    symbol = node.operators[0].symbol
    if symbol == "|":
        return _pipe(walk, node)
    if symbol in {"||", "&&"}:
        return _logic(walk, node, expected if symbol == "||" else None)
    kinds = [walk.expression(operand) for operand in node.operands]
    if symbol in {"+", "-"}:
        return _sum(walk, node, kinds)
    if symbol in {"*", "/", "%"}:
        for kind, operand in zip(kinds, node.operands, strict=True):
            walk.fits(NUMBER, kind, operand)
        return NUMBER
    _compare(walk, node, kinds)
    return BOOL


def _pipe(walk: Walk, node: tree.Binary) -> Type:
    kind = walk.expression(node.operands[0])
    walk.fits(ARRAY, kind, node.operands[0])
    for function in node.operands[1:]:
        called = function_argument(walk, function, required=True, elements=kind)
        if called is not None:
            note_use(walk, called, function.span)
    return ARRAY


def _logic(walk: Walk, node: tree.Binary, expected: Type | None) -> Type:
    for operand in node.operands[:-1]:
        tolerate(walk, operand)
        if node.operators[0].symbol == "||":
            walk.module.may_decline.update(_declinable(operand))
    return join([walk.expression(operand, expected) for operand in node.operands])


def _declinable(operand: tree.Expression) -> Iterator[tree.Prompt]:
    """The prompts an operand may be, through parentheses and chains of `||` in them."""
    waiting = [operand]
    while waiting:
        found = tree.bare(waiting.pop())
        if isinstance(found, tree.Chain) and all(isinstance(link, tree.AwaitMember) for link in found.links):
            waiting.append(found.base)
        elif isinstance(found, tree.Prompt):
            yield found
        elif isinstance(found, tree.Binary) and found.operators[0].symbol == "||":
            waiting.extend(found.operands)


def _sum(walk: Walk, node: tree.Binary, kinds: list[Type]) -> Type:
    result = kinds[0]
    for operator, kind, operand in zip(node.operators, kinds[1:], node.operands[1:], strict=True):
        if operator.symbol == "-":
            first = result is kinds[0]
            fine = walk.fits(NUMBER, result, node.operands[0]) if first else may_be(result, NUMBER)
            if not fine or not walk.fits(NUMBER, kind, operand):
                return ANY
            result = NUMBER
        else:
            result = _added(walk, (result, node.operands[0]), (kind, operand))
    return result


def _added(walk: Walk, first: tuple[Type, tree.Node], second: tuple[Type, tree.Node]) -> Type:
    left, right = first[0], second[0]
    one, two = kind_of_type(left), kind_of_type(right)
    if one is NUMBER and two is NUMBER:
        return NUMBER
    if one is STRING or two is STRING:
        return STRING
    if not is_known(left) or not is_known(right):
        text = is_text(left) or is_text(right)
        return STRING if text else ANY
    if may_be(left, STRING, RESULT) or may_be(right, STRING, RESULT):
        return STRING if is_text(left) or is_text(right) else ANY
    if not may_be(left, NUMBER) or not may_be(right, NUMBER):
        wrong, at = first if not may_be(left, NUMBER) else second
        helps = ("arrays are joined by `xs.concat(ys)`",) if may_be(wrong, ARRAY) else ()
        message = f"expected `number | string`, found `{found_name(_ORDERED, wrong)}`"
        walk.report("PW141", message, at, helps=helps)
        return ANY
    return NUMBER


def _compare(walk: Walk, node: tree.Binary, kinds: list[Type]) -> None:
    if len(node.operators) != 1 or node.operators[0].symbol in {"==", "!="}:
        return
    left, right = kinds
    if not is_known(left) or not is_known(right):
        return
    if not walk.fits(_ORDERED, left, node.operands[0]):
        return
    numbers = may_be(left, NUMBER) and may_be(right, NUMBER)
    texts = may_be(left, STRING) and may_be(right, STRING)
    if not numbers and not texts:
        walk.fits(NUMBER if may_be(left, NUMBER) else STRING, right, node.operands[1])


_ORDERED = Union((NUMBER, STRING))


HANDLERS: dict[type[tree.Node], Handler] = {
    tree.Name: _name,
    tree.Number: _number,
    tree.Boolean: _boolean,
    tree.Null: _null,
    tree.SelfValue: _self,
    tree.LastStatus: _last_status,
    tree.Error: _error,
    tree.Paren: _paren,
    tree.Await: _await,
    tree.Throw: _throw,
    tree.Assign: _assign,
    tree.Array: _array,
    tree.Object: _object,
    tree.Range: _range,
    tree.Unary: _unary,
    tree.Binary: _binary,
}

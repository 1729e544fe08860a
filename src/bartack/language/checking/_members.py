"""Members, indexes and calls after a value whose kind may be known; options of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bartack.language.checking._functions import (
    check_arguments,
    check_freely,
    function_argument,
    function_named,
    refuse_unsendable,
    signature_of,
)
from bartack.language.checking._library import SEND_OPTIONS, TAKES_FUNCTION, Option, Signature, members
from bartack.language.checking._mail import SENDING
from bartack.language.checking._types import (
    ANY,
    ARRAY,
    MAILBOX,
    NULL,
    NUMBER,
    STRING,
    ArrayOf,
    Type,
    Union,
    definition_of,
    describe,
    parts_of,
)
from bartack.language.checking._walk import Walk, field_type, is_known
from bartack.language.checking.program import Builtin, Called, Declared
from bartack.language.syntax import _tree as tree


def follow(walk: Walk, node: tree.Chain, start: int, kind: Type) -> Type:
    """Check the links from `start` on, after a value of a type."""
    links = node.links
    at = start
    while at < len(links):
        link = links[at]
        following = links[at + 1] if at + 1 < len(links) else None
        if isinstance(link, tree.Member) and isinstance(following, tree.Call):
            kind = _method(walk, kind, link, following)
            at += 1
        elif isinstance(link, tree.Member):
            kind = _property(walk, kind, link)
        elif isinstance(link, tree.Index):
            kind = _index(walk, kind, link)
        elif isinstance(link, tree.Increment):
            kind = _increment(walk, node, at, link, kind)
        elif isinstance(link, tree.Call):
            kind = _bad_call(walk, node, link, kind)
        at += 1
    return kind


def _bad_call(walk: Walk, node: tree.Chain, call: tree.Call, kind: Type) -> Type:
    """Only functions and workers are called, by their names: a value never is."""
    unknown = isinstance(node.base, tree.Name) and node.base not in walk.module.names
    already = unknown or walk.reported_in(node.start, call.start)
    check_freely(walk, (*((call.old_self,) if call.old_self else ()), *call.arguments))
    if is_known(kind):
        mailbox = definition_of(kind) is MAILBOX
        help_ = "it is a mailbox; write `self.session.mailbox.name.send(…)`" if mailbox else _CALLED_BY_NAME
        walk.report("PW141", f"`{describe(kind)}` cannot be called", call, helps=(help_,))
    elif not already:
        walk.report("PW141", "a value cannot be called", call, helps=(_CALLED_BY_NAME,))
    return ANY


_CALLED_BY_NAME = "only a `fun` or a worker can be called, and only by its name"


def _increment(walk: Walk, node: tree.Chain, at: int, link: tree.Increment, kind: Type) -> Type:
    before = node.links[at - 1] if at else None
    if before is None and not isinstance(node.base, tree.Name):
        walk.report("PW123", f"cannot assign to a value with `{link.symbol}`", node)
    elif before is not None and not isinstance(before, (tree.Member, tree.Index)):
        walk.report("PW123", f"cannot assign to a call with `{link.symbol}`", node)
    elif before is None and isinstance(node.base, tree.Name):
        symbol = walk.module.names.get(node.base)
        if isinstance(symbol, Builtin):
            walk.report("PW123", f"cannot assign to `{symbol.name}`: it is not a variable", node.base)
            return NUMBER
    if is_known(kind):
        walk.fits(NUMBER, kind, node)
    return NUMBER


def _property(walk: Walk, kind: Type, link: tree.Member) -> Type:
    table = members(definition_of(kind))
    name = link.name.name
    if table is None or not name:
        return (None if walk.may_change(name) else field_type(kind, name)) or ANY
    plural, known = table
    found = known.get(name)
    if found is None:
        return _no_member(walk, plural, link, list(known))
    if isinstance(found, Signature):
        walk.report("PW135", f"`{name}` is a function; call it: `.{name}({_dots(found)})`", link.name)
        return ANY
    return found


def _dots(signature: Signature) -> str:
    return "…" if signature.parameters else ""


def _no_member(walk: Walk, plural: str, link: tree.Member, known: Sequence[str]) -> Type:
    name = link.name.name
    other = _OTHER_MEMBERS.get(name)
    near = other if other in known else walk.suggest(name, known)
    text = f"{plural} have no `{name}`" if plural != "null" else f"null has no `{name}`"
    label = f"did you mean `{near}`?" if near else ""
    helps = ("a loop is written `for x in xs { … }`",) if name in {"forEach", "each"} else ()
    walk.report("PW146", text, link.name, label=label, helps=helps)
    return ANY


_OTHER_MEMBERS = {
    "size": "length",
    "len": "length",
    "count": "length",
    "strip": "trim",
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "indexOf": "index_of",
    "contains": "includes",
    "append": "push",
    "add": "push",
    "sorted": "sort",
    "reversed": "reverse",
    "code": "status",
    "exit_code": "status",
    "output": "stdout",
    "recv": "receive",
}


def _method(walk: Walk, kind: Type, link: tree.Member, call: tree.Call) -> Type:
    name = link.name.name
    if call.old_self is not None:
        check_freely(walk, (call.old_self, *call.arguments))
        return ANY
    if name in TAKES_FUNCTION and len(call.arguments) == 1:
        return _method_with_function(walk, kind, link, call)
    table = members(definition_of(kind))
    if table is None or not name:
        check_freely(walk, call.arguments)
        return ANY
    plural, known = table
    found = known.get(name)
    if isinstance(found, Signature):
        kinds = check_arguments(walk, call, found, name)
        if definition_of(kind) is MAILBOX:
            _check_message(walk, name, call, kinds)
        return found.result
    if found is None:
        check_freely(walk, [one for one in call.arguments if function_named(walk, tree.bare(one)) is None])
        return _no_member(walk, plural, link, list(known))
    check_freely(walk, call.arguments)
    walk.report("PW146", f"`{name}` is not a function; write `.{name}`", link.name)
    return found


def _method_with_function(walk: Walk, kind: Type, link: tree.Member, call: tree.Call) -> Type:
    name = link.name.name
    table = members(definition_of(kind))
    if table is not None and name not in table[1]:
        function_argument(walk, call.arguments[0], required=False)
        return _no_member(walk, table[0], link, list(table[1]))
    worker = function_named_worker(walk, call.arguments[0])
    called = function_argument(walk, call.arguments[0], required=table is not None, elements=kind)
    if name != "map":
        return ANY if name == "find" or table is None else ARRAY
    if called is not None and called.how != "spec" and isinstance(definition_of(kind), ArrayOf):
        return _mapped(walk, kind, called)
    return ARRAY if table is not None or worker else ANY


def _mapped(walk: Walk, kind: Type, called: Called) -> Type:
    """An array of results: as many as there are elements."""
    signature = signature_of(walk, called.callee)
    if signature is None:
        return ARRAY
    parts = parts_of(kind)
    return ArrayOf(signature.result, (signature.result,) * len(parts), exact=bool(parts))


def function_named_worker(walk: Walk, node: tree.Expression) -> bool:
    """Whether an expression is the name of a worker of this module."""
    inner = tree.bare(node)
    symbol = walk.find(inner.name) if isinstance(inner, tree.Name) else None
    return isinstance(symbol, Declared) and symbol.node.word == "worker"


def _index(walk: Walk, kind: Type, link: tree.Index) -> Type:
    index = walk.expression(link.index)
    found = definition_of(kind)
    table = members(found)
    if table is not None and not table[1] and table[0] != "specs":
        walk.report("PW146", f"{table[0]} {'has' if table[0] == 'null' else 'have'} no elements", link)
        return ANY
    if table is not None and table[0] in {"arrays", "strings"} and is_known(index):
        walk.fits(NUMBER, index, link.index)
    if isinstance(found, ArrayOf):
        return _element(found, link.index)
    return STRING if table is not None and table[0] == "strings" else ANY


def _element(kind: ArrayOf, index: tree.Expression) -> Type:
    """The type of an element: of one that is known, or of any, which may be missing."""
    parts = parts_of(kind)
    number = _number(tree.bare(index))
    if number is not None and 0 <= number < len(parts) and number.is_integer():
        return parts[int(number)]
    return ANY if kind.element is ANY else Union((kind.element, NULL))


def _check_message(walk: Walk, word: str, call: tree.Call, kinds: list[Type]) -> None:
    if word in SENDING and kinds:
        refuse_unsendable(walk, kinds[0], call.arguments[0])
    if word == "send" and len(call.arguments) == 2:
        check_options(walk, call.arguments[1], SEND_OPTIONS)


def check_options(walk: Walk, node: tree.Expression, known: Mapping[str, Option]) -> None:
    """Say which options of an object that is written out are not known, and which values that are written out do not fit."""
    options = tree.bare(node)
    if not isinstance(options, tree.Object):
        return
    for field in options.fields:
        if not isinstance(field, tree.ObjectField):
            continue
        option = known.get(field.key.name)
        if option is not None:
            _check_value(walk, field.value, option)
            continue
        near = walk.suggest(field.key.name, known)
        label = f"did you mean `{near}`?" if near else ""
        helps = ("the options are " + ", ".join(f"`{name}`" for name in known),)
        walk.report("PW143", f"unknown option `{field.key.name}`", field.key, label=label, helps=helps)


def _check_value(walk: Walk, node: tree.Expression, option: Option) -> None:
    """Say what is wrong with the value of an option, as far as it is written out."""
    inner = tree.bare(node)
    found = f"`{walk.module.source[inner.span]}`"
    word = inner.literal if isinstance(inner, tree.String) else None
    number = _number(inner)
    if option.words and (number is not None or (word is not None and word not in option.words)):
        near = walk.suggest(word, option.words) if word else None
        wanted = ", ".join(f'`"{allowed}"`' for allowed in option.words)
        label = f'did you mean `"{near}"`?' if near else ""
        walk.report("PW141", f"expected one of {wanted}, found {found}", node, label=label)
    elif option.least is not None and (
        isinstance(inner, tree.String) or (number is not None and number < option.least)
    ):
        walk.report("PW141", f"expected a number from {option.least} on, found {found}", node)


def _number(node: tree.Expression) -> float | None:
    """A number that is written out."""
    if isinstance(node, tree.Unary) and node.symbol == "-":
        inner = _number(tree.bare(node.operand))
        return None if inner is None else -inner
    return node.value if isinstance(node, tree.Number) else None

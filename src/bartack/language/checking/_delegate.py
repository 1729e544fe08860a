"""Delegates and specs: only workers, each called once, in an array."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.language.checking._functions import check_freely, function_named
from bartack.language.checking._library import DELEGATE_OPTIONS
from bartack.language.checking._members import check_options
from bartack.language.checking._scope import Delegated
from bartack.language.checking._types import ANY, ARRAY, OBJECT, SPEC, ArrayOf, Type, describe, join
from bartack.language.checking._walk import Walk, is_known, may_be
from bartack.language.checking.program import Builtin, Called, Declared
from bartack.language.syntax import _tree as tree


def delegate(walk: Walk, node: tree.Chain, call: tree.Call) -> Type:
    """Check `self.delegate(specs, options?)`."""
    arguments = call.arguments
    if call.old_self is not None and not node.spelled:
        walk.expression(call.old_self)
    if not 1 <= len(arguments) <= 2:
        text = f"`self.delegate` takes 1 or 2 arguments, {len(arguments)} given"
        walk.report("PW140", text, call, helps=("write `self.delegate([worker(x)], options?)`",))
    if arguments:
        outside, walk.specs = walk.specs, True
        spelled, walk.spelled = walk.spelled, bool(node.spelled)
        _specs(walk, arguments[0])
        walk.specs, walk.spelled = outside, spelled
    for options in arguments[1:]:
        walk.expression(options)
        check_options(walk, options, DELEGATE_OPTIONS)
    if not _fails_the_run(arguments):
        return ArrayOf(OBJECT) if _collects(arguments) else ARRAY
    walk.risky.append(call)
    return _results(walk, call, arguments)


def _collects(arguments: Sequence[tree.Expression]) -> bool:
    """Whether the options say that failures are collected."""
    options = tree.bare(arguments[1])
    fields = options.fields if isinstance(options, tree.Object) else ()
    named = [field for field in fields if not isinstance(field, tree.Spread)]
    said = [tree.bare(field.value) for field in named if field.key.name == "on_failure"]
    return any(isinstance(value, tree.String) and value.literal == "collect" for value in said)


def _results(walk: Walk, call: tree.Call, arguments: Sequence[tree.Expression]) -> Type:
    """The results of workers in the order of their specs, as far as these are written out."""
    inner = tree.bare(arguments[0]) if arguments else None
    if isinstance(inner, tree.Array) and not any(isinstance(one, tree.Spread) for one in inner.elements):
        called = [
            _last_call(walk, tree.bare(one)) for one in inner.elements if not isinstance(one, tree.Spread)
        ]
        callees = tuple(_worker(one) for one in called)
        walk.delegated[call] = Delegated(callees, exact=True)
        parts = tuple(_result(walk, callee) for callee in callees)
        return ArrayOf(join(list(parts)), parts, exact=True)
    if isinstance(inner, tree.Chain) and isinstance(inner.links[-1], tree.Call):
        given = inner.links[-1].arguments
        callee = _worker(walk.module.functions.get(given[0])) if len(given) == 1 else None
        walk.delegated[call] = Delegated((callee,), exact=False)
        return ArrayOf(_result(walk, callee))
    return ARRAY


def _worker(called: Called | None) -> Declared | None:
    """The worker of a spec."""
    spec = called is not None and called.how == "spec"
    return called.callee if called is not None and spec and isinstance(called.callee, Declared) else None


def _result(walk: Walk, callee: Declared | None) -> Type:
    signature = None if callee is None else walk.world.signatures.get(callee.node)
    return ANY if signature is None else signature.result


def _fails_the_run(arguments: Sequence[tree.Expression]) -> bool:
    """Whether a failure of a child surely fails the run: nothing else is said, and no option is computed."""
    if len(arguments) < 2:
        return True
    options = tree.bare(arguments[1])
    if not isinstance(options, tree.Object):
        return False
    return not any(
        isinstance(field, tree.Spread) or field.key.name == "on_failure" for field in options.fields
    )


def _specs(walk: Walk, node: tree.Expression) -> None:
    inner = tree.bare(node)
    if isinstance(inner, tree.Array):
        for element in inner.elements:
            if isinstance(element, tree.Spread):
                _spec_list(walk, element.value)
            else:
                spec_element(walk, element)
    else:
        _spec_list(walk, node)


def _spec_list(walk: Walk, node: tree.Expression) -> None:
    inner = tree.bare(node)
    if isinstance(inner, tree.Array):
        _specs(walk, node)
        return
    if _called_worker(walk, inner):
        walk.expression(node)
        _only_workers(walk, node, "the specs must stand in an array: `[…]`")
        return
    kind = walk.expression(node)
    if is_known(kind) and not may_be(kind, ARRAY):
        _only_workers(walk, node, f"expected an array of worker calls, found `{describe(kind)}`")


def _called_worker(walk: Walk, node: tree.Expression) -> bool:
    if not isinstance(node, tree.Chain) or not isinstance(node.base, tree.Name):
        return False
    first = node.links[0]
    symbol = walk.find(node.base.name)
    return isinstance(first, tree.Call) and isinstance(symbol, Declared) and symbol.node.word == "worker"


def spec_element(walk: Walk, node: tree.Expression) -> None:
    """Check one spec of a delegate: a call of a worker."""
    inner = tree.bare(node)
    named = function_named(walk, inner)
    if named is not None:
        example = f"write `{walk.module.source[inner.span]}(…)`"
        worker = isinstance(named, Declared) and named.node.word == "worker"
        _only_workers(walk, node, example if worker else _what_it_is(named))
        return
    kind = walk.expression(node)
    called = _last_call(walk, inner)
    if called is not None:
        if called.how != "spec" and not _makes_specs(walk, called):
            _only_workers(walk, node, _what_it_is(called.callee))
    elif is_known(kind) and not may_be(kind, SPEC):
        _only_workers(walk, node, f"found `{describe(kind)}`")


def _last_call(walk: Walk, node: tree.Expression) -> Called | None:
    if not isinstance(node, tree.Chain):
        return None
    for link in reversed(node.links):
        if isinstance(link, tree.Call):
            return walk.module.calls.get(link)
        if not isinstance(link, tree.AwaitMember):
            return None
    return None


def _makes_specs(walk: Walk, called: Called) -> bool:
    """Whether a function may yield a spec: only one that says so in its text can."""
    if isinstance(called.callee, Builtin):
        return called.callee.name == "spec"
    home = walk.world.scopes[called.callee.module].module
    return "spec" in home.source[called.callee.node.span]


def _what_it_is(callee: Declared | Builtin) -> str:
    if isinstance(callee, Builtin):
        return f"`{callee.name}` is a function of the library"
    return f"`{callee.name}` is a {callee.node.word}; declare it as `worker`"


def _only_workers(walk: Walk, node: tree.Node, why: str) -> None:
    walk.report("PW144", "only workers can be delegated", node, label=why)


def make_spec(walk: Walk, symbol: Builtin, call: tree.Call) -> Type:
    """Check `spec(worker(x))`."""
    walk.module.calls[call] = Called(symbol, "call")
    outside, walk.specs = walk.specs, True
    if len(call.arguments) != 1:
        walk.report("PW140", f"`spec` takes 1 argument, {len(call.arguments)} given", call)
        check_freely(walk, call.arguments)
    else:
        spec_element(walk, call.arguments[0])
    walk.specs = outside
    return SPEC

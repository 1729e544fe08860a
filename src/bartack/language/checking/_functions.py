"""Calls: how many arguments, of which types, and functions that are passed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bartack.language.checking._library import FUNCTIONS, LibraryParameter, Signature
from bartack.language.checking._types import (
    ANY,
    MAILBOX,
    SPEC,
    ArrayOf,
    Record,
    Type,
    definition_of,
    describe,
    overlap,
)
from bartack.language.checking._walk import Walk, found_name, is_known
from bartack.language.checking.program import (
    Builtin,
    Called,
    Callee,
    Declared,
    DeclaredTrait,
    How,
    Namespace,
    Symbol,
)
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Fix, Secondary
from bartack.language.syntax._source import Span

LONGEST_VERSION_NAME: Final = 100


def signature_of(walk: Walk, callee: Callee) -> Signature | None:
    """What a function takes and returns."""
    if isinstance(callee, Builtin):
        return FUNCTIONS.get(callee.name)
    return walk.world.signatures.get(callee.node)


def how_called(walk: Walk, callee: Callee) -> How:
    """How a call of this function runs at this point."""
    if isinstance(callee, Builtin) or callee.node.word != "worker":
        return "call"
    return "spec" if walk.specs else "start"


def call_function(walk: Walk, callee: Callee, call: tree.Call, name: str, *, spelled: bool = False) -> Type:
    """Check a call of a declaration or of a function of the library; returns the type of its result."""
    how = how_called(walk, callee)
    walk.module.calls[call] = Called(callee, how)
    if how == "start":
        walk.risky.append(call)
    worker = isinstance(callee, Declared) and callee.node.word == "worker"
    if call.old_self is not None and not spelled:
        _old_self(walk, call, call.old_self, worker=worker)
    signature = signature_of(walk, callee)
    if isinstance(callee, Builtin) and callee.name == "restart":
        signature = _restarted(walk, call)
    elif isinstance(callee, Builtin) and callee.name == "version" and call.arguments:
        _check_version_name(walk, call.arguments[0])
    if signature is None:
        check_freely(walk, call.arguments)
        return ANY
    specs = walk.specs
    if worker:
        walk.specs = False
    kinds = check_arguments(walk, call, signature, name, _declared_at(walk, callee))
    walk.specs = specs
    if worker:
        for kind, argument in zip(kinds, call.arguments, strict=True):
            refuse_unsendable(walk, kind, argument)
    return SPEC if how == "spec" else signature.result


def _restarted(walk: Walk, call: tree.Call) -> Signature | None:
    """What `restart` takes: what the worker takes that it stands in."""
    declaration = walk.body.declaration
    if walk.body.do_depth:
        walk.report("PW132", "cannot leave a prompt from a `do` block", call)
    elif declaration is None or declaration.word != "worker":
        _restart_elsewhere(walk, call)
    else:
        walk.module.restarts[call] = declaration
        return walk.world.signatures.get(declaration)
    return None


def _restart_elsewhere(walk: Walk, node: tree.Node) -> None:
    helps = ("call it in the body of the worker that is to restart",)
    walk.report("PW138", "`restart` outside a worker", node, helps=helps)


def _check_version_name(walk: Walk, node: tree.Expression) -> None:
    """The name of a version is a text of the program: one that is computed changes with other parts of it."""
    inner = tree.bare(node)
    if isinstance(inner, tree.Error):
        return
    name = inner.literal if isinstance(inner, tree.String) else None
    if name is None:
        problem = "the name of a version is computed"
    elif not name:
        problem = "the name of a version is empty"
    elif len(name) > LONGEST_VERSION_NAME or not name.isprintable():
        problem = f"the name of a version has more than {LONGEST_VERSION_NAME} characters, or a line break"
    else:
        return
    walk.report("PW139", problem, inner, helps=('write it as text: `version("new-review")`',))


def _declared_at(walk: Walk, callee: Callee) -> tuple[Secondary, ...]:
    if isinstance(callee, Builtin):
        return ()
    home = walk.world.scopes[callee.module].module
    file = "" if home is walk.module else home.path
    return (Secondary(callee.node.name.span, "declared here", file),)


def _old_self(walk: Walk, call: tree.Call, first: tree.SelfValue, *, worker: bool) -> None:
    if not worker:
        walk.expression(first)
        return
    end = call.arguments[0].start if call.arguments else first.end
    walk.report(
        "PW292",
        "`self` is no longer passed to workers",
        first,
        helps=("leave it out",),
        fix=Fix(first.start, end, ""),
    )


def check_freely(walk: Walk, arguments: Sequence[tree.Expression]) -> list[Type]:
    """Check arguments of which nothing is expected."""
    named = given_by_name(walk, arguments)
    return [ANY if argument in named else walk.expression(argument) for argument in arguments]


def given_by_name(walk: Walk, arguments: Sequence[tree.Expression]) -> list[tree.Expression]:
    """The arguments of the form `name=value`, where no such variable exists: the first is reported."""
    named = [
        argument
        for argument in arguments
        if isinstance(argument, tree.Assign)
        and argument.operator.symbol == "="
        and isinstance(argument.target, tree.Name)
        and walk.find(argument.target.name) is None
    ]
    for argument in named:
        if argument is named[0]:
            text = "arguments are given by their position, not by name"
            shown = walk.module.source[argument.value.span].partition("\n")[0][:30]
            walk.report("PW120", text, argument.target, helps=(f"write `{shown}` in its place",))
        walk.expression(argument.value)
    return list(named)


def check_arguments(
    walk: Walk, call: tree.Call, signature: Signature, name: str, secondary: tuple[Secondary, ...] = ()
) -> list[Type]:
    """Check the number and the types of arguments; returns their types."""
    given = len(call.arguments)
    broken = any(isinstance(argument, tree.Error) for argument in call.arguments)
    if not broken and not _accepts(signature, given, name):
        counted = "no argument or 2" if name == "random" else signature.count_text()
        text = f"`{name}` takes {counted}, {given} given"
        helps = (f"write `{name}({_parameters_text(signature)})`",) if _is_named(signature) else ()
        walk.report("PW140", text, call, secondary=secondary, helps=helps)
    kinds: list[Type] = []
    named = given_by_name(walk, call.arguments)
    for position, argument in enumerate(call.arguments):
        if argument in named:
            kinds.append(ANY)
            continue
        parameter = signature.expected(position)
        expected = parameter.type if parameter is not None else ANY
        kind = walk.expression(argument, None if expected is ANY else expected)
        if is_known(expected):
            walk.fits(expected, kind, argument)
        kinds.append(kind)
    return kinds


def _accepts(signature: Signature, given: int, name: str) -> bool:
    # `random` takes both of its bounds or none.
    return signature.accepts_count(given) and not (name == "random" and given == 1)


def _is_named(signature: Signature) -> bool:
    return bool(signature.parameters) and all(parameter.name for parameter in signature.parameters)


def _parameters_text(signature: Signature) -> str:
    return ", ".join(_parameter_text(parameter) for parameter in signature.parameters)


def _parameter_text(parameter: LibraryParameter) -> str:
    return parameter.name if parameter.required else f"{parameter.name}?"


def refuse_unsendable(walk: Walk, kind: Type, node: tree.Node) -> None:
    """Say when a value is, or holds, something that cannot leave its worker."""
    waiting = [kind]
    while waiting:
        found = waiting.pop()
        if found is MAILBOX or found is SPEC:
            what = "a mailbox" if found is MAILBOX else "a worker spec"
            helps = ("send its name instead and write `self.session.mailbox[name]` there",)
            walk.report("PW145", f"{what} cannot be sent", node, helps=helps if found is MAILBOX else ())
            return
        if isinstance(found, Record):
            waiting.extend(field.type for field in found.fields)
        elif isinstance(found, ArrayOf):
            waiting.append(found.element)


# Functions by name


def function_argument(
    walk: Walk, node: tree.Expression, *, required: bool, elements: Type = ANY
) -> Called | None:
    """Check the `f` of `xs.map(f)` and of `xs | f`, where `xs` is of type `elements`; returns what it is.

    Without `required`, a value is fine too.
    """
    inner = tree.bare(node)
    callee = function_named(walk, inner)
    if callee is None:
        before = len(walk.found)
        kind = walk.expression(node)
        if required and len(walk.found) == before and not isinstance(inner, tree.Error):
            _not_a_function(walk, inner, kind)
        return None
    called = Called(callee, how_called(walk, callee))
    walk.module.functions[inner] = walk.module.functions[node] = called
    signature = signature_of(walk, callee)
    if isinstance(callee, Builtin) and callee.name == "restart":
        _restart_elsewhere(walk, inner)
    elif isinstance(callee, Builtin) and callee.name == "version":
        _check_version_name(walk, inner)
    elif signature is not None and not signature.accepts_count(1):
        text = f"`{callee.name}` takes {signature.count_text()}, 1 given"
        walk.report("PW140", text, inner, secondary=_declared_at(walk, callee))
    elif signature is not None:
        _check_elements(walk, inner, called, signature, elements)
    return called


def _check_elements(
    walk: Walk, node: tree.Node, called: Called, signature: Signature, elements: Type
) -> None:
    """Say when a function cannot take the elements that it is applied to."""
    parameter = signature.expected(0)
    array = definition_of(elements)
    if parameter is None or not isinstance(array, ArrayOf):
        return
    for kind in array.parts or (array.element,):
        if not overlap(parameter.type, kind):
            wanted, seen = describe(parameter.type), found_name(parameter.type, kind)
            text = f"`{called.callee.name}` takes `{wanted}`, and an element is `{seen}`"
            walk.report("PW141", text, node, secondary=_declared_at(walk, called.callee))
            return


def _not_a_function(walk: Walk, node: tree.Node, kind: Type) -> None:
    undefined = isinstance(node, tree.Name) and node.name in walk.body.undefined
    if not undefined:
        walk.report("PW141", f"expected the name of a `fun` or worker, found {_found(kind)}", node)


def _found(kind: Type) -> str:
    return f"`{describe(kind)}`" if is_known(kind) else "a value"


def function_named(walk: Walk, node: tree.Expression) -> Callee | None:
    """The function that an expression names, if it does."""
    if isinstance(node, tree.Name):
        return _as_callee(walk, walk.find(node.name), node)
    if isinstance(node, tree.Chain) and isinstance(node.base, tree.Name) and len(node.links) == 1:
        link = node.links[0]
        if isinstance(link, tree.Member) and isinstance(walk.find(node.base.name), Namespace):
            symbol = namespace_member(walk, node.base, link)
            return symbol if isinstance(symbol, (Declared, Builtin)) else None
    return None


def _as_callee(walk: Walk, symbol: Symbol | None, node: tree.Name) -> Callee | None:
    if isinstance(symbol, Namespace):
        walk.use(node.name, node)
        return namespace_main(walk, symbol, node)
    if isinstance(symbol, Declared) or (isinstance(symbol, Builtin) and symbol.name in FUNCTIONS):
        walk.use(node.name, node)
        return symbol
    return None


# Modules


def namespace_member(walk: Walk, base: tree.Name, member: tree.Member) -> Symbol | None:
    """What `ns.name` refers to; says so when it is not visible."""
    namespace = walk.use(base.name, base)
    if not isinstance(namespace, Namespace):
        return None
    symbol = _member_of(walk, namespace, member.name)
    if symbol is not None:
        walk.module.members[member] = symbol
    return symbol


def _member_of(walk: Walk, namespace: Namespace, member: tree.Identifier) -> Symbol | None:
    name = member.name
    if namespace.module == "std":
        return _library_member(walk, member)
    scope = walk.world.scopes.get(namespace.module)
    if scope is None or not name:
        return None
    found = scope.shown(name) if name != "default" else (scope.default or scope.shown(name))
    if found is not None:
        return default_of(walk, found) if name == "default" else found
    if scope.may_show(name):
        return None
    hidden = name in scope.declared or name in scope.types
    helps = (f"write `export` before its declaration in {scope.module.path}",) if hidden else ()
    report_invisible(walk, namespace.name, member, scope.shown_names(), helps)
    return None


def default_of(walk: Walk, found: Symbol) -> Symbol | None:
    """What a default export runs: of a trait its first method."""
    if isinstance(found, DeclaredTrait):
        methods = [method for method in found.node.methods if isinstance(method, tree.Declaration)]
        return Declared(found.module, methods[0], found.node) if methods else None
    del walk
    return found


def _library_member(walk: Walk, member: tree.Identifier) -> Symbol | None:
    if member.name in FUNCTIONS or member.name == "args":
        return Builtin(member.name)
    report_invisible(walk, "std", member, list(FUNCTIONS), ())
    return None


def report_invisible(
    walk: Walk, module: str, member: tree.Identifier, shown: Sequence[str], helps: tuple[str, ...]
) -> None:
    """Say that a module does not show a name."""
    near = walk.suggest(member.name, shown)
    label = f"did you mean `{near}`?" if near else ""
    text = f"`{module}` has no visible `{member.name}`"
    walk.report("PW126", text, member, label=label, helps=helps)


def namespace_main(walk: Walk, namespace: Namespace, node: tree.Node) -> Callee | None:
    """What a call of a module means; says so when it means nothing."""
    scope = walk.world.scopes.get(namespace.module)
    if scope is None:
        return None
    main = scope.main()
    found = default_of(walk, main) if main is not None else None
    if isinstance(found, Declared) or scope.broken:
        return found if isinstance(found, Declared) else None
    name = namespace.module.rpartition("/")[2]
    text = f"`{namespace.name}` has no default export, and no visible worker or fun named `{name}`"
    near = scope.shown_names()[:3]
    helps = tuple(f"write `{namespace.name}.{one}(…)`" for one in near)
    walk.report("PW126", text, Span(node.start, node.end), helps=helps)
    return None

"""Chains: members, calls and indexes behind a value; `self`, mailboxes and delegates."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.language import _tree as tree
from bartack.language._check_expressions import not_a_value
from bartack.language._check_functions import (
    call_function,
    check_arguments,
    check_freely,
    function_argument,
    function_named,
    namespace_main,
    namespace_member,
    refuse_unsendable,
)
from bartack.language._check_mail import RECEIVING, SENDING, MailUse, Part, message_fields
from bartack.language._check_walk import Handler, Walk, is_known, may_be
from bartack.language._library import (
    DELEGATE_OPTIONS,
    SELF_MEMBERS,
    SEND_OPTIONS,
    SESSION_MEMBERS,
    TAKES_FUNCTION,
    Signature,
    members,
)
from bartack.language._program import (
    Builtin,
    Called,
    Declared,
    DeclaredTrait,
    DeclaredType,
    Local,
    Namespace,
    Symbol,
)
from bartack.language._types import (
    ANY,
    ARRAY,
    MAILBOX,
    NUMBER,
    SESSION,
    SPEC,
    STRING,
    Type,
    definition_of,
    describe,
)


def _chain(walk: Walk, node: tree.Chain, expected: Type | None) -> Type:
    base = node.base
    if all(isinstance(link, tree.AwaitMember) for link in node.links):
        return walk.expression(base, expected)
    if isinstance(base, tree.SelfValue):
        return _self_chain(walk, node)
    if isinstance(base, tree.Name):
        return _name_chain(walk, node, base)
    return _follow(walk, node, 0, walk.expression(base))


def _first_link(node: tree.Chain) -> tree.Link:
    return node.links[0]


def _name_chain(walk: Walk, node: tree.Chain, base: tree.Name) -> Type:
    first = node.links[0]
    symbol = walk.use(base.name, base)
    if isinstance(symbol, Namespace):
        return _namespace_chain(walk, node, base, symbol)
    if isinstance(symbol, Declared) or (isinstance(symbol, Builtin) and symbol.name != "args"):
        if isinstance(first, tree.Call):
            return _follow(walk, node, 1, _call(walk, node, symbol, first, base.name))
        not_a_value(walk, base, f"`{base.name}` is a function")
        return _follow(walk, node, 0, ANY)
    if isinstance(symbol, DeclaredTrait):
        not_a_value(walk, base, f"`{base.name}` is a trait")
        return _follow(walk, node, 0, ANY)
    if isinstance(symbol, Local) and isinstance(first, tree.Call):
        return _called_variable(walk, node, base, first)
    return _follow(walk, node, 0, ANY if symbol is None else walk.kind_of(symbol))


def _called_variable(walk: Walk, node: tree.Chain, base: tree.Name, call: tree.Call) -> Type:
    helps: tuple[str, ...] = ()
    hidden = walk.names.value(base.name)
    if hidden is not None:
        helps = (f"the variable hides the function `{base.name}`; give it another name",)
    walk.report("PW141", f"`{base.name}` is a variable; it cannot be called", base, helps=helps)
    check_freely(walk, call.arguments)
    return _follow(walk, node, 1, ANY)


def _call(walk: Walk, node: tree.Chain, symbol: Declared | Builtin, call: tree.Call, name: str) -> Type:
    if isinstance(symbol, Builtin) and symbol.name == "spec":
        return _spec(walk, symbol, call)
    before = walk.specs
    kind = call_function(walk, symbol, call, name, spelled=bool(node.spelled) or walk.spelled)
    walk.specs = before
    if isinstance(symbol, Builtin):
        _library_mail(walk, symbol.name, call)
    return kind


def _spec(walk: Walk, symbol: Builtin, call: tree.Call) -> Type:
    walk.module.calls[call] = Called(symbol, "call")
    outside, walk.specs = walk.specs, True
    if len(call.arguments) != 1:
        walk.report("PW140", f"`spec` takes 1 argument, {len(call.arguments)} given", call)
        check_freely(walk, call.arguments)
    else:
        _spec_element(walk, call.arguments[0])
    walk.specs = outside
    return SPEC


def _library_mail(walk: Walk, name: str, call: tree.Call) -> None:
    """Note what functions of the library do with mailboxes."""
    arguments = call.arguments
    if name == "broadcast" and arguments:
        names = tree.bare(arguments[0])
        literal = isinstance(names, tree.Array)
        for element in names.elements if isinstance(names, tree.Array) else ():
            text = element.literal if isinstance(element, tree.String) else None
            fields = message_fields(arguments[1]) if len(arguments) > 1 else None
            _note(walk, text, "send", element, fields)
        if not literal:
            _note(walk, None, "send", call, None)
    elif name == "monitor" and len(arguments) > 1:
        box = tree.bare(arguments[1])
        text = box.literal if isinstance(box, tree.String) else None
        _note(walk, text, "send", arguments[1], None)


def _note(walk: Walk, name: str | None, part: Part, at: tree.Node, fields: frozenset[str] | None) -> MailUse:
    use = MailUse(name, part, walk.module.path, at.span, fields)
    walk.mail.append(use)
    return use


# Modules


def _namespace_chain(walk: Walk, node: tree.Chain, base: tree.Name, symbol: Namespace) -> Type:
    first = node.links[0]
    if isinstance(first, tree.Call):
        callee = namespace_main(walk, symbol, base)
        if callee is None:
            check_freely(walk, first.arguments)
            return _follow(walk, node, 1, ANY)
        return _follow(walk, node, 1, _call(walk, node, callee, first, base.name))
    if not isinstance(first, tree.Member):
        not_a_value(walk, base, f"`{base.name}` is a module")
        return _follow(walk, node, 0, ANY)
    found = namespace_member(walk, base, first)
    name = f"{base.name}.{first.name.name}"
    second = node.links[1] if len(node.links) > 1 else None
    if isinstance(found, (Declared, Builtin)) and isinstance(second, tree.Call):
        return _follow(walk, node, 2, _call(walk, node, found, second, first.name.name))
    if found is not None and not _is_args(found):
        sort = "type" if isinstance(found, DeclaredType) else "function"
        not_a_value(walk, base, f"`{name}` is a {sort}")
    elif isinstance(second, tree.Call):
        check_freely(walk, second.arguments)
        return _follow(walk, node, 2, ANY)
    return _follow(walk, node, 1, ANY)


def _is_args(symbol: Symbol) -> bool:
    return isinstance(symbol, Builtin) and symbol.name == "args"


# Links


def _follow(walk: Walk, node: tree.Chain, start: int, kind: Type) -> Type:
    """Check the links from `start` on, behind a value of a type."""
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
            kind = _bad_call(walk, link, kind)
        at += 1
    return kind


def _bad_call(walk: Walk, call: tree.Call, kind: Type) -> Type:
    check_freely(walk, call.arguments)
    if is_known(kind):
        walk.report("PW141", f"`{describe(kind)}` cannot be called", call)
    return ANY


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
        return ANY
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
    walk.report("PW146", text, link.name, label=label)
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
    check_freely(walk, call.arguments)
    if found is None:
        return _no_member(walk, plural, link, list(known))
    walk.report("PW146", f"`{name}` is not a function; write `.{name}`", link.name)
    return found


def _method_with_function(walk: Walk, kind: Type, link: tree.Member, call: tree.Call) -> Type:
    name = link.name.name
    table = members(definition_of(kind))
    if table is not None and name not in table[1]:
        function_argument(walk, call.arguments[0], required=False)
        return _no_member(walk, table[0], link, list(table[1]))
    worker = function_named_worker(walk, call.arguments[0])
    function_argument(walk, call.arguments[0], required=table is not None)
    if name != "map":
        return ANY if name == "find" or table is None else ARRAY
    return ARRAY if table is not None or worker else ANY


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
    return STRING if table is not None and table[0] == "strings" else ANY


# Self


def _self_chain(walk: Walk, node: tree.Chain) -> Type:
    first = node.links[0]
    if not isinstance(first, tree.Member):
        walk.expression(node.base)
        return _follow(walk, node, 0, ANY)
    second = node.links[1] if len(node.links) > 1 else None
    name = first.name.name
    if name in walk.body.methods:
        return _own_method(walk, node, first, walk.body.methods[name])
    if name == "delegate":
        if isinstance(second, tree.Call):
            return _follow(walk, node, 2, _delegate(walk, node, second))
        not_a_value(walk, first.name, "`self.delegate` is a function")
        return _follow(walk, node, 1, ANY)
    if name == "session":
        return _session(walk, node)
    if name and name not in _SELF_VALUES:
        _no_self_member(walk, "self", first, (*SELF_MEMBERS, *walk.body.methods))
    return _follow(walk, node, 1, _SELF_VALUES.get(name, ANY))


_SELF_VALUES: dict[str, Type] = {"path": STRING, "inbox": MAILBOX}


def _no_self_member(walk: Walk, owner: str, link: tree.Member, known: Sequence[str]) -> None:
    near = walk.suggest(link.name.name, known)
    label = f"did you mean `{near}`?" if near else ""
    has = ", ".join(f"`{name}`" for name in known)
    walk.report("PW124", f"`{owner}` has no `{link.name.name}`; it has {has}", link.name, label=label)


def _own_method(walk: Walk, node: tree.Chain, link: tree.Member, method: tree.Declaration) -> Type:
    declared = Declared(walk.module.id, method, walk.body.trait)
    walk.module.members[link] = declared
    second = node.links[1] if len(node.links) > 1 else None
    if isinstance(second, tree.Call):
        return _follow(walk, node, 2, call_function(walk, declared, second, f"self.{link.name.name}"))
    not_a_value(walk, link.name, f"`self.{link.name.name}` is a function")
    return _follow(walk, node, 1, ANY)


def _session(walk: Walk, node: tree.Chain) -> Type:
    second = node.links[1] if len(node.links) > 1 else None
    if not isinstance(second, tree.Member):
        return _follow(walk, node, 1, SESSION)
    name = second.name.name
    if name == "mailbox":
        return _mailbox(walk, node)
    if name and name not in SESSION_MEMBERS:
        _no_self_member(walk, "self.session", second, tuple(SESSION_MEMBERS))
        return _follow(walk, node, 2, ANY)
    return _follow(walk, node, 2, STRING)


# Mailboxes


def _mailbox(walk: Walk, node: tree.Chain) -> Type:
    """`self.session.mailbox` and what follows."""
    which = node.links[2] if len(node.links) > 2 else None
    name: str | None = None
    if isinstance(which, tree.Member):
        name = which.name.name
    elif isinstance(which, tree.Index):
        walk.expression(which.index)
        index = tree.bare(which.index)
        name = index.literal if isinstance(index, tree.String) else None
    else:
        _note(walk, None, "both", node, None)
        return _follow(walk, node, 2, ANY)
    if name != "":
        _note_use(walk, node, name)
    return _follow(walk, node, 3, MAILBOX)


def _note_use(walk: Walk, node: tree.Chain, name: str | None) -> None:
    what = node.links[3] if len(node.links) > 3 else None
    call = node.links[4] if len(node.links) > 4 else None
    if not isinstance(what, tree.Member) or not isinstance(call, tree.Call):
        _note(walk, name, "both", node, None)
        return
    word = what.name.name
    span = tree.Identifier(node.start, what.end, "")
    if word in SENDING:
        fields = message_fields(call.arguments[0]) if call.arguments else None
        _note(walk, name, "send", span, fields)
    elif word in RECEIVING:
        use = _note(walk, name, "receive", span, None)
        if word == "receive" and all(isinstance(link, tree.AwaitMember) for link in node.links[5:]):
            walk.received[node] = use
    else:
        _note(walk, name, "both", span, None)


def _check_message(walk: Walk, word: str, call: tree.Call, kinds: list[Type]) -> None:
    if word in SENDING and kinds:
        refuse_unsendable(walk, kinds[0], call.arguments[0])
    if word == "send" and len(call.arguments) == 2:
        _check_options(walk, call.arguments[1], SEND_OPTIONS)


def _check_options(walk: Walk, node: tree.Expression, known: Sequence[str]) -> None:
    options = tree.bare(node)
    if not isinstance(options, tree.Object):
        return
    for field in options.fields:
        if isinstance(field, tree.ObjectField) and field.key.name not in known:
            near = walk.suggest(field.key.name, known)
            label = f"did you mean `{near}`?" if near else ""
            helps = ("the options are " + ", ".join(f"`{name}`" for name in known),)
            text = f"unknown option `{field.key.name}`"
            walk.report("PW143", text, field.key, label=label, helps=helps)


# Delegate


def _delegate(walk: Walk, node: tree.Chain, call: tree.Call) -> Type:
    arguments = call.arguments
    if call.old_self is not None and not node.spelled:
        walk.expression(call.old_self)
    if not 1 <= len(arguments) <= 2:
        text = f"`self.delegate` takes 1 to 2 arguments, {len(arguments)} given"
        walk.report("PW140", text, call, helps=("write `self.delegate([worker(x)], options?)`",))
    if arguments:
        outside, walk.specs = walk.specs, True
        spelled, walk.spelled = walk.spelled, bool(node.spelled)
        _specs(walk, arguments[0])
        walk.specs, walk.spelled = outside, spelled
    for options in arguments[1:]:
        walk.expression(options)
        _check_options(walk, options, DELEGATE_OPTIONS)
    if _fails_the_run(arguments):
        walk.risky.append(call)
    return ARRAY


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
                _spec_element(walk, element)
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
    first = _first_link(node)
    symbol = walk.find(node.base.name)
    return isinstance(first, tree.Call) and isinstance(symbol, Declared) and symbol.node.word == "worker"


def _spec_element(walk: Walk, node: tree.Expression) -> None:
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


HANDLERS: dict[type[tree.Node], Handler] = {tree.Chain: _chain}

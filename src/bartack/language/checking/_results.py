"""What functions return: a result type without a `return`, and results that are used and never there.

Both need all bodies, since a body may end by a call of a function that only throws. `note_uses` collects while the
bodies are walked, `check_results` reports when all of them are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bartack.language.checking._library import TAKES_FUNCTION
from bartack.language.checking._scope import Delegated, ResultUse
from bartack.language.checking._types import NULL, describe, overlap
from bartack.language.checking._walk import Walk
from bartack.language.checking.program import Builtin, Called, Declared
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Secondary
from bartack.language.syntax._source import Span

# While bodies are walked


def note_uses(walk: Walk, node: tree.Chain) -> None:
    """Note which functions a chain calls whose results are used."""
    last = max(at for at, link in enumerate(node.links) if not isinstance(link, tree.AwaitMember))
    for at, link in enumerate(node.links):
        if not isinstance(link, tree.Call):
            continue
        span = Span(node.start, link.end)
        used = at != last or node is not walk.unused
        delegated = walk.delegated.get(link)
        if delegated is not None:
            known = [callee for callee in delegated.callees if callee is not None]
            if used and known and len(known) == len(delegated.callees):
                walk.uses.append(ResultUse(tuple(known), span))
        elif link in walk.module.calls:
            if used:
                note_use(walk, walk.module.calls[link], span)
        elif len(link.arguments) == 1 and at:
            _note_applied(walk, node.links[at - 1], link.arguments[0], used=used)


def _note_applied(walk: Walk, before: tree.Link, function: tree.Expression, *, used: bool) -> None:
    """Note the use of a function that is applied to the elements of an array; only `map` may be for its effects."""
    called = walk.module.functions.get(function)
    if called is None or not isinstance(before, tree.Member) or before.name.name not in TAKES_FUNCTION:
        return
    if used or before.name.name != "map":
        note_use(walk, called, function.span)


def note_use(walk: Walk, called: Called, span: Span) -> None:
    """Note that the result of a function is used."""
    if isinstance(called.callee, Declared) and called.how != "spec":
        walk.uses.append(ResultUse((called.callee,), span))


def discarded(value: tree.Expression) -> tree.Node:
    """The expression whose value is not used when that of a statement is not."""
    value = tree.bare(value)
    while isinstance(value, tree.Binary) and value.operators[0].symbol in {"||", "&&"}:
        value = tree.bare(value.operands[-1])
    return value


def note_taken_apart(walk: Walk, pattern: tree.ArrayPattern, value: tree.Expression) -> None:
    """Note the results of a delegate that get names; the array itself is not used then."""
    chain = tree.bare(value)
    delegated = _delegated(walk, chain)
    if delegated is None:
        return
    walk.unused = chain
    if not delegated.exact:
        return
    for element, callee in zip(pattern.elements, delegated.callees, strict=False):
        named = isinstance(element, tree.Binding) and not element.name.name.startswith("_")
        if callee is not None and (named or isinstance(element, (tree.ObjectPattern, tree.ArrayPattern))):
            walk.uses.append(ResultUse((callee,), element.span))


def _delegated(walk: Walk, chain: tree.Node) -> Delegated | None:
    if not isinstance(chain, tree.Chain):
        return None
    links = [link for link in chain.links if not isinstance(link, tree.AwaitMember)]
    return walk.delegated.get(links[-1]) if links and isinstance(links[-1], tree.Call) else None


# When all bodies are known


def check_results(walks: Mapping[str, Walk]) -> None:
    """Report results that are never there, in every module."""
    endings = _Endings(walks)
    for walk in walks.values():
        for declaration in walk.bodies:
            _check_promise(walk, declaration, endings)
        for use in walk.uses:
            if all(map(endings.returns_nothing, use.callees)):
                _report_use(walk, use)


def _check_promise(walk: Walk, node: tree.Declaration, endings: _Endings) -> None:
    result = None if node.result is None else walk.module.types.get(node.result)
    if node.result is None or result is None or overlap(result, NULL):
        return
    if endings.ends_without_value(Declared(walk.module.id, node)):
        text = f"expected a `return` with `{describe(result)}`, and `{node.name.name}` has none"
        walk.report("PW141", text, node.result, helps=_help(node), secondary=_last_of(node))


def _help(node: tree.Declaration) -> tuple[str, ...]:
    last = _last_statement(node)
    if not isinstance(last, tree.ExpressionStatement):
        return ("write `return …` where the value is known",)
    word = " think" if isinstance(tree.bare(last.value), tree.Prompt) else ""
    return (f"the value of the last statement is not returned; write `return{word} …`",)


def _last_of(node: tree.Declaration, file: str = "") -> tuple[Secondary, ...]:
    last = _last_statement(node)
    if not isinstance(last, tree.ExpressionStatement):
        return ()
    return (Secondary(last.span, "this value is not returned", file),)


def _last_statement(node: tree.Declaration) -> tree.Statement | None:
    body = node.body
    return body.statements[-1] if isinstance(body, tree.Block) and body.statements else None


def _report_use(walk: Walk, use: ResultUse) -> None:
    names = list(dict.fromkeys(f"`{callee.name}`" for callee in use.callees))
    verb = "never returns" if len(names) == 1 else "never return"
    first = use.callees[0]
    file = "" if first.module == walk.module.id else walk.world.scopes[first.module].module.path
    walk.report(
        "PW227",
        f"{' and '.join(names)} {verb} a value; this is always null",
        use.span,
        helps=_help(first.node),
        secondary=_last_of(first.node, file),
    )


class _Endings:
    """Whether bodies come to their end without a value. In doubt they do not, so that no alarm is false."""

    def __init__(self, walks: Mapping[str, Walk]) -> None:
        self._walks = walks
        self._known: dict[tree.Declaration, bool] = {}

    def returns_nothing(self, callee: Declared) -> bool:
        """Whether a call always returns null."""
        return callee.node.result is None and self.ends_without_value(callee)

    def ends_without_value(self, callee: Declared) -> bool:
        """Whether a function has no `return` with a value, and its end can be reached."""
        walk = self._walks.get(callee.module)
        node = callee.node
        if walk is None or not walk.is_sound(node.start, node.end):
            return False
        return walk.bodies.get(node) is False and self._completes(callee)

    def _completes(self, callee: Declared) -> bool:
        node = callee.node
        if node not in self._known:
            # A function that ends by calling itself is taken for one that never ends.
            self._known[node] = False
            calls = self._walks[callee.module].module.calls
            self._known[node] = isinstance(node.body, tree.Block) and self._reaches_end(node.body, calls)
        return self._known[node]

    def _reaches_end(self, block: tree.Block | tree.Error, calls: Mapping[tree.Call, Called]) -> bool:
        if not isinstance(block, tree.Block):
            return False
        last = block.statements[-1] if block.statements else None
        if isinstance(last, (tree.If, tree.Try)):
            blocks = _blocks_of(last)
            return blocks is None or any(self._reaches_end(one, calls) for one in blocks)
        if isinstance(last, tree.While):
            return not _is_endless(last)
        if isinstance(last, tree.ExpressionStatement):
            return self._continues(tree.bare(last.value), calls)
        return not isinstance(last, (tree.Succeed, tree.Break, tree.Continue, tree.Error))

    def _continues(self, value: tree.Expression, calls: Mapping[tree.Call, Called]) -> bool:
        """Whether the program continues after an expression."""
        if isinstance(value, tree.Throw):
            return False
        for call in _own_calls(value):
            called = calls.get(call)
            if called is None:
                continue
            if isinstance(called.callee, Builtin):
                if called.callee.name in {"assert", "restart"}:
                    return False
            elif (
                not self._completes(called.callee)
                and self._walks[called.callee.module].bodies.get(called.callee.node) is False
            ):
                return False
        return True


def _blocks_of(statement: tree.If | tree.Try) -> list[tree.Block | tree.Error] | None:
    """The blocks of which one runs; None when perhaps none does."""
    if isinstance(statement, tree.Try):
        return [statement.body, statement.handler]
    if statement.otherwise is None:
        return None
    return [*(branch.body for branch in statement.branches), statement.otherwise]


def _own_calls(value: tree.Expression) -> Iterator[tree.Call]:
    if isinstance(value, tree.Chain):
        yield from (link for link in value.links if isinstance(link, tree.Call))


def _is_endless(loop: tree.While) -> bool:
    condition = tree.bare(loop.condition)
    if not isinstance(condition, tree.Boolean) or not condition.value:
        return False
    waiting: list[tree.Node] = [loop.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tree.Break):
            return False
        if not isinstance(node, (tree.While, tree.For)):
            waiting.extend(tree.children(node))
    return True

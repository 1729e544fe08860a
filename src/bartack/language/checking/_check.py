"""The checker: everything that can be known about a program before it runs.

`check` is the door. It loads the modules (`modules.py`), lets each declare its names, binds imports, resolves types and
signatures, walks every body once (`_walk.py`), and at last looks at the program as a whole. What it finds out is
kept in the tables of `program.py`; it never raises, whatever the text.
"""

from __future__ import annotations

from collections.abc import Iterable

from bartack.language.checking import _chains as _check_chains
from bartack.language.checking import _expressions as _check_expressions
from bartack.language.checking import _shell as _check_shell
from bartack.language.checking import _statements as _check_statements
from bartack.language.checking import _text as _check_text
from bartack.language.checking._declarations import (
    bind_imports,
    check_declaration,
    check_skills,
    check_trait,
    declare_items,
    define_items,
    report_unused_imports,
)
from bartack.language.checking._mail import check_mail
from bartack.language.checking._patterns import bind_name, bound_names, report_undefined, report_unread
from bartack.language.checking._results import check_results
from bartack.language.checking._scope import Body, ModuleScope, Scope, World
from bartack.language.checking._statements import check_statements
from bartack.language.checking._text import report_secrets
from bartack.language.checking._types import ANY
from bartack.language.checking._walk import Handler, Walk
from bartack.language.checking.modules import Graph, Importer, Loader, load
from bartack.language.checking.program import Checked, Program
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, Secondary, settle

_HANDLERS: dict[type[tree.Node], Handler] = {
    **_check_statements.HANDLERS,
    **_check_expressions.HANDLERS,
    **_check_chains.HANDLERS,
    **_check_text.HANDLERS,
    **_check_shell.HANDLERS,
}


def check(loader: Loader, entry: str) -> Checked:
    """Check a program: the module at the path `entry`, and every module it leads to.

    Args:
        loader: Returns the text of a module by its path from the project root.
        entry: The path of the module the program starts with.
    """
    graph = load(loader, entry)
    walks = _walk_all(graph)
    check_results(walks)
    found = {name: [*graph.found[name], *walk.found] for name, walk in walks.items()}
    _check_whole(walks, found)
    return _settled(graph, found)


def _walk_all(graph: Graph) -> dict[str, Walk]:
    world = World()
    walks: dict[str, Walk] = {}
    for name, module in graph.modules.items():
        errors = graph.syntax_errors[name]
        scope = world.scopes[name] = ModuleScope(module, bool(errors))
        walks[name] = Walk(scope, world, _HANDLERS, errors)
        world.assigned |= walks[name].assigned
    for walk in walks.values():
        declare_items(walk)
    for walk in walks.values():
        bind_imports(walk, graph)
    for walk in walks.values():
        define_items(walk)
    for name, walk in walks.items():
        _check_module(walk, graph.importers.get(name))
    return walks


def _check_whole(walks: dict[str, Walk], found: dict[str, list[Diagnostic]]) -> None:
    by_path = {walk.module.path: name for name, walk in walks.items()}
    for walk, problem in check_skills(walks.values()):
        found[walk.module.id].append(problem)
    for problem in check_mail([use for walk in walks.values() for use in walk.mail]):
        found[by_path[problem.file]].append(problem)


def _settled(graph: Graph, found: dict[str, list[Diagnostic]]) -> Checked:
    diagnostics = [
        one
        for name, module in graph.modules.items()
        for one in settle(found[name], module.source, module.syntax)
    ]
    return Checked(Program(tuple(graph.modules.values())), tuple(diagnostics))


# One module


def _check_module(walk: Walk, importer: Importer | None) -> None:
    module = walk.module.syntax
    statements = _statements(module)
    if statements:
        _check_place(walk, statements[0], importer)
    walk.script_names = frozenset(name for one in statements for name in _bound(one))
    for unit in module.units:
        if isinstance(unit, tree.Declaration):
            _check_declared(walk, unit, None)
        elif isinstance(unit, tree.Trait):
            check_trait(walk, unit)
            for method in unit.methods:
                if isinstance(method, tree.Declaration):
                    _check_declared(walk, method, unit)
    _check_script(walk, statements)
    if walk.is_sound(module.start, module.end):
        report_unused_imports(walk)
    report_secrets(walk)


def _statements(module: tree.Module) -> list[tree.Unit]:
    """What runs when a module is the entry."""
    if module.script is not None:
        return list(module.script.statements)
    items = (tree.Import, tree.Declaration, tree.Trait, tree.TypeDeclaration)
    return [unit for unit in module.units if not isinstance(unit, items)]


def _bound(statement: tree.Unit) -> Iterable[str]:
    return bound_names(statement.pattern) if isinstance(statement, tree.Var) else ()


def _check_place(walk: Walk, first: tree.Node, importer: Importer | None) -> None:
    """Statements may stand at the top of a module that nothing imports, and not beside a `main`."""
    if importer is not None:
        file = "" if importer.path == walk.module.path else importer.path
        walk.report(
            "PW115",
            "an imported module may only declare",
            first,
            helps=(
                "move the statements into a `fun` or worker, or what others need into a module of its own",
            ),
            secondary=(Secondary(importer.span, "imported here", file),),
        )
        return
    main = walk.names.declared.get("main")
    if main is not None:
        walk.report(
            "PW172",
            "statements beside `main`",
            first,
            helps=("move them into `main`, or give `main` another name",),
            secondary=(Secondary(main.node.name.span, "the program would start here"),),
        )


def _begin(walk: Walk, body: Body) -> None:
    walk.body = body
    walk.scope = Scope(None, 0)
    walk.enter()
    walk.status_reads.clear()
    walk.risky.clear()


def _finish(walk: Walk, node: tree.Node) -> None:
    report_undefined(walk)
    if walk.is_sound(node.start, node.end):
        report_unread(walk)


def _check_script(walk: Walk, statements: Iterable[tree.Unit]) -> None:
    _begin(walk, Body())
    walk.top = walk.scope
    check_statements(walk, list(statements), value=True)
    walk.top = None
    _finish(walk, walk.module.syntax)


def _check_declared(walk: Walk, node: tree.Declaration, trait: tree.Trait | None) -> None:
    check_declaration(walk, node, trait)
    signature = walk.world.signatures[node]
    methods = {} if trait is None else walk.methods_of(trait)
    _begin(walk, Body(node, trait, walk.module.types.get(node.result) if node.result else None, methods))
    for parameter, known in zip(node.parameters.items, signature.parameters, strict=True):
        if parameter.default is not None:
            kind = walk.expression(parameter.default, None if known.type is ANY else known.type)
            walk.fits(known.type, kind, parameter.default)
        written = None if parameter.type is None else known.type
        bind_name(walk, parameter.name, "parameter", known.type, written)
    if isinstance(node.body, tree.Block):
        check_statements(walk, node.body.statements)
        walk.bodies[node] = walk.body.returns
    _finish(walk, node)

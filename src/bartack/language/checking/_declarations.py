"""Declarations and imports: what a module declares, what its imports bind, annotations and doc comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bartack.language.checking._functions import report_invisible
from bartack.language.checking._library import FUNCTIONS, NAMES, LibraryParameter, Signature
from bartack.language.checking._scope import BoundImport
from bartack.language.checking._types import ANY, BUILT_IN
from bartack.language.checking._walk import Walk
from bartack.language.checking._written_types import declare_type, define_types, resolve
from bartack.language.checking.modules import LIBRARY, Graph
from bartack.language.checking.program import Builtin, Declared, DeclaredTrait, Namespace, Symbol
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, Secondary, diagnose
from bartack.language.syntax.docs import read_doc

# What a module declares


def declare_items(walk: Walk) -> None:
    """Make the declarations of a module known, so that others can import them."""
    for unit in walk.module.syntax.units:
        if isinstance(unit, tree.Declaration):
            _declare(walk, unit, Declared(walk.module.id, unit))
        elif isinstance(unit, tree.Trait):
            _declare(walk, unit, DeclaredTrait(walk.module.id, unit))
        elif isinstance(unit, tree.TypeDeclaration):
            _declare_type(walk, unit)


def _declare(walk: Walk, unit: tree.Declaration | tree.Trait, symbol: Declared | DeclaredTrait) -> None:
    names = walk.names
    if unit.default and names.default is not None:
        first = names.default.node
        walk.report(
            "PW128",
            "two default exports in one module",
            unit.name,
            secondary=(Secondary(first.name.span, "the first one"),),
        )
    elif unit.default:
        names.default = symbol
    if _is_new(walk, unit.name):
        names.declared[unit.name.name] = symbol
        _check_hidden(walk, unit.name, NAMES)


def _declare_type(walk: Walk, unit: tree.TypeDeclaration) -> None:
    if _is_new(walk, unit.name):
        walk.names.types[unit.name.name] = declare_type(walk, unit)
        _check_hidden(walk, unit.name, BUILT_IN)


def _is_new(walk: Walk, name: tree.Identifier) -> bool:
    if not name.name:
        return False
    first = first_declared(walk, name.name)
    if first is not None:
        walk.declared_twice(name.name, name, first)
    return first is None


def first_declared(walk: Walk, name: str) -> tree.Node | None:
    """Where the module declares or imports a name, if it does."""
    declared = walk.names.declared.get(name) or walk.names.types.get(name)
    if declared is not None:
        return declared.node.name
    bound = walk.names.imports.get(name)
    return bound.node if bound is not None else None


def _check_hidden(walk: Walk, name: tree.Identifier, known: Iterable[str]) -> None:
    if name.name in known:
        walk.report("PW207", f"`{name.name}` hides the built-in `{name.name}`", name)


# What imports bind


def bind_imports(walk: Walk, graph: Graph) -> None:
    """Bind the names of imports, once all modules have declared theirs."""
    for unit in walk.module.syntax.units:
        if isinstance(unit, tree.Import):
            for path in unit.paths:
                _bind_path(walk, graph, path)


def _bind_path(walk: Walk, graph: Graph, path: tree.ImportPath) -> None:
    if isinstance(path, tree.FilePath):
        for name in path.names:
            _bind_namespace(walk, graph, name)
    elif isinstance(path, tree.DottedPath) and path.names:
        _bind_namespace(walk, graph, path.names[-1])
    elif isinstance(path, tree.NamesFrom):
        target = graph.targets.get(path.path)
        for name in path.names:
            _bind(walk, name, _name_of_module(walk, target.module if target else "", name))


def _bind_namespace(walk: Walk, graph: Graph, name: tree.Identifier) -> None:
    target = graph.targets.get(name)
    if target is None:
        _bind(walk, name, None)
    elif target.module != LIBRARY or not target.name:
        _bind(walk, name, Namespace(target.module, name.name))
    elif target.name in NAMES:
        _bind(walk, name, Builtin(target.name))
    else:
        report_invisible(walk, LIBRARY, name, list(FUNCTIONS), ())
        _bind(walk, name, None)


def _name_of_module(walk: Walk, module: str, name: tree.Identifier) -> Symbol | None:
    scope = walk.world.scopes.get(module)
    if scope is None or not name.name:
        return None
    found = scope.shown(name.name)
    if found is None and not scope.may_show(name.name):
        hidden = name.name in scope.declared or name.name in scope.types
        helps = (f"write `export` before its declaration in {scope.module.path}",) if hidden else ()
        report_invisible(walk, module, name, scope.shown_names(), helps)
    return found


def _bind(walk: Walk, name: tree.Identifier, symbol: Symbol | None) -> None:
    """Bind a name; one that leads nowhere is known too, so that its uses stay silent."""
    if _is_new(walk, name):
        known = symbol if symbol is not None else Namespace("", name.name)
        walk.names.imports[name.name] = BoundImport(known, name, used=symbol is None)
        if not isinstance(symbol, Builtin):
            _check_hidden(walk, name, NAMES)


def report_unused_imports(walk: Walk) -> None:
    """Say which imports nothing uses."""
    for name, bound in walk.names.imports.items():
        if not bound.used:
            walk.report("PW202", f"import `{name}` is never used", bound.node)


# Signatures


def define_items(walk: Walk) -> None:
    """Resolve the types of a module's declarations, once all names are bound."""
    define_types(walk, walk.names.types.values())
    for declaration in declarations(walk.module.syntax):
        written = declaration.parameters
        sound = walk.is_sound(written.start, written.end + 1)
        parameters = tuple(_parameter(walk, parameter, sound=sound) for parameter in written.items)
        result = ANY if declaration.result is None else resolve(walk, declaration.result)
        walk.world.signatures[declaration] = Signature(parameters, result, more=not sound)


def _parameter(walk: Walk, node: tree.Parameter, *, sound: bool) -> LibraryParameter:
    """A parameter; where some of them were lost in a syntax error, none is required."""
    kind = ANY if node.type is None else resolve(walk, node.type)
    return LibraryParameter(node.name.name, kind, sound and node.default is None)


def declarations(module: tree.Module) -> Iterator[tree.Declaration]:
    """Every worker, skill, fun and method of a module."""
    for unit in module.units:
        if isinstance(unit, tree.Declaration):
            yield unit
        elif isinstance(unit, tree.Trait):
            yield from (method for method in unit.methods if isinstance(method, tree.Declaration))


def check_declaration(walk: Walk, node: tree.Declaration, trait: tree.Trait | None) -> None:
    """Check everything about a declaration but its body."""
    _check_parameters(walk, node)
    _check_annotations(walk, node.annotations, _place_of(node, trait))
    known = {parameter.name.name for parameter in node.parameters.items}
    _check_doc(walk, node.doc, known)


def check_trait(walk: Walk, node: tree.Trait) -> None:
    """Check everything about a trait but its methods."""
    if not any(_is_agent(base) for base in node.bases):
        walk.report(
            "PW206",
            f"trait `{node.name.name}` has no base `Agent`",
            node.name,
            helps=(f"write `trait {node.name.name}: Agent {{ … }}`",),
        )
    _check_annotations(walk, node.annotations, "trait")
    _check_doc(walk, node.doc, set())
    seen: dict[str, tree.Identifier] = {}
    for method in node.methods:
        if isinstance(method, tree.Declaration) and method.name.name:
            first = seen.setdefault(method.name.name, method.name)
            if first is not method.name:
                walk.declared_twice(method.name.name, method.name, first)


def _is_agent(base: tree.Type) -> bool:
    return isinstance(base, tree.Error) or (
        isinstance(base, tree.NamedType) and [name.name for name in base.names] == ["Agent"]
    )


def _check_parameters(walk: Walk, node: tree.Declaration) -> None:
    default: tree.Parameter | None = None
    for parameter in node.parameters.items:
        if parameter.default is not None:
            default = parameter
        elif default is not None and parameter.name.name:
            walk.report(
                "PW142",
                f"required parameter `{parameter.name.name}` after a default",
                parameter,
                secondary=(Secondary(default.span, "this one has a default"),),
            )


# Annotations and doc comments


def _place_of(node: tree.Declaration, trait: tree.Trait | None) -> str:
    return "method" if trait is not None else node.word


_PLACES = {
    "skill": ("method", "skill"),
    "command": ("method", "skill"),
    "agent": ("method", "skill", "worker", "fun", "trait"),
    "timeout": ("method", "skill", "worker", "fun", "trait"),
    "once": ("method", "worker", "fun"),
}
_ENTRY_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")


def _check_annotations(walk: Walk, annotations: tuple[tree.Annotation, ...], place: str) -> None:
    for annotation in annotations:
        name = annotation.name.name
        if name in _PLACES:
            if place not in _PLACES[name]:
                text = f"`@{name}` has no meaning on a {place}"
                walk.report("PW205", text, annotation)
            else:
                _check_argument(walk, annotation)
        elif name:
            near = walk.suggest(name, _PLACES)
            label = f"did you mean `@{near}`?" if near else ""
            walk.report("PW205", f"unknown annotation `@{name}`", annotation.name, label=label)


def _check_argument(walk: Walk, annotation: tree.Annotation) -> None:
    if isinstance(annotation.argument, tree.Error):
        return
    problem = _ARGUMENTS[annotation.name.name](annotation)
    if problem:
        at = annotation.argument or (annotation.named[0] if annotation.named else annotation)
        walk.report("PW116", problem, at)


def _text_of(annotation: tree.Annotation) -> str | None:
    """The name an annotation gives, written as a word or as a string."""
    argument = annotation.argument
    if isinstance(argument, tree.Name):
        return argument.name
    return argument.literal if isinstance(argument, tree.String) else None


def _timeout_problem(annotation: tree.Annotation) -> str:
    argument = annotation.argument
    fine = isinstance(argument, tree.Number) and argument.value > 0
    return "" if fine else "`@timeout` takes milliseconds"


def _agent_problem(annotation: tree.Annotation) -> str:
    return "" if _text_of(annotation) else "`@agent` takes the name of a configured agent"


def _once_problem(annotation: tree.Annotation) -> str:
    given = annotation.argument is not None or annotation.named
    return "`@once` takes no argument" if given else ""


def _entry_problem(annotation: tree.Annotation) -> str:
    if annotation.argument is None and not annotation.named:
        return ""
    text = _text_of(annotation)
    if text is not None and _ENTRY_NAME.match(entry_name(text)):
        return ""
    return f"`@{annotation.name.name}` takes a name of letters, digits and `-`"


_ARGUMENTS = {
    "timeout": _timeout_problem,
    "agent": _agent_problem,
    "once": _once_problem,
    "skill": _entry_problem,
    "command": _entry_problem,
}


def entry_name(name: str) -> str:
    """The name of a skill or command, made from the name of what declares it."""
    return name.lower().replace("_", "-")


def _check_doc(walk: Walk, doc: tuple[tree.Comment, ...], known: set[str]) -> None:
    for tag in read_doc(doc).tags:
        if tag.word == "arg" and tag.name not in known:
            near = walk.suggest(tag.name, known)
            label = f"did you mean `{near}`?" if near else ""
            walk.report("PW205", f"`@arg {tag.name}` is for no parameter", tag.comment, label=label)


# Skills of a program


class _Entry(NamedTuple):
    sort: str
    name: str
    at: tree.Identifier
    walk: Walk


def check_skills(walks: Iterable[Walk]) -> Iterator[tuple[Walk, Diagnostic]]:
    """Report skills and commands that a program declares twice."""
    seen: dict[tuple[str, str], _Entry] = {}
    for walk in walks:
        for entry in _entries(walk):
            first = seen.setdefault((entry.sort, entry.name), entry)
            if first is not entry:
                file = "" if first.walk is walk else first.walk.module.path
                yield (
                    walk,
                    diagnose(
                        "PW129",
                        f"{entry.sort} `{entry.name}` is declared twice",
                        walk.module.path,
                        entry.at.span,
                        secondary=(Secondary(first.at.span, "first declared here", file),),
                    ),
                )


def _entries(walk: Walk) -> Iterator[_Entry]:
    for node in declarations(walk.module.syntax):
        sorts = {annotation.name.name: annotation for annotation in node.annotations}
        for sort in ("skill", "command"):
            annotation = sorts.get(sort)
            if annotation is not None or (sort == "skill" and node.word == "skill"):
                text = _text_of(annotation) if annotation is not None else None
                name = text or node.name.name
                if name:
                    yield _Entry(sort, entry_name(name), node.name, walk)

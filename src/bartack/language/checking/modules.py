"""The modules of a program: how they are found, in which order they come, and what they show to each other.

Owns import paths, module ids and the graph. Text comes from a loader, so nothing here touches a disk. What the names in
a module mean is decided in `_check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from bartack.language.checking.program import CheckedModule
from bartack.language.parsing._parser import parse
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, diagnose
from bartack.language.syntax._source import Span, Undecodable, decode

MAX_MODULES = 1_000
LIBRARY = "std"
SUFFIX = ".pw"


class NotLoaded(NamedTuple):
    """Why there is no text for a path.

    `found` is the spelling of a file that differs only in letter case, if there is one.
    """

    reason: Literal["missing", "outside", "unreadable"]
    found: str = ""


Loader: TypeAlias = Callable[[str], str | bytes | NotLoaded]
"""Returns the text, or the bytes, of the file at a path from the project root, such as `lib/a.pw`.

The letter case of the path must match the directory entries exactly. A path whose file lies outside the project, also
through a symbolic link, is `outside`.
"""


class Target(NamedTuple):
    """What one word of an import leads to: a module by its id, or a name of the library."""

    module: str
    name: str = ""


class Importer(NamedTuple):
    """Where a module is imported."""

    path: str
    span: Span


class Graph(msgspec.Struct, eq=False):
    """The modules of a program in the order of their imports, the entry first.

    `targets` says what the identifiers of import paths (for names out of a module: the path's string) lead to;
    those that lead nowhere have been reported. `found` holds the diagnostics by the id of the module, `importers`
    where a module is imported first, `syntax_errors` where its text makes no sense.
    """

    modules: dict[str, CheckedModule]
    targets: dict[tree.Node, Target]
    found: dict[str, list[Diagnostic]]
    importers: dict[str, Importer]
    syntax_errors: dict[str, list[int]]


def load(loader: Loader, entry: str) -> Graph:
    """Load the entry and everything it imports, each file once. `entry` is a path from the project root."""
    return _Loading(loader).run(entry)


def module_id(path: str) -> str:
    """The id of the module at a path: the path without suffix."""
    return path.removesuffix(SUFFIX)


class _Wanted(NamedTuple):
    """A module that an import names."""

    module: str
    importer: CheckedModule
    node: tree.Node


class _Loading:
    """One walk over the graph. What a module imports comes right after it, unless it came before."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._graph = Graph({}, {}, {}, {}, {})
        self._failed: dict[str, NotLoaded] = {}
        self._full = False

    def run(self, entry: str) -> Graph:
        loaded = self._loader(entry)
        text = "" if isinstance(loaded, NotLoaded) else loaded
        first = self._add(module_id(entry), entry, text)
        if isinstance(loaded, NotLoaded):
            self._graph.found[first.id].append(_missing(entry, first, Span(0, 0), loaded))
        waiting = self._imports(first)
        while waiting:
            wanted = waiting.pop()
            module = self._enter(wanted)
            if module is not None:
                waiting.extend(self._imports(module))
        return self._graph

    def _add(self, name: str, path: str, text: str | bytes) -> CheckedModule:
        decoded = decode(text) if isinstance(text, bytes) else text
        parsed = parse("" if isinstance(decoded, Undecodable) else decoded, path)
        module = CheckedModule(id=name, path=path, source=parsed.source, syntax=parsed.tree)
        self._graph.modules[name] = module
        self._graph.found[name] = list(parsed.diagnostics)
        if isinstance(decoded, Undecodable):
            self._graph.found[name].append(diagnose("PW100", decoded.message, path, Span(0, 0)))
        errors = (one.span.start for one in self._graph.found[name] if one.severity == "error")
        self._graph.syntax_errors[name] = sorted(errors)
        return module

    def _imports(self, module: CheckedModule) -> list[_Wanted]:
        """What a module imports, last first."""
        wanted: list[_Wanted] = []
        for unit in module.syntax.units:
            if isinstance(unit, tree.Import):
                for path in unit.paths:
                    wanted.extend(self._wanted(module, path))
        return wanted[::-1]

    def _wanted(self, module: CheckedModule, path: tree.ImportPath) -> list[_Wanted]:
        match path:
            case tree.FilePath():
                folders = [folder.name for folder in path.folders]
                return [
                    found
                    for name in path.names
                    for found in self._at(module, path.up, [*folders, name.name], name)
                ]
            case tree.DottedPath() if path.names and path.names[0].name == LIBRARY:
                rest = ".".join(name.name for name in path.names[1:])
                self._graph.targets[path.names[-1]] = Target(LIBRARY, rest)
                return []
            case tree.DottedPath():
                return self._at(module, 0, [name.name for name in path.names], path.names[-1])
            case tree.NamesFrom():
                return self._from_string(module, path.path)
            case tree.Error():
                return []

    def _from_string(self, module: CheckedModule, path: tree.String) -> list[_Wanted]:
        text = path.literal
        if text is None or not _PATH.match(text):
            problem = diagnose(
                "PW114",
                "this is not an import path",
                module.path,
                path.span,
                helps=('write the path from this file, without suffix: `"./name"` or `"../folder/name"`',),
            )
            self._graph.found[module.id].append(problem)
            return []
        up, rest = 0, text.removeprefix("./")
        while rest.startswith("../"):
            up, rest = up + 1, rest[3:]
        return self._at(module, up, rest.split("/"), path)

    def _at(self, module: CheckedModule, up: int, words: list[str], node: tree.Node) -> list[_Wanted]:
        if "" in words:
            return []
        home = module.id.split("/")[:-1]
        if up > len(home):
            shown = "../" * up + "/".join(words)
            self._graph.found[module.id].append(_outside(shown, module, node.span))
            return []
        name = "/".join([*home[: len(home) - up], *words])
        self._graph.targets[node] = Target(name)
        return [_Wanted(name, module, node)]

    def _enter(self, wanted: _Wanted) -> CheckedModule | None:
        """Load a module that is met for the first time; report where that is not possible."""
        importer = Importer(wanted.importer.path, wanted.node.span)
        self._graph.importers.setdefault(wanted.module, importer)
        if wanted.module in self._graph.modules:
            return None
        failed = self._failed.get(wanted.module)
        if failed is None and not self._is_full(wanted):
            path = wanted.module + SUFFIX
            loaded = self._loader(path)
            if not isinstance(loaded, NotLoaded):
                return self._add(wanted.module, path, loaded)
            failed = self._failed[wanted.module] = loaded
        del self._graph.targets[wanted.node]
        if failed is not None:
            shown = _missing(wanted.module + SUFFIX, wanted.importer, wanted.node.span, failed)
            self._graph.found[wanted.importer.id].append(shown)
        return None

    def _is_full(self, wanted: _Wanted) -> bool:
        if len(self._graph.modules) < MAX_MODULES:
            return False
        if not self._full:
            self._full = True
            text = f"more than {MAX_MODULES:,} modules in one program"
            problem = diagnose("PW110", text, wanted.importer.path, wanted.node.span)
            self._graph.found[wanted.importer.id].append(problem)
        return True


_PATH = re.compile(r"(?:\./|(?:\.\./)+)?[A-Za-z_]\w*(?:/[A-Za-z_]\w*)*\Z", re.ASCII)


def _missing(path: str, importer: CheckedModule, span: Span, problem: NotLoaded) -> Diagnostic:
    if problem.reason == "outside":
        return _outside(path, importer, span)
    name = module_id(path)
    if problem.reason == "unreadable":
        text = f"module `{name}` cannot be read; looked at {path}"
    else:
        text = f"module `{name}` not found; looked at {path}"
    if problem.found:
        helps = f"the file is spelled `{problem.found}`; letter case must match"
    else:
        helps = "write the path from the directory of this file, without `.pw`"
    return diagnose("PW125", text, importer.path, span, label="imported here", helps=(helps,))


def _outside(path: str, importer: CheckedModule, span: Span) -> Diagnostic:
    return diagnose(
        "PW127",
        f"module `{path}` is outside the project",
        importer.path,
        span,
        helps=("the project is the directory of `bartack.toml`, else that of the program",),
    )

"""Reads the imports of a program's modules, also those that have not happened yet, and finds the files that they need.

Nothing is imported here. ``config/project.py`` has the rule; ``probe.py`` asks, in a process that has imported the program.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, cast

from bartack.config.project import DATA_LIMIT, ENVIRONMENTS, INIT, PACKAGES, Project

COMPILED: Final = tuple(importlib.machinery.EXTENSION_SUFFIXES)
MODULE: Final = (".py", ".pyc", *COMPILED)
FILES_LIMIT: Final = 10_000
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_REACHES_DATA: Final = frozenset(
    {
        "__file__",
        "__path__",
        "__spec__",
        "resources",
        "importlib_resources",
        "pkgutil",
        "pkg_resources",
        "PackageLoader",
    }
)
_CATCHES: Final = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_PLATFORM: Final = frozenset(
    {"platform", "version_info", "name", "implementation", "TYPE_CHECKING", "__name__"}
)
_NEVER: Final = frozenset({"TYPE_CHECKING", "__name__"})


class ImportedModule(NamedTuple):
    """A module that the text of a module imports. ``names`` are taken from it."""

    module: str
    line: int
    needed: bool
    """It is an error if it is not there: nothing but its execution stands between the program and it."""
    names: tuple[str, ...] = ()


class MissingImport(NamedTuple):
    """An import that finds nothing."""

    file: str
    line: int
    module: str


class SkippedData(NamedTuple):
    """Data files that are not kept, and why."""

    path: str
    reason: str


class ModuleText:
    """The contents of one module: imports, dotted names that may be modules, texts, and whether it looks for data files."""

    def __init__(self, source: bytes, name: str, *, is_package: bool) -> None:
        self._package = name if is_package else name.rpartition(".")[0]
        self.wanted: list[ImportedModule] = []
        self.texts: set[str] = set()
        self.bound: set[str] = set()
        self.reaches_data = False
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            # An import of it reports that.
            return
        self._read(tree, lazy=False, optional=False)

    def _read(self, node: ast.AST, *, lazy: bool, optional: bool) -> None:
        for below in ast.iter_child_nodes(node):
            match below:
                case ast.Import():
                    self._import(below, needed=lazy and not optional)
                case ast.ImportFrom():
                    self._import_from(below, needed=lazy and not optional)
                case ast.Constant(value=str(text)):
                    self.texts.add(text)
                case ast.If(test=ast.Name() | ast.Attribute() | ast.Compare() as test) if (
                    _names(test) & _NEVER
                ):
                    self._read(ast.Module(body=below.orelse, type_ignores=[]), lazy=lazy, optional=optional)
                case ast.If(test=test) if _names(test) & _PLATFORM:
                    self._read(below, lazy=lazy, optional=True)
                case ast.Try() if any(_catches(handler.type) for handler in below.handlers):
                    self._read(below, lazy=lazy, optional=True)
                case ast.With() if any(_suppresses(item.context_expr) for item in below.items):
                    self._read(below, lazy=lazy, optional=True)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    self._note(below)
                    self._read(below, lazy=True, optional=optional)
                case _:
                    self._note(below)
                    self._read(below, lazy=lazy, optional=optional)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name):
                self.bound.add(name)
                self.reaches_data |= name in _REACHES_DATA
            case ast.Attribute(attr=name):
                self.reaches_data |= name in _REACHES_DATA
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.bound.add(name)
            case _:
                pass

    def _import(self, node: ast.Import, *, needed: bool) -> None:
        for alias in node.names:
            self.bound.add(alias.asname or alias.name.partition(".")[0])
            self.reaches_data |= not _REACHES_DATA.isdisjoint(alias.name.split("."))
            self.wanted.append(ImportedModule(alias.name, node.lineno, needed))

    def _import_from(self, node: ast.ImportFrom, *, needed: bool) -> None:
        names = tuple(alias.name for alias in node.names)
        self.bound.update(alias.asname or alias.name for alias in node.names)
        module = node.module or ""
        self.reaches_data |= not _REACHES_DATA.isdisjoint([*module.split("."), *names])
        if node.level:
            package = self._package.split(".") if self._package else []
            above = package[: len(package) - node.level + 1]
            module = ".".join([*above, *([module] if module else [])])
        if module:
            self.wanted.append(ImportedModule(module, node.lineno, needed, names))


def _names(node: ast.expr) -> set[str]:
    found = {below.id for below in ast.walk(node) if isinstance(below, ast.Name)}
    found |= {below.attr for below in ast.walk(node) if isinstance(below, ast.Attribute)}
    # `name` is os.name, and not any attribute of that name.
    return found if "os" in found else found - {"name"}


def _catches(kind: ast.expr | None) -> bool:
    return kind is None or not _CATCHES.isdisjoint(_names(kind))


def _suppresses(call: ast.expr) -> bool:
    is_suppress = isinstance(call, ast.Call) and "suppress" in _names(call.func)
    return is_suppress and any(_catches(kind) for kind in cast("ast.Call", call).args)


class Found(NamedTuple):
    """A module without importing it: its file, and where its submodules are, if it is a package."""

    file: str
    folders: list[str] | None


def find_module(name: str) -> Found | None:
    """Find a module as an import would, without importing it or the packages that it is in."""
    there = sys.modules.get(name)
    if there is not None:
        folders = getattr(there, "__path__", None)
        return Found(getattr(there, "__file__", None) or "", None if folders is None else list(folders))
    parent, _, _ = name.rpartition(".")
    path: list[str] | None = None
    if parent:
        above = find_module(parent)
        if above is None or above.folders is None:
            return None
        path = above.folders
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path, None)
        except (AttributeError, ImportError, ValueError):
            continue
        if spec is not None:
            file = spec.origin if spec.has_location else None
            folders = spec.submodule_search_locations
            return Found(file or "", None if folders is None else list(folders))
    return None


class Closure:
    """All files of a project that a program needs: what it has imported, and what the text of that imports in turn."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.modules: dict[str, str] = {}
        """File by name of the module, relative to the project."""
        self.elsewhere: dict[str, str] = {}
        """Where the modules are that are taken from the environment, by the first part of their names."""
        self.missing: list[MissingImport] = []
        self.readings: dict[str, ModuleText] = {}
        self._waiting: list[str] = []
        self._folders: dict[str, str] = {}

    def follow(self, names: list[str]) -> None:
        """Take in modules, and everything that they import."""
        for name in names:
            self._take(name)
        while self._waiting:
            self._read(self._waiting.pop())

    def bases(self) -> Iterator[str]:
        """The directories that have to be on the path for the modules, relative to the project."""
        for name, file in self.modules.items():
            place = (
                os.path.dirname(file) if _is_init(file) else os.path.join(os.path.dirname(file), _stem(file))
            )
            parts = name.split(".")
            if place.split(os.sep)[-len(parts) :] == parts:
                yield os.path.normpath(place.removesuffix(os.path.join(*parts)) or os.curdir)

    def _take(self, name: str) -> Found | None:
        """Note a module and the packages that it is in; ``None`` if there is none of this name."""
        found = find_module(name)
        if found is None:
            return None
        relative = self._relative(found.file) if found.file else None
        if relative is None:
            first = name.partition(".")[0]
            if found.file:
                self.elsewhere.setdefault(first, found.file)
        elif name not in self.modules and found.file.endswith(MODULE) and os.path.isfile(found.file):
            self.modules[name] = relative
            self._waiting.append(name)
            parent = name.rpartition(".")[0]
            if parent:
                self._take(parent)
        return found

    def _relative(self, file: str) -> str | None:
        """See ``Project.relative``; a program has hundreds of modules in a few directories."""
        folder, name = os.path.split(file)
        if os.path.islink(file):
            return self._project.relative(file)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return self._project.locate(file, os.path.join(self._folders[folder], name))

    def _read(self, name: str) -> None:
        file = self.modules[name]
        if not file.endswith(".py"):
            return
        with open(os.path.join(self._project.root, file), "rb") as source:
            reading = self.readings[file] = ModuleText(source.read(), name, is_package=_is_init(file))
        for wanted in reading.wanted:
            if not self._satisfy(wanted) and wanted.needed:
                self.missing.append(MissingImport(file, wanted.line, self._name_missing(wanted)))
        known = {module.partition(".")[0] for module in self.modules}
        for text in reading.texts:
            if _DOTTED.fullmatch(text) and text.partition(".")[0] in known:
                self._take(text)

    def _satisfy(self, wanted: ImportedModule) -> bool:
        found = self._take(wanted.module)
        if found is None:
            # What others put into their packages while they are imported cannot be seen from outside.
            return self._is_foreign(wanted.module)
        for name in wanted.names:
            inside = None if found.folders is None else self._take(f"{wanted.module}.{name}")
            if inside is None and not self._binds(wanted.module, name):
                return False
        return True

    def _is_foreign(self, name: str) -> bool:
        """Whether a module is not for us to look for: of a package from elsewhere, or of Python on another system."""
        top = name.partition(".")[0]
        first = find_module(top)
        return top in sys.stdlib_module_names if first is None else not self._is_ours(first)

    def _is_ours(self, found: Found) -> bool:
        if found.file:
            return self._project.holds(found.file)
        return bool(found.folders) and all(self._project.holds(folder) for folder in found.folders or ())

    def _binds(self, module: str, name: str) -> bool:
        """Whether a module may have something of this name."""
        file = self.modules.get(module)
        if file is None:
            found = find_module(module)
            return found is None or not self._is_ours(found)
        if name in vars(sys.modules.get(module, object)):
            return True
        if file not in self.readings and file.endswith(".py"):
            self._waiting.remove(module)
            self._read(module)
        reading = self.readings.get(file)
        return reading is None or name in reading.bound or not {"*", "__getattr__"}.isdisjoint(reading.bound)

    def _name_missing(self, wanted: ImportedModule) -> str:
        if find_module(wanted.module) is None:
            return wanted.module
        lost = next(name for name in wanted.names if not self._has(wanted.module, name))
        return f"{wanted.module}.{lost}"

    def _has(self, module: str, name: str) -> bool:
        return find_module(f"{module}.{name}") is not None or self._binds(module, name)


# Data files.


class Data(NamedTuple):
    """The data files of a program, relative to its project, and what is not kept."""

    files: list[str]
    left_out: list[SkippedData]


def find_data(closure: Closure, project: Project) -> Data:
    """The files that the modules of a program can look for beside themselves."""
    wanted: dict[str, set[str]] = {}
    for name, file in closure.modules.items():
        reading = closure.readings.get(file)
        if reading is not None and not reading.reaches_data:
            continue
        if "." in name or _is_init(file):
            folder = _package_folder(Path(project.root), file)
            wanted.setdefault(folder, set()).update(_data_below(project, folder))
        elif reading is not None:
            folder = os.path.dirname(file)
            wanted.setdefault(folder, set()).update(_named(project, folder, reading.texts))
    files: set[str] = set()
    left_out: list[SkippedData] = []
    for folder, found in sorted(wanted.items()):
        reason = _too_much(project.root, found)
        if reason:
            left_out.append(SkippedData(folder or os.curdir, reason))
        else:
            files |= found
    return Data(sorted(files), left_out)


def _package_folder(root: Path, file: str) -> str:
    """The directory of the outermost package that a module is in; its own, if that has no ``__init__.py``."""
    folder = Path(file).parent
    while (root / folder.parent / INIT).is_file() and folder.parent != folder:
        folder = folder.parent
    return str(folder)


def _data_below(project: Project, folder: str) -> Iterator[str]:
    count = 0
    for place, folders, files in os.walk(os.path.join(project.root, folder)):
        folders[:] = [name for name in folders if not _is_hidden(name) and name not in ENVIRONMENTS]
        for name in files:
            relative = (
                None if _is_hidden(name) or name.endswith((".py", ".pyc")) else _regular(project, place, name)
            )
            if relative is not None:
                yield relative
                count += 1
        if count > FILES_LIMIT:
            return


def _named(project: Project, folder: str, texts: set[str]) -> Iterator[str]:
    """The files and directories that a module names, and that are where it is."""
    here = os.path.join(project.root, folder)
    for text in texts:
        if not text or "\0" in text or len(text) > 255 or os.path.isabs(text):
            continue
        parts = os.path.normpath(text).split(os.sep)
        if any(_is_hidden(part) or part in ENVIRONMENTS for part in parts):
            continue
        if os.path.isdir(os.path.join(here, text)):
            yield from _data_below(project, os.path.normpath(os.path.join(folder, text)))
        elif not text.endswith((".py", ".pyc")) and (relative := _regular(project, here, text)) is not None:
            yield relative


def _regular(project: Project, folder: str, name: str) -> str | None:
    """The path of a regular file of the project; a link is the file that it leads to, where it stands."""
    path = os.path.join(folder, name)
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None
    # A link to a file outside may lead to anything.
    if not is_regular or not project.holds(os.path.realpath(path)):
        return None
    return os.path.relpath(path, project.root)


def _too_much(root: str, files: set[str]) -> str:
    if len(files) > FILES_LIMIT:
        return f"more than {FILES_LIMIT:,} data files"
    size = 0
    for file in files:
        try:
            size += os.stat(os.path.join(root, file)).st_size
        except OSError:
            continue
    limit = DATA_LIMIT // 1024**2
    return f"{size // 1024**2:,} MiB of data files, and at most {limit} are kept" if size > DATA_LIMIT else ""


def _is_hidden(name: str) -> bool:
    """Whether a file or directory is meant for programs that know it (``.env``), or is made anew by Python."""
    return name.startswith(".") or name == "__pycache__"


def _is_init(file: str) -> bool:
    return os.path.basename(file).partition(".")[0] == "__init__"


def _stem(file: str) -> str:
    return os.path.basename(file).partition(".")[0]


def is_from_packages(file: str) -> bool:
    """Whether a file is of an installed distribution, or was made for one elsewhere; the standard library is neither."""
    return not PACKAGES.isdisjoint(file.split(os.sep)) or not file.startswith(
        os.path.dirname(os.__file__) + os.sep
    )

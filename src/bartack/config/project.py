"""Decides which files belong to a Python program, and under which names its modules are imported. This is the whole rule.

1. The *project* is the workspace if the program's file is in it. Else it is the directory that holds the file's outermost package.
2. A module *belongs to the program* if its file is in the project and not in an environment there. A copy is kept with the run, and
   the run imports only the copy. An environment is the standard library, ``site-packages``, ``dist-packages``, and every directory
   that is called like one (``ENVIRONMENTS``). A link to a module outside of the project is a module in it.
3. Everything else is *taken from the environment* as it is whenever a process starts: Python, installed distributions, Bartack
   itself also where the project is its checkout, and packages that are installed from a directory outside of the project. The run
   records their versions.
4. Modules are found by importing the program once, and by reading the imports of its modules, also those inside functions. Modules
   that it names in a text (``"pkg.plugins.mail"``) are found, too. An import inside a function that finds nothing is an error
   before the run is made, unless it is in a ``try`` that catches ``ImportError``, or under a condition on the platform.
5. *Data files* of a package are kept with it if one of its modules can look for them: it has ``__file__``, ``__path__``,
   ``importlib.resources``, ``pkgutil`` or the like in it, or is compiled. Beside a module outside of any package, only the files
   that it names are kept. Hidden files never are. Packages with more than ``DATA_LIMIT`` bytes of data keep none of it.
6. A program's file is imported under the name that Python would use: ``pkg.team`` for ``src/pkg/team.py``. Directories with an
   ``__init__.py`` are packages; what is above them is on the path. Directories without one are packages if they are below ``src``,
   below a directory of ``PYTHONPATH`` or of an editable install, or if the file has relative imports.

The probe (``runtime/program/probe.py``) applies the rule and ``runtime/program/imports.py`` reads modules for it. Workers
(``runtime/worker_process/child.py``) refuse modules that belong to the project and were not kept. docs/explanation/program.md
has the rule for users, and ``bartack check --program`` shows it applied.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bartack.config.problem import CONFIG_FILE

PATCHWORK: Final = ".pw"
"""How the modules of workers end that are written in Patchwork; all others are Python's."""


DATA_LIMIT: Final = 64 * 1024 * 1024
PACKAGES: Final = frozenset({"site-packages", "dist-packages"})
ENVIRONMENTS: Final = PACKAGES | {
    "venv",
    ".venv",
    ".tox",
    ".nox",
    ".git",
    ".bartack",
    "node_modules",
    "__pypackages__",
}
SOURCES: Final = "src"
INIT: Final = "__init__.py"

_OWN: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_STANDARD_LIBRARY: Final = os.path.dirname(os.path.realpath(os.__file__))


class Project:
    """The directory whose modules belong to a program.

    Args:
        root: The directory.
        package: The only package or module in it that belongs to the program, where the directory holds others, too.
    """

    def __init__(self, root: str, package: str = "") -> None:
        self.root = os.path.realpath(root)
        self._package = package
        self._shared = os.path.basename(self.root) in PACKAGES

    def relative(self, place: str) -> str | None:
        """The path of a file or directory of the project below its root; ``None`` for what is taken from the environment."""
        return self.locate(os.path.abspath(place), os.path.realpath(place))

    def locate(self, seen: str, real: str) -> str | None:
        """The same for a path as Python has it, and without links: either of them may be in the project."""
        if is_below(real, _OWN) or is_below(real, _STANDARD_LIBRARY):
            return None
        if seen != real and is_installed(real) and not is_below(real, self.root):
            return None
        found = self._below(seen)
        return found if found is not None or seen == real else self._below(real)

    def _below(self, path: str) -> str | None:
        if path == self.root:
            return None if self._shared and not self._package else os.curdir
        if not path.startswith(self.root + os.sep):
            return None
        relative = path[len(self.root) + 1 :]
        parts = relative.split(os.sep)
        if not ENVIRONMENTS.isdisjoint(parts) or (
            self._shared and parts[0].partition(".")[0] != self._package
        ):
            return None
        return relative

    def holds(self, place: str) -> bool:
        """Whether a file or directory belongs to the project."""
        return self.relative(place) is not None


class Module(NamedTuple):
    """The name of a module, and the directory that has to be on the path for it."""

    name: str
    base: str


def is_below(place: str, folder: str) -> bool:
    """Whether a path is a directory or something in it."""
    return place == folder or place.startswith(folder + os.sep)


def is_installed(place: str) -> bool:
    """Whether a path is in a directory of installed packages."""
    return not PACKAGES.isdisjoint(place.split(os.sep))


def with_absolute_path(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a process in another directory, which finds the modules that this one finds."""
    places = environ.get("PYTHONPATH", "")
    if not places:
        return dict(environ)
    absolute = (os.path.abspath(place) if place else place for place in places.split(os.pathsep))
    return {**environ, "PYTHONPATH": os.pathsep.join(absolute)}


def project_of(file: Path, workspace: Path, module: str = "") -> Path:
    """The root of the project of a Python file: see the rule above."""
    resolved = workspace.resolve()
    if file.is_relative_to(resolved) and not is_installed(str(file.relative_to(resolved))):
        return resolved
    return Path((named_module(file, module) or package_module(file)).base)


def package_module(file: Path) -> Module:
    """The name that a file has by the ``__init__.py`` beside it and above."""
    parts = [] if file.name == INIT else [file.stem]
    folder = file.parent
    while (folder / INIT).is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return Module(".".join(parts) or file.stem, str(folder))


def named_module(file: Path, name: str) -> Module | None:
    """The file under a name that it is known to have; ``None`` if it cannot have it."""
    parts = name.split(".")
    place = file.parent if file.name == INIT else file.with_suffix("")
    if not name or list(place.parts[-len(parts) :]) != parts:
        return None
    return Module(name, str(place.parents[len(parts) - 1]))


def main_module(file: Path, root: str, paths: Iterable[str], name: str = "") -> Module:
    """What a program's file is imported as.

    Args:
        file: The file.
        root: The root of its project.
        paths: The directories that Python looks for modules in.
        name: The name that it has, where that is known.
    """
    found = named_module(file, name)
    if found is not None:
        return found
    found = package_module(file)
    real = os.path.realpath(root)
    bases = {os.path.realpath(path) for path in paths if path}
    bases = {path for path in bases if is_below(path, real) and not is_installed(path[len(real) :])}
    bases.add(os.path.join(real, SOURCES))
    relative = _has_relative_imports(file)
    if relative:
        bases.add(real)
    elif "." not in found.name:
        # A script beside others, which are imported as if its directory were the path.
        bases.discard(real)
    return _below_a_base(found, bases)


def _below_a_base(found: Module, bases: set[str]) -> Module:
    """The module with the names of the directories between it and the nearest directory of the path."""
    folder, parts = Path(found.base), [found.name]
    while str(folder) not in bases:
        if not folder.name.isidentifier():
            return found
        parts.insert(0, folder.name)
        folder = folder.parent
    return Module(".".join(parts), str(folder))


def _has_relative_imports(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def project_root(file: Path, workspace: Path, module: str = "") -> Path:
    """The directory whose modules belong to the program.

    For Python the rule is in ``project.py``. For Patchwork it is that of the nearest ``bartack.toml``; else the file's own.

    Args:
        file: The program.
        workspace: Where it runs.
        module: The name that it is imported under, where that is known.
    """
    if file.suffix == PATCHWORK:
        return next((folder for folder in file.parents if (folder / CONFIG_FILE).is_file()), file.parent)
    return project_of(file, workspace, module)

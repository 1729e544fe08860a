"""The program that looks at a Python program before it runs: imports it once, in a process of its own.

It reports which worker is meant, whether the arguments fit, and which modules of the project belong to the program. What the
program prints while it is imported goes to stderr. The answer goes to the descriptor that was stdout, as one JSON object.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec

from bartack.config.project import INIT, Module, Project, main_module
from bartack.core import typed
from bartack.errors import (
    BartackError,
    ProgramImportError,
    UsageError,
)
from bartack.runtime.context.decorators import Worker
from bartack.runtime.program.arguments import bind, usage
from bartack.runtime.program.environment import installed_version
from bartack.runtime.program.imports import Closure, find_data, is_from_packages
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.probing import Kept, NotKept, ProbeRequest, ProbeResult, Taken
from bartack.runtime.protocol.source_places import is_own

ASKING = re.compile(rb"\.think(?:_reply)?\(")


def main() -> int:
    """Answer one request on standard output."""
    request = typed.decode(sys.stdin.buffer.read(), type=ProbeRequest)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        result = inspect_program(request)
    except BartackError as error:
        result = ProbeResult(
            problem=error.message, is_usage=isinstance(error, UsageError), error=describe_error(error)
        )
    try:
        _write_all(answer, msgspec.json.encode(result))
    except BrokenPipeError:
        return 1  # the process that asked was killed
    return 0


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def inspect_program(request: ProbeRequest) -> ProbeResult:
    """Import a program and find its entry.

    Raises:
        ProgramImportError: It cannot be imported, or has no such worker.
        UsageError: The arguments do not fit.
    """
    own = main_module(Path(request.file), request.root, sys.path, request.module)
    module = import_program(request.file, request.root, own)
    worker = choose_worker(module, request.file, request.worker, own.name)
    call = request.call or bind(worker, request.argv, request.input)
    project = Project(request.root, own.name.partition(".")[0])
    closure = Closure(project)
    closure.follow(list(sys.modules))
    check_imports(closure, request.file)
    data = find_data(closure, project)
    kept = [Kept(file, "module", name) for name, file in closure.modules.items()]
    kept += [
        Kept(file, "data")
        for file in data.files
        if file not in closure.modules.values() and not _is_output(project.root, file, request.outputs)
    ]
    modules = sorted(set(closure.modules.values()))
    environment = taken(closure)
    return ProbeResult(
        worker=worker.ref,
        name=worker.name,
        call=call,
        files=sorted({file.path for file in kept}),
        environment=versions(environment),
        paths=paths_of(closure, project, request.file, own.base),
        kept=sorted(kept, key=lambda file: file.path),
        taken=environment,
        left_out=[NotKept(one.path, one.reason) for one in data.left_out],
        usage=usage(worker),
        agents=agents_of(worker, project.root, modules),
    )


def _is_output(root: str, file: str, outputs: list[tuple[int, int]]) -> bool:
    """Whether the caller writes its output to a file right now."""
    facts = os.stat(os.path.join(root, file)) if outputs else None
    return facts is not None and (facts.st_dev, facts.st_ino) in outputs


def agents_of(worker: Worker[..., object], root: str, files: list[str]) -> list[str]:
    """The agent of prompts that name none, if the worker has prompts; an empty name is the default agent."""
    asks = any(ASKING.search(Path(root, file).read_bytes()) for file in files)
    return [worker.agent] if asks else []


def import_program(file: str, root: str, own: Module) -> object:
    """Import a file under its name, with the project's root and what its name is relative to on the path.

    Modules that are beside a file in a package are found without the package's name, too, unless others have that name.
    """
    sys.path[:] = [
        own.base,
        *([] if root in sys.path else [root]),
        *(place for place in sys.path if place != own.base),
    ]
    if str(Path(file).parent) not in sys.path:
        sys.path.append(str(Path(file).parent))
    try:
        is_packaged = "." in own.name or Path(file).name == INIT
        module = importlib.import_module(own.name) if is_packaged else _execute(file, own.name)
    except BartackError:
        raise  # it names its place, and has its own remedy
    except (
        BaseException
    ) as error:  # the boundary of the program: whatever its import raises is reported with its place
        raise _import_error(file, error) from error
    other = module.__file__ or ""
    if os.path.realpath(other) != os.path.realpath(file):
        raise ProgramImportError(file, f"Python takes another file for {own.name}: {other}")
    return module


def _execute(file: str, name: str) -> ModuleType:
    """Import a file under its name, also if a module of the same name is there already."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ProgramImportError(file, "this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_error(file: str, error: BaseException) -> ProgramImportError:
    """The error of a program that Python cannot import: the line of the program that is at fault, and what to do about it."""
    trace = traceback.TracebackException(type(error), error, error.__traceback__)
    problem = "".join(trace.format_exception_only()).strip().splitlines()[-1]
    if isinstance(error, SyntaxError) and error.filename:
        place, text = f"{error.filename}:{error.lineno}", error.text or ""
    else:
        place, text = _last_place(error)
    line = f"\n{text.strip()}" if text.strip() else ""
    return ProgramImportError(
        file, f"{_without_path(problem)}{line}", place=place, remedy=_import_remedy(error)
    )


def _last_place(error: BaseException) -> tuple[str, str]:
    """The innermost line of the program itself that led to an error: neither of Python, nor of a package that it uses."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not is_own(frame.filename)
    ]
    of_program = [frame for frame in frames if not is_from_packages(frame.filename)] or frames
    if not of_program:
        return "", ""
    return f"{of_program[-1].filename}:{of_program[-1].lineno}", of_program[-1].line or ""


def _without_path(problem: str) -> str:
    """``cannot import name 'x' from 'pkg' (/a/path)`` without the path, which is that of another file."""
    return re.sub(r"(cannot import name .* from '[^']*') \([^)]*\)", r"\1", problem)


def _import_remedy(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return "Correct the syntax of the line that is shown, or of the line before it."
    if isinstance(error, ModuleNotFoundError):
        return f"Correct the name of the module, or install it where Bartack runs: {sys.executable} -m pip install ..."
    if isinstance(error, ImportError):
        wanted = re.match(r"cannot import name '([^']*)' from '([^']*)'", str(error))
        there = vars(sys.modules[wanted[2]]) if wanted and wanted[2] in sys.modules else {}
        names = {*there, *cast("list[str]", there.get("__all__", ()))}
        near = difflib.get_close_matches(wanted[1], sorted(names), 1) if wanted else []
        meant = f" Did you mean {near[0]!r}?" if near else ""
        return f"Correct the name in the import.{meant}"
    if isinstance(error, NameError):
        return "Correct the name, or import or define it before the line that is shown."
    return "Correct the line that is shown. Each process of a run imports the program, so its top level must have no effects."


def choose_worker(module: object, file: str, wanted: str, own_name: str) -> Worker[..., object]:
    """The worker that is meant: the one that is named, else ``main``, else the only one."""
    found = [
        cast("Worker[..., object]", value) for value in vars(module).values() if isinstance(value, Worker)
    ]
    workers = {worker.name: worker for worker in found}
    own = {name: worker for name, worker in workers.items() if worker.ref.startswith(f"{own_name}:")}
    names = ", ".join(sorted(workers)) or "none"
    if wanted:
        if wanted not in workers:
            near = difflib.get_close_matches(wanted, list(workers), 1) or sorted(workers)
            remedy = f"Name a worker that it has: {_as_command(file, near[0])}" if near else _ADD_A_WORKER
            problem = f"it has no worker {wanted!r} (there are: {names})"
            raise ProgramImportError(file, problem, remedy=remedy)
        return workers[wanted]
    if "main" in workers:
        return workers["main"]
    if len(own) == 1:
        return next(iter(own.values()))
    if not workers:
        raise ProgramImportError(file, "it has no worker", remedy=_ADD_A_WORKER)
    first = sorted(own or workers)[0]
    raise ProgramImportError(
        file,
        f"it has several workers and no 'main': name one of {names}",
        remedy=f"Name the worker after a colon: {_as_command(file, first)}",
    )


_ADD_A_WORKER = "Write @worker above an 'async def main(ctx: Context)' at the top level of the file."


def _as_command(file: str, worker: str) -> str:
    """The command line that runs a worker of a file."""
    beside = os.path.relpath(file)
    return f"bartack run {file if beside.startswith(os.pardir) else beside}:{worker}"


def check_imports(closure: Closure, file: str) -> None:
    """Raise if a function of the program imports what is not there.

    Raises:
        ProgramImportError: It does; every such import is named with its place.
    """
    if not closure.missing:
        return
    places = "; ".join(f"{one.file}:{one.line} imports {one.module}" for one in closure.missing)
    raise ProgramImportError(
        file,
        f"{places}, which {sys.executable} cannot find",
        remedy="Correct the name, install the module, or set PYTHONPATH; put an optional import into try ... except ImportError.",
    )


def paths_of(closure: Closure, project: Project, file: str, base: str) -> list[str]:
    """The directories of the project from which a worker imports: those of the path, and what leads to modules found otherwise.

    The directory of a file in a package is the last of the whole path, as ``import_program`` had it, and not among them.
    """
    own = str(Path(file).parent)
    is_last = own != base and sys.path[-1] == own
    places = [project.relative(place) for place in sys.path[: -1 if is_last else None] if place]
    last = {project.relative(own)} if is_last and project.relative(own) not in places else set[str | None]()
    return list(
        dict.fromkeys(
            place for place in (*places, *closure.bases()) if place is not None and place not in last
        )
    )


def taken(closure: Closure) -> list[Taken]:
    """The packages that come from the environment, without those of Python itself."""
    found = {
        name: place
        for name, place in closure.elsewhere.items()
        if is_from_packages(place) and not is_own(place) and not _is_site_hook(name)
    }
    return [
        Taken(name, installed_version(name), os.path.dirname(place)) for name, place in sorted(found.items())
    ]


def _is_site_hook(name: str) -> bool:
    """Whether a module is one that every interpreter of an environment loads by itself, such as ``_distutils_hack``."""
    return name in {"sitecustomize", "usercustomize"} or (
        name.startswith("_") and not installed_version(name)
    )


def versions(environment: list[Taken]) -> dict[str, str]:
    """The versions of what the program runs with."""
    found = {one.module: one.version for one in environment if one.version and not one.module.startswith("_")}
    own = {name: installed_version(name) for name in ("python", "bartack")}
    return dict(sorted({**found, **own}.items()))


if __name__ == "__main__":
    sys.exit(main())

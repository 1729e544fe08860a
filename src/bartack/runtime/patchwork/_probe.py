"""Looks at a Patchwork program before it runs: checks it, finds where it starts, and makes its arguments."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from bartack._version import __version__
from bartack.config.project import PATCHWORK
from bartack.errors import ProgramFaultError, ProgramImportError, UsageError
from bartack.language import Checked, Diagnostic, find_entry, tree
from bartack.language.checking.program import Declared, EntryPoint
from bartack.runtime.patchwork._arguments import Signature, bind, bind_together
from bartack.runtime.patchwork._build import check_file, compile_checked, report
from bartack.runtime.patchwork._program import MAIN, SCRIPT
from bartack.runtime.protocol.frames import TOGETHER
from bartack.runtime.protocol.probing import Kept, ProbeRequest, ProbeResult
from bartack.runtime.protocol.steps import CallArgs


def inspect_patchwork(request: ProbeRequest) -> ProbeResult:
    """Check a program and find its entry; nothing of it is executed.

    Raises:
        ProgramFaultError: It has errors, or no entry.
        ProgramImportError: It is outside its project.
        UsageError: The arguments do not fit.
    """
    path = _entry_path(request)
    checked = check_file(request.root, path)
    compile_checked(checked, path)
    wanted = [name for name in request.worker.split(TOGETHER) if name]
    entry = find_entry(checked.program, [] if wanted == [SCRIPT] else wanted)
    if isinstance(entry, Diagnostic):
        raise ProgramFaultError(path, report(checked, [entry]))
    names = [SCRIPT] if entry.script else [_name(declared) for declared in entry.declared]
    modules = {declared.module for declared in entry.declared} or {checked.program.entry.id}
    files = sorted(module.path for module in checked.program.modules)
    return ProbeResult(
        worker=f"{modules.pop()}{PATCHWORK}:{TOGETHER.join(names)}",
        name=_path(entry),
        call=request.call or _bind(checked, entry, request),
        files=files,
        kept=[Kept(file, "module") for file in files],
        environment={"python": platform.python_version(), "bartack": __version__},
        warnings=_warnings(checked),
        agents=sorted({name for module in checked.program.modules for name in _agents(module.syntax, "")}),
    )


def _warnings(checked: Checked) -> str:
    found = [one for one in checked.diagnostics if one.severity == "warning"]
    return report(checked, found) if found else ""


def _agents(node: tree.Node, agent: str) -> Iterator[str]:
    """The agents of the prompts below a node; an empty name is the default agent."""
    if isinstance(node, tree.Prompt) and node.word == "think":
        yield agent
    for below in tree.children(node):
        if isinstance(below, tree.Annotation) and below.name.name == "agent" and below.argument is not None:
            argument = tree.bare(below.argument)
            agent = (isinstance(argument, tree.String) and argument.literal) or agent
    for below in tree.children(node):
        yield from _agents(below, agent)


def _entry_path(request: ProbeRequest) -> str:
    file, root = Path(request.file), Path(request.root)
    if not file.is_relative_to(root):
        raise ProgramImportError(request.file, f"it is outside its project {request.root}")
    return file.relative_to(root).as_posix()


def _name(declared: Declared) -> str:
    return declared.name if declared.trait is None else f"{declared.trait.name.name}.{declared.name}"


def _path(entry: EntryPoint) -> str:
    """The path of the first worker: its name, or that of a program that is not a single worker."""
    workers = [declared.name for declared in entry.declared if declared.node.word == "worker"]
    return workers[0] if len(workers) == len(entry.declared) == 1 else MAIN


def _bind(checked: Checked, entry: EntryPoint, request: ProbeRequest) -> CallArgs:
    signatures = [
        Signature.of(declared, checked.program.module(declared.module)) for declared in entry.declared
    ]
    if len(signatures) > 1:
        return bind_together(signatures, request.argv, request.input)
    if signatures:
        return bind(signatures[0], request.argv, request.input)
    if request.input:
        raise UsageError(
            Path(request.file).name, "its statements take no arguments by name; they have them in args"
        )
    return CallArgs()

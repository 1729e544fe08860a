"""The program that looks at a Python program before it runs: imports it once, in a process of its own.

It tells which worker is meant, whether the arguments fit, and which modules of the project belong to the program. What the
program prints while it is imported goes to stderr. The answer goes to the descriptor that was stdout, as one JSON object.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from bartack._version import __version__
from bartack.errors import BartackError, ProgramImportError, TypeMismatchError, UsageError
from bartack.runtime._exceptions import describe_error
from bartack.runtime._program import Finding, Inquiry
from bartack.runtime._source_places import is_own
from bartack.runtime._steps import CallArgs
from bartack.runtime._values import codec
from bartack.runtime._worker import Worker

ASKING = re.compile(rb"\.think(?:_reply)?\(")
SKIPPED = ("site-packages", ".bartack", ".venv", "venv", "node_modules")


def main() -> int:
    """Answer one inquiry."""
    inquiry = msgspec.json.decode(sys.stdin.buffer.read(), type=Inquiry)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        finding = inspect_program(inquiry)
    except BartackError as error:
        finding = Finding(
            problem=error.message, is_usage=isinstance(error, UsageError), error=describe_error(error)
        )
    try:
        _write_all(answer, msgspec.json.encode(finding))
    except BrokenPipeError:
        return 1  # whoever asked was killed
    return 0


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def inspect_program(inquiry: Inquiry) -> Finding:
    """Import a program and find its entry.

    Raises:
        ProgramImportError: It cannot be imported, or has no such worker.
        UsageError: The arguments do not fit.
    """
    module = import_program(inquiry.file, inquiry.root)
    worker = choose_worker(module, inquiry.file, inquiry.worker)
    call = inquiry.call or bind(worker, inquiry.argv, inquiry.input)
    files = sorted(project_files(inquiry.root))
    return Finding(
        worker=worker.ref,
        name=worker.name,
        call=call,
        files=files,
        environment=versions(inquiry.root),
        usage=usage(worker),
        agents=agents_of(worker, inquiry.root, files),
    )


def agents_of(worker: Worker[..., object], root: str, files: list[str]) -> list[str]:
    """Whom prompts of a worker go to that name nobody, if there are prompts; an empty name is the default agent."""
    asks = any(ASKING.search(Path(root, file).read_bytes()) for file in files)
    return [worker.agent] if asks else []


def import_program(file: str, root: str) -> object:
    """Import a file as the module of its name, with its directory and the project's root on the path."""
    path = Path(file)
    for folder in (root, str(path.parent)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ProgramImportError(file, "this is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BartackError:
        raise  # it names its place, and has its own remedy
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
        raise ProgramImportError(file, f"{type(error).__name__}: {error}{where}") from error
    return module


def choose_worker(module: object, file: str, wanted: str) -> Worker[..., object]:
    """The worker that is meant: the one that is named, else ``main``, else the only one."""
    found = [
        cast("Worker[..., object]", value) for value in vars(module).values() if isinstance(value, Worker)
    ]
    workers = {worker.name: worker for worker in found}
    own = {name: worker for name, worker in workers.items() if worker.ref.startswith(f"{Path(file).stem}:")}
    names = ", ".join(sorted(workers)) or "none"
    if wanted:
        if wanted not in workers:
            raise ProgramImportError(file, f"it has no worker {wanted!r} (there are: {names})")
        return workers[wanted]
    if "main" in workers:
        return workers["main"]
    if len(own) == 1:
        return next(iter(own.values()))
    problem = (
        "it has no worker" if not workers else f"it has several workers and no 'main': name one of {names}"
    )
    raise ProgramImportError(file, problem)


def project_files(root: str) -> set[str]:
    """The files of the imported modules that lie below a directory, relative to it. Bartack itself is never among them."""
    found: set[str] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_own(os.path.realpath(file)):
            continue
        relative = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
        if not relative.startswith("..") and not any(part in SKIPPED for part in Path(relative).parts):
            found.add(relative)
    return found


def versions(root: str) -> dict[str, str]:
    """The versions of what the program runs with."""
    found = {"python": platform.python_version(), "bartack": __version__}
    for name in {name.partition(".")[0] for name in list(sys.modules)}:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if "site-packages" in file and not name.startswith("_"):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return dict(sorted(found.items()))


# Arguments from the command line.


def bind(worker: Worker[..., object], argv: list[str], given: dict[str, msgspec.Raw]) -> CallArgs:
    """Arguments as a worker takes them: options by name, the rest by position, each converted by its annotation.

    Raises:
        UsageError: One is missing, unknown, too many or cannot be converted.
    """
    parameters = _parameters(worker)
    named, rest = _split(worker, argv, parameters)
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = dict(given)
    for name, text in named.items():
        kwargs[name] = _convert(worker, parameters[name], text)
    for parameter in parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += [_convert(worker, parameter, text) for text in rest]
            rest = []
        elif parameter.name in kwargs or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            continue
        elif rest:
            args.append(_convert(worker, parameter, rest.pop(0)))
    if rest:
        raise _usage_error(worker, f"too many arguments: {' '.join(rest)}")
    _check_complete(worker, parameters, len(args), kwargs)
    return CallArgs(args, kwargs)


def _parameters(worker: Worker[..., object]) -> dict[str, inspect.Parameter]:
    signature = inspect.signature(worker.function, eval_str=True)
    return dict(list(signature.parameters.items())[1:])


def _split(
    worker: Worker[..., object], argv: list[str], parameters: dict[str, inspect.Parameter]
) -> tuple[dict[str, str], list[str]]:
    named: dict[str, str] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("--") or word == "--":
            rest.append(word)
            continue
        option, equals, text = word[2:].partition("=")
        name = option.replace("-", "_")
        if name not in parameters and name.startswith("no_") and name[3:] in parameters and not equals:
            named[name[3:]] = "false"
        elif name not in parameters:
            raise _usage_error(worker, f"there is no argument --{option}")
        elif equals:
            named[name] = text
        elif parameters[name].annotation is bool:
            named[name] = "true"
        else:
            value = next(words, None)
            if value is None:
                raise _usage_error(worker, f"--{option} needs a value")
            named[name] = value
    return named, rest


def _check_complete(
    worker: Worker[..., object],
    parameters: dict[str, inspect.Parameter],
    given: int,
    kwargs: dict[str, msgspec.Raw],
) -> None:
    unknown = sorted(set(kwargs) - set(parameters))
    if unknown:
        raise _usage_error(worker, f"there is no argument {unknown[0]!r}")
    for place, parameter in enumerate(parameters.values()):
        optional = (
            parameter.default is not inspect.Parameter.empty
            or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        )
        if not optional and place >= given and parameter.name not in kwargs:
            raise _usage_error(worker, f"argument {parameter.name!r} is missing")


_YES = frozenset({"true", "yes", "1"})
_NO = frozenset({"false", "no", "0"})


def _convert(worker: Worker[..., object], parameter: inspect.Parameter, text: str) -> msgspec.Raw:
    annotation = str if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    kind = codec(annotation)
    readings: list[Callable[[], bytes]] = [lambda: msgspec.json.encode(text), text.encode]
    if annotation is bool and text.lower() in _YES | _NO:
        readings = [lambda: b"true" if text.lower() in _YES else b"false"]
    elif annotation not in {str, Path, object}:
        readings.reverse()
    for reading in readings:
        try:
            encoded = reading()
            kind.decode(encoded)
        except (TypeMismatchError, msgspec.DecodeError):
            continue
        return msgspec.Raw(encoded)
    expected = getattr(annotation, "__name__", str(annotation))
    raise _usage_error(worker, f"argument {parameter.name!r} must be {expected}, not {text!r}")


def usage(worker: Worker[..., object]) -> str:
    """How a worker is called from the command line."""
    words = [worker.name]
    for parameter in _parameters(worker).values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            words.append(f"[{parameter.name.upper()}…]")
        elif parameter.default is inspect.Parameter.empty:
            words.append(parameter.name.upper())
        else:
            words.append(f"[--{parameter.name.replace('_', '-')} {parameter.name.upper()}]")
    return " ".join(words)


def _usage_error(worker: Worker[..., object], problem: str) -> UsageError:
    return UsageError(worker.name, f"{problem}\nusage: {usage(worker)}")


if __name__ == "__main__":
    sys.exit(main())

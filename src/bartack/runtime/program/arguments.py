"""The arguments of a Python program, from the command line to the parameters of its worker.

``patchwork/_arguments.py`` does the same for Patchwork, whose parameters have other types. ``probe.py`` calls this in the
process that has imported the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import msgspec

from bartack.errors import TypeMismatchError, UsageError, WorkerDefinitionError
from bartack.runtime.context.definitions import Worker
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.protocol.values import codec


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
    for name, value in given.items():
        _check_value(worker, parameters[name], value)
    return CallArgs(args, kwargs)


def _parameters(worker: Worker[..., object]) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(worker.function, eval_str=True)
    except Exception as error:  # the boundary of the program: its annotations are reported with their place
        code = worker.function.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        problem = f"an annotation of it cannot be read: {type(error).__name__}: {error}"
        remedy = "Correct the annotation, or import the name that it uses at the top of the file."
        raise WorkerDefinitionError(worker.name, place, problem, remedy) from error
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
            raise _usage_error(worker, f"unknown argument --{option}")
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
        raise _usage_error(worker, f"unknown argument {unknown[0]!r}")
    for place, parameter in enumerate(parameters.values()):
        optional = (
            parameter.default is not inspect.Parameter.empty
            or parameter.kind is inspect.Parameter.VAR_POSITIONAL
        )
        if not optional and place >= given and parameter.name not in kwargs:
            raise _usage_error(worker, f"argument {parameter.name!r} is missing")


def _check_value(worker: Worker[..., object], parameter: inspect.Parameter, value: msgspec.Raw) -> None:
    """A value that was given as JSON has to be of the annotated type as it is."""
    if parameter.annotation is inspect.Parameter.empty:
        return
    try:
        codec(parameter.annotation).decode(value)
    except TypeMismatchError as error:
        place = f"{parameter.name}{error.place[1:]}"
        raise _usage_error(
            worker, f"argument {place!r} must be {error.expected}, not {error.found}"
        ) from None


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

"""The arguments of a program, from the command line to its parameters: by name or by position, converted by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from bartack.errors import UsageError
from bartack.language import types
from bartack.language.checking.program import CheckedModule, Declared
from bartack.language.syntax.docs import read_doc
from bartack.runtime.patchwork._values import encoded, received
from bartack.runtime.protocol.steps import CallArgs


class Parameter(NamedTuple):
    """A parameter, as the command line sees it."""

    name: str
    type: types.Type | None
    optional: bool
    text: str

    @property
    def option(self) -> str:
        """How it is given by name."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_flag(self) -> bool:
        """Whether it is given without a value."""
        return self.type is not None and types.definition_of(self.type) is types.BOOL


class Signature:
    """What a worker takes, and how it is called from the command line."""

    def __init__(self, name: str, parameters: list[Parameter]) -> None:
        self.name = name
        self.parameters = parameters

    @classmethod
    def of(cls, declared: Declared, module: CheckedModule) -> Self:
        """What a declaration takes."""
        texts = read_doc(declared.node.doc).arguments
        parameters = [
            Parameter(
                item.name.name,
                None if item.type is None else module.types.get(item.type),
                item.default is not None,
                texts.get(item.name.name, ""),
            )
            for item in declared.node.parameters.items
        ]
        return cls(declared.name, parameters)

    @property
    def rest(self) -> types.Type | None:
        """The type of each argument beyond the others, if the last parameter takes them."""
        last = self.parameters[-1].type if self.parameters else None
        kind = None if last is None else types.definition_of(last)
        return kind.element if isinstance(kind, types.ArrayOf) else None

    def usage(self) -> str:
        """One line of how it is called, and one for each parameter that has a text."""
        words = [self.name, *(self._word(parameter) for parameter in self.parameters)]
        lines = [f"usage: {' '.join(words)}"]
        lines += [f"  {one.name.upper()}: {one.text}" for one in self.parameters if one.text]
        return "\n".join(lines)

    def _word(self, parameter: Parameter) -> str:
        shown = parameter.name.upper()
        if parameter is self.parameters[-1] and self.rest is not None:
            return f"[{shown}…]"
        if parameter.is_flag:
            return (
                f"[{parameter.option}]"
                if parameter.optional
                else f"{parameter.option}|--no-{parameter.option[2:]}"
            )
        return f"[{parameter.option} {shown}]" if parameter.optional else shown

    def error(self, problem: str) -> UsageError:
        """The error for arguments that do not fit."""
        return UsageError(self.name, f"{problem}\n{self.usage()}")

    def find(self, option: str) -> Parameter | None:
        """The parameter that an option means."""
        name = option.replace("-", "_")
        return next((parameter for parameter in self.parameters if parameter.name == name), None)


def bind(signature: Signature, argv: Sequence[str], given: Mapping[str, msgspec.Raw]) -> CallArgs:
    """Arguments as the worker takes them.

    Raises:
        UsageError: One is missing, unknown, too many or cannot be converted.
    """
    named, rest = _split(signature, argv)
    _check_names(signature, given)
    return _fill(signature, named, rest, given)


def bind_together(
    signatures: Sequence[Signature], argv: Sequence[str], given: Mapping[str, msgspec.Raw]
) -> CallArgs:
    """Arguments of workers that run together: each takes those that it has, all of them by name.

    Returns:
        The whole arguments of each of them, as one argument.

    Raises:
        UsageError: One does not fit.
    """
    joined = Signature(
        ", ".join(signature.name for signature in signatures),
        [parameter for signature in signatures for parameter in signature.parameters],
    )
    named, rest = _split(joined, argv)
    if rest:
        raise joined.error(f"workers that run together take arguments by name only, not {rest[0]!r}")
    _check_names(joined, given)
    calls: list[msgspec.Raw] = []
    for signature in signatures:
        own = [(found, text) for one, text in named if (found := signature.find(one.name)) is not None]
        calls.append(msgspec.Raw(msgspec.json.encode(_fill(signature, own, [], given))))
    return CallArgs(calls)


def _fill(
    signature: Signature,
    named: list[tuple[Parameter, str]],
    rest: list[str],
    given: Mapping[str, msgspec.Raw],
) -> CallArgs:
    found = _from_input(signature, given)
    for parameter, text in named:
        found[parameter.name] = _convert(signature, parameter, parameter.type, text)
    for parameter in signature.parameters:
        is_last = parameter is signature.parameters[-1]
        if parameter.name in found:
            continue
        if is_last and signature.rest is not None and (rest or not parameter.optional):
            element = signature.rest
            found[parameter.name] = [_convert(signature, parameter, element, text) for text in rest]
            rest = []
        elif rest:
            found[parameter.name] = _convert(signature, parameter, parameter.type, rest.pop(0))
        elif not parameter.optional:
            raise signature.error(f"argument {parameter.name!r} is missing")
    if rest:
        raise signature.error(f"too many arguments: {' '.join(rest)}")
    return _call(signature, found)


def _check_names(signature: Signature, given: Mapping[str, msgspec.Raw]) -> None:
    unknown = [name for name in given if all(one.name != name for one in signature.parameters)]
    if unknown:
        raise signature.error(f"unknown argument {unknown[0]!r}")


def _split(signature: Signature, argv: Sequence[str]) -> tuple[list[tuple[Parameter, str]], list[str]]:
    """What is given by name, and the rest."""
    named: list[tuple[Parameter, str]] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return named, [*rest, *words]
        if not word.startswith("--"):
            rest.append(word)
            continue
        option, equals, text = word[2:].partition("=")
        parameter = signature.find(option)
        negated = signature.find(option[3:]) if option.startswith("no-") and not equals else None
        if parameter is None and negated is not None and negated.is_flag:
            named.append((negated, "false"))
        elif parameter is None:
            raise signature.error(f"unknown argument --{option}")
        elif equals:
            named.append((parameter, text))
        elif parameter.is_flag:
            named.append((parameter, "true"))
        else:
            value = next(words, None)
            if value is None:
                raise signature.error(f"--{option} needs a value")
            named.append((parameter, value))
    return named, rest


def _convert(signature: Signature, parameter: Parameter, kind: types.Type | None, text: str) -> object:
    read = types.from_argument(kind, text)
    if read.fault is not None:
        raise signature.error(f"argument {parameter.name!r}: {read.fault.text}")
    return received(read.value)


def _from_input(signature: Signature, given: Mapping[str, msgspec.Raw]) -> dict[str, object]:
    found: dict[str, object] = {}
    for parameter in signature.parameters:
        name, raw = parameter.name, given.get(parameter.name)
        if raw is None:
            continue
        value = received(msgspec.json.decode(raw))
        fault = None if parameter.type is None else types.accepts(parameter.type, value)
        if fault is not None:
            raise signature.error(f"argument {name!r}: {fault.text}")
        found[name] = value
    return found


def _call(signature: Signature, found: Mapping[str, object]) -> CallArgs:
    """By position as far as nothing is left out, by name from there on."""
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}
    for place, parameter in enumerate(signature.parameters):
        if parameter.name not in found:
            continue
        raw = msgspec.Raw(encoded(found[parameter.name]))
        if len(args) == place:
            args.append(raw)
        else:
            kwargs[parameter.name] = raw
    return CallArgs(args, kwargs)

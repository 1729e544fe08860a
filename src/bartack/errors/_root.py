"""``BartackError``, and how the errors below it are declared.

A class whose errors carry facts declares them as annotated names, in the order in which its constructor takes them, and its
message as a template over them. ``message`` makes the constructor; type checkers read the declarations as those of a dataclass::

    @message("no run {run_id!r} in {path}")
    class ExampleError(BartackError, code="BT199"):
        run_id: str
        path: str = "."
        remedy = "Correct the id."

A message that depends on more than its facts' values is returned by ``describe``, such a remedy by ``advise``. A constructor is
written by hand only where an attribute is not the argument of the same name. This module knows no other error. They are in the
modules beside it, one module for each hundred of codes: read ``__init__.py`` next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

_HOME: Final = "bartack.errors"
_REQUIRED: Final = object()


class _FactSignature:
    """The signature of a constructor that ``message`` made, for ``help`` and ``inspect``."""

    def __get__(self, error: object, cls: type[BartackError]) -> Signature:
        from inspect import Parameter, Signature  # noqa: PLC0415 - most processes never ask

        if cls.__init__ is not _take_facts:
            raise AttributeError("__signature__")
        parameters = [
            Parameter(
                fact.name,
                Parameter.KEYWORD_ONLY if fact.is_keyword else Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty if fact.default is _REQUIRED else fact.default,
                annotation=fact.annotation,
            )
            for fact in _facts_of(cls)
        ]
        return Signature(parameters)


class BartackError(Exception):
    """Something went wrong in Bartack. Every other error is a child of this one."""

    __module__ = _HOME
    __signature__ = _FactSignature()
    code: ClassVar[str] = "BT100"
    retryable: ClassVar[bool] = False
    remedy: str = "Read the message; it names the cause and the place."
    """What to do. One error may have another remedy than its class, if its facts call for it."""
    _template: ClassVar[str] = ""
    _facts: ClassVar[list[_Fact]] = []

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __init_subclass__(cls, *, code: str = "", retryable: bool | None = None) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("bartack.errors."):
            cls.__module__ = _HOME  # journals and pickles name errors by this module
        if code:
            cls.code = code
        if retryable is not None:
            cls.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (type(self), self.args, self.__dict__)

    def describe(self) -> str:
        """The message, made from the facts."""
        return self._template.format_map(vars(self))

    def advise(self) -> str:
        """The remedy for these facts; empty if it is that of the class."""
        return self.remedy


def _revive(cls: type[BartackError], args: tuple[object, ...], facts: dict[str, object]) -> BartackError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


E = TypeVar("E", bound=BartackError)


@dataclass_transform(eq_default=False)
def message(template: str = "") -> Callable[[type[E]], type[E]]:
    """Give an error a constructor that takes its declared facts, keeps them and makes the message from them."""

    def declare(cls: type[E]) -> type[E]:
        cls._template = template
        cls.__init__ = _take_facts  # type: ignore[method-assign]  # pyright: ignore[reportAttributeAccessIssue] - its type is the one that dataclass_transform gives it
        return cls

    return declare


def _take_facts(self: BartackError, *given: object, **named: object) -> None:
    cls = type(self)
    vars(self).update(_bind(cls, given, named))
    remedy = self.advise()
    vars(self).pop("remedy", None)
    if remedy and remedy != cls.remedy:
        self.remedy = remedy
    BartackError.__init__(self, self.describe())


class _Fact:
    """One argument of a constructor that ``message`` made, and the attribute of the same name."""

    __slots__ = ("annotation", "default", "is_keyword", "name")

    def __init__(self, name: str, annotation: str, default: object, *, is_keyword: bool) -> None:
        self.name = name
        self.annotation = annotation
        self.default = default
        self.is_keyword = is_keyword


def _facts_of(cls: type[BartackError]) -> list[_Fact]:
    """The facts that a class and its parents declare, as type checkers see them. They are collected at the first use."""
    if "_facts" in vars(cls):
        return cls._facts
    found: dict[str, _Fact] = {}
    for base in reversed(cls.__mro__):
        if vars(base).get("__init__") is not _take_facts:
            continue
        is_keyword = False
        for name, annotation in base.__annotations__.items():
            if name == "_":  # "_: KW_ONLY", as in dataclasses
                is_keyword = True
            elif not annotation.startswith("ClassVar["):
                found[name] = _Fact(name, annotation, vars(base).get(name, _REQUIRED), is_keyword=is_keyword)
    cls._facts = list(found.values())
    return cls._facts


def _bind(cls: type[BartackError], given: tuple[object, ...], named: dict[str, object]) -> dict[str, object]:
    """The value of each fact, bound as a function with these parameters binds its arguments."""
    facts = _facts_of(cls)
    if not named and len(given) == len(facts) and not any(fact.is_keyword for fact in facts):
        return {
            fact.name: value for fact, value in zip(facts, given, strict=True)
        }  # the usual case, and the fastest
    placed = [fact.name for fact in facts if not fact.is_keyword][: len(given)]
    values = {fact.name: fact.default for fact in facts}
    unexpected = [*given[len(placed) :], *(name for name in named if name in placed or name not in values)]
    values.update(named)
    values.update(zip(placed, given, strict=False))
    missing = [name for name, value in values.items() if value is _REQUIRED]
    if missing or unexpected:
        problem = f"missing {missing}" if missing else f"unexpected {unexpected}"
        raise TypeError(f"{cls.__name__}({', '.join(values)}): {problem}")
    return values

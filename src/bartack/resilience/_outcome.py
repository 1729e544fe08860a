"""The outcome of a call through a breaker: four values, distinguished by their class."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

import msgspec

from bartack.errors import CircuitOpenError

T = TypeVar("T")


class CallSucceeded(msgspec.Struct, Generic[T], frozen=True):
    """The call was made and returned ``value``, which may be ``None``."""

    value: T

    def unwrap(self) -> T:
        """The value."""
        return self.value


class CallFailed(msgspec.Struct, frozen=True):
    """The call was made and raised ``error``, which counts against the service."""

    error: Exception

    def unwrap(self) -> NoReturn:
        """Raise the error."""
        raise self.error


class CallIgnored(msgspec.Struct, frozen=True):
    """The call was made and raised ``error``, which says nothing about the service's health."""

    error: Exception

    def unwrap(self) -> NoReturn:
        """Raise the error."""
        raise self.error


class CallRejected(msgspec.Struct, frozen=True):
    """The call was not made; trying again makes sense after ``retry_after`` seconds."""

    retry_after: float
    state: str
    name: str = "breaker"

    def unwrap(self) -> NoReturn:
        """Raise ``CircuitOpenError``."""
        raise CircuitOpenError(self.name, self.state, self.retry_after)


Outcome = CallSucceeded[T] | CallFailed | CallIgnored | CallRejected

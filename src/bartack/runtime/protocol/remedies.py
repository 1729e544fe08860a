"""What to do about a failure: which error of ours it is, and whether the program or a setting has to be changed first."""

from __future__ import annotations

import re

import msgspec

from bartack.errors import (
    AgentBudgetError,
    BartackError,
    BudgetExceededError,
    ForeignAwaitError,
    ForgottenAwaitError,
    MessageTooLargeError,
    MessageValueError,
    NestedStepError,
    NotInWorkerError,
    ProgramNotPinnedError,
    ReplayMismatchError,
    TypeMismatchError,
    WorkerDefinitionError,
)
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.frames import ErrorData

_CAP = re.compile(r"budget\.[a-z_]+")
_OWN_ERRORS = f"{BartackError.__module__}:"

_OF_THE_PROGRAM = (
    ForeignAwaitError,
    ForgottenAwaitError,
    MessageTooLargeError,
    MessageValueError,
    NestedStepError,
    NotInWorkerError,
    ProgramNotPinnedError,
    ReplayMismatchError,
    TypeMismatchError,
    WorkerDefinitionError,
)
"""Errors that occur again when the same program is resumed."""


def known_error(data: ErrorData) -> BartackError | None:
    """Return the Bartack error that is a failure or its cause; ``None`` if the program raised an error of its own."""
    cause: ErrorData | None = data
    while cause is not None:
        if cause.code and cause.type.startswith(_OWN_ERRORS):
            # Without its cause: that may be of a class of the program, which must not be imported here.
            error = revive_error(msgspec.structs.replace(cause, cause=None))
            return error if isinstance(error, BartackError) else None
        cause = cause.cause
    return None


def needs_update(data: ErrorData) -> bool:
    """Whether the program has to be changed, because a resume without a change fails in the same place."""
    return isinstance(known_error(data), _OF_THE_PROGRAM)


def spent_setting(data: ErrorData) -> str:
    """Return the setting to raise if the run failed because its budget is used up, else an empty string."""
    known = known_error(data)
    if isinstance(known, BudgetExceededError):
        return f"budget.{known.unit}"
    if not isinstance(known, AgentBudgetError):
        return ""
    named = _CAP.search(known.message)
    return named[0] if named else ""

"""The errors of Patchwork programs at run time: BT600 to BT606. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class PatchworkError(BartackError, code="BT600"):
    """A Patchwork program cannot continue, or cannot start."""

    remedy = "Read the message; it names the value and the place in the program."


@message("{problem}")
class ThrownError(PatchworkError, code="BT601"):
    """A Patchwork program threw a value, or an assertion of it did not hold."""

    problem: str
    thrown: object = None
    remedy = (
        "Read the message: the program itself decided to fail. A 'try' around the place can handle the error."
    )


@message("{field}: expected {expected}, found {found}")
class PatternMismatchError(PatchworkError, code="BT603"):
    """A value does not have the form that a pattern of the program expects."""

    field: str
    expected: str
    found: str
    remedy = "Check where the value comes from, or make the pattern wider."


class NumberError(PatchworkError, code="BT604"):
    """An operation has no finite number as its result."""

    remedy = "Test the operands first; numbers are IEEE doubles, without infinity and NaN."


@message("index {index} is outside an array of {length}")
class IndexRangeError(PatchworkError, code="BT605"):
    """A program assigned to an index outside an array."""

    index: int
    length: int
    remedy = "Add elements with push(); an assignment only changes existing elements."


@message("{program} has errors")
class ProgramFaultError(PatchworkError, code="BT606"):
    """A program, in Patchwork or in Python, has errors that were found without running it. Nothing was run."""

    program: str
    report: str
    remedy = "Correct the reported errors; 'bartack check FILE' reports them again."

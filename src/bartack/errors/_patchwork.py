"""The errors of Patchwork programs at run time: BT600 to BT606. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class PatchworkError(BartackError, code="BT600"):
    """A Patchwork program cannot go on, or cannot even begin."""

    remedy = "Read the message; it names the value and the place in the program."


@message("{problem}")
class ThrownError(PatchworkError, code="BT601"):
    """A Patchwork program threw a value, or an assertion of it did not hold."""

    problem: str
    thrown: object = None
    remedy = (
        "The program itself decided to fail; its message says why. A 'try' around the place can handle it."
    )


@message("{field}: expected {expected}, found {found}")
class PatternMismatchError(PatchworkError, code="BT603"):
    """A value does not have the form that a pattern of the program expects."""

    field: str
    expected: str
    found: str
    remedy = "Look at who made the value, or make the pattern wider."


class NumberError(PatchworkError, code="BT604"):
    """An operation has no finite number as its result."""

    remedy = "Test the operands first; numbers are IEEE doubles, without infinity and NaN."


@message("index {index} is outside an array of {length}")
class IndexRangeError(PatchworkError, code="BT605"):
    """An element was assigned that is not in its array."""

    index: int
    length: int
    remedy = "Add elements with push(); an assignment only changes those that are there."


@message("{program} has errors")
class ProgramFaultError(PatchworkError, code="BT606"):
    """A program, in Patchwork or in Python, has errors that are found without running it. Nothing was run."""

    program: str
    report: str
    remedy = "Correct what is reported; 'bartack check FILE' says it again."

"""The library as the checker knows it, as the compiler calls it, and as the runtime has it."""

from __future__ import annotations

from bartack.language.checking import _library as known
from bartack.language.compiling import _expressions as compiler
from bartack.runtime.patchwork._library import PURE
from bartack.runtime.patchwork._steps import STEPS

REDIRECTIONS = {"write_line", "append_line"}


def test_every_function_that_the_checker_knows_can_be_called() -> None:
    assert set(known.FUNCTIONS) - {"spec"} == set(PURE) | (set(STEPS) - REDIRECTIONS)


def test_the_compiler_calls_steps_as_steps() -> None:
    assert set(STEPS) - REDIRECTIONS == compiler.STEPS

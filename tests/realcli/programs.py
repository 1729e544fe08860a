"""Whether the real agent programs are there: a test that needs one is skipped with the reason, or fails where they are required."""

from __future__ import annotations

import os

import pytest

from bartack.errors import AgentStartError
from bartack.testing import find_program
from bartack.testing.sandbox._programs import ProgramName


def require_program(name: ProgramName) -> list[str]:
    """The words that start a program. ``BARTACK_REQUIRE_REALCLI=1`` makes one that is missing a failure."""
    try:
        return find_program(name)
    except AgentStartError as error:
        reason = f"{error}. {error.remedy} 'make realcli' installs all of them."
        if os.environ.get("BARTACK_REQUIRE_REALCLI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)

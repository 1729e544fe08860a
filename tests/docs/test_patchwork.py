"""The reference of Patchwork names what the language has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bartack.errors import iter_errors
from bartack.language import CATALOGUE, tree, types
from bartack.language.checking import _library as library
from bartack.language.checking._types import ARRAY, DELIVERY, MAILBOX, RESULT, SESSION, STRING
from bartack.language.parsing._cursor import LONGEST_NAME
from bartack.language.parsing._parser import MOST_PARAMETERS
from bartack.language.syntax._diagnostics import MOST_SHOWN
from bartack.language.syntax._source import MAX_BYTES
from bartack.runtime.patchwork._members import LONGEST_TEXT
from bartack.runtime.patchwork._operators import LONGEST_RANGE
from bartack.runtime.patchwork._runtime import DEEPEST_CALL
from bartack.runtime.protocol.values import DEEPEST, MAX_VALUE
from bartack.supervision.forms import CAPTURE_LIMIT

PAGE = (Path(__file__).parents[2] / "docs/reference/patchwork.md").read_text(encoding="utf-8")


def named(section: str) -> set[str]:
    """The words in the code of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}


@pytest.mark.requirement("language-is-documented")
def test_every_code_is_on_the_page_with_its_severity_and_its_title() -> None:
    rows = re.findall(r"^\| `(PW\d+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)

    shown = [(code, severity, title.replace("\\|", "|")) for code, severity, title in rows]
    assert shown == [(code, entry.severity, entry.title) for code, entry in sorted(CATALOGUE.items())]


@pytest.mark.requirement("language-is-documented")
def test_everything_built_in_is_on_the_page() -> None:
    assert {*library.FUNCTIONS, *library.VALUES} - named("Library") == set()
    for kind, section in (
        *((kind, "Values") for kind in (STRING, ARRAY, RESULT)),
        *((kind, "Session, mailboxes, delegate") for kind in (MAILBOX, DELIVERY, SESSION)),
    ):
        found = library.members(kind)
        assert found
        assert set(found[1]) - named(section) == set()


def test_every_option_and_member_of_self_is_on_the_page() -> None:
    known = {*library.SELF_MEMBERS, *library.DELEGATE_OPTIONS, *library.SEND_OPTIONS}

    assert known - named("Session, mailboxes, delegate") == set()


def test_every_keyword_is_on_the_page() -> None:
    assert tree.KEYWORDS - named("Text") == set()


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"Nesting {tree.MAX_DEPTH} deep" in PAGE
    assert f"a file {MAX_BYTES // 1024**2} MiB" in PAGE
    assert f"{MOST_PARAMETERS} parameters; names {LONGEST_NAME} characters; {MOST_SHOWN} diagnostics" in PAGE
    assert f"{DEEPEST_CALL} calls deep; a range of {LONGEST_RANGE:,} elements" in PAGE
    assert (
        f"{types.DEEPEST:,} levels where a type is asked of them; a string of {LONGEST_TEXT:,} characters"
        in PAGE
    )
    assert f"{DEEPEST} levels; {MAX_VALUE // 1024**2} MiB" in PAGE
    assert f"{CAPTURE_LIMIT // 1024**2} MiB of captured output" in PAGE


ELSEWHERE = {
    # What all of a kind have in common; thrown are the others.
    "BartackError",
    "RunError",
    "MessagingError",
    "PatchworkError",
    "AgentError",
    "SupervisionError",
    "JournalError",
    # Programs in Python, and tests.
    "ForeignAwaitError",
    "ForgottenAwaitError",
    "WorkerDefinitionError",
    "NotInWorkerError",
    "NestedStepError",
    "DeadlockError",
    "ShellNotScriptedError",
    # Before a program runs, or when it is resumed.
    "ProgramFaultError",
    "ProgramImportError",
    "ProgramNotPinnedError",
    "WorkspaceError",
    "MachineError",
    "NodeError",
    "NodeRunningError",
    "QueueFullError",
    "RunNotQueuedError",
    "NodeStartError",
    "NodeVersionError",
    "WorkspaceGoneError",
    "WorkspaceCarryError",
    "WorkspaceKeepError",
    "WorkspaceSetupError",
    "WorkspaceRemoteError",
    "EnvironmentMismatchError",
    "EnvironmentUnavailableError",
    "NoNodeError",
    "RunHeldError",
    "ScheduleError",
    "ScheduleNotFoundError",
    "ServiceError",
    "ResumeRefusedError",
    "RunDiskError",
    "ForeignRunError",
    "RunAsError",
    "MailboxConfigError",
    "ConfigError",
    "GuardPolicyError",
    "UntrustedError",
    # Commands and other processes that look at a run.
    "RunNotFoundError",
    "RunFailedError",
    "RecordingError",
    "RequestLateError",
    "RunNotFinishedError",
    "RunNotActiveError",
    "QuestionAnsweredError",
    "QuestionNotFoundError",
    "StepNotFoundError",
    "DeadLetterNotFoundError",
    "DeadLetterFilterError",
    "FrameError",
    "PeerRefusedError",
    "UnknownRequestError",
    "HubStoppedError",
    "RunIdError",
    "CanonicalJsonError",
}
"""Errors of the first hundreds and of agents that no Patchwork program meets."""


@pytest.mark.requirement("language-is-documented")
def test_every_kind_of_error_that_a_program_meets_is_on_the_page() -> None:
    met = {
        kind.__name__
        for kind in iter_errors()
        if int(kind.code.removeprefix("BT")) // 100 in {1, 3, 4, 6, 8} or kind.__name__.startswith("Monitor")
    }

    assert met - named("Errors") - ELSEWHERE == set()
    assert named("Errors") & ELSEWHERE == set()
    assert {name for name in ELSEWHERE if name not in {kind.__name__ for kind in iter_errors()}} == set()


def test_spread_is_on_the_page() -> None:
    values = PAGE.split("\n## Values\n")[1].split("\n## ")[0]

    assert "`[...xs, 1]`" in values
    assert "`{ ...o, a: 1 }`" in values

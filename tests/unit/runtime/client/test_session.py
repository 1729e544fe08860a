"""How a process outside learns that a session has failed: from the file that says so, whatever state that is in."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from bartack.core.watch import open_watch
from bartack.errors import DeadlineExceededError, SessionFailedError
from bartack.runtime.client import session as _session
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.session import Session, check_session
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import FailedFile

RUN = "run-20260101-000000-00000000"


class SilentClient(HubClient):
    """A connection on which nothing is heard."""

    def __init__(self) -> None:
        self.failure = None

    def poll(self) -> None:
        """Nothing was said."""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run that has not failed."""
    found = RunDir(tmp_path / RUN)
    found.path.mkdir()
    return found


def fail(run: RunDir) -> None:
    failed = FailedFile(at="now", worker="main", error="ValueError", message="on purpose", stack=[])
    run.failed.write_bytes(msgspec.json.encode(failed))


def failure_of(run: RunDir) -> SessionFailedError:
    with pytest.raises(SessionFailedError) as caught:
        check_session(run)
    return caught.value


def test_a_session_has_failed_as_its_file_says(run: RunDir) -> None:
    check_session(run)

    fail(run)

    failure = failure_of(run)
    assert (failure.worker, failure.error) == ("main", "ValueError")
    assert "on purpose" in str(failure)


@pytest.mark.parametrize("content", [b"", b'{"at": "now"', b"[]", b"\xff"])
def test_a_file_that_nobody_understands_is_a_failure_of_unknown_cause(run: RunDir, content: bytes) -> None:
    run.failed.write_bytes(content)

    assert failure_of(run).error == "unknown"


def test_a_file_that_cannot_be_read_is_a_failure_of_unknown_cause(run: RunDir) -> None:
    run.failed.mkdir()

    assert failure_of(run).error == "unknown"


def test_a_run_whose_directory_is_gone_has_failed(run: RunDir) -> None:
    run.path.rmdir()

    assert failure_of(run).error == "lost"


def test_a_failure_before_the_watch_is_found_at_once(run: RunDir) -> None:
    fail(run)

    assert Session(run, SilentClient()).wait_failed(60).worker == "main"


@pytest.mark.parametrize("moment", ["between", "while it waits"])
def test_a_failure_behind_the_watch_is_not_missed(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It comes between the watch and the first look, or behind that, just before anybody waits."""

    @contextmanager
    def watch_first() -> Generator[object]:
        with open_watch(str(run.path)) as watch:
            if moment == "between":
                fail(run)
            yield watch

    if moment != "between":
        monkeypatch.setattr(_session, "check_session", first_look_then_failure(run))
    monkeypatch.setattr(run, "watch", watch_first)

    assert Session(run, SilentClient()).wait_failed(60).worker == "main"


def first_look_then_failure(run: RunDir) -> Callable[[RunDir], None]:
    looks: list[int] = []

    def look(seen: RunDir) -> None:
        check_session(seen)
        looks.append(1)
        if len(looks) == 1:
            fail(run)

    return look


def test_waiting_for_a_failure_that_does_not_come_has_its_time(run: RunDir) -> None:
    with pytest.raises(DeadlineExceededError):
        Session(run, SilentClient()).wait_failed(0)

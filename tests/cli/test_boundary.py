from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from bartack.cli.app._boundary import run_guarded
from bartack.errors import BartackError, FileAccessError, JournalCorruptError, JournalLockedError
from bartack.journal import Draft, open_journal

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]
Capture = pytest.CaptureFixture[str]


def failing(error: BaseException) -> Callable[[], int]:
    def work() -> NoReturn:
        raise error

    return work


@pytest.mark.requirement("no-traceback")
def test_an_error_is_shown_with_its_code_its_remedy_and_where_to_read_more(capsys: Capture) -> None:
    error = JournalCorruptError("a/journal.ndjson", 7, "checksum does not match")

    code = run_guarded(failing(error))

    shown = capsys.readouterr()
    assert code == 10
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error[BT201]: a/journal.ndjson: damaged at byte 7: checksum does not match; nothing was changed",
        f"  help: {error.remedy}",
        "  more: bartack explain BT201",
    ]


@pytest.mark.requirement("json-errors")
def test_for_programs_an_error_is_one_json_object_on_stderr(capsys: Capture) -> None:
    error = JournalLockedError("a", 42)

    code = run_guarded(failing(error), as_json=True)

    shown = capsys.readouterr()
    assert code == 5
    assert shown.out == ""
    assert json.loads(shown.err) == {
        "error": {
            "code": "BT202",
            "name": "JournalLockedError",
            "message": "a is owned by process 42",
            "help": error.remedy,
            "retryable": True,
            "exit_code": 5,
            "facts": {"path": "a", "pid": 42, "owner": ""},
        }
    }


def test_json_behind_two_dashes_is_no_option(call: Call) -> None:
    assert call("explain", "--json", "--", "nope").stderr.startswith("{")
    assert call("explain", "--", "--json").stderr.startswith("error[BT1001]")


@pytest.mark.requirement("no-traceback")
def test_a_failure_without_a_name_is_an_internal_error_without_a_traceback(capsys: Capture) -> None:
    code = run_guarded(failing(ZeroDivisionError("division by zero")))

    shown = capsys.readouterr().err
    assert code == 1
    assert shown.startswith("error[BT106]: internal error: ZeroDivisionError: division by zero\n")
    assert "BARTACK_TRACEBACK=1" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("name", "allowed", "code"),
    [
        ("file", os.R_OK | os.X_OK, 6),
        ("file", 0, 1),
        ("new/one", os.R_OK | os.X_OK, 6),
        ("new/one", 0, 1),
        ("new/one", os.R_OK | os.W_OK | os.X_OK, 1),
    ],
)
def test_a_place_that_may_be_read_and_not_written_ends_like_a_disk_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, allowed: int, code: int
) -> None:
    (tmp_path / "file").touch()

    def access(_: str, wanted: int) -> bool:
        return wanted & allowed == wanted

    monkeypatch.setattr(os, "access", access)  # whoever runs the tests may be allowed everything
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / name))

    assert run_guarded(failing(error)) == code


def test_who_asks_gets_the_traceback(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_TRACEBACK", "1")

    code = run_guarded(failing(ZeroDivisionError("division by zero")))

    assert code == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, 1),
        (errno.EACCES, 1),
        (errno.ENOSPC, 6),
        (errno.EROFS, 6),
        (errno.EIO, 6),
        (errno.EDQUOT, 6),
    ],
)
def test_a_refusal_of_the_operating_system_names_the_file(capsys: Capture, number: int, code: int) -> None:
    error = OSError(number, os.strerror(number), "some/file")

    assert run_guarded(failing(error)) == code

    assert capsys.readouterr().err.startswith(f"error[BT104]: some/file: {os.strerror(number)}\n")


def test_a_full_disk_behind_an_error_of_ours_is_told_by_the_exit_code() -> None:
    error = FileAccessError("some/file", os.strerror(errno.ENOSPC))
    error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert run_guarded(failing(error)) == 6


def test_a_refusal_without_a_name_is_an_error_like_any_other(capsys: Capture) -> None:
    assert run_guarded(failing(OSError(errno.EIO, os.strerror(errno.EIO)))) == 6

    assert capsys.readouterr().err.startswith(f"error[BT104]: input or output: {os.strerror(errno.EIO)}\n")


def test_what_could_steer_a_terminal_is_shown_as_its_escape(capsys: Capture) -> None:
    run_guarded(failing(BartackError("a\x1b[2Jb\nc\x9bd")))

    assert capsys.readouterr().err.startswith("error[BT100]: a\\x1b[2Jb\n  c\\x9bd\n")


def test_an_interrupt_is_no_error(capsys: Capture) -> None:
    assert run_guarded(failing(KeyboardInterrupt())) == 130

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_reader_of_the_output_may_go_away(
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbuffered: str,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    big = tmp_path / "run"
    fill_journal(big)
    process = start("journal", "export", str(big))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(60) == 141
    assert process.stderr.read() == ""


def fill_journal(directory: Path) -> None:
    """More than a pipe holds."""
    with open_journal(directory) as journal:
        for n in range(200):
            journal.stage(Draft("note", {"n": n, "text": "x" * 2000}))
        journal.commit()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("args", [("explain",), ("--version",), ("--help",), ("doctor", "--json")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_output_is_an_error(args: tuple[str, ...], unbuffered: str) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bartack", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=120,
            check=False,
        )

    assert done.returncode == 6
    assert "BT104" in done.stderr
    assert f"input or output: {os.strerror(errno.ENOSPC)}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m bartack explain BT201 {closed}', sys.executable],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0
    assert done.stderr == ""


def test_a_character_that_the_output_cannot_show_is_shown_as_its_escape(run: Call) -> None:
    shown = run("explain", "BT103", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert shown.returncode == 0
    assert "\\xb1(2^53 - 1)" in shown.stdout


def test_sigterm_ends_a_command_in_order(
    start: Callable[..., subprocess.Popen[str]], journal_dir: Path
) -> None:
    process = start("journal", "show", "--follow", str(journal_dir))
    assert process.stdout is not None
    assert process.stderr is not None
    assert "journal.opened" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143
    assert process.stderr.read() == ""

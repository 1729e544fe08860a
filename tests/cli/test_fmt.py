"""``bartack fmt`` on files, directories and stdin."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

UGLY = "print( 1 )\n"
CLEAN = "print(1)\n"
BROKEN = "print(1\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_rewritten_and_named(call: Call, project: Path) -> None:
    (project / "lib").mkdir()
    (project / "a.pw").write_text(UGLY)
    (project / "lib" / "b.pw").write_text(UGLY)
    (project / "c.pw").write_text(CLEAN)
    (project / "a.pw").chmod(0o755)

    shown = call("fmt")

    assert (shown.returncode, shown.stdout) == (0, "formatted a.pw\nformatted lib/b.pw\n")
    assert [(project / name).read_text() for name in ("a.pw", "lib/b.pw", "c.pw")] == [CLEAN] * 3
    assert (project / "a.pw").stat().st_mode & 0o777 == 0o755


def test_check_lists_what_would_change_and_changes_nothing(call: Call, project: Path) -> None:
    (project / "a.pw").write_text(UGLY)
    (project / "b.pw").write_text(CLEAN)

    shown = call("fmt", "--check")
    clean = call("fmt", "--check", "b.pw")

    assert (shown.returncode, shown.stdout) == (1, "would format a.pw\n")
    assert (clean.returncode, clean.stdout) == (0, "")
    assert (project / "a.pw").read_text() == UGLY


def test_diff_shows_what_would_change(call: Call, project: Path) -> None:
    (project / "a.pw").write_text("print( 1 )")

    shown = call("fmt", "--diff", "a.pw")

    end = "\\ No newline at end of file\n"
    assert shown.stdout == f"--- a.pw\n+++ a.pw\n@@ -1 +1 @@\n-print( 1 )\n{end}+print(1)\n"
    assert shown.returncode == 0
    assert (project / "a.pw").read_text() == "print( 1 )"


def test_a_file_with_errors_is_left_alone_and_the_others_are_formatted(call: Call, project: Path) -> None:
    (project / "a.pw").write_text(BROKEN)
    (project / "b.pw").write_text(UGLY)

    shown = call("fmt")

    assert (shown.returncode, shown.stdout) == (1, "formatted b.pw\n")
    assert "error[PW104]" in shown.stderr
    assert "a.pw:1:6" in shown.stderr
    assert (project / "a.pw").read_text() == BROKEN


@pytest.mark.parametrize(
    ("text", "options", "code", "printed", "error"),
    [
        (UGLY, [], 0, CLEAN, ""),
        (BROKEN, [], 1, "", "error[PW104]"),
        (UGLY, ["--check"], 1, "", ""),
        (CLEAN, ["--check"], 0, "", ""),
    ],
)
def test_a_program_from_stdin_is_printed(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: list[str],
    code: int,
    printed: str,
    error: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    shown = call("fmt", "-", *options)

    assert (shown.returncode, shown.stdout) == (code, printed)
    assert error in shown.stderr


def test_old_spellings_are_replaced_only_when_that_is_asked_for(call: Call, project: Path) -> None:
    (project / "lib.pw").write_text("worker look(x) {}\n")
    (project / "a.pw").write_text("import ./lib\n\ntask a() {\n    lib.look(self, 1)\n}\n")

    plain = call("fmt", "a.pw")
    upgraded = call("fmt", "--upgrade", "a.pw")

    assert (plain.stdout, upgraded.stdout) == ("", "formatted a.pw\n")
    assert (project / "a.pw").read_text() == "import ./lib\n\nworker a() {\n    lib.look(1)\n}\n"


def test_an_upgrade_keeps_comments_where_they_are(call: Call, project: Path) -> None:
    old = "worker w(n) {\n    return n\n}\n\ntask main() {\n    await task w(1),  # first\n        w(2)\n}\n"
    (project / "a.pw").write_text(old)

    shown = call("fmt", "--upgrade", "a.pw")

    text = (project / "a.pw").read_text()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "worker main() {" in text
    assert "self.delegate(" in text
    assert "w(1),  # first" in text


def test_an_upgrade_says_what_stays_old_and_why(call: Call, project: Path) -> None:
    (project / "a.pw").write_text("task main() {\n    var a = 1\n    return await # odd\n        a\n}\n")

    shown = call("fmt", "--upgrade", "a.pw")

    assert (project / "a.pw").read_text().startswith("worker main() {\n")
    assert shown.returncode == 0
    assert shown.stderr == (
        "a.pw:3: not upgraded: `await` before an expression does nothing; leave it out (PW294): "
        "a comment stands inside of it; move the comment, then upgrade again\n"
    )


def test_programs_get_one_object_a_file(call: Call, project: Path) -> None:
    (project / "a.pw").write_text(UGLY)
    (project / "b.pw").write_text(BROKEN)
    (project / "c.pw").write_text(CLEAN)

    shown = call("fmt", "--json")

    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(one["file"], one["status"]) for one in found] == [
        ("a.pw", "changed"),
        ("b.pw", "errors"),
        ("c.pw", "unchanged"),
    ]
    assert [one["code"] for one in found[1]["diagnostics"]] == ["PW104"]


@pytest.mark.parametrize("path", ["none.pw", "notes.txt"])
def test_what_is_no_program_is_a_usage_error(call: Call, project: Path, path: str) -> None:
    (project / "notes.txt").write_text("x")

    shown = call("fmt", path)

    assert shown.returncode == 2
    assert path in shown.stderr


def test_a_file_that_formatting_would_change_is_left_alone_and_named(call: Call, project: Path) -> None:
    odd = "try;{ a: 1 }\n"
    (project / "a.pw").write_text(odd)

    shown = call("fmt")

    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("a.pw: not changed")
    assert (project / "a.pw").read_text() == odd


def test_windows_line_ends_and_byte_order_marks_go(call: Call, project: Path) -> None:
    (project / "a.pw").write_bytes(b"\xef\xbb\xbfprint(1)\r\n")

    shown = call("fmt")

    assert (shown.returncode, shown.stdout) == (0, "formatted a.pw\n")
    assert (project / "a.pw").read_bytes() == CLEAN.encode()


def test_a_symbolic_link_stays_one(call: Call, project: Path) -> None:
    (project / "real.txt").write_text(UGLY)
    (project / "a.pw").symlink_to("real.txt")

    call("fmt", "a.pw")

    assert (project / "a.pw").is_symlink()
    assert (project / "real.txt").read_text() == CLEAN

"""``bartack check`` on files and directories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

FINE = "export fun f() { return 1 }\n"
WARNED = "var x = 1\n"
WRONG = "import ./lib\n\nprint(lib.f(), nme)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write(project: Path, **files: str) -> None:
    for name, text in files.items():
        path = project / f"{name.replace('__', '/')}.pw"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_program_without_errors_passes(call: Call, project: Path) -> None:
    _write(project, main="import ./lib\n\nprint(lib.f())\n", lib=FINE)

    shown = call("check", "main.pw")

    assert (shown.returncode, shown.stdout) == (0, "no errors in 2 files\n")


def test_an_error_is_shown_with_its_place_and_fails(call: Call, project: Path) -> None:
    _write(project, main=WRONG, lib=FINE)

    shown = call("check", "main.pw")

    assert shown.returncode == 1
    assert "error[PW120]: `nme` is not defined\n --> main.pw:3:16\n" in shown.stdout
    assert shown.stdout.endswith("\n1 error in 2 files\n")


def test_warnings_fail_only_when_that_is_asked_for(call: Call, project: Path) -> None:
    _write(project, main=WARNED)

    assert call("check").returncode == 0
    assert call("check", "--strict").returncode == 1


def test_notes_never_fail(call: Call, project: Path) -> None:
    _write(project, main="task main() { print(1) }\n")

    shown = call("check", "--strict")

    assert "note[PW290]" in shown.stdout
    assert shown.returncode == 0


def test_json_is_one_object_a_line(call: Call, project: Path) -> None:
    _write(project, main=WRONG, lib=FINE)

    shown = call("check", "--json")
    found = json.loads(shown.stdout)

    assert shown.returncode == 1
    assert list(found) == ["code", "severity", "message", "file", "start", "end", "label", "help", "fix"]
    assert (found["code"], found["file"]) == ("PW120", "main.pw")
    assert found["start"] == {"offset": 29, "line": 3, "column": 16}


def test_a_directory_means_all_programs_below_but_no_runs(call: Call, project: Path) -> None:
    _write(project, a=WARNED, deep__er__b=WARNED, **{".bartack/c": "print(nothing)\n"})

    shown = call("check")

    assert "a.pw:1:5" in shown.stdout
    assert f"{os.path.join('deep', 'er', 'b.pw')}:1:5" in shown.stdout
    assert shown.stdout.endswith("\n2 warnings in 2 files\n")


def test_an_imported_file_is_checked_as_part_of_its_program(call: Call, project: Path) -> None:
    send = "worker w() { self.session.mailbox.tasks.send(1) }\n"
    receive = "import ./a\n\nworker main() {\n    a.w()\n    return self.session.mailbox.tasks.receive()\n}\n"
    _write(project, a=send, main=receive)

    assert call("check").stdout == "no errors in 2 files\n"
    assert "PW210" in call("check", "a.pw").stdout


def test_a_diagnostic_of_a_shared_module_is_shown_once(call: Call, project: Path) -> None:
    user = "import ./lib\n\nprint(lib.f())\n"
    _write(project, one=user, two=user, lib="export fun f() { return nme }\n")

    shown = call("check")

    assert shown.stdout.count("PW120") == 1
    assert shown.stdout.endswith("\n1 error in 3 files\n")


def test_what_one_program_sends_and_another_receives_is_not_reported(call: Call, project: Path) -> None:
    send = "worker w() { self.session.mailbox.tasks.send(1); return 1 }\n"
    receive = "import ./lib\n\nworker main() { lib.w(); print(self.session.mailbox.tasks.receive()) }\n"
    _write(project, lib=send, one=receive, two="import ./lib\n\nprint(lib.w())\n")

    assert call("check").stdout == "no errors in 3 files\n"


def test_modules_are_found_from_the_nearest_project(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text("", encoding="utf-8")
    _write(
        project,
        lib=FINE,
        flows__main="import ../lib\n\nprint(lib.f())\n",
        outside="import ../x\n\nprint(x.f())\n",
    )

    assert call("check", "flows").returncode == 0
    assert "PW127" in call("check", "outside.pw").stdout


def test_the_case_of_a_file_name_must_match(call: Call, project: Path) -> None:
    _write(project, Lib=FINE, main="import ./lib\n\nprint(lib.f())\n")

    shown = call("check", "main.pw")

    assert "error[PW125]: module `lib` not found; looked at lib.pw\n" in shown.stdout
    assert "the file is spelled `Lib.pw`" in shown.stdout


def test_a_link_out_of_the_project_is_refused(call: Call, project: Path) -> None:
    inside = project / "inside"
    inside.mkdir()
    (inside / "bartack.toml").write_text("", encoding="utf-8")
    _write(project, lib=FINE, inside__main="import ./lib\n\nprint(lib.f())\n")
    (inside / "lib.pw").symlink_to(project / "lib.pw")

    assert "error[PW127]" in call("check", "inside/main.pw").stdout


def test_bytes_that_are_no_text_are_reported_with_their_place(call: Call, project: Path) -> None:
    (project / "main.pw").write_bytes(b"print(1)\n\xff")

    shown = call("check")

    assert shown.returncode == 1
    assert "error[PW100]: this file is not UTF-8 (byte 9)" in shown.stdout


@pytest.mark.parametrize("path", ["missing.pw", "main.txt"])
def test_a_path_that_cannot_be_checked_is_a_usage_error(call: Call, project: Path, path: str) -> None:
    (project / "main.txt").write_text("x", encoding="utf-8")

    shown = call("check", path)

    assert shown.returncode == 2
    assert path in shown.stderr


# Python files.

FORKS = "import os\n\nimport bartack\n\nos.fork()\n"


def test_python_files_are_looked_through_and_findings_fail(call: Call, project: Path) -> None:
    (project / "team.py").write_text(FORKS)

    shown = call("check", "team.py")

    assert shown.returncode == 1
    assert shown.stdout == (
        "team.py:5:1: unsupervised_process: the process that os.fork starts is never stopped\n"
        '    use a shell step, or ChildSpec(kind="process")\n'
        "1 finding in 1 Python file\n"
    )


def test_in_a_directory_only_python_files_that_use_bartack_are_looked_through(
    call: Call, project: Path
) -> None:
    _write(project, main=FINE)
    (project / "team.py").write_text(FORKS)
    (project / "other.py").write_text("import os\n\nos.fork()\n")

    shown = call("check")

    assert shown.stdout.startswith("no errors in 1 file\n")
    assert shown.stdout.endswith("1 finding in 1 Python file\n")
    assert call("check", "other.py").returncode == 1


def test_findings_can_be_chosen_left_out_and_excluded(call: Call, project: Path) -> None:
    (project / "team.py").write_text(FORKS)

    assert call("check", "team.py", "--ignore", "unsupervised_process").returncode == 0
    assert call("check", "team.py", "--select", "swallowed_cancel").returncode == 0
    assert call("check", "--exclude", "team.py").returncode == 0
    assert call("check", "--select", "unsupervised").returncode == 2


def test_the_report_on_python_files_is_one_json_object(call: Call, project: Path) -> None:
    (project / "team.py").write_text(FORKS)

    report = json.loads(call("check", "team.py", "--json").stdout)

    assert list(report) == ["version", "findings", "totals", "per_file"]
    assert report["totals"] == {"files": 1, "findings": 1, "by_type": {"unsupervised_process": 1}}
    assert report["per_file"] == {"team.py": 1}


def test_other_files_are_refused(call: Call, project: Path) -> None:
    (project / "notes.txt").write_text("")

    shown = call("check", "notes.txt")

    assert shown.returncode == 2
    assert "neither a Patchwork file" in shown.stderr


# Settings.


def test_settings_are_checked_with_everything_that_is_wrong_at_once(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text('[tests]\ncomand = ["make"]\n\n[timeouts]\nshel = 5\n')

    shown = call("check")

    assert shown.returncode == 1
    assert "bartack.toml:2:1: tests.comand: there is no such key; did you mean 'command'?" in shown.stdout
    assert "did you mean 'shell'?" in shown.stdout
    assert call("check", "bartack.toml").returncode == 1


def test_settings_without_faults_pass(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text("[timeouts]\nshell = 5\n")

    for path in ("bartack.toml", "."):
        shown = call("check", path)
        assert (shown.returncode, shown.stdout) == (0, "no errors in bartack.toml\n")


def test_problems_of_settings_are_json_lines(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text("nonsense = 1\n")

    problem = json.loads(call("check", "bartack.toml", "--json").stdout)

    assert (problem["place"], problem["code"]) == ("bartack.toml:1:1: nonsense", "BT101")
    assert (problem["file"], problem["line"], problem["column"]) == ("bartack.toml", 1, 1)


@pytest.mark.requirement("check-finds-what-cannot-work")
def test_settings_that_cannot_work_are_found_with_those_that_are_wrong(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text(
        '[spec]\nfile = "/etc/hosts"\n[pipeline]\nroles = {builder = "bob"}\nreviw = 1\n'
        '[agents.bo]\nscript = "gone.toml"\n[tracking]\nulr = "x"\n[project]\nworkspace = "."\n'
    )

    shown = call("check", str(project))

    places = [line.partition(": ")[2].partition(": ") for line in shown.stdout.splitlines()[:-1]]
    file = project / "bartack.toml"
    assert [(place, told.partition(":")[0]) for place, _, told in places] == [
        (f"{file}:2:1", "spec.file"),
        (f"{file}:5:1", "pipeline.reviw"),
        (f"{file}:7:1", "agents.bo.script"),
        (f"{file}:9:1", "tracking.ulr"),
    ]
    assert shown.stdout.splitlines()[-1] == "4 errors in the settings"
    (project / "bartack.toml").write_text('[project]\nworkspace = "gone"\n')
    assert "bartack.toml:2:1: project.workspace: there is no directory 'gone'" in call("check").stdout
    (project / "bartack.toml").write_text("[tests\n")
    assert "error[BT101]: bartack.toml:1:7: it is not TOML" in call("check").stdout

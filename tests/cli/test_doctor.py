from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from bartack.cli.project.doctor import _doctor
from bartack.cli.project.doctor._doctor import (
    _is_installed,
    check_cgroup,
    check_directory,
    check_extras,
    check_git,
    check_lock,
    check_pidfd,
    check_space,
    check_sync,
    check_umask,
    check_watch,
    examine,
    file_system_of,
)
from bartack.cli.project.doctor._finding import Finding

Call = Callable[..., "subprocess.CompletedProcess[str]"]

CHECKS = [
    "python",
    "platform",
    "pidfd",
    "/proc",
    "cgroup",
    "files",
    "processes",
    "memory",
    "umask",
    "git",
    "terminal",
    "locale",
    "extras",
    "directory",
    "trust",
    "space",
    "disk sync",
    "file lock",
    "file watch",
]


def test_every_check_is_a_line_with_its_judgement(call: Call, tmp_path: Path) -> None:
    shown = call("doctor", "--path", str(tmp_path))

    lines = shown.stdout.splitlines()
    assert shown.returncode == 0
    for check in CHECKS:
        assert any(line.startswith(("  ok    ", "  warn  ")) and line[8:].startswith(check) for line in lines)
    assert lines[-1] == "All checks passed." or lines[-1].endswith("Bartack can work.")


def test_for_programs_the_findings_are_json(call: Call, tmp_path: Path) -> None:
    shown = call("doctor", "--json", "--path", str(tmp_path))

    report = json.loads(shown.stdout)
    assert report["ok"] is True
    assert [finding["check"] for finding in report["findings"]] == CHECKS
    for finding in report["findings"]:
        assert set(finding) == {"check", "level", "sentence", "remedy"}
        assert finding["level"] in {"ok", "warn"}
        assert finding["sentence"]
        assert finding["remedy"] or finding["level"] == "ok"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing", "does not exist"), ("file", "is not a directory"), ("file/x", "does not exist")],
)
def test_a_directory_that_cannot_hold_runs_fails(call: Call, tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    shown = call("doctor", "--path", str(tmp_path / name))

    assert shown.returncode == 1
    assert f"  fail  directory  {tmp_path}/{name} {problem}\n" in shown.stdout
    assert shown.stdout.endswith("1 of 14 checks failed: Bartack cannot work here.\n")
    assert shown.stderr == ""


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    examine(str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_everybody_may_write_to_is_warned_of(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert check_directory(str(tmp_path)).level == "warn"
    tmp_path.chmod(0o1777)
    assert check_directory(str(tmp_path)).level == "ok"


@pytest.mark.parametrize("problem", ["", "switched off"])
def test_control_groups_are_told_of_and_never_needed(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    monkeypatch.setattr("bartack.supervision.process.cgroup_probe.probe_cgroups", lambda: problem)

    found = check_cgroup()

    assert found.level == "ok"
    assert found.sentence.startswith("not used") == bool(problem)
    assert found.sentence.endswith(problem)


@pytest.mark.parametrize(("mask", "level"), [(0o022, "ok"), (0o077, "ok"), (0o200, "fail"), (0o777, "fail")])
def test_a_umask_that_shuts_out_the_owner_fails(mask: int, level: str) -> None:
    before = os.umask(mask)
    try:
        found = check_umask()
        kept = os.umask(mask)
    finally:
        os.umask(before)

    assert found.level == level
    assert kept == mask


@pytest.mark.parametrize(
    ("seconds", "kind", "level"),
    [
        (0.0002, "ext4", "ok"),
        (0.0002, "", "ok"),
        (0.000_001, "ext4", "warn"),
        (0.050, "ext4", "warn"),
        (0.0002, "tmpfs", "warn"),
    ],
)
def test_the_time_of_a_sync_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, kind: str, level: str
) -> None:
    def sync_time(_: str) -> float:
        return seconds

    def kind_of(_: str) -> str:
        return kind

    monkeypatch.setattr(_doctor, "_sync_time", sync_time)
    monkeypatch.setattr(_doctor, "file_system_of", kind_of)

    found = check_sync(str(tmp_path))

    assert found.level == level
    assert bool(found.remedy) == (level != "ok")


def test_the_time_of_a_sync_is_measured(tmp_path: Path) -> None:
    found = check_sync(str(tmp_path))

    assert " ms to make 200 bytes durable (median of 20" in found.sentence
    assert (tmp_path / "sync").stat().st_size == 20 * 200


def test_a_lock_that_keeps_nobody_out_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check_lock(str(tmp_path)).level == "ok"

    def lock_nothing(_: object, __: int) -> None:
        return None

    monkeypatch.setattr("fcntl.flock", lock_nothing)
    assert check_lock(str(tmp_path)).level == "fail"


def test_a_lock_that_is_not_supported_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: object, __: int) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)

    assert check_lock(str(tmp_path)).level == "fail"


def test_a_network_file_system_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def network(_: str) -> str:
        return "nfs4"

    monkeypatch.setattr(_doctor, "file_system_of", network)

    assert check_lock(str(tmp_path)).level == "warn"


def test_a_new_file_is_noticed(tmp_path: Path) -> None:
    found = check_watch(str(tmp_path))

    assert found.level == "ok" or "again and again" in found.sentence


@pytest.mark.parametrize(
    ("free", "level"), [(10_000_000_000, "ok"), (200_000_000, "warn"), (1_000_000, "fail"), (0, "fail")]
)
def test_free_space_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, level: str) -> None:
    real = os.statvfs(tmp_path)

    def little(_: str) -> os.statvfs_result:
        return os.statvfs_result((4096, 1, real.f_blocks, free, free, 100, 100, 100, 0, 255))

    monkeypatch.setattr("os.statvfs", little)

    assert check_space(str(tmp_path)).level == level


def test_a_disk_without_a_free_inode_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_inode(_: str) -> os.statvfs_result:
        return os.statvfs_result((4096, 1, 10**12, 10**12, 10**12, 100, 0, 0, 0, 255))

    monkeypatch.setattr("os.statvfs", no_inode)

    assert check_space(str(tmp_path)).level == "fail"


def test_a_check_that_the_disk_refuses_fails_instead_of_ending_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: str) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_doctor, "_sync_time", refuse)

    findings = examine(str(tmp_path))

    assert [finding.check for finding in findings if finding.level == "fail"] == ["sync"]
    assert os.strerror(errno.ENOSPC) in next(f.sentence for f in findings if f.level == "fail")
    assert findings[-1].check == "file watch"


def test_a_missing_git_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = check_git()
    broken = tmp_path / "git"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)

    assert (missing.level, missing.sentence) == ("warn", "git is not installed")
    assert check_git().level == "warn"


def test_without_pidfd_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> NoReturn:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", refuse, raising=False)
    assert check_pidfd().level == "warn"
    monkeypatch.delattr("os.pidfd_open")
    assert check_pidfd().level == "ok"


def test_an_extra_is_installed_when_all_it_asks_for_is() -> None:
    assert _is_installed("dev", ["pytest>=8; extra == 'dev'", 'rfc8785>=0.1.4; extra == "dev"'])
    assert not _is_installed("dev", ["pytest>=8; extra == 'dev'", "no-such-thing[x]>=1; extra == 'dev'"])


def test_extras_are_never_needed() -> None:
    assert check_extras().level == "ok"


def test_the_file_system_is_that_of_the_nearest_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def mounts() -> list[tuple[str, str]]:
        return [("/", "ext4"), ("/data", "xfs"), ("/data/run", "tmpfs"), ("/data/r", "nfs")]

    monkeypatch.setattr(_doctor, "_mounts", mounts)

    assert file_system_of("/other") == "ext4"
    assert file_system_of("/data/run/x") == "tmpfs"
    assert file_system_of("/data/running") == "xfs"
    assert file_system_of("/data/run") == "tmpfs"


def test_a_finding_is_not_well_without_a_remedy(tmp_path: Path) -> None:
    findings: list[Finding] = examine(str(tmp_path / "missing"))

    assert [finding for finding in findings if finding.level != "ok" and not finding.remedy] == []


def test_the_limits_in_force_are_shown_with_who_says_so(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bartack.toml").write_text("[timeouts]\nshell = 7\n")
    monkeypatch.setenv("BARTACK_TIMEOUT_SEND", "3")

    shown = call("doctor", "--timeouts", "--path", str(tmp_path))
    told = json.loads(call("doctor", "--timeouts", "--path", str(tmp_path), "--json").stdout)

    lines = [line.split(maxsplit=3) for line in shown.stdout.splitlines()]
    assert ["shell", "7", "s", "timeouts.shell"] in lines
    assert ["send", "3", "s", "BARTACK_TIMEOUT_SEND"] in lines
    assert ["receive", "1800", "s", "default"] in lines
    assert {"kind": "shell", "seconds": 7.0, "source": "timeouts.shell"} in told

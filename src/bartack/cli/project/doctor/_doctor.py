"""``bartack doctor``: check the requirements of Bartack on this machine and in the directory of the runs.

Each check is a function that returns a finding. Checks write only to a scratch directory, which is removed afterwards.
"""

from __future__ import annotations

import fcntl
import locale
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from bartack.cli.app._database import INSECURE_HELP, ON_HELP, open_named
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, Style, human_size, printable
from bartack.cli.project.doctor._credentials import check_node_user, check_own_node
from bartack.cli.project.doctor._finding import Finding, Level
from bartack.cli.project.doctor._limits import check_files, check_memory, check_proc, check_processes
from bartack.core.disk import RealDisk
from bartack.core.git import find_git, git_command, git_environment
from bartack.core.watch import open_watch
from bartack.errors import ConfigError, UntrustedError

SYNC_ROUNDS: Final = 20
SYNC_BYTES: Final = 200
LITTLE_SPACE: Final = 1_000_000_000
NO_SPACE: Final = 50_000_000
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
NETWORK: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
)
_STYLES: Final[dict[Level, Style]] = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(short_help="Check that this machine has what Bartack needs.")
@click.option("--path", default=".", metavar="DIR", help="Check the directory that will hold the runs.")
@click.option(
    "--timeouts",
    is_flag=True,
    help="Show the limit of each kind of wait and where it is set, instead of the checks.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Also start the program of each agent and check that it speaks the line protocol, without sending it a prompt.",
)
@click.option("--on", default="", metavar="DATABASE", help=f"Check {ON_HELP} instead.")
@click.option("--insecure", is_flag=True, help=INSECURE_HELP)
@json_option
def doctor(path: str, on: str, *, timeouts: bool, live: bool, insecure: bool, as_json: bool) -> Exit:
    """Check that this machine has what Bartack needs, and that a project with a bartack.toml has what its runs need.

    With --on, check a database that keeps runs: version, tables, rights, latency, clock, notifications and standbys, and whether
    runs on a node of this user could read what opens it.

    Each line starts with ok, warn or fail; the line below it describes what to do. The exit code is 1 if a check failed, else 0.
    """
    if timeouts:
        return _show_timeouts(path, as_json=as_json)
    findings = _examine_database(on, insecure=insecure) if on else examine(path, live=live)
    healthy = all(finding.level != "fail" for finding in findings)
    if as_json:
        write_json({"ok": healthy, "findings": [finding._asdict() for finding in findings]})
    else:
        _show(findings)
    return Exit.OK if healthy else Exit.FAILED


def _examine_database(on: str, *, insecure: bool) -> list[Finding]:
    remarks = open_named(on, insecure=insecure).examine()
    return [*(Finding(*remark) for remark in remarks), check_node_user()]


def _show_timeouts(path: str, *, as_json: bool) -> Exit:
    from bartack.config.load import load_config  # noqa: PLC0415 - the checks need no runtime
    from bartack.config.timeouts import limits_in_force  # noqa: PLC0415 - the checks need no runtime

    limits = limits_in_force(os.environ, load_config(Path(path)).limits)
    if as_json:
        write_json([limit._asdict() for limit in limits])
    else:
        rows = [(limit.kind, f"{limit.seconds:g} s", limit.source) for limit in limits]
        Screen(sys.stdout).table(rows)
    return Exit.OK


def examine(path: str, *, live: bool = False) -> list[Finding]:
    """Return all findings about this machine and the directory ``path``."""
    findings = [*(check() for check in MACHINE_CHECKS), *check_own_node()]
    directory = check_directory(path)
    findings.append(directory)
    if directory.level != "fail":
        trust = check_trust(path)
        findings.append(trust)
        with tempfile.TemporaryDirectory(dir=path, prefix=".bartack-doctor-") as scratch:
            findings += [_guarded(check, scratch) for check in DIRECTORY_CHECKS]
        if trust.level != "fail" and os.path.isfile(os.path.join(path, "bartack.toml")):
            from bartack.cli.project.doctor._project import examine_project  # noqa: PLC0415 - only projects need it

            findings += examine_project(Path(path).resolve(), live=live)
        if trust.level != "fail":
            from bartack.cli.project.doctor._plugins import check_plugins  # noqa: PLC0415 - only a directory has them

            findings += check_plugins(path)
    return findings


def check_python() -> Finding:
    """The interpreter."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.implementation.name != "cpython":
        return Finding("python", "warn", f"{name} is not tested", "Use CPython 3.11 or newer.")
    return Finding("python", "ok", name)


def check_platform() -> Finding:
    """The operating system."""
    name = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if sys.platform not in {"linux", "darwin"}:
        return Finding("platform", "warn", f"{name} is not tested", "Use Linux or macOS.")
    return Finding("platform", "ok", name)


def check_pidfd() -> Finding:
    """Whether the end of a process is reported at once."""
    if not hasattr(os, "pidfd_open"):
        return Finding("pidfd", "ok", "not on this platform; the end of a process is detected in another way")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Finding("pidfd", "warn", f"not usable: {error.strerror}", "Use Linux 5.3 or newer.")
    return Finding("pidfd", "ok", "the end of a process is reported at once")


def check_cgroup() -> Finding:
    """Whether each process tree gets a control group, which terminates it as a whole. It is optional."""
    from bartack.supervision.process.cgroup_probe import probe_cgroups  # noqa: PLC0415 - the other checks need no processes

    problem = probe_cgroups()
    if problem:
        return Finding("cgroup", "ok", f"not used; process trees are terminated without it: {problem}")
    return Finding(
        "cgroup",
        "ok",
        "each process tree has a control group of its own (cgroup v2) and is terminated as a whole",
    )


def check_umask() -> Finding:
    """Whether this user can use the files that this user creates."""
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o700:
        sentence = f"the umask {mask:04o} removes the owner's permissions on new files"
        return Finding("umask", "fail", sentence, "Set it with 'umask 022' or 'umask 077'.")
    return Finding("umask", "ok", f"{mask:04o}; the files of Bartack are always private to their owner")


def check_git() -> Finding:
    """Whether git is installed."""
    git = find_git()
    if git is None:
        return Finding(
            "git", "warn", "git is not installed", "Install git with the system's package manager."
        )
    try:
        done = subprocess.run(  # noqa: S603 - git
            git_command(git, ["--version"]),
            env=git_environment(),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", "warn", f"{git} does not run: {error}", "Install git again.")
    return Finding("git", "ok", done.stdout.strip())


def check_terminal() -> Finding:
    """Whether the output is a terminal."""
    screen = Screen(sys.stdout)
    if screen.width is None:
        return Finding("terminal", "ok", "the output is not a terminal: plain text, no colour")
    return Finding("terminal", "ok", f"{screen.width} columns, {'' if screen.colour else 'no '}colour")


def check_locale() -> Finding:
    """Whether names and text of every language can be read and written."""
    used = {
        sys.getfilesystemencoding(),
        locale.getpreferredencoding(do_setlocale=False),
        sys.stdout.encoding or "utf-8",
    }
    foreign = sorted(name for name in used if name.lower().replace("-", "") != "utf8")
    if foreign:
        remedy = "Set LANG to a UTF-8 locale, for example C.UTF-8, or set PYTHONUTF8=1."
        return Finding("locale", "warn", f"not UTF-8 but {', '.join(foreign)}", remedy)
    return Finding("locale", "ok", "UTF-8")


def check_extras() -> Finding:
    """Which optional parts are installed."""
    present, absent = _extras()
    installed = f"installed: {', '.join(present) or 'none'}"
    if not absent:
        return Finding("extras", "ok", installed)
    remedy = f"To add one: {sys.executable} -m pip install 'bartack[{absent[0]}]'"
    return Finding(
        "extras", "ok", f"{installed}; not installed and not required: {', '.join(absent)}", remedy
    )


def check_directory(path: str) -> Finding:
    """Whether runs can be kept in this directory."""
    shown = printable(os.path.abspath(path))
    if not os.path.isdir(path):
        problem = "is not a directory" if os.path.lexists(path) else "does not exist"
        return Finding("directory", "fail", f"{shown} {problem}", "Give a directory that exists.")
    try:
        os.rmdir(tempfile.mkdtemp(dir=path, prefix=".bartack-doctor-"))
    except OSError as error:
        remedy = "Give a directory that you can write to."
        return Finding("directory", "fail", f"cannot write in {shown}: {error.strerror}", remedy)
    mode = os.stat(path).st_mode
    if mode & 0o002 and not mode & 0o1000:
        remedy = "Remove the write permission of other users: chmod o-w"
        return Finding("directory", "warn", f"every user can replace files in {shown}", remedy)
    return Finding("directory", "ok", f"{shown} is writable")


def check_trust(path: str) -> Finding:
    """Whether settings and runs here belong to this user or are trusted."""
    from bartack.runtime.rundir.find import check_place  # noqa: PLC0415 - the checks of the machine need no runtime

    try:
        check_place(Path(path))
    except UntrustedError as error:
        remedy = f"Inspect it. If you trust it: bartack trust {error.directory}"
        return Finding("trust", "fail", printable(f"{error.path}: {error.reason}"), remedy)
    except ConfigError:
        # The checks of the project report all errors of the settings.
        return Finding("trust", "ok", "settings here are your own")
    return Finding("trust", "ok", "settings and runs here are your own, or you trust them")


def check_space(scratch: str) -> Finding:
    """Whether the disk has free space."""
    found = os.statvfs(scratch)
    free = found.f_bavail * found.f_frsize
    if free < NO_SPACE or (found.f_files and not found.f_favail):
        return Finding(
            "space", "fail", f"{human_size(free)} free", "Free some space, or use --path on another disk."
        )
    if free < LITTLE_SPACE:
        return Finding("space", "warn", f"only {human_size(free)} free", "Free some space before long runs.")
    return Finding("space", "ok", f"{human_size(free)} free")


def check_sync(scratch: str) -> Finding:
    """How long the disk takes to make an entry durable, and whether the time is plausible."""
    median_ms = _sync_time(os.path.join(scratch, "sync")) * 1000
    kind = file_system_of(scratch)
    sentence = f"{median_ms:.2f} ms to make {SYNC_BYTES} bytes durable (median of {SYNC_ROUNDS}{_on(kind)})"
    if kind in VOLATILE:
        remedy = (
            "Keep runs on a disk: files in memory survive a killed process, but not a restart of the machine."
        )
        return Finding("disk sync", "warn", f"{kind} is memory, not a disk; {sentence}", remedy)
    if median_ms < 0.01:
        remedy = "Check whether a virtual disk or a tool such as eatmydata ignores syncs; a power cut would lose entries."
        return Finding("disk sync", "warn", f"{sentence}: faster than any disk", remedy)
    if median_ms > 20:
        remedy = 'Use a faster disk, or durability = "process" if a power cut is allowed to lose work.'
        return Finding("disk sync", "warn", f"{sentence}: slow; every durable step waits for it", remedy)
    return Finding("disk sync", "ok", sentence)


def check_lock(scratch: str) -> Finding:
    """Whether a file lock is exclusive."""
    kind = file_system_of(scratch)
    if not _lock_excludes(os.path.join(scratch, "lock")):
        remedy = "Use --path on a local disk; without locks two processes could own one run."
        return Finding("file lock", "fail", f"file locks are not exclusive{_on(kind)}", remedy)
    if kind in NETWORK:
        remedy = "Keep runs on a local disk; locks and syncs of a network file system depend on its server."
        return Finding("file lock", "warn", f"works, but {kind} is a network file system", remedy)
    return Finding("file lock", "ok", "file locks are exclusive")


def check_watch(scratch: str) -> Finding:
    """Whether changes of files are detected without polling."""
    with open_watch(scratch) as watch:
        with open(os.path.join(scratch, "watched"), "wb"):
            pass
        noticed = watch.wait(2.0)
        name = watch.kind
    if not noticed:
        remedy = "Use --path on a local disk; following a journal would be late here."
        return Finding("file watch", "warn", f"{name} does not detect a new file", remedy)
    if name == "poll":
        remedy = "Raise fs.inotify.max_user_instances if this is Linux."
        return Finding("file watch", "warn", "changes are detected by polling", remedy)
    return Finding("file watch", "ok", f"{name} detects changes at once")


MACHINE_CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_platform,
    check_pidfd,
    check_proc,
    check_cgroup,
    check_files,
    check_processes,
    check_memory,
    check_umask,
    check_git,
    check_terminal,
    check_locale,
    check_extras,
)
DIRECTORY_CHECKS: tuple[Callable[[str], Finding], ...] = (check_space, check_sync, check_lock, check_watch)


def file_system_of(path: str) -> str:
    """Return the Linux name of the file system of ``path``; empty if it is unknown."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for point, found in _mounts():
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _mounts() -> Iterator[tuple[str, str]]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                before, _, after = line.partition(" - ")
                point = before.split(" ")[4].replace("\\040", " ")
                yield point, after.split(" ", 1)[0]
    except OSError:
        return


def _on(kind: str) -> str:
    return f", {kind}" if kind else ""


def _sync_time(path: str) -> float:
    disk = RealDisk()
    fd = disk.open(path, write=True, create=True)
    try:
        times: list[float] = []
        for i in range(SYNC_ROUNDS):
            started = time.perf_counter()
            disk.write(fd, bytes(SYNC_BYTES), i * SYNC_BYTES)
            disk.sync(fd)
            times.append(time.perf_counter() - started)
    finally:
        disk.close(fd)
    return statistics.median(times)


def _lock_excludes(path: str) -> bool:
    with open(path, "wb") as first, open(path, "wb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _extras() -> tuple[list[str], list[str]]:
    from importlib import metadata  # noqa: PLC0415 - slow, and only for this check

    try:
        found = metadata.distribution("bartack")
    except metadata.PackageNotFoundError:
        return [], []
    present: list[str] = []
    absent: list[str] = []
    for extra in found.metadata.get_all("Provides-Extra") or []:
        (present if _is_installed(extra, found.requires or []) else absent).append(extra)
    return present, absent


def _is_installed(extra: str, requires: list[str]) -> bool:
    from importlib import metadata  # noqa: PLC0415 - see above

    wanted = [line for line in requires if f"extra == '{extra}'" in line.replace('"', "'")]
    for line in wanted:
        name = re.match(r"[\w.-]+", line)
        try:
            metadata.distribution(name[0] if name else line)
        except metadata.PackageNotFoundError:
            return False
    return True


def _guarded(check: Callable[[str], Finding], scratch: str) -> Finding:
    name = (check.__doc__ or "").rstrip(".")
    try:
        return check(scratch)
    except OSError as error:
        remedy = "Use --path on a local disk with free space."
        return Finding(
            check.__name__.removeprefix("check_"),
            "fail",
            f"unknown ({name.lower()}): {error.strerror}",
            remedy,
        )


def _show(findings: list[Finding]) -> None:
    screen = Screen(sys.stdout)
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = screen.paint(f"{finding.level:<4}", _STYLES[finding.level])
        screen.line(f"  {level}  {finding.check:<{width}}  {finding.sentence}")
        if finding.remedy:
            screen.line(" " * (width + 10) + screen.paint(finding.remedy, "dim"))
    screen.line()
    screen.line(_verdict(findings))


def _verdict(findings: list[Finding]) -> str:
    failed = sum(finding.level == "fail" for finding in findings)
    warned = sum(finding.level == "warn" for finding in findings)
    if failed:
        return f"{failed} of {len(findings)} checks failed: Bartack cannot work here."
    if warned:
        return f"{warned} of {len(findings)} checks warn; Bartack can work."
    return "All checks passed."

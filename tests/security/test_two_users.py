"""What one user of a machine can do to another, tried with two real users."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.security.sites import python_path, readable_python
from tests.security.users import User

PROGRAM = """\
from bartack import worker


@worker
async def main(ctx):
    await ctx.append("effects.txt", "once\\n")
    await ctx.ask("go on?", type=bool)
    return "done"
"""


def project(user: User, place: Path, settings: str = "") -> Path:
    """A directory of a user with a program in it."""
    place.mkdir()
    user.owns(place)
    for name, text in {"team.py": PROGRAM, "bartack.toml": settings}.items():
        (place / name).write_text(text, "utf-8")
        user.owns(place / name)
    return place


def started(user: User, place: Path) -> Path:
    """A run of a user that waits for an answer."""
    assert user.bartack("run", "team.py", at=place).returncode == 3
    (found,) = (place / ".bartack/runs").iterdir()
    return found


@pytest.mark.requirement("settings-of-others-are-refused")
@pytest.mark.parametrize(
    "command", [["status"], ["run", "team.py"], ["snapshot"], ["agents", "doctor"], ["clean", "--yes"]]
)
def test_settings_of_another_user_above_are_refused(
    owner: User, other: User, shared: Path, command: list[str]
) -> None:
    planted = shared / "bartack.toml"
    planted.write_text(
        f'state_dir = "{shared}/trap"\n[agents.a]\ncommand = ["touch", "{shared}/executed"]\n', "utf-8"
    )
    other.owns(planted)
    mine = shared / "mine"
    mine.mkdir()
    owner.owns(mine)
    shutil.copy(project(owner, shared / "source") / "team.py", mine)

    refused = owner.bartack(*command, at=mine)

    assert refused.returncode == 2
    assert f"belongs to the user {other.name}" in refused.stderr
    assert f"bartack trust {shared}" in refused.stderr
    assert not (shared / "trap").exists()
    assert not (shared / "executed").exists()


@pytest.mark.requirement("settings-of-others-are-refused")
def test_a_directory_of_another_user_is_obeyed_when_it_is_trusted(
    owner: User, other: User, shared: Path
) -> None:
    place = project(other, shared / "theirs")
    place.chmod(0o777)

    refused = owner.bartack("status", at=place)
    trusted = owner.bartack("trust", str(place), at=place)
    shown = owner.bartack("status", at=place)
    removed = owner.bartack("trust", "--remove", str(place), at=place)
    again = owner.bartack("status", at=place)

    assert (refused.returncode, trusted.returncode, shown.returncode) == (2, 0, 0)
    assert (removed.returncode, again.returncode) == (0, 2)
    kept = owner.home / ".config/bartack/trust.json"
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("runs-of-others-are-refused")
@pytest.mark.parametrize("command", ["resume", "status", "show", "cancel"])
def test_a_run_of_another_user_is_refused(owner: User, other: User, shared: Path, command: str) -> None:
    run = started(other, project(other, shared / "theirs"))
    for folder, folders, files in os.walk(shared / "theirs"):
        for name in (*folders, *files):
            Path(folder, name).chmod(0o777)

    refused = owner.bartack(command, str(run), at=owner.home)

    assert refused.returncode == 2
    assert f"belongs to the user {other.name}" in refused.stderr


@pytest.mark.requirement("runs-of-others-are-refused")
def test_a_state_directory_that_every_user_can_write_to_is_refused(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    run = started(owner, place)
    (place / ".bartack").chmod(0o777)

    refused = owner.bartack("resume", run.name, at=place)
    checked = owner.bartack("doctor", at=place)
    (place / ".bartack").chmod(0o700)
    shown = owner.bartack("status", at=place)

    assert refused.returncode == 2
    assert "every user can write to it (mode 0777; fix: chmod go-w)" in refused.stderr
    assert "every user can write to it" in checked.stdout
    assert shown.returncode == 0


@pytest.mark.requirement("files-are-private")
def test_a_umask_of_nothing_leaves_nothing_open(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")

    assert owner.bartack("run", "team.py", at=place, umask=0).returncode == 3

    below = [place / ".bartack", *(place / ".bartack").rglob("*")]
    opened = [path for path in below if path.lstat().st_mode & 0o077 and "__pycache__" not in path.parts]
    assert [path for path in opened if not path.is_symlink()] == []


@pytest.mark.requirement("links-are-not-followed")
def test_a_link_that_another_user_planted_leads_nowhere(owner: User, other: User, shared: Path) -> None:
    place = shared / "mine"
    place.mkdir(mode=0o777)
    place.chmod(0o1777)
    (place / "team.py").write_text(PROGRAM, "utf-8")
    target = owner.home / "precious"
    target.mkdir(exist_ok=True)
    owner.owns(target)
    other.act("ln", "-s", str(target), ".bartack", at=place)

    refused = owner.bartack("run", "team.py", at=place)

    assert refused.returncode == 2
    assert "it is a symbolic link" in refused.stderr
    assert list(target.iterdir()) == []


@pytest.mark.requirement("runs-of-others-are-refused")
def test_a_socket_of_another_user_is_not_spoken_to(owner: User, other: User, shared: Path) -> None:
    run = started(owner, project(owner, shared / "mine"))
    listening = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    other.act(sys.executable, "-c", listening, str(shared / "s"), at=shared)
    (run / "hub.sock").unlink(missing_ok=True)
    os.rename(shared / "s", run / "hub.sock")

    refused = owner.bartack("cancel", str(run), at=owner.home)

    assert "not a socket of this user" in refused.stderr


@pytest.mark.requirement("root-obeys-who-became-root")
def test_root_obeys_the_user_who_became_root_and_no_other(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    root = User.__new__(User)
    root.name, root.uid, root.home = "root", 0, shared / "root"
    root.home.mkdir(mode=0o700)

    plain = root.bartack("status", at=place)
    by_sudo = root.bartack("status", at=place, SUDO_UID=str(owner.uid))

    assert plain.returncode == 2
    assert f"belongs to the user {owner.name}" in plain.stderr
    assert by_sudo.returncode == 0


@pytest.mark.requirement("own-projects-need-no-trust")
def test_an_own_project_is_never_asked_about(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    run = started(owner, place)
    moved = place.rename(shared / "moved")

    assert owner.bartack("answer", run.name, "q1", "true", at=moved).returncode == 0
    resumed = owner.bartack("resume", run.name, at=moved, umask=0o002)

    assert (resumed.returncode, resumed.stdout.strip()) == (0, "done"), resumed.stderr
    assert (moved / "effects.txt").read_text("utf-8") == "once\n"


@pytest.mark.requirement("own-projects-need-no-trust")
def test_a_group_of_the_user_alone_is_no_other_user(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    started(owner, place)
    for path in (place, place / "bartack.toml", place / ".bartack"):
        path.chmod(path.stat().st_mode | 0o020)

    assert owner.bartack("status", at=place).returncode == 0


@pytest.mark.requirement("one-unreadable-run-is-one-line")
def test_a_run_that_root_made_with_sudo_is_one_line_for_the_user(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    python = readable_python(owner)

    def bartack(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-m", "bartack", *words],
            cwd=place,
            env={**owner.environment(), **python_path(), **how.pop("variables", {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **how,
        )

    user: dict[str, Any] = {"user": owner.uid, "group": owner.uid, "extra_groups": []}
    assert bartack("run", "team.py", **user).returncode == 3
    (mine,) = (place / ".bartack/runs").iterdir()
    assert bartack("run", "team.py", variables={"SUDO_UID": str(owner.uid)}).returncode == 3
    (roots,) = (path for path in (place / ".bartack/runs").iterdir() if path != mine)

    listed = bartack("status", "--json", **user)
    answered = bartack("answer", mine.name, "q1", "true", **user)
    resumed = bartack("resume", **user)

    row = json.loads(listed.stdout)[0]
    assert (row["run"], row["status"]) == (roots.name, "unreadable")
    assert os.strerror(errno.EACCES) in row["error"]
    assert answered.returncode == 0, answered.stderr
    assert (resumed.returncode, resumed.stdout) == (0, "done\n"), resumed.stderr
    assert f"{roots.name} is skipped: " in resumed.stderr


CROWD = """\
from bartack import worker


@worker
async def child(ctx, n: int):
    return await ctx.mailbox.never.receive(timeout_s=2.0)


@worker
async def main(ctx, n: int):
    got = await ctx.delegate([child(i) for i in range(n)], on_failure="collect")
    return sorted({outcome.error.kind for outcome in got})
"""


@pytest.mark.requirement("unstartable-workers-fail-alone")
def test_workers_beyond_the_limit_of_processes_fail_by_themselves(owner: User, shared: Path) -> None:
    place = project(owner, shared / "mine")
    (place / "crowd.py").write_text(CROWD, "utf-8")

    def limited(count: int, *words: str) -> subprocess.CompletedProcess[str]:
        return owner.act("prlimit", f"--nproc={count}", sys.executable, "-m", "bartack", *words, at=place)

    done = limited(14, "run", "crowd.py:main", "--", "20")
    refused = limited(4, "run", "crowd.py:main", "--", "1")

    assert (done.returncode, json.loads(done.stdout)) == (0, ["ReceiveTimeoutError", "WorkerStartError"]), (
        done.stderr
    )
    assert "start failed: no process can be forked" in done.stderr
    assert refused.returncode == 2
    assert "error[BT350]: a run is not possible here: only" in refused.stderr
    assert len(list((place / ".bartack/runs").iterdir())) == 1

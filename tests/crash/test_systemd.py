"""The node as a service of a real systemd, in namespaces of its own: installed, killed, stopped and removed.

The systemd of a user does not need that of the system. It gets an empty ``/run`` and its own numbers of processes, and everything
below it ends with the namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from tests.crash.node_stage import PATIENCE_S, NodeStage
from tests.waiting import until

from bartack.supervision.process.system import read_facts

SYSTEMD: Final = "/usr/lib/systemd/systemd"
RUNTIME: Final = f"/run/user/{os.getuid()}"
INSIDE: Final = f"""
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system {RUNTIME} || exit 1
unset DBUS_SESSION_BUS_ADDRESS
{SYSTEMD} --user --unit=basic.target &
wait
"""
UNIT: Final = "bartack-node.service"
ALL: Final = ["before", "gate", "after"]
GROUPS: Final = Path("/sys/fs/cgroup")


class ServiceStage(NodeStage):
    """A user with a systemd, whose node is a service."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.environ.update({"XDG_RUNTIME_DIR": RUNTIME, "XDG_CONFIG_HOME": str(root / "config")})
        self._groups = _control_groups()
        self._log = (root / "systemd.log").open("wb")
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", INSIDE],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self.environ,
        )

    def _first(self) -> int:
        """The first process of the namespace; 0 if there is none."""
        path = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        return int((path.read_text().split() or ["0"])[0])

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call a program in the namespaces of the systemd."""
        return subprocess.run(
            [
                "nsenter",
                "--target",
                str(self._first()),
                "--mount",
                "--pid",
                f"--wd={self.workspace}",
                *words,
            ],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def call(self, *words: str, code: int | None = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """See ``NodeStage.call``: in the namespaces of the systemd."""
        done = self.inside(sys.executable, "-m", "bartack", *words)
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask the systemd."""
        return self.inside("systemctl", "--user", *words)

    def main_pid(self) -> str:
        """The process of the service; 0 if there is none."""
        return self.systemctl("show", "--value", "--property=MainPID", UNIT).stdout.strip()

    def until_seated(self, but: str = "") -> str:
        """Wait until a node, but not this one, has the seat; its id."""
        self.until(lambda: (found := self.depot.seated()) is not None and found.id != but, None, "a node")
        found = self.depot.seated()
        assert found is not None
        return found.id

    def again(self) -> None:
        """Close the gate for the next run."""
        for name in ("go", "begun", "done.txt"):
            (self.workspace / name).unlink(missing_ok=True)

    def close(self) -> None:
        """End everything: the first process of the namespace is killed, and all others with it."""
        first = self._first()
        self._holder.kill()
        self._holder.wait(PATIENCE_S)
        until(lambda: read_facts(first) is None, "nothing is left in the namespace")
        self._log.close()
        for group in sorted(_control_groups() - self._groups, reverse=True):
            with suppress(OSError):
                group.rmdir()


def _control_groups() -> set[Path]:
    own = {line.rpartition(":")[2].strip("/") for line in Path("/proc/self/cgroup").read_text().splitlines()}
    places = [GROUPS, *GROUPS.iterdir()]
    return {found for place in places for name in own for found in (place / name).glob("*.s[lce]*/**/")}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ServiceStage]:
    programs = ("unshare", "nsenter", "systemctl", SYSTEMD)
    if os.getuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip("NO REAL SERVICE WAS TRIED: it needs root, unshare, nsenter and systemd")
    made = ServiceStage(tmp_path)
    try:
        try:
            until(lambda: made.systemctl("show-environment").returncode == 0, "systemd answers")
        except AssertionError:
            log = (tmp_path / "systemd.log").read_text()
            pytest.skip(f"NO REAL SERVICE WAS TRIED: systemd does not run here: {log[-500:]}")
        yield made
    finally:
        made.close()


@pytest.mark.requirement("service-runs-under-systemd")
def test_the_service_is_restarted_after_a_kill_stopped_in_order_and_removed(stage: ServiceStage) -> None:
    installed = stage.call("node", "install", "--yes")
    assert "the service is running" in installed.stderr
    first = stage.until_seated()
    seated = stage.depot.seated()
    assert seated is not None
    assert (stage.main_pid(), stage.systemctl("is-enabled", UNIT).stdout.strip()) == (
        str(seated.pid),
        "enabled",
    )

    # Killed: systemd starts it again, and the run goes on at its step.
    hurry = stage.root / "config" / "systemd" / "user" / f"{UNIT}.d" / "hurry.conf"
    hurry.parent.mkdir()
    hurry.write_text("[Service]\nRestartSec=100ms\n")
    stage.systemctl("daemon-reload")
    run = stage.detach("gated.py")
    stage.until_gate()
    stage.inside("kill", "-9", stage.main_pid())
    second = stage.until_seated(but=first)
    stage.open_gate()
    assert stage.until_state(run, "over", "held").outcome == "completed"
    assert stage.done() == ALL

    # Stopped: its runs are shut down cleanly, and wait for the next node.
    stage.again()
    run = stage.detach("gated.py")
    stage.until_gate()
    assert stage.systemctl("stop", UNIT).returncode == 0
    stopped = stage.standing(run)
    assert (stopped.state, stopped.reason, stopped.strikes) == ("queued", "it was terminated", 0)
    assert stage.depot.seated() is None
    assert stage.systemctl("start", UNIT).returncode == 0
    stage.until_seated(but=second)
    stage.open_gate()
    assert stage.until_state(run, "over", "held").outcome == "completed"
    assert stage.done() == ALL

    # Removed.
    removed = stage.call("node", "uninstall")
    assert "removed" in removed.stderr
    assert stage.depot.seated() is None
    assert stage.systemctl("is-enabled", UNIT).returncode != 0
    assert stage.systemctl("is-active", UNIT).stdout.strip() == "inactive"

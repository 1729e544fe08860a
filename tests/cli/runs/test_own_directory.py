"""The directory of the runs is out of a program's way: patterns leave it out, and an error inside of it says what it is."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROGRAM = """\
fun told(path) {
    try {
        read(path)
        return "read"
    } catch e {
        return e.message
    }
}
write("data/a.txt", "a")
write(".hidden", "b")
write(self.session.dir + "/own.txt", "c")
print(list(PATTERN))
print(list("**/*"))
print(list(NAMED).length)
$ echo GLOB
print(told("STATE/none.txt"))
print(told("none.txt"))
print(told(self.session.dir + "/none.txt").includes("Bartack keeps"))
"""


@pytest.mark.parametrize("state", [".bartack", "state"])
def test_patterns_leave_the_directory_of_runs_out(
    state: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hidden = state.startswith(".")
    pattern, glob = ('".*"', ".*") if hidden else ('"*"', "*")
    program = PROGRAM.replace("PATTERN", pattern).replace("GLOB", glob).replace("STATE", state)
    (tmp_path / "main.pw").write_text(program.replace("NAMED", f'"{state}/runs/*/program"'))
    (tmp_path / "bartack.toml").write_text(f'state_dir = "{state}"\n')

    done = run("run", "main.pw")

    assert done.returncode == 0, done.stderr
    seen = [".hidden"] if hidden else ["bartack.toml", "data", "main.pw"]
    shown = done.stdout.splitlines()
    missing = os.strerror(errno.ENOENT)
    assert shown == [
        str(seen).replace("'", '"').replace(", ", ","),
        '["bartack.toml","data","data/a.txt","main.pw"]',
        "1",
        " ".join(seen),
        f"{state}/none.txt: {missing}; Bartack keeps its runs in {state}, which state_dir in bartack.toml can move",
        f"none.txt: {missing}",
        "false",
    ]

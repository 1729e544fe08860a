"""Runs that root starts for another user: everything runs as that user, and the run stays root's."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.security.sites import TIMEOUT_S, Site, python_path
from tests.security.users import User

from bartack.core.share import RUN_GROUPS
from bartack.errors import BlobMissingError
from bartack.journal import BlobRef, open_blobs
from bartack.runtime.rundir.find import read_state

REFUSED = "BT341"


@pytest.fixture
def site(users: tuple[User, User]) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="bt-") as place:
        Path(place).chmod(0o755)
        yield Site(Path(place), users[0])


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until
        os.sched_yield()


# What runs as whom.

EVERYTHING = """
import os
import sys
from pathlib import Path
from bartack import Context, step, worker

@step
def body() -> list[object]:
    return [os.getuid(), os.environ["HOME"], os.environ["USER"], sorted(n for n in os.environ if n.startswith(("XDG_", "SUDO_")))]

@step
def large() -> str:
    return "x" * 300_000

@worker
async def helper(ctx: Context, text: str) -> int:
    return os.getuid() + len(text)

SEND = "import os, bartack; bartack.Session.join(os.environ['BARTACK_RUN_DIR']).mailbox['box'].send('y' * 200_000)"

async def message(ctx: Context) -> int:
    await ctx.shell(sys.executable, "-c", SEND)
    return len(await ctx.mailbox["box"].receive())

@worker
async def main(ctx: Context) -> dict[str, object]:
    Path("import.txt").touch()
    said = await ctx.shell("sh", "-c", "id -u; id -un; echo $HOME; echo again > /dev/stderr")
    wide = await ctx.shell("sh", "-c", "yes xxxxxxx | head -c 300000")
    text = await large()
    (helped,) = await ctx.delegate([helper(text)])
    return {
        "worker": os.getuid(),
        "shell": said.stdout.split(),
        "body": await body(),
        "helper": helped - len(text),
        "wide": len(wide.stdout),
        "scripted": await ctx.think("write it", agent="inside"),
        "program": await ctx.think("write it", agent="outside"),
        "message": await message(ctx),
    }
"""
RULES = '[[prompts]]\ntext = "done"\nwrite = [{ path = "scripted.txt", content = "yes" }]\n'
OUTSIDE = '[[prompts]]\ntext = "done too"\n'


def settings(site: Site) -> str:
    agent = f"id -u > agent.txt; exec {site.python} -m bartack agents scripted --script outside.toml"
    return (
        f'[agents.inside]\nkind = "scripted"\nscript = "rules.toml"\n'
        f'[agents.outside]\nkind = "ndjson"\ncommand = {json.dumps(["sh", "-c", agent])}\n'
        f"env = {{ PYTHONPATH = {json.dumps(python_path()['PYTHONPATH'])} }}\n"
    )


@pytest.mark.requirement("runs-as-another-user")
def test_workers_commands_bodies_and_agents_run_as_the_user(site: Site) -> None:
    site.write("team.py", EVERYTHING)
    site.write("rules.toml", RULES)
    site.write("outside.toml", OUTSIDE)
    site.write("bartack.toml", settings(site))
    assert site.bartack("trust", str(site.project)).returncode == 0

    done = site.bartack(
        "run",
        "team.py",
        "--run-as",
        site.user.name,
        "--json",
        SUDO_USER="person",
        XDG_STATE_HOME=str(site.home),
    )

    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout.splitlines()[-1])["value"]
    uid, home = site.user.uid, str(site.user.home)
    assert value == {
        "worker": uid,
        "shell": [str(uid), site.user.name, home],
        "body": [uid, home, site.user.name, []],
        "helper": uid,
        "wide": 300_000,
        "scripted": "done",
        "program": "done too",
        "message": 200_000,
    }
    assert (site.project / "agent.txt").read_text().strip() == str(uid)
    for name in ("import.txt", "scripted.txt", "agent.txt"):
        assert (site.project / name).stat().st_uid == uid
    assert site.processes() == []


STOPPED = """
import os
from bartack import Context, worker

@worker
async def main(ctx: Context) -> int:
    await ctx.append("effects.txt", "once\\n")
    await ctx.shell("sh", "-c", "touch ready; [ -e go ] || (setsid sleep 300 & exec env -i sleep 300)")
    return os.getuid()
"""


@pytest.mark.requirement("runs-as-another-user")
def test_a_killed_run_is_resumed_as_the_same_user_and_leaves_nothing(site: Site) -> None:
    site.write("team.py", STOPPED)
    command = site.command("run", "team.py", "--run-as", site.user.name)
    with subprocess.Popen(
        command, cwd=site.project, env=site.environment(), stderr=subprocess.DEVNULL
    ) as hub:
        wait_until((site.project / "ready").exists)
        hub.send_signal(signal.SIGKILL)
        hub.wait(TIMEOUT_S)
    wait_until(lambda: site.processes() == [])
    site.write("go", "")

    wrong = site.bartack("resume", "--run-as", "nobody")
    without = site.as_user(*site.command("resume", str(site.only_run().path)))
    done = site.bartack("resume")

    assert (wrong.returncode, REFUSED in wrong.stderr) == (2, True)
    assert f"runs as {site.user.name}" in wrong.stderr
    assert without.returncode != 0
    assert "Traceback" not in without.stderr
    assert (done.returncode, done.stdout.strip()) == (0, str(site.user.uid)), done.stderr
    assert (site.project / "effects.txt").read_text() == "once\n"


@pytest.mark.requirement("runs-as-another-user")
def test_hub_and_parent_programs_killed_together_leave_nothing_when_it_is_resumed(site: Site) -> None:
    site.write("team.py", STOPPED)
    command = site.command("run", "team.py", "--run-as", site.user.name)
    with subprocess.Popen(
        command, cwd=site.project, env=site.environment(), stderr=subprocess.DEVNULL
    ) as hub:
        wait_until((site.project / "ready").exists)
        os.kill(hub.pid, signal.SIGSTOP)
        for parent in _children(hub.pid):
            os.kill(parent, signal.SIGKILL)
        os.kill(hub.pid, signal.SIGKILL)
        hub.wait(TIMEOUT_S)
    site.write("go", "")

    done = site.bartack("resume")

    assert done.returncode == 0, done.stderr
    assert site.processes() == []


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.requirement("runs-as-another-user")
def test_a_run_is_forked_and_updated_as_its_user(site: Site) -> None:
    program = site.write("team.py", STOPPED.replace("touch ready", "id -un > work.txt; exit 1; touch ready"))
    assert site.run("team.py").returncode == 1
    kept = site.only_run()
    (kept.work / "left.txt").write_text("of the run")
    site.user.owns(kept.work / "left.txt")
    site.write("go", "")
    program.write_text(STOPPED)

    forked = site.bartack("fork", kept.id, "--at", "main:1")
    (fork,) = [run for run in (site.state / "runs").iterdir() if run.name != kept.id]
    resumed = site.bartack("resume", fork.name, "--update")

    assert forked.returncode == 0, forked.stderr
    assert (resumed.returncode, resumed.stdout.strip()) == (0, str(site.user.uid)), resumed.stderr
    assert fork.stat().st_gid != kept.path.stat().st_gid
    assert (fork / "work" / "left.txt").stat().st_uid == site.user.uid


# What is refused.

NOTHING = "from bartack import worker\n\n@worker\nasync def main(ctx):\n    return None\n"


def _by_user(site: Site) -> str:
    site.state = site.place / "mine"
    return site.as_user(*site.command("run", "team.py", "--run-as", "root")).stderr


def _closed_workspace(site: Site) -> str:
    site.project.chmod(0o700)
    os.chown(site.project, 0, 0)
    return site.run("team.py").stderr


def _private_python(site: Site) -> str:
    site.python = shutil.copy(os.path.realpath(site.python), str(site.home / "python3"))
    return site.run("team.py").stderr


def _private_package(site: Site) -> str:
    package = Path(python_path()["PYTHONPATH"].split(os.pathsep)[0], "bartack")
    shutil.copytree(package, site.home / "bartack")
    path = os.pathsep.join([str(site.home), *python_path()["PYTHONPATH"].split(os.pathsep)[1:]])
    return site.bartack("run", "team.py", "--run-as", site.user.name, PYTHONPATH=path).stderr


REFUSALS: dict[str, tuple[Callable[[Site], str], str]] = {
    "not root": (_by_user, "only root can"),
    "unknown": (
        lambda site: site.bartack("run", "team.py", "--run-as", "no-such-user").stderr,
        "no such user",
    ),
    "root": (lambda site: site.bartack("run", "team.py", "--run-as", "root").stderr, "root itself"),
    "pipeline": (lambda site: site.run("--goal", "x").stderr, "the pipeline"),
    "closed workspace": (_closed_workspace, "cannot enter"),
    "private interpreter": (_private_python, "cannot execute"),
    "private package": (_private_package, "cannot read Bartack"),
    "runs of the user": (
        lambda site: (
            site.bartack("run", "team.py", "--run-as", site.user.name, BARTACK_STATE_DIR=".bartack").stderr
        ),
        "can be changed by others",
    ),
    "runs out of reach": (
        lambda site: (
            site.bartack(
                "run", "team.py", "--run-as", site.user.name, BARTACK_STATE_DIR=str(site.home / "state")
            ).stderr
        ),
        "cannot pass through",
    ),
    "a long name": (
        lambda site: (
            site.bartack(
                "run", "team.py", "--run-as", site.user.name, BARTACK_STATE_DIR=str(site.place / ("n" * 80))
            ).stderr
        ),
        "too long",
    ),
}


@pytest.mark.requirement("run-as-is-checked-first")
@pytest.mark.parametrize("case", REFUSALS)
def test_a_user_that_cannot_be_used_is_refused_before_anything_is_made(site: Site, case: str) -> None:
    site.write("team.py", NOTHING)
    attempt, reason = REFUSALS[case]

    said = attempt(site)

    assert REFUSED in said
    assert reason in said
    made = [entry.name for entry in site.place.iterdir()] + [entry.name for entry in site.project.iterdir()]
    assert not {"state", "mine", ".bartack", "n" * 80} & set(made)
    assert not (site.home / "state").exists()


@pytest.mark.requirement("run-as-is-checked-first")
def test_a_run_of_root_is_not_resumed_as_another_user(site: Site) -> None:
    site.write("team.py", NOTHING.replace("return None", "await ctx.ask('?', type=bool)"))
    assert site.bartack("run", "team.py").returncode == 3

    refused = site.bartack("resume", "--run-as", site.user.name)

    assert (refused.returncode, REFUSED in refused.stderr) == (2, True)


# What the user cannot do.

ATTACK = r"""
import glob, os, socket, subprocess, sys
from pathlib import Path

run = Path(os.environ["BARTACK_RUN_DIR"])
root = sys.argv[1]

def attempt(name, act):
    try:
        print(name, "DONE", act())
    except Exception as error:
        print(name, type(error).__name__)

def append(path):
    with open(path, "ab") as file:
        file.write(b"x")

def link(path):
    os.symlink("/etc/passwd", path)

for name in ("journal.ndjson", "run.json", "sets.json", "lock", "lock.tree", "hub.log", "program/team.py", ".failed"):
    attempt("write " + name, lambda: append(run / name))
for name in ("inbox/q-q1.json", "program/new.py", "blobs/new", "receipts", "agents", "program.next", "planted"):
    attempt("make " + name, lambda: link(run / name))
for name in ("journal.ndjson", "program", "inbox", "blobs", "drop", "work"):
    attempt("rename " + name, lambda: os.rename(run / name, run / "gone"))
attempt("rename run", lambda: os.rename(run, str(run) + "x"))
attempt("rename runs", lambda: os.rename(run.parent, str(run.parent) + "x"))
for path in (run, run.parent, run / "inbox", root):
    attempt("list " + str(path), lambda: os.listdir(path))
for path in (run / "run.json", run / "transcript.txt", os.path.join(root, ".local/state/bartack/inbox.key")):
    attempt("read " + str(path), lambda: Path(path).read_bytes())

def bartack(env, *words):
    done = subprocess.run([sys.executable, "-m", "bartack", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return "accepted"

plain = dict(os.environ)
clean = {name: value for name, value in plain.items() if not name.startswith("BARTACK_")}
clean["BARTACK_STATE_DIR"] = str(run.parent.parent)
for how, env in (("plain", plain), ("clean", clean)):
    for words in (["answer", str(run), "q1", "true"], ["cancel", str(run)], ["fail", str(run), "why"]):
        if how == "plain" and words[0] == "fail":
            continue  # a command may fail its own run
        attempt(how + " " + words[0], lambda: bartack(env, *words))
print("THE END")
"""

ASKING = """
import sys
from bartack import Context, worker

@worker
async def main(ctx: Context, root: str) -> object:
    sure, said = await ctx.gather(
        ctx.ask("Deploy?", type=bool),
        ctx.shell(sys.executable, "attack.py", root),
    )
    return [sure, said.stdout]
"""


@pytest.mark.requirement("run-as-keeps-the-run")
def test_processes_of_the_user_can_neither_change_the_run_nor_decide_for_the_person(site: Site) -> None:
    site.write("team.py", ASKING)
    site.write("attack.py", ATTACK)
    key = site.home / ".local/state/bartack/inbox.key"
    key.parent.mkdir(parents=True)
    key.write_text("a" * 64)
    key.chmod(0o600)

    waits = site.run("team.py", str(site.home))
    run = site.only_run()
    outside = [
        site.as_user(*site.command("answer", str(run.path), "q1", "true")),
        site.as_user("sh", "-c", f"echo '{{}}' > {run.inbox}/q-q1.json"),
    ]
    again = site.bartack("resume", run.id)
    answered = site.bartack("answer", run.id, "q1", "false")
    done = site.bartack("resume", run.id, "--json")

    assert (waits.returncode, again.returncode) == (3, 3), waits.stderr
    assert [attempt.returncode != 0 for attempt in outside] == [True, True]
    assert "Traceback" not in outside[0].stderr
    assert (answered.returncode, done.returncode) == (0, 0), done.stderr
    sure, said = json.loads(done.stdout.splitlines()[-1])["value"]
    assert sure is False
    assert said.splitlines()[-1] == "THE END"
    assert [line for line in said.splitlines() if " DONE " in line] == []


@pytest.mark.requirement("run-as-keeps-the-run")
def test_a_process_of_the_user_elsewhere_is_refused_even_with_the_group_of_the_run(site: Site) -> None:
    site.write("team.py", NOTHING.replace("return None", "return await ctx.ask('?', type=bool)"))
    command = site.command("run", "team.py", "--wait", "--run-as", site.user.name)
    with subprocess.Popen(
        command, cwd=site.project, env=site.environment(), stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as hub:
        wait_until(lambda: any((site.state / "runs").glob("run-*/journal.ndjson")))
        run = site.only_run()
        wait_until(lambda: run.socket.path.exists() and bool(read_state(run).questions))
        group = run.path.stat().st_gid
        words = site.command("answer", str(run.path), "q1", "true")
        attempts = [site.as_user(*words), site.as_user(*words, groups=[group])]
        answered = site.bartack("answer", run.id, "q1", "false")
        out, _ = hub.communicate(timeout=TIMEOUT_S)

    assert [attempt.returncode != 0 for attempt in attempts] == [True, True]
    assert "BT328" in attempts[1].stderr
    assert answered.returncode == 0
    assert (hub.returncode, out.strip()) == (0, b"false")


@pytest.mark.requirement("run-as-keeps-the-run")
def test_other_users_cannot_enter_the_run(site: Site, users: tuple[User, User]) -> None:
    site.write("team.py", NOTHING)
    assert site.run("team.py").returncode == 0
    run = site.only_run()

    site.user = users[1]
    looks = [site.as_user("cat", str(run.path / "journal.ndjson")), site.as_user("ls", str(run.work))]

    assert all(look.returncode for look in looks)


PLANTING = """
import json, os, sys
from pathlib import Path
from bartack import Context, step, worker

@step
def plant(target: str) -> None:
    work, drop = Path(os.environ["BARTACK_RUN_DIR"], "work"), Path(os.environ["BARTACK_RUN_DIR"], "drop")
    os.symlink(target, work / "sets.json")
    os.symlink(target, drop / ("0" * 64))

@step
def large() -> str:
    drop = Path(os.environ["BARTACK_RUN_DIR"], "drop")
    return "y" * 100_000

@worker
async def main(ctx: Context, target: str) -> int:
    await plant(target)
    text = await large()
    await ctx.ask("?", type=bool)
    return len(text)
"""


@pytest.mark.requirement("run-as-keeps-the-run")
def test_links_that_the_user_planted_do_not_lead_root_astray(site: Site) -> None:
    site.write("team.py", PLANTING)
    target = site.home / "target.json"
    target.write_text('["questions.timeout_s=0.01"]')
    target.chmod(0o600)
    assert site.run("team.py", str(target)).returncode == 3
    run = site.only_run()
    assert (run.work / "sets.json").is_symlink()

    again = site.bartack("resume", run.id, "--set", "questions.timeout_s=300")
    site.bartack("answer", run.id, "q1", "true")
    done = site.bartack("resume", run.id)

    assert again.returncode == 3, again.stderr
    assert (done.returncode, done.stdout.strip()) == (0, "100000"), done.stderr
    assert target.read_text() == '["questions.timeout_s=0.01"]'
    assert json.loads((run.path / "sets.json").read_text()) == ["questions.timeout_s=300"]


@pytest.mark.requirement("run-as-keeps-the-run")
@pytest.mark.parametrize("named", ["leak.py", "../root/leak.py"])
def test_a_program_does_not_get_a_copy_of_a_file_that_its_user_cannot_read(site: Site, named: str) -> None:
    leak = (site.project / named).resolve()
    leak.write_text("SECRET = 1\n")
    leak.chmod(0o600)
    # What a probe replies is up to the program: it runs in the same process.
    site.write(
        "team.py",
        "import sys\nfrom bartack.runtime.program.imports import Data\n"
        f"sys.modules['__main__'].find_data = lambda closure, project: Data([{named!r}], [])\n{NOTHING}",
    )

    refused = site.run("team.py")

    assert refused.returncode == 2
    assert "leak.py" in refused.stderr
    copies = [file for file in site.place.rglob("leak.py") if file != leak]
    assert copies == []


@pytest.mark.requirement("run-as-keeps-the-run")
def test_a_scripted_agent_writes_with_the_rights_of_the_user(site: Site) -> None:
    site.write("team.py", NOTHING.replace("return None", "return await ctx.think('go', agent='inside')"))
    site.write("rules.toml", RULES)
    site.write("bartack.toml", '[agents.inside]\nkind = "scripted"\nscript = "rules.toml"\n')
    kept = site.project / "scripted.txt"
    kept.write_text("of root")
    kept.chmod(0o600)
    assert site.bartack("trust", str(site.project)).returncode == 0

    refused = site.run("team.py")

    assert refused.returncode == 1
    assert os.strerror(errno.EACCES) in refused.stderr
    assert kept.read_text() == "of root"
    assert read_state(site.only_run()).failure is not None


@pytest.mark.requirement("run-as-keeps-the-run")
@pytest.mark.parametrize("kind", ["link", "other content", "pipe", "directory"])
def test_root_takes_over_only_a_large_value_that_is_what_its_name_says(site: Site, kind: str) -> None:
    drop = site.place / "drop"
    drop.mkdir()
    os.chown(drop, 0, RUN_GROUPS[0])
    secret = site.home / "secret"
    secret.write_text("x" * 100)
    good, bad = b"y" * 100, BlobRef(hashlib.sha256(secret.read_bytes()).hexdigest(), 100)
    blobs = open_blobs(str(site.place))
    planted = drop / bad.sha256
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: planted.symlink_to(secret),
        "other content": lambda: planted.write_bytes(good),
        "pipe": lambda: os.mkfifo(planted),
        "directory": planted.mkdir,
    }
    makers[kind]()
    (drop / hashlib.sha256(good).hexdigest()).write_bytes(good)

    with pytest.raises(BlobMissingError):
        blobs.check(bad)
    taken = blobs.get(BlobRef(hashlib.sha256(good).hexdigest(), 100))

    assert taken == good
    assert [file.stat().st_gid for file in (site.place / "blobs").rglob("*")] == [RUN_GROUPS[0]] * 2
    assert not (drop / hashlib.sha256(good).hexdigest()).exists()

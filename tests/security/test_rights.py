"""Attacks of agents and commands on the rights of the person: answers, messages, cancels and resumes that are not theirs."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests import warm

from bartack.runtime.rundir.find import list_runs, read_state
from bartack.runtime.rundir.layout import RunDir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attacks are made with tools of Linux")

Result = subprocess.CompletedProcess[str]
Bartack = Callable[..., Result]
REFUSED = "BT328"
TIMEOUT_S = 120

ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context, command: str = "true") -> str:
    said = await ctx.shell("sh", "-c", command)
    sure = await ctx.ask("Deploy?", type=bool)
    return f"{said} {sure}"
"""

COMMANDING = """
import sys
from bartack import Context, worker

@worker
async def main(ctx: Context, command: str) -> str:
    return str(await ctx.shell(sys.executable, "attack.py", command))
"""

OWN = """
from bartack import Context, worker

@worker
async def main(ctx: Context, command: str) -> bool:
    sure, _ = await ctx.gather(ctx.ask("Deploy?", type=bool), ctx.shell("sh", "-c", command))
    return sure
"""

ATTACK = '''
"""Runs command lines in one of the ways in which a command may try to look like the person, and prints what came of each."""
import os, subprocess, sys

how, *lines = sys.argv[1].split(";")
env = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_STATE_HOME") if name in os.environ}
env = dict(os.environ) if how == "plain" else env

def attack():
    for line in lines:
        command = [sys.executable, "-m", "bartack", *line.split()]
        done = subprocess.run(command, capture_output=True, text=True, env=env, start_new_session=how == "daemon")
        yield f"{done.returncode} {done.stderr.splitlines()[:1]}"

if how != "daemon":
    print(*attack(), sep=chr(10))
    sys.exit()
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(reading)
    os.write(writing, chr(10).join(attack()).encode())
    os._exit(0)
os.close(writing)
os.wait()
with open(reading) as told:
    print(told.read())
'''


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state home, and an environment as a person has it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "state" / "bartack"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    for name, text in (("asking.py", ASKING), ("commanding.py", COMMANDING), ("attack.py", ATTACK)):
        (place / name).write_text(text)
    return place


@pytest.fixture
def bartack(workspace: Path) -> Bartack:
    """Runs a command of a person."""

    def call(*words: str) -> Result:
        command = [sys.executable, "-m", "bartack", *words]
        return warm.run(
            command,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return call


@pytest.fixture
def waiting(bartack: Bartack, workspace: Path) -> RunDir:
    """A run of the person that waits for an answer, and has no hub."""
    assert bartack("run", "asking.py").returncode == 3
    return list_runs(workspace)[0]


@pytest.fixture
def active(workspace: Path, bartack: Bartack) -> Iterator[RunDir]:
    """A run of the person that waits for an answer, with a hub."""
    command = [sys.executable, "-m", "bartack", "run", "asking.py", "--wait"]
    with subprocess.Popen(
        command, cwd=workspace, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as hub:
        assert hub.stderr is not None
        until(hub.stderr, "question q1")
        yield list_runs(workspace)[0]
        hub.terminate()
        hub.communicate(timeout=TIMEOUT_S)


def until(lines: Iterator[str], text: str) -> None:
    assert any(text in line for line in lines)


def attack(bartack: Bartack, how: str, *lines: str) -> list[str]:
    """What a command of a run is told that types command lines, in one of the ways of ``ATTACK``."""
    done = bartack("run", "commanding.py", "--", ";".join((how, *lines)))
    assert done.returncode == 0, done.stderr
    told = done.stdout.strip().splitlines()
    assert len(told) == len(lines), told
    return told


def plant(run: RunDir, name: str, left: object) -> Path:
    path = run.inbox / name
    path.write_bytes(msgspec.json.encode(left))
    return path


@pytest.mark.requirement("planted-answers-do-not-count")
def test_the_no_of_the_person_wins_over_a_yes_that_a_command_planted_before_the_question(
    bartack: Bartack, workspace: Path
) -> None:
    planting = """echo '{"value":true,"question":"q1","at":1}' > "$BARTACK_RUN_DIR/inbox/q-q1.json" """
    assert bartack("run", "asking.py", "--", planting).returncode == 3

    answered = bartack("answer", "latest", "q1", "no")
    resumed = bartack("resume")

    assert answered.returncode == 0, answered.stderr
    assert resumed.stdout.strip() == "False"


@pytest.mark.requirement("planted-answers-do-not-count")
def test_a_planted_answer_never_counts_and_is_reported(bartack: Bartack, waiting: RunDir) -> None:
    planted = plant(
        waiting, "q-q1.json", {"value": True, "question": "q1", "at": 1, "asked": 1, "seal": "f" * 64}
    )

    resumed = bartack("resume")

    assert resumed.returncode == 3, resumed.stdout
    assert "ignored inbox/q-q1.json" in resumed.stderr
    assert read_state(waiting).questions
    assert not planted.exists()
    assert planted.with_name("q-q1.json.refused").exists()


@pytest.mark.requirement("planted-answers-do-not-count")
@pytest.mark.parametrize("how", ["a link", "a pipe", "a directory", "no JSON", "a surrogate"])
def test_whatever_stands_in_the_place_of_an_answer_does_not_keep_the_person_from_answering(
    bartack: Bartack, waiting: RunDir, tmp_path: Path, how: str
) -> None:
    place = waiting.inbox / "q-q1.json"
    match how:
        case "a link":
            (tmp_path / "elsewhere").write_text('{"value":true,"question":"q1"}')
            place.symlink_to(tmp_path / "elsewhere")
        case "a pipe":
            os.mkfifo(place)
        case "a directory":
            place.mkdir()
        case "no JSON":
            place.write_bytes(b"\xff{")
        case _:
            place.write_bytes(b'{"value":true,"question":"q1","seal":"\\ud800"}')

    assert bartack("resume").returncode == 3
    answered = bartack("answer", "latest", "q1", "no")

    assert answered.returncode == 0, answered.stderr
    assert bartack("resume").stdout.strip() == "False"


@pytest.mark.requirement("planted-answers-do-not-count")
def test_an_answer_that_was_given_for_another_run_or_another_question_does_not_count(
    bartack: Bartack, waiting: RunDir
) -> None:
    assert bartack("answer", waiting.id, "q1", "yes").returncode == 0
    sealed = (waiting.inbox / "q-q1.json").read_bytes()
    assert bartack("run", "asking.py").returncode == 3
    other = RunDir(waiting.path.parent / max(os.listdir(waiting.path.parent)))
    (other.inbox / "q-q1.json").write_bytes(sealed)
    (other.inbox / "q-q2.json").write_bytes(sealed)

    assert bartack("resume", other.id).returncode == 3
    assert read_state(other).questions


@pytest.mark.requirement("planted-answers-do-not-count")
def test_a_sealed_answer_does_not_survive_a_change(bartack: Bartack, waiting: RunDir) -> None:
    assert bartack("answer", "latest", "q1", "no").returncode == 0
    file = waiting.inbox / "q-q1.json"
    file.write_bytes(file.read_bytes().replace(b"false", b"true"))

    assert bartack("resume").returncode == 3
    assert read_state(waiting).questions


@pytest.mark.requirement("planted-answers-do-not-count")
def test_a_planted_message_is_neither_listed_nor_delivered(bartack: Bartack, waiting: RunDir) -> None:
    plant(waiting, "m-evil.json", {"value": "evil", "mailbox": "box", "at": 1})
    assert bartack("mailbox", "send", "latest", "box", '"good"').returncode == 0

    listed = bartack("mailbox", "peek", "latest", "box", "--json").stdout
    resumed = bartack("resume")

    assert "good" in listed
    assert "evil" not in listed
    assert "ignored inbox/m-evil.json" in resumed.stderr
    queued = read_state(waiting).mailboxes["box"].queued()
    assert [bytes(message.value or b"") for message in queued] == [b'"good"']


@pytest.mark.requirement("planted-answers-do-not-count")
def test_the_key_of_the_seals_is_for_its_owner_only_and_not_in_the_run(
    bartack: Bartack, waiting: RunDir, own_home: Path
) -> None:
    assert bartack("answer", "latest", "q1", "no").returncode == 0

    key = own_home / "inbox.key"
    secret = key.read_bytes().strip()
    files = [path for path in waiting.path.rglob("*") if path.is_file()]

    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert not [path for path in files if secret in path.read_bytes()]


WAYS = ["plain", "stripped", "daemon"]
STEERING = ("answer {} q1 yes", "mailbox send {} box 1", "fail {} why", "cancel {}")
OWNING = ("resume {}", "resume {} --update", "fork {} --at 1", "dlq retry {} --all")


@pytest.mark.requirement("runs-do-not-steer-runs")
@pytest.mark.parametrize("how", WAYS)
def test_a_command_of_a_run_cannot_steer_another_one(bartack: Bartack, active: RunDir, how: str) -> None:
    told = attack(bartack, how, *(line.format(active.id) for line in STEERING))

    assert all(REFUSED in answer for answer in told), told
    state = read_state(active)
    assert state.questions
    assert not state.mailboxes
    assert state.status == "waiting"


@pytest.mark.requirement("runs-do-not-steer-runs")
@pytest.mark.parametrize("how", WAYS)
def test_a_command_of_a_run_cannot_steer_one_that_has_no_hub(
    bartack: Bartack, waiting: RunDir, how: str
) -> None:
    before = (waiting.path / "journal.ndjson").read_bytes()

    told = attack(bartack, how, *(line.format(waiting.id) for line in STEERING + OWNING))

    assert all(REFUSED in answer for answer in told), told
    assert (waiting.path / "journal.ndjson").read_bytes() == before
    assert not os.listdir(waiting.inbox)
    assert len(os.listdir(waiting.path.parent)) == 2


@pytest.mark.requirement("runs-do-not-steer-runs")
def test_code_that_runs_while_a_program_is_imported_cannot_answer(
    bartack: Bartack, waiting: RunDir, workspace: Path
) -> None:
    (workspace / "importing.py").write_text(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-m', 'bartack', 'answer', {waiting.id!r}, 'q1', 'yes'])\n"
        + COMMANDING
    )

    done = bartack("run", "importing.py", "--", "plain;--version")

    assert REFUSED in done.stderr
    assert not os.listdir(waiting.inbox)


@pytest.mark.requirement("runs-do-not-steer-runs")
def test_a_variable_of_a_run_is_a_sign_too(
    bartack: Bartack, waiting: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARTACK_RUN", "run-20260101-000000-00000000")

    answered = bartack("answer", waiting.id, "q1", "yes")

    assert REFUSED in answered.stderr
    assert "BARTACK_RUN is set" in answered.stderr


@pytest.mark.requirement("person-may-allow-runs")
@pytest.mark.parametrize(("allowed", "code"), [("run-*", "0"), ("run-1999*", "1"), ("creator", "1")])
def test_the_person_may_allow_other_runs_to_answer_when_a_run_is_started(
    bartack: Bartack, workspace: Path, allowed: str, code: str
) -> None:
    assert bartack("run", "asking.py", "--set", f'questions.from_runs=["{allowed}"]').returncode == 3
    run = list_runs(workspace)[0]

    told = attack(bartack, "daemon", f"answer {run.id} q1 yes")

    assert told[0].startswith(code), told


@pytest.mark.requirement("person-may-allow-runs")
def test_an_edit_of_the_settings_does_not_allow_it_for_a_run_that_is_there(
    bartack: Bartack, waiting: RunDir, workspace: Path
) -> None:
    (workspace / "bartack.toml").write_text('[questions]\nfrom_runs = ["*"]\n')

    told = attack(bartack, "plain", f"answer {waiting.id} q1 yes")

    assert REFUSED in told[0], told
    assert bartack("resume", waiting.id, "--set", 'questions.from_runs=["*"]').returncode == 2


@pytest.mark.requirement("person-may-allow-runs")
def test_no_setting_lets_a_run_answer_its_own_question(bartack: Bartack, workspace: Path) -> None:
    (workspace / "bartack.toml").write_text('[questions]\nfrom_runs = ["*", "creator"]\n')
    (workspace / "own.py").write_text(OWN)

    done = bartack(
        "run", "own.py", "--", f"{sys.executable} -m bartack answer $BARTACK_RUN q1 yes 2>&1; true"
    )

    run = list_runs(workspace)[0]
    assert done.returncode == 3, done.stderr
    assert REFUSED.encode() in (run.path / "journal.ndjson").read_bytes()
    assert read_state(run).questions


@pytest.mark.requirement("commands-have-no-terminal")
def test_a_command_cannot_type_into_the_terminal_of_the_person(workspace: Path) -> None:
    (workspace / "typing.txt").write_text(
        "import fcntl, os, termios\n"
        "try:\n"
        "    terminal = os.open('/dev/tty', os.O_RDWR)\n"
        "    fcntl.ioctl(terminal, termios.TIOCSTI, b'y')\n"
        "    print('typed')\n"
        "except OSError as error:\n"
        "    print('refused', error.errno)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workspace)
        command = f"{sys.executable} typing.txt"
        os.execv(  # noqa: S606 - our own interpreter
            sys.executable, [sys.executable, "-m", "bartack", "run", "asking.py", "--no-input", "--", command]
        )
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(terminal)

    assert b"typed" not in shown
    assert b"typed" not in b"".join(path.read_bytes() for path in workspace.rglob("journal.ndjson"))
    assert b"refused 6" in b"".join(path.read_bytes() for path in workspace.rglob("journal.ndjson"))

"""A command of ``tests/warm.py`` is a process like any other: a new interpreter is the measure of all that it can see."""

from __future__ import annotations

import ast
import json
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Unpack

import pytest
from tests import warm

import bartack
from bartack.config.load import load_config

pytestmark = pytest.mark.skipif(
    sys.platform != "linux",
    reason="NOT CHECKED: warm commands are for Linux, elsewhere none is used",
)

PATIENCE_S: Final = 60
PROBE: Final = """\
import os, sys
numbers = {int(name): name for name in os.listdir("/proc/self/fd")}
descriptors = {number: os.path.exists(f"/proc/self/fd/{number}") for number in numbers}
import gc, json, locale, random, resource, signal, tempfile, threading, time
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
streams = [sys.stdin, sys.stdout, sys.stderr]
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "executable": sys.executable, "flags": str(sys.flags),
    "environ": dict(os.environ), "cwd": os.getcwd(), "umask": status["Umask"], "comm": status["Name"],
    "ignored": status["SigIgn"], "blocked": status["SigBlk"], "caught": status["SigCgt"],
    "sigint": str(signal.getsignal(signal.SIGINT)),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "group": None if os.getpgid(0) == os.getpid() else os.getpgid(0),
    "descriptors": [number for number, there in descriptors.items() if there],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "streams": [[repr(s), repr(s.buffer), s.errors, s.line_buffering, s.write_through, s.isatty()] for s in streams],
    "originals": [sys.__stdin__ is sys.stdin, sys.__stdout__ is sys.stdout, sys.__stderr__ is sys.stderr],
    "main": [__name__, __spec__.name, sys.modules["__main__"].__dict__ is globals()],
    "locale": [locale.setlocale(locale.LC_CTYPE), locale.getencoding(), sys.getfilesystemencoding()],
    "collector": [gc.isenabled(), *gc.get_threshold()], "temporary": tempfile.tempdir,
    "zone": time.tzname, "threads": threading.active_count(), "stdin": sys.stdin.read(),
}
print(json.dumps(facts, sort_keys=True, indent=1))
"""


@pytest.fixture(autouse=True)
def not_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(warm.COLD, raising=False)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with modules that tests run as commands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "probe.py").write_text(PROBE)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


def has_server(words: list[str], **options: Unpack[warm.Options]) -> bool:
    return warm._server_for(words, options) is not None


PLAIN: Final = {"PATH": os.environ["PATH"]}


@pytest.mark.parametrize(
    "env",
    [
        dict(os.environ),
        PLAIN,
        {**PLAIN, "LANG": "C.UTF-8", "ODD": "\udcff\n", "TZ": "Asia/Tokyo"},
        {**PLAIN, "LC_ALL": "C"},
        {**PLAIN, "PYTHONUNBUFFERED": "1"},
        {**PLAIN, "PYTHONUNBUFFERED": ""},
    ],
)
def test_a_command_sees_what_a_new_interpreter_sees(place: Path, env: dict[str, str]) -> None:
    words = command("probe", "one", "--two", "\u00fc")
    assert has_server(words, env=env)

    options = warm.Options(env=env, input="a\r\nb", capture_output=True, timeout=PATIENCE_S)
    told = warm.run(words, text=True, **options)

    assert told.returncode == 0, told.stderr
    assert told.args == words
    measure = subprocess.run(words, text=True, **options)  # noqa: PLW1510 - nothing to check
    assert (told.stdout, told.stderr) == (measure.stdout, measure.stderr)


@pytest.mark.parametrize("new_session", [False, True])
def test_directory_umask_session_and_files_are_those_of_the_caller(place: Path, *, new_session: bool) -> None:
    (place / "below").mkdir()
    (place / "below" / "probe.py").write_text(PROBE)
    shown: list[str] = []
    assert has_server(command("probe"), cwd="below", env=PLAIN)  # it has started with another mask

    before = os.umask(0o027)
    try:
        for run in (warm.run, subprocess.run):
            with open("out", "w+", encoding="utf-8") as out:
                run(
                    command("probe"),
                    cwd="below",
                    env=PLAIN,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=new_session,
                    timeout=PATIENCE_S,
                    check=True,
                )
                shown.append(Path("out").read_text(encoding="utf-8"))
    finally:
        os.umask(before)

    assert shown[0] == shown[1]
    assert json.loads(shown[0])["umask"].strip() == "0027"


def test_a_command_is_not_this_process_and_ends_alone(place: Path) -> None:
    (place / "who.py").write_text("import os; print(os.getpid(), os.getppid())")

    first, second = (
        warm.run(command("who"), text=True, capture_output=True).stdout.split() for _ in range(2)
    )

    assert len({first[0], second[0], str(os.getpid())}) == 3
    assert first[1] == second[1] != str(os.getpid())


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (0, "pass"),
        (0, "sys.exit()"),
        (3, "sys.exit(3)"),
        (1, "sys.exit('why')"),
        (1, "1 / 0"),
        (7, "atexit.register(print, 'last'); print('first', end=' '); sys.exit(7)"),
        (9, "os._exit(9)"),
        (-9, "os.kill(os.getpid(), 9)"),
        (-15, "os.kill(os.getpid(), 15)"),
        (-2, "os.kill(os.getpid(), 2); time.sleep(60)"),
    ],
)
def test_the_end_of_a_command_is_that_of_a_new_interpreter(place: Path, code: int, ending: str) -> None:
    (place / "ends.py").write_text(f"import atexit, os, sys, time\n{ending}\n")

    done = warm.run(command("ends"), capture_output=True, timeout=PATIENCE_S)

    measure = subprocess.run(command("ends"), capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (measure.returncode, measure.stdout)
    assert done.stderr.splitlines()[-1:] == measure.stderr.splitlines()[-1:]
    assert done.returncode == code


def test_a_failure_can_be_an_error_of_the_caller(place: Path) -> None:
    (place / "ends.py").write_text("print('x'); raise SystemExit(3)")

    with pytest.raises(subprocess.CalledProcessError) as caught:
        warm.run(command("ends"), capture_output=True, check=True)

    assert (caught.value.returncode, caught.value.stdout) == (3, b"x\n")


def test_large_input_and_output_pass_at_the_same_time(place: Path) -> None:
    (place / "copy_all.py").write_text(
        "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    )
    data = os.urandom(1 << 20)

    assert warm.run(command("copy_all"), input=data, capture_output=True, timeout=PATIENCE_S).stdout == data


def test_input_that_nobody_reads_is_no_error(place: Path) -> None:
    (place / "deaf.py").write_text("import os; os.close(0)")

    assert warm.run(command("deaf"), input=b"x" * (1 << 20), timeout=PATIENCE_S).returncode == 0


SLOW: Final = """\
import os, time
os.fork()
os.write(1, b"running\\n")
time.sleep(600)
"""


def read_until_closed(descriptor: int) -> bytes:
    """What comes through a pipe before the last process that could write to it is gone."""
    data = b""
    while select.select([descriptor], [], [], PATIENCE_S)[0]:
        more = os.read(descriptor, 100)
        if not more:
            os.close(descriptor)
            return data
        data += more
    pytest.fail("a process is left")


def test_the_time_limit_kills_the_process_group(place: Path) -> None:
    (place / "slow.py").write_text(SLOW)
    reading, writing = os.pipe()

    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm.run(command("slow"), stdout=writing, start_new_session=True, timeout=1)

    os.close(writing)
    read_until_closed(reading)
    assert caught.value.timeout == 1


def test_a_time_limit_kills_only_the_command_if_the_group_is_that_of_the_tests(place: Path) -> None:
    (place / "slow.py").write_text("print('running', flush=True); import time; time.sleep(600)")

    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm.run(command("slow"), capture_output=True, timeout=2)

    assert caught.value.stdout in {b"running\n", b""}


def test_output_ends_with_the_last_process_that_can_write_it(place: Path) -> None:
    (place / "leaves.py").write_text(
        "import os, sys, time\nif os.fork() == 0:\n    os.read(0, 1)\n    print('last')\n"
    )

    done = warm.run(command("leaves"), input=b"x", capture_output=True, timeout=PATIENCE_S)

    assert done.stdout == b"last\n"


def test_commands_that_run_at_the_same_time_hold_nothing_of_each_other(place: Path) -> None:
    os.mkfifo("gate")
    (place / "waits.py").write_text(PROBE.replace('"stdin": sys.stdin.read()', '"gate": open("gate").read()'))
    (place / "opens.py").write_text("open('gate', 'w').write('open')")

    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(
            warm.run, command("waits"), text=True, capture_output=True, timeout=PATIENCE_S
        )
        opening = threads.submit(
            warm.run, command("opens"), text=True, capture_output=True, timeout=PATIENCE_S
        )

    assert opening.result().returncode == 0, opening.result().stderr
    facts = json.loads(waiting.result().stdout)
    assert facts["gate"] == "open"
    assert facts["descriptors"] == [0, 1, 2]


OWNER: Final = """\
import os, signal, sys
from tests import warm
warm.run([sys.executable, "-m", "bartack", "--version"])
(server,) = warm._servers.values()
print("alive" if server.process.poll() is None else "gone", flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["killed", "over"])
def test_a_server_ends_with_its_owner(how: str) -> None:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", OWNER, how]
    reading, writing = os.pipe()

    owner = subprocess.run(
        words, stdout=writing, stderr=writing, cwd=root, timeout=PATIENCE_S, check=False
    )  # the server shares its stderr
    os.close(writing)

    assert owner.returncode == (-signal.SIGKILL if how == "killed" else 0)
    assert read_until_closed(reading).endswith(b"alive\n")


@pytest.mark.parametrize(
    ("words", "env"),
    [
        ([sys.executable, "-P", "-m", "probe"], {}),
        (["sh", "-c", "true"], {}),
        (command("probe"), {"PYTHONPATH": "/nowhere"}),
        (command("probe"), {"PYTHONHASHSEED": "1"}),
        (command("probe"), {"BARTACK_RUN": "run-20260101-000000-00000000"}),
        (command("probe"), {"BARTACK_RUN_DIR": "/nowhere"}),
    ],
)
def test_what_only_a_new_interpreter_can_show_has_one(
    place: Path, words: list[str], env: dict[str, str]
) -> None:
    assert not has_server(words, env={**PLAIN, **env})


@pytest.mark.parametrize("hiding", ["json.py", "bartack/__init__.py", "click/__init__.py"])
def test_a_module_in_the_directory_that_hides_another_needs_a_new_interpreter(
    place: Path, hiding: str
) -> None:
    assert has_server(command("probe"), cwd=place)
    (place / hiding).parent.mkdir(exist_ok=True)
    (place / hiding).touch()

    assert not has_server(command("probe"), cwd=place)


def test_a_switch_makes_every_command_a_new_interpreter(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm.COLD, "1")
    (place / "who.py").write_text("import os; print(os.getppid())")

    assert warm.run(command("who"), text=True, capture_output=True).stdout == f"{os.getpid()}\n"


def test_the_switch_is_not_taken_for_a_setting(tmp_path: Path) -> None:
    assert load_config(tmp_path, environ={warm.COLD: "1"}) == load_config(tmp_path, environ={})


MOMENTS: Final = (
    "environ",
    "getenv",
    "getpid",
    "getcwd",
    "gettempdir",
    "monotonic",
    "time.time",
    "urandom",
    "uuid4",
)
KNOWN: Final = {
    "bartack/cli/app/_edge.py: os.urandom(8).hex()",  # only the programs that a command runs must not know it
    "bartack/cli/app/_edge.py: os.urandom(8)",
    "bartack/pipeline/worktree/_git.py: time.time()",  # the server renews it
}


def test_modules_keep_nothing_of_the_process_that_imports_them_but_what_the_server_renews() -> None:
    package = Path(bartack.__file__).parent
    found = {
        f"{path.relative_to(package.parent)}: {ast.unparse(node)}"
        for path in package.rglob("*.py")
        if "testing" not in path.parts
        for node in calls_at_import(ast.parse(path.read_text(encoding="utf-8")))
        if any(moment in ast.unparse(node.func) for moment in MOMENTS)
    }

    assert found == KNOWN, "change _renew in tests/warm_server.py as well"


def calls_at_import(node: ast.AST) -> list[ast.Call]:
    """The calls that are executed when a module is imported."""
    found: list[ast.Call] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            found.append(child)
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found += calls_at_import(child)
    return found

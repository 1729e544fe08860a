"""``bartack replay``: the program as it is now against recorded runs, in every state and in every place that a run can have."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call

from bartack.errors import RecordingError, ReplayMismatchError
from bartack.testing import assert_replays

PROGRAM = """\
from pathlib import Path
from bartack import Context, step, worker

@step
def note(text: str) -> str:
    with Path("effects.txt").open("a") as file:
        file.write(f"{text}\\n")
    if Path("broken").exists() and text == "second":
        raise ValueError("broken")
    return text

@worker
async def child(ctx: Context, name: str) -> str:
    return await note(f"child {name}")

@worker
async def main(ctx: Context, how: str = "plain") -> str:
    first = await note("first")
    await ctx.shell("printf", "%s", first)
    await ctx.delegate([child("one"), child("two")])
    if how == "asks":
        await ctx.ask("Go on?", type=bool)
    if how == "fails":
        await ctx.fail("as planned")
    if how == "restarts":
        await ctx.restart("plain")
    second = await note("second")
    ctx.print(second)
    return second
"""

CHANGED = PROGRAM.replace('"printf", "%s", first', '"printf", "%s!", first')
"""Another command."""
SHORTER = PROGRAM.replace('    second = await note("second")\n', '    second = "second"\n')
"""One step less near the end."""
LONGER = PROGRAM.replace("    return second\n", '    await note("third")\n    return second\n')
"""One step more at the end."""
VERSIONED = PROGRAM.replace(
    '    await ctx.shell("printf", "%s", first)\n',
    '    form = "%s!" if await ctx.version("form") else "%s"\n    await ctx.shell("printf", form, first)\n',
)
"""Another command for new runs, the same for old ones."""


@pytest.fixture
def team() -> Path:
    file = Path("team.py")
    file.write_text(PROGRAM)
    return file


def run_id() -> str:
    return max(path.name for path in Path(".bartack/runs").iterdir())


def completed(bartack: Call) -> None:
    assert bartack("run", "team.py").returncode == 0


def failed(bartack: Call) -> None:
    Path("broken").touch()
    assert bartack("run", "team.py").returncode == 1


def failed_by_program(bartack: Call) -> None:
    assert bartack("run", "team.py", "fails").returncode == 1


def waiting(bartack: Call) -> None:
    assert bartack("run", "team.py", "asks").returncode == 3


def cancelled(bartack: Call) -> None:
    waiting(bartack)
    assert bartack("cancel", "latest").returncode == 0


def answered(bartack: Call) -> None:
    waiting(bartack)
    assert bartack("answer", "latest", "q1", "yes").returncode == 0


def restarted(bartack: Call) -> None:
    assert bartack("run", "team.py", "restarts").returncode == 0


def resumed(bartack: Call) -> None:
    failed(bartack)
    Path("broken").unlink()
    assert bartack("resume", "latest").returncode == 0


def forked(bartack: Call) -> None:
    completed(bartack)
    assert bartack("fork", "latest", "--at", "2").returncode == 0


def interrupted(bartack: Call) -> None:
    """As a hub that was killed leaves it: without an end."""
    completed(bartack)
    journal = Path(".bartack/runs", run_id(), "journal.ndjson")
    lines = journal.read_bytes().splitlines(keepends=True)
    last = next(place for place, line in enumerate(lines) if b'"worker.ended"' in line)
    journal.write_bytes(b"".join(lines[:last]))
    (journal.parent / "lock").unlink(missing_ok=True)


STATES: dict[str, Callable[[Call], None]] = {
    one.__name__: one
    for one in (
        completed,
        failed,
        failed_by_program,
        waiting,
        cancelled,
        answered,
        restarted,
        resumed,
        forked,
        interrupted,
    )
}


def recorded(place: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.requirement("replay-every-state")
@pytest.mark.parametrize("state", sorted(STATES))
def test_a_run_in_every_state_replays_and_differs_and_is_not_changed(
    bartack: Call, team: Path, state: str
) -> None:
    STATES[state](bartack)
    before, effects = recorded(Path(".bartack")), Path("effects.txt").read_text()

    same = bartack("replay", "latest")
    team.write_text(CHANGED)
    other = bartack("replay", "latest")
    team.write_text(VERSIONED)
    versioned = bartack("replay", "latest")

    assert (same.returncode, same.stdout.split()[0]) == (0, "matches"), same.stdout + same.stderr
    assert other.returncode == 1, other.stdout + other.stderr
    assert "recorded   the command 'printf %s first'" in other.stdout
    assert "requested  the command 'printf %s! first'" in other.stdout
    assert "at         team.py:19" in other.stdout
    assert 'await ctx.shell("printf", "%s!", first)' in other.stdout
    assert versioned.returncode == 0, versioned.stdout + versioned.stderr
    assert recorded(Path(".bartack")) == before
    assert Path("effects.txt").read_text() == effects


@pytest.mark.requirement("replay-every-state")
def test_the_end_of_a_worker_is_compared(bartack: Call, team: Path) -> None:
    completed(bartack)

    team.write_text(LONGER)
    longer = bartack("replay", "latest")
    team.write_text(SHORTER)
    shorter = bartack("replay", "latest")
    team.write_text(PROGRAM.replace("    return second\n", "    return str(1 / 0)\n"))
    broken = bartack("replay", "latest")

    assert (longer.returncode, shorter.returncode, broken.returncode) == (1, 1, 1)
    assert "recorded   the end of the worker" in longer.stdout
    assert "requested  the step team.note" in longer.stdout
    assert "recorded   the step team.note" in shorter.stdout
    assert "requested  the output 'second'" in shorter.stdout
    assert "a failure: ZeroDivisionError" in broken.stdout


@pytest.mark.requirement("replay-in-ci")
def test_a_directory_of_runs_and_bundles_is_replayed_in_another_checkout(
    bartack: Call, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed(bartack)
    waiting(bartack)
    checkout = tmp_path / "checkout"
    kept = checkout / "tests/recorded/group"
    kept.mkdir(parents=True)
    for number, run in enumerate(sorted(Path(".bartack/runs").iterdir())):
        packed = f"{kept}/{number}.tar.gz"
        assert bartack("bundle", run.name, "--prompts", "-o", packed).returncode == 0
        shutil.copytree(run, kept / run.name, ignore=shutil.ignore_patterns("*.sock"))
    (kept / "notes.txt").write_text("not a recording")
    shutil.move(team, checkout / "team.py")
    monkeypatch.chdir(checkout)

    same = bartack("replay", "tests/recorded")
    quiet = bartack("replay", "tests/recorded", "-q")
    Path("team.py").write_text(CHANGED)
    other = bartack("replay", "tests/recorded", "-q", "--json")

    assert same.returncode == 0, same.stdout + same.stderr
    assert [line.split()[0] for line in same.stdout.splitlines()] == ["matches"] * 4
    assert (quiet.returncode, quiet.stdout) == (0, "")
    assert other.returncode == 1
    report = json.loads(other.stdout)
    assert report["ok"] is False
    assert [one["status"] for one in report["runs"]] == ["completed", "waiting", "completed", "waiting"]
    assert {one["program"] for one in report["runs"]} == {str(checkout / "team.py")}
    for one in report["runs"]:
        (difference,) = one["differences"]
        assert difference["step"] == "main:2"
        assert difference["recorded"] == "the command 'printf %s first'"
        assert difference["asked"] == "the command 'printf %s! first'"
        assert difference["where"].endswith("team.py:19")
    assert not (checkout / ".bartack").exists()


def test_a_read_only_recording_replays(bartack: Call, team: Path) -> None:
    completed(bartack)
    shutil.copytree(Path(".bartack/runs", run_id()), "kept", ignore=shutil.ignore_patterns("*.sock"))
    before = recorded(Path("kept"))
    for folder, _, files in os.walk("kept"):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o400)
        os.chmod(folder, 0o500)
    try:
        found = bartack("replay", "kept/", "--program", str(team))
    finally:
        for folder, _, _ in os.walk("kept"):
            os.chmod(folder, 0o700)

    assert found.returncode == 0, found.stderr
    assert recorded(Path("kept")) == before


def test_a_recording_from_elsewhere_does_not_choose_the_program(
    bartack: Call, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed(bartack)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree(
        Path(".bartack/runs", run_id()), elsewhere / "kept", ignore=shutil.ignore_patterns("*.sock")
    )
    file = team.resolve()
    monkeypatch.chdir(elsewhere)

    refused = bartack("replay", "kept")
    named = bartack("replay", "kept", "--program", str(file))

    assert refused.returncode == 2
    assert "name it with --program FILE" in refused.stderr
    assert named.returncode == 0, named.stderr


def test_a_recording_does_not_lead_to_a_program_outside_of_the_workspace(
    bartack: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')\n")
    created = {
        "run": "run-20260101-000000-00000000",
        "worker": "evil:main",
        "name": "main",
        "program": "/home/../evil.py",
        "workspace": "/home",
        "root": "/",
        "seed": 1,
    }
    line = json.dumps({"seq": 1, "commit": 1, "at": 1, "kind": "run.created", "data": created})
    monkeypatch.chdir(workspace)
    _archive("evil.tar.gz", "x/journal.ndjson", line.encode())

    refused = bartack("replay", "evil.tar.gz")

    assert refused.returncode == 2
    assert "is not in" in refused.stderr
    assert "executed" not in refused.stderr


SHOP = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    token = await ctx.env("SHOP_TOKEN")
    printed = str(await ctx.shell("printf", "%s", f"has {token}"))
    await ctx.shell("printf", "%s", printed)
    return "ok"
"""


@pytest.mark.requirement("replay-in-ci")
def test_a_recording_replays_where_its_secrets_are_not_set(
    bartack: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("shop.py").write_text(SHOP)
    monkeypatch.setenv("SHOP_TOKEN", "sesame-4711-0815")
    assert bartack("run", "shop.py").returncode == 0
    assert bartack("bundle", "latest", "--prompts", "-o", "kept.tar.gz").returncode == 0

    same = bartack("replay", "latest", "kept.tar.gz")
    monkeypatch.setenv("SHOP_TOKEN", "another-4711-0815")
    other = bartack("replay", "latest", "kept.tar.gz")
    monkeypatch.delenv("SHOP_TOKEN")
    none = bartack("replay", "latest", "kept.tar.gz")

    for found in (same, other, none):
        assert found.returncode == 0, found.stdout + found.stderr


def _archive(name: str, member: str, content: bytes) -> str:
    Path("journal").write_bytes(content)
    with tarfile.open(name, "w:gz") as archive:
        archive.add("journal", member)
    return name


@pytest.mark.requirement("replay-exit-codes")
def test_bad_input_has_its_exit_code_and_no_traceback(bartack: Call, team: Path) -> None:
    completed(bartack)
    assert bartack("bundle", "latest", "-o", "without.tar.gz").returncode == 0
    Path("text.tar.gz").write_text("not an archive")
    Path("empty").mkdir()
    cases = {
        ("empty",): (2, "it has no run and no bundle in it"),
        ("no/such",): (2, "no such file"),
        ("run-1",): (7, "run-1"),
        ("text.tar.gz",): (2, "not a bundle"),
        ("without.tar.gz",): (2, "--prompts"),
        (_archive("other.tar.gz", "x/notes.txt", b"x"),): (2, "not a bundle"),
        (_archive("odd.tar.gz", "x/journal.ndjson", b"[]\n"),): (2, "not a bundle"),
        (_archive("none.tar.gz", "x/journal.ndjson", b""),): (2, "its journal is empty"),
        (_archive("torn.tar.gz", "x/journal.ndjson", b'{"error":"BT2","message":"torn"}'),): (2, "torn"),
        (_archive("norun.tar.gz", "x/journal.ndjson", b'{"seq":1,"kind":"x"}'),): (2, "no run in it"),
        ("latest", "--program", "no.py"): (2, "there is no program no.py"),
        (): (2, "RUN"),
    }
    for args, (code, problem) in cases.items():
        found = bartack("replay", *args)
        assert found.returncode == code, (args, found.stdout + found.stderr)
        assert problem in found.stderr, args
        assert "Traceback" not in found.stderr

    team.write_text("def main(:\n")
    assert "syntax" in bartack("replay", "latest").stderr
    team.write_text(PROGRAM.replace("async def child", "async def kid").replace("child(", "kid("))
    renamed = bartack("replay", "latest")
    assert renamed.returncode == 1
    assert "child" in renamed.stdout


def test_assert_replays_takes_a_bundle_and_compares_finished_runs(bartack: Call, team: Path) -> None:
    completed(bartack)
    assert bartack("bundle", "latest", "--prompts", "-o", "kept.tar.gz").returncode == 0

    report = assert_replays("kept.tar.gz", team)
    team.write_text(CHANGED)

    assert (report.workers, report.steps) == (3, 7)
    with pytest.raises(ReplayMismatchError, match="printf"):
        assert_replays("kept.tar.gz", team)
    with pytest.raises(RecordingError, match="no program"):
        assert_replays("kept.tar.gz", "no.py")


@pytest.mark.requirement("versions-serve-old-runs")
def test_an_update_with_a_version_continues_an_old_run_and_new_runs_get_the_new_code(
    bartack: Call, team: Path
) -> None:
    failed(bartack)
    Path("broken").unlink()

    team.write_text(CHANGED)
    refused = bartack("resume", "latest", "--update")
    team.write_text(VERSIONED)
    updated = bartack("resume", "latest", "--update")
    new = bartack("run", "team.py")
    shown = bartack("show", "latest")

    assert refused.returncode == 1
    assert (updated.returncode, new.returncode) == (0, 0), updated.stderr + new.stderr
    assert "form: 1" in shown.stdout
    assert "printf %s! first" in shown.stdout
    assert bartack("replay", ".bartack/runs").returncode == 0


@pytest.mark.requirement("versions-name-what-to-keep")
def test_an_update_without_the_code_of_a_version_names_it(bartack: Call, team: Path) -> None:
    team.write_text(VERSIONED)
    waiting(bartack)
    team.write_text(VERSIONED.replace('ctx.version("form")', 'ctx.version("form", 3, oldest=2)'))

    replayed = bartack("replay", "latest")
    updated = bartack("resume", "latest", "--update")

    assert replayed.returncode == 1
    assert "recorded   version 1 of 'form'" in replayed.stdout
    assert updated.returncode == 1
    assert "keep the code of version 1" in updated.stderr


@pytest.mark.requirement("versions-serve-old-runs")
def test_a_fork_has_the_versions_that_are_before_its_step(bartack: Call, team: Path) -> None:
    team.write_text(VERSIONED)
    completed(bartack)
    old = run_id()
    team.write_text(
        VERSIONED.replace(
            '"%s!" if await ctx.version("form") else "%s"', "f\"%s{await ctx.version('form', 2)}\""
        )
    )

    before = bartack("fork", old, "--at", "1", "--update").stdout.strip()
    resumed_before = bartack("resume", before)
    team.write_text(VERSIONED.replace('ctx.version("form")', 'ctx.version("form", 2)'))
    after = bartack("fork", old, "--at", "2", "--update").stdout.strip()
    resumed_after = bartack("resume", after)

    assert (resumed_before.returncode, resumed_after.returncode) == (0, 0), resumed_before.stderr
    assert "printf %s2 first" in bartack("show", before).stdout
    assert "form: 2" in bartack("show", before).stdout
    assert "form: 1" in bartack("show", after).stdout
    assert "form: 2" not in bartack("show", after).stdout


PATCHWORK = """\
worker main() {
    $ printf first
    var go = ask("Go on?")
    print(go)
}
"""


def test_a_patchwork_run_replays_with_a_version(bartack: Call) -> None:
    file = Path("team.pw")
    file.write_text(PATCHWORK.replace('ask("Go on?")', "self.inbox.receive(50)").replace("var go", "var go"))
    ran = bartack("run", "team.pw")
    same = bartack("replay", "latest")
    written = file.read_text()
    file.write_text(written.replace("printf first", "printf other"))
    other = bartack("replay", "latest")
    file.write_text(
        written.replace(
            "    $ printf first",
            '    if version("print") { $ printf other } else { $ printf first }',
        )
    )
    versioned = bartack("replay", "latest")

    assert ran.returncode == 1
    assert same.returncode == 0, same.stdout + same.stderr
    assert other.returncode == 1
    assert "team.pw:2" in other.stdout
    assert versioned.returncode == 0, versioned.stdout + versioned.stderr

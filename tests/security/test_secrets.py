"""A secret that a run knows is in none of its files, and a run with secrets is resumed exactly."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests import warm

TOKEN = "ghp_Zq8vK2mXw7RtY4nB1cLd"  # noqa: S105 - made up
NEXT_TOKEN = "ghp_Rotated55aaBBccDDeeFF"  # noqa: S105 - made up
PASSWORD = "s3same/open+it"  # noqa: S105 - made up

PROGRAM = """
import base64, os, sys, urllib.parse
from bartack import Context, worker

SHOW = '''
import base64, os, sys
token = os.environ["DEPLOY_TOKEN"]
sys.stdout.write(token[:9])
sys.stdout.flush()
sys.stdout.write(token[9:])
sys.stderr.write(base64.b64encode(b"user:" + token.encode()).decode())
'''
LONG = "import os; print('x' * 90000 + os.environ['DEPLOY_TOKEN'])"


@worker
async def main(ctx: Context, given: str = "") -> dict[str, str]:
    token = await ctx.env("DEPLOY_TOKEN")
    ctx.print("printed", token)
    ctx.log("logged", base64.b64encode(token.encode()).decode(), urllib.parse.quote(token))
    print("written", token)
    shown = await ctx.shell(sys.executable, "-c", SHOW)
    long = await ctx.shell(sys.executable, "-c", LONG)
    failed = await ctx.shell(sys.executable, "-c", "import os, sys; sys.exit(os.environ['DEPLOY_TOKEN'])", check=False)
    echoed = await ctx.shell("echo", token)
    await ctx.mailbox.box.send({"t": token, token: ["Bearer " + token]})
    if not os.path.exists("go"):
        raise ValueError("not yet " + token)
    got = await ctx.mailbox.box.receive()
    assert got == {"t": token, token: ["Bearer " + token]}, got
    assert shown.stdout == token, shown
    assert echoed.stdout == token + "\\n", echoed
    assert long.stdout == "x" * 90000 + token + "\\n"
    assert failed.stderr == token + "\\n"
    return {"result": token, "given": given}


@worker
async def asking(ctx: Context) -> str:
    return await ctx.ask("is it " + os.environ["DEPLOY_TOKEN"] + "?")
"""


def bartack(folder: Path, *args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name != "DEPLOY_TOKEN"}
    done = warm.run(
        [sys.executable, "-m", "bartack", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**given, **env},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def spoilt(folder: Path, *secrets: str) -> list[str]:
    """The files that have a secret in them, in any simple form."""
    forms = [form for secret in secrets for form in (secret, *cores(secret))]
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(form.encode() in path.read_bytes() for form in forms)
    ]


def cores(secret: str) -> list[str]:
    return [base64.b64encode(b"u" * before + secret.encode()).decode()[4:-4] for before in range(3)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "leak.py").write_text(PROGRAM)
    return tmp_path


def only_run(project: Path) -> Path:
    (found,) = (project / ".bartack/runs").iterdir()
    return found


@pytest.fixture
def failed(project: Path) -> Path:
    """A run that has seen a secret in every way, and failed."""
    bartack(project, "run", "leak.py:main", "--", TOKEN, code=1, DEPLOY_TOKEN=TOKEN)
    return project


@pytest.mark.requirement("secrets-are-not-stored")
def test_a_secret_is_in_no_file_of_a_run(failed: Path) -> None:
    assert spoilt(failed / ".bartack", TOKEN) == []
    transcript = (only_run(failed) / "transcript.txt").read_text()
    assert "printed $env:DEPLOY_TOKEN\n" in transcript
    assert "not yet $env:DEPLOY_TOKEN" in (only_run(failed) / ".failed").read_text()


@pytest.mark.requirement("secrets-come-back")
def test_a_run_with_secrets_is_resumed_exactly(failed: Path) -> None:
    (failed / "go").touch()

    done = bartack(failed, "resume", "--json", DEPLOY_TOKEN=TOKEN)

    result = json.loads(done.stdout.splitlines()[-1])
    assert result["value"] == {"result": TOKEN, "given": TOKEN}
    assert spoilt(failed / ".bartack", TOKEN) == []


@pytest.mark.requirement("missing-secret-is-told")
def test_a_run_is_not_resumed_without_its_secret_and_nothing_changes(failed: Path) -> None:
    before = (only_run(failed) / "journal.ndjson").read_bytes()

    done = bartack(failed, "resume", code=1)

    assert "error[BT339]" in done.stderr
    assert "DEPLOY_TOKEN" in done.stderr
    assert (only_run(failed) / "journal.ndjson").read_bytes() == before


@pytest.mark.requirement("secrets-come-back")
def test_a_secret_that_was_changed_takes_the_place_of_the_old_one(failed: Path) -> None:
    (failed / "go").touch()

    done = bartack(failed, "resume", "--json", DEPLOY_TOKEN=NEXT_TOKEN)

    assert json.loads(done.stdout.splitlines()[-1])["value"] == {"result": NEXT_TOKEN, "given": NEXT_TOKEN}
    assert spoilt(failed / ".bartack", TOKEN, NEXT_TOKEN) == []


def test_a_person_is_told_that_a_secret_has_changed(failed: Path) -> None:
    (failed / "go").touch()

    done = bartack(failed, "resume", DEPLOY_TOKEN=NEXT_TOKEN)

    assert "DEPLOY_TOKEN has changed" in done.stderr


@pytest.mark.requirement("secrets-come-back")
def test_a_fork_of_a_run_with_secrets_is_as_exact(failed: Path) -> None:
    (failed / "go").touch()
    fork = bartack(failed, "fork", only_run(failed).name, "--at", "8", DEPLOY_TOKEN=TOKEN).stdout.strip()

    done = bartack(failed, "resume", fork, "--json", DEPLOY_TOKEN=TOKEN)

    assert json.loads(done.stdout.splitlines()[-1])["value"] == {"result": TOKEN, "given": TOKEN}
    assert spoilt(failed / ".bartack", TOKEN) == []


def test_an_updated_program_is_replayed_with_the_secrets(failed: Path) -> None:
    (failed / "leak.py").write_text(PROGRAM.replace('"not yet "', '"not even yet "'))

    done = bartack(failed, "resume", "--update", code=1, DEPLOY_TOKEN=TOKEN)

    assert "not even yet" in done.stderr
    assert spoilt(failed / ".bartack", TOKEN) == []


@pytest.mark.requirement("secrets-are-not-stored")
def test_commands_that_look_at_a_run_show_the_name_of_the_secret(failed: Path) -> None:
    run = only_run(failed).name
    commands = (
        ("show", run),
        ("show", run, "--json"),
        ("status", run),
        ("log", run),
        ("journal", "show", run, "--full"),
        ("journal", "export", run),
        ("mailbox", "peek", run, "box"),
    )

    for command in commands:
        shown = bartack(failed, *command, DEPLOY_TOKEN=TOKEN)
        assert TOKEN not in shown.stdout + shown.stderr, command
        assert "DEPLOY_TOK" in shown.stdout, command


@pytest.mark.requirement("secrets-are-not-stored")
def test_what_a_person_says_from_outside_is_stored_without_secrets(project: Path) -> None:
    bartack(project, "run", "leak.py:asking", code=3, DEPLOY_TOKEN=TOKEN)
    run = only_run(project).name
    assert spoilt(project / ".bartack", TOKEN) == []

    bartack(project, "fail", run, f"because of {TOKEN}", DEPLOY_TOKEN=TOKEN)

    assert spoilt(project / ".bartack", TOKEN) == []


STARTING = """
import sys
import bartack
import leak

if __name__ == "__main__":
    run = bartack.Run.start(leak.main(sys.argv[1]))
    try:
        print(run.wait(60))
        print(run.result())
    except bartack.errors.RunFailedError as error:
        print("failed")
"""


@pytest.mark.requirement("secrets-are-not-stored")
def test_the_log_of_a_hub_in_the_background_has_no_secrets(project: Path) -> None:
    (project / "start.py").write_text(STARTING)
    (project / "go").touch()

    done = subprocess.run(
        [sys.executable, "start.py", TOKEN],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "DEPLOY_TOKEN": TOKEN},
    )

    assert f"'result': '{TOKEN}'" in done.stdout, done.stdout + done.stderr
    assert "written $env:DEPLOY_TOKEN\n" in (only_run(project) / "hub.log").read_text()
    assert spoilt(project / ".bartack", TOKEN) == []


@pytest.mark.requirement("bundle-hides-secrets-later")
def test_a_bundle_made_without_the_secret_hides_it(project: Path) -> None:
    (project / "leak.py").write_text(PROGRAM + f"\nFORGOTTEN = '{TOKEN}'\n")
    bartack(project, "run", "leak.py:main", code=1, DEPLOY_TOKEN=TOKEN)
    run = only_run(project)
    (run / "hub.log").write_text(f"https://user:{TOKEN}@host/ and token={TOKEN}\n")

    bartack(project, "bundle", run.name, "--prompts", "-o", "bundle.tar.gz")

    assert TOKEN.encode() not in (run / "secrets.json").read_bytes()
    with tarfile.open(project / "bundle.tar.gz") as archive:
        texts = {
            member.name.split("/", 1)[1]: (archive.extractfile(member) or sys.stdin.buffer).read()
            for member in archive.getmembers()
        }
    assert [name for name, text in texts.items() if TOKEN.encode() in text] == []
    assert texts["hub.log"] == b"https://user:$env:DEPLOY_TOKEN@host/ and token=$env:DEPLOY_TOKEN\n"
    assert b"FORGOTTEN = '$env:DEPLOY_TOKEN'" in texts["program/leak.py"]


@pytest.mark.requirement("secrets-are-not-stored")
def test_a_secret_of_the_settings_is_not_in_the_journal(tmp_path: Path) -> None:
    bartack(tmp_path, "init", "--example")
    toml = (tmp_path / "bartack.toml").read_text()
    head, _, rest = toml.partition("[tests]\n")
    (tmp_path / "bartack.toml").write_text(
        f'{head}[tests]\nenv = {{ DB_PASSWORD = "{PASSWORD}", DB_HOST = "db.example" }}\n{rest}'
    )

    bartack(tmp_path, "run")

    assert spoilt(tmp_path / ".bartack/runs", PASSWORD) == []
    journal = (only_run(tmp_path) / "journal.ndjson").read_text()
    assert "db.example" in journal
    assert "env:tests.DB_PASSWOR" in journal

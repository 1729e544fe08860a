"""Machines that lack something: a locale with few letters, no ``/proc``, few files. What can be done is done, the rest is said."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.runs.stories import Result

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ODD = """\
from bartack import worker
from bartack.errors import ShellError


async def told(ctx, *argv, **options):
    try:
        return (await ctx.shell(*argv, **options)).stdout
    except ShellError as error:
        return error.message


@worker
async def main(ctx):
    ctx.print("gr\\u00f6\\u00dfe")
    return [
        await told(ctx, "echo", "gr\\u00f6\\u00dfe"),
        await told(ctx, "echo", "a\\0b"),
        await told(ctx, "echo", cwd="gr\\u00f6\\u00dfe"),
        await told(ctx, "echo", env={"GR\\u00d6SSE": "1"}),
        await told(ctx, "echo", "fine"),
    ]
"""
MANY = """\
import resource

from bartack import worker


@worker
async def child(ctx, n: int):
    seen = (await ctx.shell("sh", "-c", "ulimit -Sn")).stdout
    return [int(seen), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]


@worker
async def main(ctx, n: int):
    return await ctx.delegate([child(i) for i in range(n)], limit=None)


@worker
async def deep(ctx):
    return await ctx.delegate([deep()])
"""


def bartack(
    *words: str,
    files: tuple[int, int] | None = None,
    before: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> Result:
    """A command line in a process of its own, which may open so many files: now, and at most."""

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, files)

    return subprocess.run(
        [*before, sys.executable, "-m", "bartack", *words],
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        preexec_fn=limit,
    )


@pytest.mark.requirement("odd-words-do-not-end-the-hub")
def test_a_command_that_the_locale_has_no_letters_for_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(ODD, "utf-8")

    done = bartack("run", "team.py", "--json", environ=ASCII)

    result = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == "completed", done.stderr
    *failed, fine = result["value"]
    assert fine == "fine\n"
    for text in (failed[0], failed[2], failed[3]):
        assert "has only ascii; set LANG=C.UTF-8 or PYTHONUTF8=1" in text
    assert "contains NUL" in failed[1]


@pytest.mark.requirement("odd-words-do-not-end-the-hub")
def test_a_line_of_patchwork_that_the_locale_has_no_letters_for_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "team.pw").write_text(
        'worker main() {\n  try { $ echo "größe" | cat } catch e { print("caught") }\n  return $(echo fine)\n}\n',
        "utf-8",
    )

    done = bartack("run", "team.pw", environ=ASCII)

    assert (done.returncode, done.stdout) == (0, "caught\nfine\n"), done.stderr


def test_a_directory_that_the_locale_has_no_letters_for_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "größe"
    place.mkdir()
    (place / "team.py").write_text(ODD, "utf-8")

    refused = bartack("run", "team.py", "-C", str(place), environ=ASCII)

    assert refused.returncode == 2
    assert "error[BT350]" in refused.stderr
    assert not (place / ".bartack").exists()


@pytest.fixture
def without_proc() -> tuple[str, ...]:
    """The beginning of a command line that runs the rest where /proc is empty."""
    before = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "sh")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*before, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no mount namespace can be made here: a machine without /proc was NOT tried")
    return before


@pytest.mark.requirement("machines-that-lack-something-are-refused")
def test_without_proc_doctor_and_run_say_so_and_nothing_is_made(
    tmp_path: Path, without_proc: tuple[str, ...]
) -> None:
    (tmp_path / "team.py").write_text(ODD, "utf-8")

    checked = bartack("doctor", before=without_proc)
    refused = bartack("run", "team.py", before=without_proc)

    assert checked.returncode == 1
    assert "/proc is not mounted" in checked.stdout
    assert refused.returncode == 2
    assert refused.stderr.startswith("error[BT350]: a run is not possible here: /proc is not mounted")
    assert "Traceback" not in checked.stderr + refused.stderr
    assert not (tmp_path / ".bartack").exists()


@pytest.mark.requirement("machines-that-lack-something-are-refused")
def test_a_process_that_may_open_hardly_any_files_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(MANY, "utf-8")

    refused = bartack("run", "team.py", "--", "1", files=(100, 100))
    checked = bartack("doctor", files=(100, 100))

    assert refused.returncode == 2
    assert "may open 100 files at most. Raise the hard limit to 128 or more" in refused.stderr
    assert (checked.returncode, "a process can open 100, but a run needs 128" in checked.stdout) == (1, True)
    assert not (tmp_path / ".bartack").exists()


@pytest.mark.requirement("files-limit-is-raised")
def test_a_hub_uses_the_hard_limit_of_files_and_its_children_have_the_soft_one(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(MANY, "utf-8")

    done = bartack("run", "team.py:main", "--json", "--", "8", files=(96, 400))

    result = json.loads(done.stdout.splitlines()[-1])
    assert result["value"] == [[96, 96]] * 8, done.stderr


@pytest.mark.requirement("worker-bounds")
def test_more_workers_than_there_are_files_for_are_refused_when_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(MANY, "utf-8")

    done = bartack("run", "team.py:main", "--", "60", files=(200, 200))

    assert done.returncode == 1
    assert "WorkerLimitError [BT352]: more than 34 workers at a time" in done.stderr
    assert "main/1.1:child" not in done.stderr


@pytest.mark.requirement("worker-bounds")
@pytest.mark.parametrize("language", ["py", "pw"])
def test_workers_that_start_themselves_come_to_an_end(tmp_path: Path, language: str) -> None:
    source = MANY if language == "py" else "worker deep() {\n  return deep()\n}\n"
    (tmp_path / f"team.{language}").write_text(source, "utf-8")

    done = bartack("run", f"team.{language}:deep", "--set", "workers.max_depth=3")

    assert done.returncode == 1
    assert "WorkerLimitError [BT352]: more than 3 levels of workers" in done.stderr

"""The lint of worker code: calls that are never awaited, failures that cannot be caught, and what would not replay."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest

from bartack import Context, Mailbox
from bartack.supervision.lint import check_file, check_text
from bartack.supervision.lint._rules import CTX_AWAITED, CTX_BLOCKS, MAILBOX_AWAITED, MAILBOX_BLOCKS

HEAD = """\
import glob, os, pathlib, random, shutil, subprocess, time
from os import environ, path
from pathlib import Path
from bartack import Context, run, step, worker

@step
def save(text): return text

@worker
async def child(ctx: Context) -> int: return 1

async def helper(ctx: Context) -> None: await ctx.sleep(1)

def load(): return Path("notes").read_text()

def load_all(): return [load()]

@worker
async def main(ctx: Context, name: str, place: Path) -> object:
"""
LINES = HEAD.count("\n")


def found(body: str, kind: str) -> list[int]:
    """The lines of a worker's body on which something of a kind is found."""
    text = HEAD + textwrap.indent(textwrap.dedent(body), "    ")
    return [finding.line - LINES for finding in check_text(text, "nowhere/f.py") if finding.type == kind]


FORGOTTEN = [
    "ctx.sleep(5)",
    "save('a')",
    "child()",
    "helper(ctx)",
    "ctx.mailbox.work.send(1)",
    "ctx.mailbox['work'].send(1)",
    "ctx.session.mailbox.work.send(1)",
    "ctx.inbox.receive(5)",
    "ctx.gather(save('a'), save('b'))",
    "ctx.fail('stop')",
    "ctx.timeout(5)",
    "ctx.mailbox.work.delivery()",
    "if ctx.exists('a'): return 1",
    "while not ctx.exists('a'): pass",
    "return 1 if ctx.exists('a') else 2",
    "return ctx.env('A') == '1'",
    "return ctx.env('A') or 'b'",
    "return f'{ctx.now()}'",
    "return 'at ' + ctx.read('a')",
    "return ctx.read('a').strip()",
    "return ctx.shell('ls')[0]",
    "for name in ctx.list('*'): ctx.print(name)",
    "return [name for name in ctx.list('*')]",
    "ctx.print(ctx.now())",
    "return len(ctx.list('*'))",
    "await save(ctx.read('a'))",
    "await ctx.write('b', ctx.read('a'))",
    "await ctx.mailbox.work.send(ctx.read('a'))",
    "return ctx.read('a')",
    "text = ctx.read('a')",
    "text = ctx.read('a')\nctx.print(text)",
    "done = child()\nreturn 1",
    "async def branch():\n    return 1\n    ctx.sleep(1)\nawait ctx.gather(branch())",
]


@pytest.mark.requirement("forgotten-await-is-found-by-check")
@pytest.mark.parametrize("body", FORGOTTEN)
def test_a_forgotten_await_is_found_once(body: str) -> None:
    lines = body.split("\n")
    expected = 1 + next((place for place, line in enumerate(lines) if line == "    ctx.sleep(1)"), 0)

    assert found(body, "forgotten_await") == [expected]


AWAITED = [
    "await ctx.sleep(5)",
    "first, second = save('a'), save('b')\nawait first\nawait second",
    "kept = save('a')\nawait ctx.gather(kept, save('b'))",
    "kept = save('a')\nkept = await kept",
    "calls = [child() for _ in range(3)]\nawait ctx.delegate(calls)",
    "await ctx.delegate([child(), child()])",
    "await ctx.spawn(child())",
    "await ctx.delegate(child(), on_failure='collect')",
    "call = child()\nctx.print(call.worker.name)\nawait call",
    "await (save('a') if name else save('b'))",
    "calls = []\ncalls.append(save('a'))\nawait ctx.gather(*calls)",
    "async with ctx.timeout(5):\n    await ctx.sleep(1)",
    "async with ctx.task_group() as group:\n    group.start(helper(ctx))",
    "async with ctx.mailbox.work.delivery() as delivery:\n    await delivery.reply(1)",
    "ctx.print('a')\nctx.log('b')",
    "make = lambda: ctx.read('a')\nawait make()",
    "def make():\n    return ctx.read('a')\nawait make()",
    "await ctx.think('x', tools=[helper])",
    "ctx.sleep(5)  # bartack: allow[forgotten_await] shows what happens then",
]


@pytest.mark.parametrize("body", AWAITED)
def test_what_is_awaited_is_left_alone(body: str) -> None:
    assert found(body, "forgotten_await") == []


def test_members_of_other_things_called_ctx_are_left_alone() -> None:
    discord = "import discord\nasync def hello(ctx):\n    ctx.sleep(1)\n    ctx.send('hello')\n"
    click = (
        "import click\nfrom bartack import Run\n@click.pass_context\ndef hello(ctx):\n    ctx.fail('no')\n"
    )

    assert check_text(discord, "f.py") == []
    assert check_text(click, "f.py") == []


def test_steps_and_workers_of_other_files_are_known(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "steps.py").write_text("from bartack import step\n@step\ndef save(text): return text\n")
    (tmp_path / "pkg/others.py").write_text(
        "from bartack import Context, worker\n@worker\nasync def child(ctx: Context): pass\n"
    )
    team = tmp_path / "pkg/team.py"
    team.write_text(
        "import steps\nfrom steps import save as keep\nfrom .others import child\nfrom bartack import Context, worker\n"
        "@worker\nasync def main(ctx: Context):\n    keep('a')\n    steps.save('b')\n    child()\n    await keep('c')\n"
    )

    findings = check_file(team)

    assert [(finding.line, finding.type) for finding in findings] == [
        (7, "forgotten_await"),
        (8, "forgotten_await"),
        (9, "forgotten_await"),
    ]
    assert {finding.severity for finding in findings} == {"error"}


def test_the_lint_knows_every_member_of_ctx_and_of_mailboxes() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert methods(Context) == CTX_AWAITED | set(CTX_BLOCKS) | {"print", "log"}
    assert methods(Mailbox) == MAILBOX_AWAITED | MAILBOX_BLOCKS


# Failures of workers.

CAUGHT = [
    "try:\n    await child()\nexcept Exception:\n    pass",
    "try:\n    await child()\nexcept:\n    ctx.log('failed')",
    "try:\n    await child()\nexcept ValueError as error:\n    ctx.print(error)",
    "try:\n    await ctx.delegate([child()])\nexcept Exception:\n    pass",
    "try:\n    await save('a')\n    await child()\nexcept Exception:\n    pass",
    "handle = await ctx.spawn(child())\ntry:\n    await handle\nexcept Exception:\n    pass",
    "await ctx.gather(child(), on_failure='collect')",
]


@pytest.mark.requirement("caught-worker-failure-is-warned-about")
@pytest.mark.parametrize("body", CAUGHT)
def test_an_except_that_cannot_save_the_run_is_found(body: str) -> None:
    lines = body.split("\n")
    expected = 1 + next((place for place, line in enumerate(lines) if line.startswith("except")), 0)

    assert found(body, "caught_failure") == [expected]


HANDLED = [
    "try:\n    await child()\nexcept Exception:\n    ctx.log('tidy')\n    raise",
    "try:\n    await ctx.delegate([child()], on_failure='collect')\nexcept Exception:\n    pass",
    "try:\n    await ctx.delegate(child(), on_failure='collect')\nexcept Exception:\n    pass",
    "try:\n    await save('a')\nexcept Exception:\n    pass",
    "try:\n    await child()\n    await save('a')\nexcept OSError:\n    pass",
    "try:\n    await child()\nfinally:\n    ctx.log('tidy')",
    "await ctx.gather(save('a'), on_failure='collect')",
    "handle = await ctx.spawn(child(), on_failure='collect')\ntry:\n    await handle\nexcept Exception:\n    pass",
]


@pytest.mark.parametrize("body", HANDLED)
def test_an_except_that_works_is_left_alone(body: str) -> None:
    assert found(body, "caught_failure") == []


def test_a_caught_failure_names_the_way_to_have_it_as_a_value() -> None:
    (finding,) = check_text(
        HEAD + "    try:\n        await child()\n    except Exception:\n        pass\n", "f.py"
    )

    assert 'outcome = await ctx.delegate(child(…), on_failure="collect")' in finding.suggestion
    assert finding.severity == "warning"


# What would not replay.

DIFFERENT = [
    "return os.environ.get('A')",
    "return os.environ['A']",
    "return environ.get('A')",
    "return environ['A']",
    "return 'A' in environ",
    "return os.getenv('A')",
    "return os.path.exists('a')",
    "return path.isfile('a')",
    "return glob.glob('*.py')",
    "return subprocess.run(['ls'], timeout=5)",
    "return shutil.which('git')",
    "return Path('a').read_text()",
    "return Path('a').exists()",
    "return (Path('a') / name).is_dir()",
    "file = Path('a')\nreturn file.stat().st_size",
    "return place.exists()",
    "return place.parent.exists()",
    "return [file.name for file in Path().iterdir()]",
    "return list(place.glob('*'))",
    "return pathlib.Path.cwd()",
    "with place.open() as text: pass",
    "with open(name) as text: pass",
    "(ctx.session.dir / 'a').write_text('b')",
    "return random.choice([1, 2])",
    "return sorted([1], key=lambda _: random.random())",
    "async def branch():\n    return time.time()\nawait ctx.gather(branch())",
]


@pytest.mark.requirement("nondeterminism-is-found-by-check")
@pytest.mark.parametrize("body", DIFFERENT)
def test_what_would_not_replay_is_found(body: str) -> None:
    assert len(found(body, "nondeterminism")) == 1


SAME = [
    "return await ctx.read('a')",
    "return await ctx.env('A')",
    "return await ctx.step(os.path.exists, 'a')",
    "return await ctx.step(lambda: time.time())",
    "def look():\n    return time.time()\nreturn await ctx.step(look)",
    "return await ctx.step(load)",
    "try:\n    await save('a')\nexcept subprocess.CalledProcessError:\n    pass",
    "return random.Random(42).random()",
    "return Path('a').name + place.suffix",
    "return os.path.join('a', 'b') + path.basename('c')",
    "return {}.get('A', [].copy())",
    "return name.replace('a', 'b')",
]


@pytest.mark.parametrize("body", SAME)
def test_what_replays_is_left_alone(body: str) -> None:
    assert found(body, "nondeterminism") == []


def test_functions_that_a_worker_calls_are_worker_code() -> None:
    line = HEAD[: HEAD.index("def load()")].count("\n") + 1 - LINES

    assert found("return load_all()", "nondeterminism") == [line]
    assert found("return 1", "nondeterminism") == []

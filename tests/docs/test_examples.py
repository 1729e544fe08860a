"""Runs every page: its Python blocks and its commands, in order, in one directory.

A block with a title (``python title="work.py"``, ``patchwork``, ``toml`` or ``json`` likewise) is saved under that name. Any other
Python block is executed, and what it prints has to be what its ``#>`` lines show, no less and no more; any other Patchwork
block has to be without syntax errors. All Patchwork is in canonical form. In a ``console`` block the lines behind ``$ `` are
commands and the others what they print, with ``…`` for anything; a block without ``$ `` is commands only. A command has to
succeed, unless the next one is ``echo $?``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples
from tests.postgres import cluster, empty_database
from tests.realcli.programs import require_program

from bartack.language.formatting.format import reformat

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"^( *)```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PATCHWORK = re.compile(r"^```patchwork(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"^```(?:toml|json) title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
SHOW_CODE = "echo $?"
SET_UP = ("make ", ". .venv/bin/activate")
"""What is done already for those who run a page: the environment is there, and first on the path."""
MARK = "\x1e"
OPTIONS = "PYTEST_ADDOPTS"
"""What somebody wants these tests to do is not for the tests of a page, whose output it shows."""
FOLLOWED = {
    "README.md",
    "docs/tutorial/first-patchwork.md",
    "docs/tutorial/first-team.md",
    "docs/tutorial/two-nodes.md",
}
"""The pages that ``tests/newcomer`` follows, in a clone and with the wheel; they need not be run once more."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Step(NamedTuple):
    """A command of a console block and what it should print; ``None`` if the page does not say."""

    command: str
    output: str | None


class Result(NamedTuple):
    """What became of a command."""

    output: str
    code: int


def console_blocks(page: Path) -> dict[int, list[Step]]:
    """The console blocks of a page by their place in it."""
    text = page.read_text(encoding="utf-8")
    found: dict[int, list[Step]] = {}
    for block in CONSOLE.finditer(text):
        lines = [line.removeprefix(block[1]) for line in block[2].splitlines()]
        found[text.count("\n", 0, block.start()) + 1] = steps(lines)
    return found


def steps(lines: list[str]) -> list[Step]:
    if not any(line.startswith(PROMPT) for line in lines):
        return [Step(line, None) for line in lines if line]
    found: list[Step] = []
    for line in lines:
        if line.startswith(PROMPT):
            found.append(Step(line.removeprefix(PROMPT), ""))
        else:
            found[-1] = Step(found[-1].command, f"{found[-1].output}{line}\n")
    return found


def python_blocks(page: Path) -> dict[int, CodeExample]:
    return {example.start_line: example for example in find_examples(page)}


class Program(NamedTuple):
    """A Patchwork block and the name under which it is saved, if any."""

    title: str
    source: str


def patchwork_blocks(page: Path) -> dict[int, Program]:
    text = page.read_text(encoding="utf-8")
    found = PATCHWORK.finditer(text)
    return {text.count("\n", 0, one.start()) + 1: Program(one[1] or "", one[2]) for one in found}


class Saved(NamedTuple):
    """A block that is only a file, and its name."""

    title: str
    text: str

    def save(self, folder: Path) -> None:
        (folder / self.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / self.title).write_text(self.text, encoding="utf-8")


def saved_blocks(page: Path) -> dict[int, Saved]:
    text = page.read_text(encoding="utf-8")
    return {text.count("\n", 0, one.start()) + 1: Saved(one[1], one[2]) for one in SAVED.finditer(text)}


def blocks_of(page: Path) -> list[list[Step] | Program | Saved | CodeExample]:
    """Everything on a page that does something, in its order."""
    blocks: dict[int, list[Step] | Program | Saved | CodeExample] = {
        **console_blocks(page),
        **saved_blocks(page),
        **patchwork_blocks(page),
        **python_blocks(page),
    }
    return [block for _, block in sorted(blocks.items(), key=lambda item: item[0])]


def check_program(program: Program, folder: Path) -> None:
    done = reformat(program.source, program.title or "block.pw")
    assert not done.kept, [one.message for one in done.parsed.diagnostics]
    assert done.text == program.source
    if program.title:
        (folder / program.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / program.title).write_text(program.source, encoding="utf-8")


def own_environment() -> dict[str, str]:
    """The variables of a shell that finds the commands of the environment of the tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name != OPTIONS}
    return {**kept, "PATH": path, "LC_ALL": "C.UTF-8"}


def run_commands(commands: list[str], folder: Path, env: dict[str, str] | None = None) -> list[Result]:
    """Run commands in one shell; ``$?`` is what the command before left, as for a person who types them."""
    report = f"__code=$?; printf '{MARK}%d{MARK}' $__code; (exit $__code)"
    script = "".join(f"{command}\n{report}\n" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=env or own_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    parts = done.stdout.split(MARK)
    return [Result(output, int(code)) for output, code in zip(parts[:-1:2], parts[1::2], strict=True)]


def as_shown(expected: str) -> re.Pattern[str]:
    """Matches what a page shows: ``…`` is anything, alone on its line any number of lines."""
    lines = [
        "(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n"
        for line in expected.splitlines()
    ]
    return re.compile("".join(lines))


def check_console(block: list[Step], folder: Path, env: dict[str, str] | None = None) -> None:
    """Run the commands of a block and compare what they print with what the page shows."""
    runnable = [step for step in block if not step.command.startswith(SET_UP)]
    results = run_commands([step.command for step in runnable], folder, env)
    following = [*(step.command for step in runnable[1:]), ""][: len(runnable)]
    for step, result, after in zip(runnable, results, following, strict=True):
        assert result.code == 0 or after == SHOW_CODE, (
            f"{step.command} ended with {result.code}:\n{result.output}"
        )
        if step.output is not None:
            assert as_shown(step.output).fullmatch(result.output), f"{step.command} printed:\n{result.output}"


def write_service(folder: Path) -> Path:
    """A connection service file whose section ``team`` leads to a database without tables of ours."""
    file = folder / "pg_service.conf"
    where = cluster()
    file.write_text(
        f"[team]\nhost={where.place}\nuser=bartack\ndbname={empty_database()}\n", encoding="utf-8"
    )
    return file


@pytest.mark.parametrize("page", [page for page in PAGES if named(page) not in FOLLOWED], ids=named)
@pytest.mark.requirement("pages-are-run")
def test_a_page_does_what_it_says(
    page: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    eval_example: EvalExample,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page.name == "test-with-a-real-agent.md":
        require_program("claude")
        require_program("codex")
    if "service:team" in page.read_text(encoding="utf-8"):
        monkeypatch.setenv("PGSERVICEFILE", str(write_service(tmp_path_factory.mktemp("service"))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(OPTIONS, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(tmp_path_factory.mktemp("state"))
    )  # not in the directory of the page
    for block in blocks_of(page):
        if isinstance(block, list):
            check_console(block, tmp_path)
        elif isinstance(block, Program):
            check_program(block, tmp_path)
        elif isinstance(block, Saved):
            block.save(tmp_path)
        elif title := block.prefix_settings().get("title"):
            (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / title).write_text(block.source, encoding="utf-8")
        else:
            eval_example.run(block)
            assert capsys.readouterr().out.splitlines() == re.findall(
                r"^ *#> (.*)$", block.source, re.MULTILINE
            )


def test_make_is_only_asked_for_targets_it_has() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {target for page in PAGES for target in re.findall(r"\bmake ([a-z]+)\b", code_in(page))}

    assert {"demo", "test"} <= asked <= targets


def code_in(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"`[^`\n]+`|^```.*?^```", text, re.MULTILINE | re.DOTALL))


@pytest.mark.requirement("pages-are-run")
def test_the_readme_puts_the_command_on_the_path_before_it_is_used() -> None:
    steps = [step.command for block in console_blocks(ROOT / "README.md").values() for step in block]
    activated = next(n for n, step in enumerate(steps) if step.startswith(". .venv/bin/activate"))

    assert steps[activated - 1].startswith("make demo")
    assert all(not step.startswith("bartack ") for step in steps[:activated])
    assert "`pip install PATH-OF-THIS-CLONE`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_command_that_fails_or_prints_something_else_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        check_console([Step("(exit 3)", "")], tmp_path)
    with pytest.raises(AssertionError, match=r"printed:\s+bye"):
        check_console([Step("echo bye", "hello\n")], tmp_path)


def test_no_option_of_these_tests_reaches_those_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPTIONS, "-q")

    check_console([Step(f'echo "<${OPTIONS}>"', "<>\n")], tmp_path)


def test_an_expected_failure_shows_its_code(tmp_path: Path) -> None:
    check_console([Step("(exit 3)", ""), Step("echo $?", "3\n"), Step("seq 4", "1\n…\n")], tmp_path)


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        ("a …\n", "a b\n", True),
        ("a …\nc\n", "a b\nc\n", True),
        ("a …\n", "a b\nc\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\n", "a\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_ellipsis_stands_for_anything(shown: str, printed: str, *, fits: bool) -> None:
    assert bool(as_shown(shown).fullmatch(printed)) is fits

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from bartack import __version__
from bartack.cli.app._app import COMMANDS, GROUPS, Listed, app, load_command

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]


def leaves() -> list[tuple[str, ...]]:
    """Every command there is, and those below it."""
    with click.Context(app) as context:
        found: list[tuple[str, ...]] = []
        for name in app.list_commands(context):
            command = app.get_command(context, name)
            found.append((name,))
            if isinstance(command, click.Group):
                found += [(name, inner) for inner in command.list_commands(context)]
    return found


LEAVES = leaves()


def modules_loaded_by(*args: str) -> list[str]:
    code = (
        "import json, sys\n"
        "from bartack.cli import main\n"
        f"main({args!r})\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    loaded: list[str] = json.loads(done.stderr)
    return loaded


def test_help_shows_every_command_under_its_group(call: Call) -> None:
    shown = call("--help")

    assert shown.returncode == 0
    headings = [
        line[:-1].lower() for line in shown.stdout.splitlines() if line.endswith(":") and line[0] != " "
    ]
    assert [heading for heading in headings if heading in GROUPS] == list(GROUPS)
    for listed in COMMANDS:
        section = shown.stdout.split(f"{listed.group.capitalize()}:\n")[1].split("\n\n")[0]
        assert f"  {listed.name} " in section
        assert listed.help in section


def test_without_a_command_the_help_is_shown(call: Call) -> None:
    assert call().stdout == call("--help").stdout
    assert call().returncode == 0
    assert call("journal").stdout == call("journal", "--help").stdout
    assert call("journal").returncode == 0


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(call: Call, command: tuple[str, ...], option: str) -> None:
    shown = call(*command, option)

    assert shown.returncode == 0
    assert shown.stdout.startswith(f"Usage: bartack {' '.join(command)}")
    assert shown.stderr == ""


def test_the_commands_of_groups_are_found() -> None:
    assert {("run",), ("journal", "verify"), ("mailbox", "send")} <= set(LEAVES)


def test_help_imports_no_command_and_nothing_heavy() -> None:
    loaded = modules_loaded_by("--help")

    homes = {"bartack.cli." + listed.target.partition(":")[0] for listed in COMMANDS}
    assert homes.isdisjoint(loaded)
    assert not {"msgspec", "rich", "asyncio", "bartack.journal", "bartack.core"} & set(loaded)


def test_the_version_is_printed_without_click() -> None:
    assert "click" not in modules_loaded_by("--version")


def test_a_command_imports_its_own_module_only() -> None:
    loaded = modules_loaded_by("explain", "BT201")

    assert "bartack.cli.app._explain" in loaded
    assert not {
        "bartack.cli.demo._demo",
        "bartack.cli.project.doctor._doctor",
        "bartack.cli.look._journal",
    } & set(loaded)


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda listed: listed.name)
def test_the_table_says_what_the_command_says(listed: Listed) -> None:
    command = load_command(listed)

    assert command.name == listed.name
    assert command.get_short_help_str(200) == listed.help
    assert listed.group in GROUPS


def test_the_version_is_shown_however_it_is_asked_for(call: Call) -> None:
    assert call("--version").stdout == f"bartack {__version__}\n"
    assert call("--version", "journal").stdout == f"bartack {__version__}\n"


def test_the_module_is_the_command(run: Call) -> None:
    shown = run("--version")

    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"bartack {__version__}\n", "")


def test_a_wrong_command_is_answered_with_a_near_one(call: Call) -> None:
    shown = call("journl")

    assert shown.returncode == 2
    assert "error[BT1002]: bartack: no such command 'journl'; did you mean journal?\n" in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("explain", "--nope"), "bartack explain: no such option"),
        (("--nope",), "bartack: no such option"),
        (("journal", "nope"), "bartack journal: no such command 'nope'"),
        (("journal", "show"), "bartack journal show: missing argument 'RUN|PATH'"),
        (("journal", "show", "x", "--from", "0"), "bartack journal show: invalid value for '--from'"),
        (("demo", "--steps", "1"), "bartack demo: invalid value for '--steps'"),
        (("completion", "tcsh"), "bartack completion: invalid value for"),
        (("explain", "BT201", "BT202"), "bartack explain: got unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(call: Call, args: tuple[str, ...], problem: str) -> None:
    shown = call(*args)

    assert shown.returncode == 2
    assert shown.stderr.startswith(f"error[BT1002]: {problem}")
    assert shown.stderr.endswith("  more: bartack explain BT1002\n")

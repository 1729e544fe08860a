"""``bartack plugin``: make a plugin for Claude Code of a program, validate it, and install it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.plugin import (
    BuiltPlugin,
    PluginChange,
    PluginInstaller,
    PluginReport,
    VerifiedPlugin,
    build_plugin,
    run_with_plugin,
    validate_plugin,
    verify_plugin,
)
from bartack.plugin.events import SCOPES

if TYPE_CHECKING:
    from bartack.plugin.events import Scope

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
folder_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
trait_option = click.option(
    "--trait", default="", metavar="NAME", help="Make the plugin of this trait, if the program has several."
)
name_argument = click.argument("name")
scope_option = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="project",
    show_default=True,
    help="Choose where Claude Code enables it: user (all projects), project (shared) or local (this project, only you).",
)
placeholder_option = click.option(
    "--allow-placeholder",
    is_flag=True,
    help="Use a fixed text for a missing description, instead of an error.",
)


@click.group(cls=PlainGroup, short_help="Make a plugin for Claude Code of a program, and install it.")
def plugin() -> None:
    """Make a plugin for Claude Code of a program: its skills and commands start runs.

    The runs belong to Bartack, not to Claude Code, and continue if Claude Code ends.
    """


@plugin.command(short_help="Build a plugin from a program.")
@file_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the plugin to this folder: a new one, an empty one, or that of a former build.",
)
@trait_option
@click.option("--marketplace", is_flag=True, help="Write a marketplace with the plugin in it.")
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 and list the differences if there are any."
)
@click.option("--force", is_flag=True, help="Replace files that were edited after the former build.")
@placeholder_option
@json_option
def build(
    file: Path,
    output: Path,
    trait: str,
    *,
    marketplace: bool,
    check: bool,
    force: bool,
    allow_placeholder: bool,
    as_json: bool,
) -> Exit:
    """Build a plugin from the program FILE.

    In Patchwork the plugin is the exported trait with the base Agent: its methods with @skill and @command become skills and
    commands, exported workers become agents. In Python it is the bartack.plugin.Plugin of the file. The same program gives the
    same files.
    """
    return build_and_show(
        file,
        output,
        trait=trait,
        marketplace=marketplace,
        check=check,
        force=force,
        allow_placeholder=allow_placeholder,
        as_json=as_json,
    )


def build_and_show(
    file: Path,
    output: Path,
    *,
    trait: str = "",
    marketplace: bool = False,
    check: bool = False,
    force: bool = False,
    allow_placeholder: bool = False,
    as_json: bool = False,
) -> Exit:
    """Build a plugin and print the result."""
    built = build_plugin(
        file,
        output,
        trait=trait,
        marketplace=marketplace,
        check=check,
        force=force,
        allow_placeholder=allow_placeholder,
    )
    if as_json:
        write_json(built._asdict())
    else:
        _show_built(built, check=check)
    return Exit.FAILED if built.differences else Exit.OK


def _show_built(built: BuiltPlugin, *, check: bool) -> None:
    notes, screen = Screen(sys.stderr), Screen(sys.stdout)
    for warning in built.warnings:
        notes.line(f"{notes.paint('warning', 'yellow')}: {printable(warning)}")
    folder = printable(built.folder)
    if check:
        for difference in built.differences:
            screen.line(printable(difference))
        if not built.differences:
            screen.line(f"{folder} is up to date")
        return
    state = "built" if built.changed else "unchanged"
    screen.line(f"{state} {built.name}: {len(built.files)} files in {folder}")


@plugin.command(short_help="Validate the folder of a plugin.")
@folder_argument
@click.option("--no-cli", is_flag=True, help="Do not ask Claude Code to validate it, too.")
@json_option
def validate(folder: Path, *, no_cli: bool, as_json: bool) -> Exit:
    """Validate the plugin, or the marketplace with its plugins, in DIR.

    Bartack checks its own rules, which are stricter than those of Claude Code, the checksums of the build and the program. Then
    Claude Code validates it, if it is found. The exit code is 1 if a rule is broken.
    """
    report = validate_plugin(folder, use_claude=not no_cli)
    if as_json:
        write_json(_report_facts(report))
    else:
        _show_report(report)
    return Exit.OK if report.ok else Exit.FAILED


def _report_facts(report: PluginReport) -> dict[str, object]:
    findings = [
        {"file": found.file, "line": found.line, "key": found.key, "problem": found.problem}
        for found in report.findings
    ]
    return {"ok": report.ok, "folder": report.folder, "claude": report.claude, "findings": findings}


def _show_report(report: PluginReport) -> None:
    screen = Screen(sys.stdout)
    for found in report.findings:
        screen.line(f"{screen.paint('error', 'red')}: {printable(str(found))}")
    if report.ok:
        judges = "Bartack and Claude Code" if report.claude else "Bartack; Claude Code was not asked"
        screen.line(f"{printable(report.folder)} is valid ({judges})")


@plugin.command(short_help="Install a plugin in Claude Code.")
@folder_argument
@scope_option
@json_option
def install(folder: Path, scope: Scope, *, as_json: bool) -> None:
    """Install the plugin in DIR in Claude Code, or replace the installed version.

    The plugin is validated and copied into a local marketplace, with the absolute path of this interpreter in its commands. Then
    Claude Code adds and installs it by its own commands. A failed installation is undone.
    """
    change = PluginInstaller(scope).install(folder)
    _show_change(change, "installed", "installed already", as_json=as_json)


@plugin.command(short_help="Uninstall a plugin from Claude Code.")
@name_argument
@scope_option
@json_option
def uninstall(name: str, scope: Scope, *, as_json: bool) -> None:
    """Uninstall the plugin NAME from Claude Code, and remove it from the local marketplace."""
    change = PluginInstaller(scope).uninstall(name)
    _show_change(change, "uninstalled", "not installed", as_json=as_json)


def _show_change(change: PluginChange, done: str, same: str, *, as_json: bool) -> None:
    if as_json:
        write_json(change._asdict())
        return
    version = f" {change.version}" if change.version else ""
    screen = Screen(sys.stdout)
    screen.line(
        f"{done if change.changed else same}: {printable(change.id + version)} (scope {change.scope})"
    )
    if change.left_out:
        screen.line(f"recorded by tracking hooks already: {', '.join(change.left_out)}")


@plugin.command(short_help="Verify that an installed plugin works.")
@name_argument
@json_option
def verify(name: str, *, as_json: bool) -> Exit:
    """Verify that the installed plugin NAME works.

    It has to be enabled, its files have to be those of the build, its commands have to answer, and its MCP server has to list its
    tools. The exit code is 1 if there is a problem, 9 if the plugin is not installed.
    """
    found = verify_plugin(name)
    if as_json:
        write_json([_verified_facts(one) for one in found])
    else:
        _show_verified(name, found)
    if not found:
        return Exit.NOT_ACTIVE
    return Exit.OK if all(one.ok for one in found) else Exit.FAILED


def _verified_facts(one: VerifiedPlugin) -> dict[str, object]:
    return {
        "id": one.id,
        "version": one.version,
        "scope": one.scope,
        "folder": one.folder,
        "ok": one.ok,
        "problems": list(one.problems),
    }


def _show_verified(name: str, found: list[VerifiedPlugin]) -> None:
    screen = Screen(sys.stdout)
    if not found:
        screen.line(f"{printable(name)} is not installed in this project")
    for one in found:
        state = "works" if one.ok else "does not work"
        screen.line(f"{printable(f'{one.id} {one.version}')} (scope {one.scope}) {state}")
        for problem in one.problems:
            screen.line(f"{screen.paint('problem', 'red')}: {printable(problem)}")


@plugin.command(short_help="Start Claude Code with the plugin of a program.")
@file_argument
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@trait_option
@placeholder_option
def dev(file: Path, args: tuple[str, ...], trait: str, *, allow_placeholder: bool) -> int:
    """Start Claude Code with the plugin of the program FILE, without installing it.

    Arguments for Claude Code follow --. The exit code is that of Claude Code.
    """
    return run_with_plugin(file, args, trait=trait, allow_placeholder=allow_placeholder)

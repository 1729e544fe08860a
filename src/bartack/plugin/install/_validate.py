"""Validates the folder of a plugin or of a marketplace: our rules, checksums, the program, and Claude Code's own validation."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

from bartack.config.project import PATCHWORK
from bartack.core import typed
from bartack.errors import BartackError, PluginInvalidError
from bartack.language import Diagnostic, find_entry
from bartack.plugin._folder import find_odd, read_folder
from bartack.plugin._manifest import MANIFEST, PluginManifest, load_manifest
from bartack.plugin.install._claude import ClaudeProgram, find_claude
from bartack.plugin.rules._check import check_files, check_sums
from bartack.plugin.rules._finding import PluginFinding
from bartack.plugin.rules._json_files import MARKETPLACE_JSON, JsonRules, read_json
from bartack.runtime.patchwork import check_program

_CLI: Final = "claude plugin validate"


class PluginReport(msgspec.Struct, frozen=True):
    """The result of a validation.

    Attributes:
        folder: What was validated.
        findings: The rules that it breaks.
        claude: The path of Claude Code, if it was asked, too.
        plugins: The folders of the plugins in it.
    """

    folder: str
    findings: tuple[PluginFinding, ...]
    claude: str
    plugins: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.findings


def validate_plugin(
    folder: str | os.PathLike[str], *, use_claude: bool = True, environ: Mapping[str, str] | None = None
) -> PluginReport:
    """Validate the folder of a plugin, or of a marketplace with all its plugins.

    Args:
        folder: The folder.
        use_claude: Whether Claude Code validates it, too, if it is found.
        environ: The environment; that of this process by default.

    Raises:
        PluginInvalidError: The folder is not there.
        PluginInstallError: Claude Code does not answer.
    """
    root = Path(folder)
    if not root.is_dir():
        raise PluginInvalidError(str(root), "there is no such folder", "Name a folder that was built.")
    environ = os.environ if environ is None else environ
    plugins = plugin_folders(root)
    findings = list(_marketplace_findings(root))
    for plugin in plugins:
        below = plugin.relative_to(root).as_posix()
        prefix = "" if below == "." else f"{below}/"
        findings += [
            msgspec.structs.replace(found, file=prefix + found.file) for found in _plugin_findings(plugin)
        ]
    claude = find_claude(environ) if use_claude else ""
    if claude:
        program = ClaudeProgram(claude, environ, root)
        findings += [found for place in {root, *plugins} for found in _claude_findings(program, place)]
    return PluginReport(str(root), tuple(findings), claude, tuple(map(str, plugins)))


def plugin_folders(root: Path) -> list[Path]:
    """The plugins of a folder: itself, or those of the marketplace that it is."""
    if not (root / MARKETPLACE_JSON).is_file():
        return [root]
    return sorted(path for path in (root / "plugins").glob("*") if path.is_dir())


def _marketplace_findings(root: Path) -> Iterator[PluginFinding]:
    file = root / MARKETPLACE_JSON
    if file.is_file():
        data = file.read_bytes()
        value, problems = read_json(MARKETPLACE_JSON, data)
        yield from problems
        if not problems:
            yield from JsonRules(MARKETPLACE_JSON, data).check_marketplace(value)


def _plugin_findings(folder: Path) -> Iterator[PluginFinding]:
    try:
        files = read_folder(folder)
    except OSError as error:
        yield PluginFinding(str(error.filename or folder), 0, "", error.strerror or str(error))
        return
    for odd in find_odd(folder):
        yield PluginFinding(
            odd, 0, "", "it is a link or a special file, which might point outside of the plugin"
        )
    broken = check_files(files)
    yield from broken
    yield from check_sums(files)
    if MANIFEST in files and not any(found.file == MANIFEST for found in broken):
        yield from _program_findings(folder, load_manifest(folder))


def _program_findings(folder: Path, manifest: PluginManifest) -> Iterator[PluginFinding]:
    """Whether the program can be compiled and has its entries. Nothing of it is executed."""
    program = folder / "program"
    if not manifest.entry.endswith(PATCHWORK):
        yield from _syntax_findings(program, manifest)
        return
    try:
        checked = check_program(program / manifest.entry, program).checked
    except (BartackError, OSError, ValueError) as error:
        message = error.message if isinstance(error, BartackError) else str(error)
        yield PluginFinding(f"program/{manifest.entry}", 0, "", " ".join(message.split()))
        return
    for name, entry in manifest.entries.items():
        found = find_entry(checked.program, [entry.member])
        if isinstance(found, Diagnostic):
            yield PluginFinding(MANIFEST, 0, f"entries.{name}.member", found.message)


def _syntax_findings(program: Path, manifest: PluginManifest) -> Iterator[PluginFinding]:
    for path in manifest.files:
        if path.startswith("program/") and path.endswith(".py"):
            try:
                ast.parse((program.parent / path).read_bytes())
            except (SyntaxError, ValueError) as error:
                line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
                yield PluginFinding(
                    path, line, "", str(error.msg if isinstance(error, SyntaxError) else error)
                )
            except OSError:
                continue  # a missing file is reported with the checksums


def _claude_findings(program: ClaudeProgram, folder: Path) -> Iterator[PluginFinding]:
    answer = program.call("plugin", "validate", "--json", "--strict", os.path.abspath(folder))
    try:
        report = typed.decode(answer.output, type=_Validation)
    except msgspec.MsgspecError:
        if answer.code != 0:
            yield PluginFinding(str(folder), 0, _CLI, answer.message)
        return
    if report.success and answer.code == 0:
        return
    problems = [found for part in (report.manifest, *report.contents) if part for found in part.problems()]
    if not problems:
        yield PluginFinding(str(folder), 0, _CLI, answer.message)
    for file, problem in problems:
        yield PluginFinding(os.path.relpath(file, folder) if file else str(folder), 0, _CLI, problem)


class _Part(msgspec.Struct):
    """What Claude Code found in one file."""

    file: str = ""
    errors: list[object] = []
    warnings: list[object] = []

    def problems(self) -> Iterator[tuple[str, str]]:
        for one in (*self.errors, *self.warnings):
            known = cast("dict[str, object]", one) if isinstance(one, dict) else {"message": one}
            where = known.get("path") or known.get("field") or ""
            yield self.file, f"{f'{where}: ' if where else ''}{known.get('message')}"


class _Validation(msgspec.Struct):
    """The report of ``claude plugin validate --json``."""

    success: bool
    manifest: _Part | None = None
    contents: list[_Part] = []

"""The output folder of a build: whether it may be replaced, and what differs from a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.errors import PluginOutputError
from bartack.plugin._folder import read_folder, replace_folder
from bartack.plugin._manifest import MANIFEST, PluginManifest
from bartack.plugin.builder._render import marketplace_text
from bartack.plugin.rules._check import checksum_of
from bartack.plugin.rules._json_files import MARKETPLACE_JSON, PLUGIN_JSON

_SHOWN: Final = 5


def write_output(folder: Path, files: Mapping[str, bytes], *, force: bool) -> bool:
    """Put a build into its folder; whether anything changed. Files that a person added stay.

    Raises:
        PluginOutputError: The folder is not a former build, or a file in it was edited; nothing was changed.
    """
    present = _read(folder)
    owned = _owned(folder, present, force=force)
    own = {path: data for path, data in present.items() if path not in owned}
    clash = sorted(path for path in own if path in files and own[path] != files[path])
    if clash and not force:
        raise PluginOutputError(str(folder / clash[0]), "the file was not made by a former build")
    result = {**own, **files}
    if result == present and folder.is_dir():
        return False
    replace_folder(folder, result)
    return True


def find_differences(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """How a folder differs from a build, one line for each file."""
    present = _read(folder)
    owned = set(_former(present))
    found = [f"missing: {path}" for path in files if path not in present]
    found += [f"differs: {path}" for path in files if path in present and present[path] != files[path]]
    found += [f"no longer generated: {path}" for path in owned if path not in files and path in present]
    return sorted(found)


def _read(folder: Path) -> dict[str, bytes]:
    try:
        if folder.is_dir():
            return read_folder(folder)
        is_there = folder.exists() or folder.is_symlink()
    except OSError as error:
        raise PluginOutputError(str(folder), f"it cannot be read: {error.strerror or error}") from None
    if is_there:
        raise PluginOutputError(str(folder), "it is not a folder")
    return {}


def _owned(folder: Path, present: Mapping[str, bytes], *, force: bool) -> set[str]:
    """The files of the former build, none of which was edited."""
    if not present:
        if folder.is_dir() and any(folder.iterdir()):
            raise PluginOutputError(str(folder), "it holds folders that are not of a former build")
        return set()
    former = _former(present)
    if not former:
        raise PluginOutputError(str(folder), "it is not empty and not a former build of a plugin")
    edited = sorted(
        path for path, sum_ in former.items() if path in present and checksum_of(present[path]) != sum_
    )
    if edited and not force:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        problem = f"the file was edited after the former build{more}"
        raise PluginOutputError(str(folder / edited[0]), problem)
    return set(former)


def _former(present: Mapping[str, bytes]) -> dict[str, str]:
    """The checksums of the files of a former build, by path; of a marketplace with its plugins."""
    found = _listed(present, "")
    plugins = sorted({path.split("/")[1] for path in present if path.startswith("plugins/")})
    for plugin in plugins:
        found |= _listed(present, f"plugins/{plugin}/")
    if plugins and found and MARKETPLACE_JSON in present:
        facts = [present.get(f"plugins/{plugin}/{PLUGIN_JSON}", b"") for plugin in plugins]
        found[MARKETPLACE_JSON] = _marketplace_sum(plugins[0], facts)
    return found


def _marketplace_sum(name: str, facts: list[bytes]) -> str:
    try:
        return checksum_of(marketplace_text(name, facts).encode())
    except (ValueError, KeyError, TypeError):
        return ""  # plugin.json was edited, so this file cannot be what was built either


def _listed(present: Mapping[str, bytes], below: str) -> dict[str, str]:
    data = present.get(below + MANIFEST)
    if data is None:
        return {}
    try:
        manifest = typed.decode(data, type=PluginManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    sums = {below + path: sum_ for path, sum_ in manifest.files.items()}
    return {**sums, below + MANIFEST: checksum_of(manifest.encode())}

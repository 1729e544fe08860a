"""Compiled programs beside their sources, so that not every worker's process compiles them again.

What is stored belongs to one version of Bartack, one version of Python and exactly these sources; anything else is as if there were
nothing. It lies in ``__pycache__`` and can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from hashlib import sha256
from types import CodeType

import msgspec

from bartack._version import __version__
from bartack.core.files import replace_file
from bartack.core.trust import make_private
from bartack.runtime.patchwork._program import Unit

_TAG = f"{__version__} {sys.implementation.cache_tag} {sys.hexversion}"


class _Module(msgspec.Struct, array_like=True):
    id: str
    path: str
    sha256: str
    code: bytes


class _Stored(msgspec.Struct, array_like=True):
    tag: str
    modules: list[_Module]


_decode = msgspec.msgpack.Decoder(_Stored).decode


def read_units(folder: str, entry: str) -> list[Unit] | None:
    """The modules of a program as they were compiled before, if they still fit their sources."""
    try:
        with open(_place(folder, entry), "rb") as file:
            stored = _decode(file.read())
        return [_unit(folder, module) for module in stored.modules] if stored.tag == _TAG else None
    except (OSError, ValueError, EOFError, TypeError, msgspec.DecodeError):
        return None


def write_units(folder: str, entry: str, units: list[Unit]) -> None:
    """Keep the modules of a program as they were compiled; if that is not possible, nothing is lost."""
    modules = [
        _Module(unit.id, unit.path, _digest(folder, unit.path)[1], marshal.dumps(unit.code)) for unit in units
    ]
    place = _place(folder, entry)
    with contextlib.suppress(OSError):
        make_private(os.path.dirname(place))
        replace_file(place, msgspec.msgpack.encode(_Stored(_TAG, modules)))


def _place(folder: str, entry: str) -> str:
    return os.path.join(folder, "__pycache__", entry.replace("/", ".") + "c")


def _unit(folder: str, module: _Module) -> Unit:
    text, digest = _digest(folder, module.path)
    if digest != module.sha256:
        raise ValueError(f"{module.path} has changed")
    code: object = marshal.loads(module.code)  # noqa: S302 - of the run's own directory, like the program itself
    if not isinstance(code, CodeType):
        raise TypeError(f"{module.path} is not code")
    return Unit(module.id, module.path, text, code)


def _digest(folder: str, path: str) -> tuple[str, str]:
    """The text of a source as programs see it, and the checksum of its bytes."""
    with open(os.path.join(folder, path), "rb") as file:
        content = file.read()
    return content.decode("utf-8-sig"), sha256(content).hexdigest()

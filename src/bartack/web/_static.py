"""The files of pages: stylesheet and modules. Their address has the hash of all of them in it, so browsers keep them for ever.

One hash for all: a module imports another one by a relative address, and gets it from the same state of the files.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

STATIC: Final = "/static"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_DIGITS: Final = 16


@cache
def _load() -> dict[str, bytes]:
    folder = files("bartack.web") / "static"
    found = {item.name: item.read_bytes() for item in folder.iterdir()}
    return {name: found[name] for name in sorted(found) if name.rpartition(".")[2] in _TYPES}


@cache
def _digest() -> str:
    all_files = hashlib.sha256()
    for name, content in _load().items():
        all_files.update(f"{name}\0{len(content)}\0".encode() + content)
    return all_files.hexdigest()[:_DIGITS]


def address_of(name: str) -> str:
    """The address of a file.

    Raises:
        KeyError: There is none of this name.
    """
    if name not in _load():
        raise KeyError(name)
    return f"{STATIC}/{_digest()}/{name}"


def _send(request: Request) -> Response:
    name = str(request.path_params["name"])
    content = _load().get(name)
    if content is None or request.path_params["digest"] != _digest():
        raise HTTPException(404, "there is no such file")
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=kept)


ROUTES: Final[list[BaseRoute]] = [Route(f"{STATIC}/{{digest}}/{{name}}", _send)]

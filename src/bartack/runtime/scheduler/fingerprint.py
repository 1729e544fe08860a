"""Fingerprints of steps: replay compares them to find out whether the program asks for the same step again.

A fingerprint is made of the kind, the site and the arguments as they were written. Where the run and its workspace are, and what
the secrets are, may change between two resumes: ``$RUN``, ``$WORKSPACE`` and ``$env:NAME`` stand for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from bartack.core.redact import Redactor, is_secret_name

_SHORTEST_PLACE: Final = 2

# A copy is made sooner than a new one, which has to find out first what computes it best.
_nothing_yet: Final = sha256()
_text_encode = msgspec.json.Encoder().encode


class Fingerprints:
    """Makes the fingerprints of one worker's steps."""

    def __init__(self, run_dir: str, workspace: str, environ: Mapping[str, str]) -> None:
        places = [
            (_inside_json(path), name)
            for path, name in ((run_dir, b"$RUN"), (workspace, b"$WORKSPACE"))
            if len(path) >= _SHORTEST_PLACE
        ]
        # The longest first: a run's directory is often below its workspace.
        self._places = sorted(places, key=lambda place: -len(place[0]))
        paths = [path for path, _ in places]
        self._signs = [path for path in paths if not any(path != other and other in path for other in paths)]
        """What has none of these in it has no place in it."""
        secrets = {name: environ[name] for name in environ if is_secret_name(name)}
        self._redactor = Redactor(secrets) if secrets else None

    def of(self, kind: str, site: str, written: bytes, value: bytes | None = None) -> str:
        """The fingerprint of a step: 64 hex digits.

        Args:
            kind: The kind of step.
            site: Where it stands: the name of the step function, else of the worker.
            written: The arguments as written, encoded.
            value: A value among them that is encoded by itself.
        """
        # None of the parts can have a line break in it, so they cannot run into each other.
        text = b"\n".join((kind.encode(), site.encode(), written, value or b""))
        for sign in self._signs:
            # Not `in`, which takes bytes for a number first, and an exception to see that they are none.
            if text.find(sign) >= 0:
                text = self._replace_places(text)
                break
        if self._redactor is not None:
            text = self._redactor.redact_bytes(text)
        digest = _nothing_yet.copy()
        digest.update(text)
        return digest.hexdigest()

    def redact(self, text: str) -> str:
        """A text for people, without secrets."""
        return text if self._redactor is None else self._redactor.redact_text(text)

    def _replace_places(self, text: bytes) -> bytes:
        for path, name in self._places:
            # Not compiled before the first step needs it: most workers have none, and all have to start.
            text = re.sub(re.escape(path) + rb"(?![\w.-])", name, text)
        return text


def _inside_json(path: str) -> bytes:
    """A path as it looks in the middle of a JSON text."""
    return _text_encode(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))[1:-1]

"""Digests of the secrets that a run knew: a command that packs the run later finds them, and the file does not reveal them.

The file ``secrets.json`` of a run has the name and the length of each secret, eight bits of a checksum that rule out most texts
quickly, and a slow digest with a salt of the run's own. Guesses can be tested with the file, slowly; a random token is safe from
that, a word from a dictionary is not. Of a secret with white space in it only its longest word is known.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from bartack.core import typed
from bartack.core.disk import is_disk_trouble
from bartack.core.files import replace_file
from bartack.journal.veil import Secrets

NAME: Final = "secrets.json"
ROUNDS: Final = 20_000
"""Of the slow digest: a guess takes about 10 ms."""
MOST_TRIES: Final = 1_000
"""At most this many texts are tested one by one: all others count as the secret."""
PATIENCE_S: Final = 10.0
"""How long ``close`` waits: the file is for people, and must not hold up a run."""
LONGEST: Final = 4096
SHORTEST: Final = 6
_LOWEST_BITS: Final = 0xFF


class KnownSecret(msgspec.Struct, frozen=True):
    """A secret as its digest."""

    name: str
    length: int
    check: int
    digest: str


class SecretsFile(msgspec.Struct):
    """What secrets.json holds."""

    salt: str
    known: list[KnownSecret] = []


class Digests:
    """The digests of the secrets of one run.

    Args:
        run_dir: The run.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME
        self._thread: threading.Thread | None = None

    def add(self, secrets: Secrets) -> None:
        """Keep the digests of these, too. A thread computes them; ``close`` waits for it."""
        if secrets.hidden:
            thread = threading.Thread(  # bartack: allow[unsupervised_thread] it ends by itself; close waits
                target=self._add, args=(secrets,), name="digests", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                self._add(secrets)  # the system has no thread left
            else:
                self._thread = thread

    def close(self) -> None:
        """Wait until all digests are in the file."""
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            self._thread = None

    def changed(self, secrets: Secrets, names: Iterable[str]) -> list[str]:
        """Those of ``names`` whose secret is not one that the run knew under that name."""
        file = self._load()
        return [
            name
            for name in sorted(names)
            if (same := [known for known in file.known if known.name == name])
            and not any(_is(file.salt, known, _word(secrets.values[name])) for known in same)
        ]

    def find(self, texts: Iterable[bytes]) -> dict[str, str]:
        """The secrets of the run that are in these texts, by name and number."""
        file = self._load()
        known = {secret: _Search(file.salt, secret) for secret in file.known}
        if known:
            for text in texts:
                for search in known.values():
                    search.look(text)
                    if b"\\" in text:
                        search.look(text.replace(b'\\"', b'"').replace(b"\\\\", b"\\"))
        return {
            f"{search.secret.name}{f'.{place}' if place else ''}": found.decode("utf-8", "surrogateescape")
            for search in known.values()
            for place, found in enumerate(search.found())
        }

    def _load(self) -> SecretsFile:
        try:
            return typed.decode(self._path.read_bytes(), type=SecretsFile)
        except (OSError, msgspec.DecodeError):
            return SecretsFile(salt=os.urandom(16).hex())

    def _add(self, secrets: Secrets) -> None:
        file = self._load()
        found = (_digest(file, name, secrets.values[name]) for name in secrets.hidden)
        new = [known for known in found if known is not None]
        if not new:
            return
        try:
            content = msgspec.json.encode(SecretsFile(file.salt, file.known + new))
            replace_file(self._path, content, synced=False)
        except OSError as error:
            if not is_disk_trouble(error) and not isinstance(error, FileNotFoundError):
                raise


def _digest(file: SecretsFile, name: str, value: str) -> KnownSecret | None:
    """The digest of a secret; ``None`` if it is known already."""
    word = _word(value)
    if len(word) < SHORTEST or any(
        known.name == name and _is(file.salt, known, word) for known in file.known
    ):
        return None
    return KnownSecret(name, len(word), _check(file.salt, word), _slow(file.salt, word))


def _word(value: str) -> bytes:
    words = value.encode("utf-8", "surrogateescape").split()
    return max(words, key=len)[:LONGEST] if words else b""


def _is(salt: str, known: KnownSecret, word: bytes) -> bool:
    if len(word) != known.length or _check(salt, word) != known.check:
        return False
    return _slow(salt, word) == known.digest


def _check(salt: str, word: bytes) -> int:
    return crc32(word, crc32(salt.encode())) & _LOWEST_BITS


def _slow(salt: str, word: bytes) -> str:
    return hashlib.pbkdf2_hmac("sha256", word, salt.encode(), ROUNDS).hex()


class _Search:
    """Looks for one secret."""

    def __init__(self, salt: str, secret: KnownSecret) -> None:
        self.secret = secret
        self._salt = salt
        self._seed = crc32(salt.encode())
        # A secret has no letter or digit before and after it.
        self._pattern = re.compile(rb"(?<![A-Za-z0-9])(?=(\S{%d})(?![A-Za-z0-9]))" % secret.length)
        self._suspects: dict[bytes, None] = {}

    def look(self, text: bytes) -> None:
        """Collect words that may be the secret."""
        seed, check = self._seed, self.secret.check
        for found in self._pattern.finditer(text):
            if crc32(found[1], seed) & _LOWEST_BITS == check:
                self._suspects[found[1]] = None

    def found(self) -> Iterator[bytes]:
        """The words that are the secret; if there are too many to test, all that were not tested."""
        for tried, suspect in enumerate(self._suspects):
            if tried >= MOST_TRIES:
                yield suspect
            elif _slow(self._salt, suspect) == self.secret.digest:
                yield suspect
                return

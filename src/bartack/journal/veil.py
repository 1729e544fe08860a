r"""Keeping secrets out of what is stored, in a way that gives them back.

A program may get a secret as part of a value: a command prints it, a message carries it. The value is stored, because replay
has to return it, and the secret must not be. A ``Veil`` stores a marker in its place, and puts the secret back when the owner of
the run reads the value again.

A marker is ``$env:NAME`` for everyone who decodes it. In the stored JSON its first and its last character are written as escapes
(``\u0024env:NAM\u0045``). Encoders never write printable ASCII like that, and what others have written like that is written anew
before it is stored: no text can imitate a marker. ``$env:NAME#FORM`` stands for a secret inside another notation.

A secret is looked for as it is and as it looks inside JSON, a URL or Base64. Texts that need not come back: ``core/redact.py``.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.redact import SecretRule
from bartack.errors import SecretMissingError

_SIGN: Final = b"\\u0024"
_MARKER: Final = re.compile(
    rb"(\\\\)|\\u0024env:(?P<head>[A-Za-z0-9_.-]*(?:#[a-z0-9-]*)?)\\u00(?P<last>[2-7][0-9a-f])"
)
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ORDINARY: Final = frozenset(
    {"default", "disabled", "enabled", "localhost", "undefined", "password", "secret"}
)
_LONG_LINE: Final = 20
_BASE64_SKIP: Final = (0, 2, 3)
"""Characters of Base64 that depend on what stands before, if that takes 0, 1 or 2 bytes of the first group of three."""

_USUAL: Final = SecretRule()
_encode = msgspec.json.Encoder().encode
_decode_text = typed.decoder(str).decode


class Secrets(NamedTuple):
    """The secrets of an environment.

    Attributes:
        values: All of them, by the name of the variable.
        hidden: The names of those that are looked for.
    """

    values: dict[str, str]
    hidden: tuple[str, ...]


def find_secrets(
    environ: Mapping[str, str], rule: SecretRule = _USUAL, places: Iterable[str] = ()
) -> Secrets:
    """The secrets of an environment.

    Short values, numbers, ordinary words and parts of the project's own path are not looked for: they are in every text.

    Args:
        environ: Variables by name.
        rule: Which of them are secrets.
        places: Paths that are named everywhere, whatever they contain.
    """
    known = tuple(places)
    values = {name: environ[name] for name in sorted(environ) if rule.covers(name) and _NAME.fullmatch(name)}
    hidden = (name for name, value in values.items() if _is_revealing(value.strip(), rule.min_length, known))
    return Secrets(values, tuple(hidden))


def _is_revealing(value: str, shortest: int, places: tuple[str, ...]) -> bool:
    if len(value) < shortest or value.isdigit() or value.lower() in _ORDINARY:
        return False
    return not any(value in place for place in places)


class _Plan:
    """What is looked for, and what is put there: of secrets with the same value, the first by name counts."""

    def __init__(self, secrets: Secrets) -> None:
        self.markers: dict[str, bytes] = {}
        for name in secrets.hidden:
            for tag, form in _forms(_sound(secrets.values[name])).items():
                self.markers.setdefault(form, _marker(name, tag))
        longest_first = sorted(self.markers, key=lambda form: (-len(form), form))
        self.pattern = re.compile("|".join(map(re.escape, longest_first)))
        self.needles = _needles({way(form) for form in longest_first for way in (_inside, _ascii)})

    def is_in(self, data: bytes) -> bool:
        """Whether there is something to hide in JSON."""
        # Much faster than a pattern with as many branches; and not `in`, which takes bytes for a number first.
        return any(data.find(needle) >= 0 for needle in self.needles)


class Veil:
    """Hides secrets in JSON, and gives them back.

    Args:
        secrets: What to hide and to give back.

    Attributes:
        given_back: The names of secrets that were put back into what was read.
    """

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self.given_back: set[str] = set()

    @cached_property
    def _plan(self) -> _Plan | None:
        """Made when the first text comes: most workers never store one by themselves."""
        return _Plan(self.secrets) if self.secrets.hidden else None

    def hide(self, data: bytes) -> bytes:
        """JSON without the secrets; the same bytes if there are none in it."""
        plan = self._plan
        if (plan is None or not plan.is_in(data)) and data.find(_SIGN) < 0:
            return data
        return _STRING.sub(self._hide_string, data)

    def hide_text(self, text: str) -> str:
        """A text for people without the secrets: as it looks to who decodes what ``hide`` makes of it."""
        plan = self._plan
        if plan is None or plan.pattern.search(text) is None:
            return text
        return _decode_text(self.hide(_encode(_sound(text))))

    def restore(self, data: bytes) -> bytes:
        """What ``hide`` was given.

        Raises:
            SecretMissingError: A secret that was hidden is not known here.
        """
        return data if data.find(_SIGN) < 0 else _MARKER.sub(self._give_back, data)

    def _hide_string(self, found: re.Match[bytes]) -> bytes:
        written, plan = found[0], self._plan
        if (plan is None or not plan.is_in(written)) and written.find(_SIGN) < 0:
            return written
        try:
            text = _decode_text(written)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return written  # a blob may hold anything
        parts: list[bytes] = []
        end = 0
        for match in () if plan is None else plan.pattern.finditer(text):
            parts += [_inside(text[end : match.start()]), self._marker_of(match[0])]
            end = match.end()
        return b'"%b%b"' % (b"".join(parts), _inside(text[end:]))

    def _marker_of(self, form: str) -> bytes:
        return b"" if self._plan is None else self._plan.markers[form]

    def _give_back(self, found: re.Match[bytes]) -> bytes:
        if found[1]:
            return found[0]
        marked = found["head"].decode() + chr(int(found["last"], 16))
        name, _, tag = marked.partition("#")
        value = self.secrets.values.get(name)
        if value is None:
            raise SecretMissingError(name)
        self.given_back.add(name)
        # A new value may look the same in two notations, of which one tag is left.
        forms = _forms(_sound(value))
        return _inside(forms.get(tag) or dict(_all_forms(_sound(value))).get(tag, value))


def is_veiled(data: bytes) -> bool:
    """Whether something may be hidden in JSON."""
    return data.find(_SIGN) >= 0


def _marker(name: str, tag: str) -> bytes:
    shown = f"{name}#{tag}" if tag else name
    return b"\\u0024env:%b\\u%04x" % (shown[:-1].encode(), ord(shown[-1]))


def _inside(text: str) -> bytes:
    """A text as it looks in the middle of a JSON text."""
    return _encode(text)[1:-1]


def _ascii(text: str) -> bytes:
    if text.isascii():
        return _inside(text)
    return "".join(c if c.isascii() else _escapes(c) for c in _inside(text).decode()).encode()


def _escapes(character: str) -> str:
    raw = character.encode("utf-16-be")
    return "".join(f"\\u{raw[i : i + 2].hex()}" for i in range(0, len(raw), 2))


def _sound(value: str) -> str:
    """A value as JSON can hold it; bytes that are not text cannot be held."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _needles(written: set[bytes]) -> tuple[bytes, ...]:
    """As few texts as possible of which one is in every form."""
    kept: list[bytes] = []
    for text in sorted(written, key=len):
        if not any(needle in text for needle in kept):
            kept.append(text)
    return tuple(kept)


def _forms(value: str) -> dict[str, str]:
    """Everything a value may look like, under the tag that says how; of equal looks the first."""
    tags: dict[str, str] = {}
    for tag, form in _all_forms(value):
        tags.setdefault(form, tag)
    return {tag: form for form, tag in tags.items()}


def _all_forms(value: str) -> Iterator[tuple[str, str]]:
    bare = value.strip()
    for tag, way in _WAYS:
        yield tag, way(value)
    for tag, way in _WAYS:
        yield f"bare-{tag}" if tag else "bare", way(bare)
    # A key of many lines is often shown line by line.
    for place, line in enumerate(bare.splitlines()):
        if len(line) >= _LONG_LINE:
            yield f"line-{place}", line


def _percent(safe: bytes, *, plus: bool = False, lower: bool = False) -> Callable[[str], str]:
    kept = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~" + safe)
    style = "%{:02x}" if lower else "%{:02X}"

    def quote(text: str) -> str:
        quoted = "".join(chr(byte) if byte in kept else style.format(byte) for byte in text.encode())
        return quoted.replace("%20", "+") if plus else quoted

    return quote


def _base64(
    before: int, *, whole: bool = False, url: bool = False, bare: bool = False
) -> Callable[[str], str]:
    """Base64 as a whole, or the part that stays the same whatever stands around the text when all is encoded together."""

    def encode(text: str) -> str:
        raw = text.encode()
        found = b2a_base64(bytes(before) + raw, newline=False).decode("ascii")
        if not whole:
            found = found[_BASE64_SKIP[before] : (before + len(raw)) * 8 // 6]
        found = found.rstrip("=") if bare else found
        return found.replace("+", "-").replace("/", "_") if url else found

    return encode


_WAYS: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("", str),
    ("json", lambda text: _inside(text).decode()),
    ("json-ascii", lambda text: _ascii(text).decode()),
    ("url", _percent(b"")),
    ("url-lower", _percent(b"", lower=True)),
    ("url-path", _percent(b"/")),
    ("url-path-lower", _percent(b"/", lower=True)),
    ("url-plus", _percent(b"", plus=True)),
    ("url-plus-lower", _percent(b"", plus=True, lower=True)),
    ("base64", _base64(0, whole=True)),
    ("base64-url", _base64(0, whole=True, url=True)),
    ("base64-bare", _base64(0, whole=True, bare=True)),
    ("base64-bare-url", _base64(0, whole=True, bare=True, url=True)),
    *((f"base64-{before}", _base64(before)) for before in range(3)),
    *((f"base64-{before}-url", _base64(before, url=True)) for before in range(3)),
)

"""Taking secrets out of what is written, shown or sent.

A variable of the environment is secret if its name ends in TOKEN, KEY, SECRET or PASSWORD, in any case. Its
value is replaced by ``$env:NAME`` wherever it occurs: as it is, and as it looks inside JSON, a URL or Base64.
Values shorter than six characters are left alone: they are rarely secrets, and ``1`` or ``true`` would make
nonsense of every text.

A redactor knows only the values it was given. A secret that reaches a program in another way is found only if
it stands under a secret name in a mapping, or, where ``hide_lines`` is used, after one: ``NAME=value``.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

SHORTEST = 6
"""Shorter values are not replaced."""

HIDDEN = "***"
"""What stands for a value whose own name is secret."""

_ENDINGS: Final = ("TOKEN", "KEY", "SECRET", "PASSWORD")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
# A name in capitals and what it is set to: up to the next blank or quote, or in quotes, which JSON may have escaped. What was
# replaced by the name of its variable is left as it is. Nothing in it can be read in many ways: a long line takes no longer.
_NAME: Final = rb"(?<![A-Za-z0-9_])(?P<name>[A-Z][A-Z0-9_]{0,127})(?![A-Za-z0-9_])"
_ASSIGNED: Final = re.compile(
    _NAME + rb"""(?P<between>[ \t]{0,8}[=:][ \t]{0,8})(?P<quote>\\?"|'|)(?!\$env:)"""
    rb"""(?:(?<=")(?:[^"\\]|\\[^"])*(?P=quote)|(?<=')(?:[^'"\\]|\\.)*'|(?:[^\s"'\\]|\\[^nrt"'\s])+)"""
)
_MEMBER: Final = re.compile(
    rb"""(?P<quote>\\?"|')"""
    + _NAME
    + rb"""(?P<between>(?P=quote)[ \t]{0,8}:[ \t]{0,8}(?P=quote))(?!\$env:)"""
    rb"""(?:[^"'\\]|\\.|["'])*?(?P=quote)"""
)
_NESTED: Final = re.compile(rb"""[A-Z]"[ \t]{0,8}:[ \t]{0,8}[\[{0-9-]""")
_SECRET_NAME = re.compile(rf"({'|'.join(_ENDINGS)})\Z", re.IGNORECASE)
_STEP_KEY = re.compile(r"ik:[0-9a-f]{64}")

# What is left at both ends of Base64 when the text before a value takes 0, 1 or 2 bytes of its first group of
# three.
_BASE64_SKIP = (0, 2, 3)


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable with this name is a secret."""
    return _SECRET_NAME.search(name) is not None


class SecretRule(NamedTuple):
    """Which variables are secrets.

    Attributes:
        names: Names that are, although they do not end like one.
        exempt: Names that are not, although they do.
        min_length: Values with fewer characters are left alone.
    """

    names: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()
    min_length: int = SHORTEST

    def covers(self, name: str) -> bool:
        """Whether the value of a variable with this name is a secret."""
        return name not in self.exempt and (name in self.names or is_secret_name(name))


USUAL: Final = SecretRule()


class Redactor:
    """Replaces the secrets of one environment.

    Args:
        environ: Variables by name; only those with a secret name matter.
        rule: Which names are secret.
    """

    def __init__(self, environ: Mapping[str, str], rule: SecretRule = USUAL) -> None:
        forms = _known_forms(environ, rule)
        self._rule = rule
        self._words = tuple(_bytes(word) for word in (*_ENDINGS, *rule.names))
        self._names = forms
        self._names_in_bytes = {_bytes(form): _bytes(name) for form, name in forms.items()}
        # The longest first: where one secret begins with another, the whole of it has to go.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._pattern_in_bytes = re.compile(b"|".join(re.escape(_bytes(form)) for form in longest_first))

    @property
    def longest(self) -> int:
        """How many bytes the longest of all forms of all secrets has."""
        return max(map(len, self._names_in_bytes), default=0)

    def redact_text(self, text: str) -> str:
        """``text`` with every known secret replaced by the name of its variable."""
        if not any(map(text.__contains__, self._names)):
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def redact_bytes(self, data: bytes) -> bytes:
        """Like ``redact_text``, for bytes in UTF-8 or no encoding at all."""
        if not any(map(data.__contains__, self._names_in_bytes)):
            return data
        return self._pattern_in_bytes.sub(lambda found: self._names_in_bytes[found[0]], data)

    def hide_lines(self, data: bytes) -> bytes:
        """Like ``redact_bytes``, for lines that people write: the text after a secret name is ``***``, known or not.

        A name is one that a variable may have, in capitals, and stands before ``=``, ``:`` or as the member of a JSON object.
        """
        data = self.redact_bytes(data)
        if not any(map(data.__contains__, self._words)):
            return data
        data = _ASSIGNED.sub(self._hide_assigned, _MEMBER.sub(self._hide_member, data))
        return data if _NESTED.search(data) is None else self._hide_nested(data)

    def _hide_assigned(self, found: re.Match[bytes]) -> bytes:
        if not self._is_secret(found["name"]):
            return found[0]
        return b"%b%b%b***%b" % (found["name"], found["between"], found["quote"], found["quote"])

    def _hide_member(self, found: re.Match[bytes]) -> bytes:
        if not self._is_secret(found["name"]):
            return found[0]
        return b"%b%b%b***%b" % (found["quote"], found["name"], found["between"], found["quote"])

    def _is_secret(self, name: bytes) -> bool:
        """Whether what is set under this name is a secret; the bare word ``KEY`` names a thing far more often."""
        return name != b"KEY" and self._rule.covers(name.decode("ascii"))

    def _hide_nested(self, line: bytes) -> bytes:
        """Numbers, lists and objects under a secret name, in a line of JSON."""
        import json  # noqa: PLC0415 - few lines have any

        try:
            value: object = json.loads(line)
        except ValueError:
            return line
        hidden = self._hide_members(value)
        return line if hidden == value else json.dumps(hidden, ensure_ascii=False).encode()

    def _hide_members(self, value: object) -> object:
        if isinstance(value, list):
            return [self._hide_members(element) for element in cast("list[object]", value)]
        if not isinstance(value, dict):
            return value
        members = cast("dict[str, object]", value)
        return {
            name: HIDDEN if self._is_hidden(name, member) else self._hide_members(member)
            for name, member in members.items()
        }

    def _is_hidden(self, name: str, member: object) -> bool:
        if member is None or isinstance(member, bool | str) or _VARIABLE.fullmatch(name) is None:
            return False
        return self._is_secret(name.encode())

    def redact_value(self, value: object) -> object:
        """A copy of a JSON value with every known secret replaced, in values and in keys.

        What stands under a secret name is replaced as a whole by ``***``, also if it is not a known secret. Left
        as they are: null and booleans, the keys of steps (``ik:…``), and anything under the bare name
        ``key``, which names a thing far more often than it opens one.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            members = cast("Mapping[str, object]", value)
            return {
                self.redact_text(str(name)): self._redact_member(str(name), members[name]) for name in members
            }
        if isinstance(value, list | tuple):
            return [self.redact_value(element) for element in cast("list[object]", value)]
        if isinstance(value, bytes):
            return self.redact_bytes(value)
        return value

    def _redact_member(self, name: str, value: object) -> object:
        if not is_secret_name(name) or name.lower() == "key" or value is None or isinstance(value, bool):
            return self.redact_value(value)
        if isinstance(value, str) and _STEP_KEY.fullmatch(value):
            return value
        return HIDDEN


def _known_forms(environ: Mapping[str, str], rule: SecretRule) -> dict[str, str]:
    """What to look for, and what to put there: of variables with the same value, the first by name."""
    forms: dict[str, str] = {}
    secrets = [(name, value) for name, value in sorted(environ.items()) if rule.covers(name)]
    for name, value in secrets:
        for form in _forms(value, rule.min_length):
            forms.setdefault(form, f"$env:{name}")
    return forms


def _forms(value: str, shortest: int) -> Iterator[str]:
    """A value as it is, without the white space around it, and as it looks inside other notations."""
    for text in (value, value.strip()):
        if len(text) >= shortest:
            yield text
            yield from _json_forms(text)
            yield from _url_forms(text)
            yield from _base64_forms(_bytes(text))


def _json_forms(text: str) -> Iterator[str]:
    import json  # noqa: PLC0415 - only who has secrets pays for it

    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _url_forms(text: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - only who has secrets pays for it

    raw = _bytes(text)
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted
        yield re.sub("%..", lambda found: found[0].lower(), quoted)


def _base64_forms(raw: bytes) -> Iterator[str]:
    whole = _base64(raw)
    for form in (whole, whole.rstrip("="), *_base64_cores(raw)):
        yield form
        yield form.replace("+", "-").replace("/", "_")


def _base64_cores(raw: bytes) -> Iterator[str]:
    """The part that stays the same whatever stands around ``raw`` when all is encoded together."""
    for before, skip in enumerate(_BASE64_SKIP):
        whole = (before + len(raw)) * 8 // 6
        yield _base64(bytes(before) + raw)[skip:whole]


def _base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode("ascii")


def _bytes(text: str) -> bytes:
    # The environment is decoded in this way, so this gives back the bytes that are really in it.
    return text.encode("utf-8", "surrogateescape")

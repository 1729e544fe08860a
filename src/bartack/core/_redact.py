"""Taking secrets out of what is written, shown or sent.

A variable of the environment is secret if its name ends in TOKEN, KEY, SECRET or PASSWORD, in any case. Its
value is replaced by ``$env:NAME`` wherever it occurs: as it is, and as it looks inside JSON, a URL or Base64.
Values shorter than six characters are left alone: they are rarely secrets, and ``1`` or ``true`` would make
nonsense of every text.

A redactor knows only the values it was given. A secret that reaches a program in another way is found only if
it stands under a secret name in a mapping.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import cast

SHORTEST = 6
"""Shorter values are not replaced."""

HIDDEN = "***"
"""What stands for a value whose own name is secret."""

_SECRET_NAME = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD)\Z", re.IGNORECASE)
_STEP_KEY = re.compile(r"ik:[0-9a-f]{64}")

# What is left at both ends of Base64 when the text before a value takes 0, 1 or 2 bytes of its first group of
# three.
_BASE64_SKIP = (0, 2, 3)


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable with this name is a secret."""
    return _SECRET_NAME.search(name) is not None


class Redactor:
    """Replaces the secrets of one environment.

    Args:
        environ: Variables by name; only those with a secret name matter.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        forms = _known_forms(environ)
        self._names = forms
        self._names_in_bytes = {_bytes(form): _bytes(name) for form, name in forms.items()}
        # The longest first: where one secret begins with another, the whole of it has to go.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._pattern_in_bytes = re.compile(b"|".join(re.escape(_bytes(form)) for form in longest_first))

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

    def redact_value(self, value: object) -> object:
        """A copy of a JSON value with every known secret replaced, in values and in keys.

        What stands under a secret name is replaced as a whole by ``***``, also if it is no known secret. Left
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


def _known_forms(environ: Mapping[str, str]) -> dict[str, str]:
    """What to look for, and what to put there: of variables with the same value, the first by name."""
    forms: dict[str, str] = {}
    secrets = [(name, value) for name, value in sorted(environ.items()) if is_secret_name(name)]
    for name, value in secrets:
        for form in _forms(value):
            forms.setdefault(form, f"$env:{name}")
    return forms


def _forms(value: str) -> Iterator[str]:
    """A value as it is, without the white space around it, and as it looks inside other notations."""
    for text in (value, value.strip()):
        if len(text) >= SHORTEST:
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

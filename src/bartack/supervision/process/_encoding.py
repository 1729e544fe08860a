"""Texts as programs get them: bytes in the encoding of the locale."""

from __future__ import annotations

import errno
import os
import sys

_AROUND = 20
"""This many characters beside the one that has no bytes are shown."""


def encode_word(text: str) -> bytes:
    """A word, a variable or a path as a program gets it.

    Raises:
        OSError: The locale of this process has no bytes for it.
    """
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as error:
        shown = text[max(error.start - _AROUND, 0) : error.end + _AROUND]
        locale = sys.getfilesystemencoding()
        problem = f"{shown!a} cannot be given to a program: the locale of this process has only {locale}"
        raise OSError(errno.EILSEQ, f"{problem}; set LANG=C.UTF-8 or PYTHONUTF8=1") from None

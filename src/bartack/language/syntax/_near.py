"""The name that was probably meant: the nearest one within distance 2, or the word of ours for one of another language."""

from __future__ import annotations

from collections.abc import Iterable

_FARTHEST = 2

OTHER_WORDS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "this": "self",
    "let": "var",
    "const": "var",
    "function": "fun",
    "func": "fun",
    "def": "fun",
    "fn": "fun",
    "elif": "else if",
    "elseif": "else if",
    "elsif": "else if",
    "foreach": "for",
    "raise": "throw",
    "and": "&&",
    "or": "||",
    "not": "!",
}
"""Words of other languages, and ours for the same."""

OTHER_STATEMENTS = {
    **dict.fromkeys(("switch", "match", "case"), "there is no `{}`; use `if` and `else if`"),
    **dict.fromkeys(("class", "struct", "interface"), "there is no `{}`; use objects, `type` and `fun`"),
    **dict.fromkeys(("do", "loop", "until", "repeat"), "there is no `{}`; use `while` or `for`"),
    "async": "leave `async` out; all waiting is implicit",
    "finally": "there is no `finally`; do it after the `try`, and in `catch e {{ … throw e }}` for errors that are re-thrown",
    **dict.fromkeys(("del", "delete"), 'there is no `{}`; a copy without a key is `without(o, "key")`'),
    "with": "there is no `with`; files are read by `read(path)` and written by `write(path, value)`",
    **dict.fromkeys(
        ("yield", "global", "nonlocal"), "there is no `{}`; values go through parameters and `return`"
    ),
    **dict.fromkeys(("go", "defer"), "there is no `{}`; workers run side by side in `self.delegate([…])`"),
    "unless": "there is no `unless`; use `if !…`",
    "public": "write `export`",
}
"""Statements of other languages, and what is done here."""

OWN_TYPES = frozenset(
    {"string", "number", "float", "int", "bool", "boolean", "null", "void", "any", "object", "array"}
)
"""All names of the types that every program has; `checking/_types.py` says what they mean."""

OTHER_TYPES = {
    **dict.fromkeys(("list", "List", "Array", "vector"), "[T]"),
    **dict.fromkeys(("dict", "map", "Map", "Record", "hash"), "object<T>"),
    **dict.fromkeys(("str", "String", "char", "text"), "string"),
    **dict.fromkeys(("double", "Number", "decimal"), "number"),
    **dict.fromkeys(("integer", "Integer", "long"), "int"),
    **dict.fromkeys(("None", "nil", "undefined", "unit"), "null"),
    **dict.fromkeys(("unknown", "Any", "mixed"), "any"),
}
"""Types of other languages, and ours."""

OTHER_NAMES = {
    "range": "a range is written `1...3`, with both ends",
    **dict.fromkeys(("println", "printf", "puts", "echo", "console"), "to show something write `print(…)`"),
    "str": 'to make text of a value write `string(…)` or `"${…}"`',
    **dict.fromkeys(("float", "parseInt", "parseFloat"), "to make a number of text write `number(…)`"),
    "JSON": "write `json(…)`: it reads text, and writes any other value",
    "pass": "leave `pass` out; an empty body is `{ }`",
    **dict.fromkeys(
        ("Error", "Exception", "ValueError", "RuntimeError"), 'any value can be thrown: `throw "…"`'
    ),
    **dict.fromkeys(("isinstance", "type_of"), 'the kind of a value is `typeof(x) == "array"`'),
    "lambda": "there are no anonymous functions; declare a `fun` and pass its name",
    "input": "to ask a person write `ask { … }`",
    **dict.fromkeys(("prompt", "llm", "agent"), "to ask an agent write `think { … }`"),
    "open": "files are read by `read(path)` and written by `write(path, value)`",
    "exit": "leave by `return`, end the worker by `succeed`, fail by `throw`",
    "length": "the length of a value is `len(x)` or `x.length`",
    **dict.fromkeys(("process", "os"), 'a variable of the environment is read by `env("NAME")`'),
    **dict.fromkeys(("mailbox", "session"), "write `self.session` and `self.session.mailbox.name`"),
    "inbox": "write `self.inbox`",
    "delegate": "write `self.delegate([…])`",
    **dict.fromkeys(
        ("send", "receive"), "messages go through mailboxes: `self.session.mailbox.name.send(…)`"
    ),
}
"""Names that other languages know, and what is written here."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the fewest changed, added or dropped letters; None when none is near.

    Short names must agree better: half of the letters is the most that may differ.
    """
    limit = min(_FARTHEST, len(name) // 2)
    best: str | None = None
    for other in known:
        if abs(len(other) - len(name)) > limit or other == name:
            continue
        found = _distance(name, other, limit)
        if found is not None:
            if found == 1:
                return other
            best = best or other
    return best


def _distance(left: str, right: str, limit: int) -> int | None:
    """How many letters differ, when they are at most `limit`."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
        if min(row) > limit:
            return None
    return row[-1] if row[-1] <= limit else None

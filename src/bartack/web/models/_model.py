"""What all view models share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

At = Annotated[int, Meta(description="Microseconds since 1970, UTC; 0: never, or not known.")]
Seconds = Annotated[float, Meta(description="Seconds.")]
Seq = Annotated[int, Meta(description="The place of an entry in the journal, from 1; 0: there is none.")]
Row = Annotated[
    int, Meta(description="A number of its own among those of its kind, as long as the server runs.")
]
Usd = Annotated[float, Meta(description="US dollars.")]


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that is shown."""


class Problem(Model, frozen=True, kw_only=True):
    """Why something cannot be shown: the code of an error, what happened, and what to do."""

    code: str
    message: str
    help: str = ""


class ErrorText(Model, frozen=True, kw_only=True):
    """An error in short."""

    type: Annotated[str, Meta(description="`module:QualifiedName`.")]
    message: str
    code: str = ""


class Shown(Model, frozen=True, kw_only=True):
    """A value of the journal, without secrets. A value that is too long is there as the beginning of its JSON."""

    size: Annotated[int, Meta(description="Bytes of its JSON.")]
    value: Annotated[object, Meta(description="The value; absent if it is null or cut.")] = None
    text: Annotated[str, Meta(description="The beginning of its JSON, if it is cut.")] = ""
    cut: bool = False
    problem: Annotated[Problem | None, Meta(description="Why it cannot be read, if it cannot.")] = None

"""The scripts of a model server: their steps as data, and reading them from objects and files.

A script is a name and a list of steps. One step answers one request of an agent. ``_director.py`` chooses the step.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, cast

import msgspec

from bartack.core import typed
from bartack.errors import ScriptError

SERVER: Final = "model server"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Count = Annotated[int, msgspec.Meta(ge=0)]

ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
"""The type of an error that a step fails with, unless the step names one."""


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens that replies were charged with."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class StepUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens that a step wants to be charged with; what it does not name is estimated from the request."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count = 0
    cache_read_input_tokens: Count = 0


class StepTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool that the model calls."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    input: dict[str, object] = {}


class StepFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the first requests of a step fail. ``times`` 0 fails all of them; ``status`` 200 fails inside the stream."""

    status: Annotated[int, msgspec.Meta(ge=200, le=599)]
    times: Count = 1
    type: str = ""
    message: str = ""
    retry_after: Seconds | None = None
    headers: dict[str, str] = {}

    @property
    def error_type(self) -> str:
        """The type of the error, by the status unless it is given."""
        return self.type or ERROR_TYPES.get(self.status, "api_error")

    def error(self) -> dict[str, object]:
        """The body of the failed reply."""
        text = self.message or f"status {self.status} of the script"
        return {"type": "error", "error": {"type": self.error_type, "message": text}}


class StepExpectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the request of a step must have: a newest tool result that the pattern is found in, and tools that it offers."""

    tool_result: str = ""
    tools: list[str] = []


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to one request."""

    text: str = ""
    tools: list[StepTool] = []
    stop_reason: str = ""
    usage: StepUsage = StepUsage()
    delay_s: Seconds = 0.0
    chunk_s: Seconds = 0.0
    hang_s: Seconds = 0.0
    fail: StepFailure | None = None
    headers: dict[str, str] = {}
    cut_after: Count | None = None
    cut_times: Count = 0
    expect: StepExpectation | None = None


Scripts = dict[str, list[Step]]


def read_scripts(given: Mapping[str, Sequence[Mapping[str, object]]], where: str = "") -> Scripts:
    """Check scripts and make them data.

    Raises:
        ScriptError: A script is invalid. The message names the script, the step and the key.
    """
    try:
        scripts = typed.convert(dict(given), Scripts)
    except msgspec.ValidationError as error:
        raise invalid(where=where, problem=str(error)) from error
    for name, steps in scripts.items():
        _check_script(where, name, steps)
    return scripts


def load_scripts(path: Path) -> Scripts:
    """Read a file of scripts: JSON if its name ends in ``.json``, else TOML.

    Raises:
        ScriptError: The file cannot be read, or is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(where=str(path), problem=f"cannot be read: {error}") from error
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise invalid(where=str(path), problem=str(error)) from error
    if not isinstance(data, dict):
        raise invalid(
            "the file must have one object: the name of each script and its list of steps", str(path)
        )
    return read_scripts(cast("dict[str, list[dict[str, object]]]", data), str(path))


def _check_script(where: str, name: str, steps: Sequence[Step]) -> None:
    if not NAME.fullmatch(name):
        raise invalid(
            where=where, problem=f"{name!r} is not a name of a script: use letters, digits, '_', '-' and '.'"
        )
    if not steps:
        raise invalid(where=where, problem=f"script {name!r} has no steps")
    for number, step in enumerate(steps):
        if step.expect is None:
            continue
        try:
            re.compile(step.expect.tool_result)
        except re.error as error:
            raise invalid(
                where=where, problem=f"script {name!r}, step {number}: expect.tool_result: {error}"
            ) from error


def invalid(problem: str, where: str = "") -> ScriptError:
    """The error for a script, or for the use of one, that is wrong."""
    error = ScriptError(SERVER, f"{where}: {problem}" if where else problem)
    error.remedy = "Correct the script or the argument that the message names."
    return error

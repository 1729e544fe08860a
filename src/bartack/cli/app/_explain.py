"""``bartack explain``: the meaning of a code and what to do. Texts come from ``errors`` and from Patchwork's catalogue."""

from __future__ import annotations

import inspect
import sys
from difflib import get_close_matches
from itertools import groupby
from os.path import commonprefix

import click

from bartack.cli.app._exit import MEANINGS, exit_code_of
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen
from bartack.errors import BartackError, UnknownCodeError, iter_errors

HUNDREDS = {
    1: "core and configuration",
    2: "journal",
    3: "runs and replay",
    4: "messaging",
    5: "supervision",
    6: "language at run time",
    7: "resilience and tracking",
    8: "agents",
    9: "pipeline",
    10: "plugin, command line and web",
}


@click.command(short_help="Explain an error code and what to do about it.")
@click.argument("code", required=False)
@json_option
def explain(code: str | None, *, as_json: bool) -> None:
    """Explain an error code and what to do about it.

    CODE is the code of an error message (BT201), in upper or lower case, with or without its letters, or of a diagnostic of a
    Patchwork program (PW120). CODE can also be the name of an error (JournalCorruptError) or the reason that an agent's error
    has in brackets (invalid_reply). Without CODE the command lists all error codes.
    """
    if code is None:
        _list_all(as_json=as_json)
    elif code.strip().upper().startswith("PW"):
        _show_diagnostic(code.strip().upper(), as_json=as_json)
    elif code.strip("[] ").lower() in _reasons():
        _show_reason(code.strip("[] ").lower(), as_json=as_json)
    elif as_json:
        write_json(facts_of(find_error(code)))
    else:
        _show(find_error(code))


def find_error(asked: str) -> type[BartackError]:
    """Return the error class with this code or name."""
    digits = asked.strip().upper().removeprefix("BT")
    for kind in iter_errors():
        if kind.code == f"BT{digits}" or kind.__name__.upper() == digits:
            return kind
    raise UnknownCodeError(asked, _near(digits) or _near_names(asked))


def _near_names(asked: str) -> tuple[str, ...]:
    names = [*(kind.__name__ for kind in iter_errors()), *_reasons()]
    return tuple(get_close_matches(asked.strip(), names, 3))


def _reasons() -> dict[str, tuple[type[BartackError], str]]:
    """The reasons why an agent's attempt fails: the error that each becomes, and whether the attempt is repeated."""
    from bartack.agents.protocol.codes import AGENT_CODES, OWN_CODES  # noqa: PLC0415 - codes of errors are found without them

    return {name: (code.error, code.again) for name, code in {**AGENT_CODES, **OWN_CODES}.items()}


_AGAIN = {
    "yes": "Bartack sends the command again, up to the agent's 'retries'; then the step fails with this error.",
    "once": "Bartack sends the command once more; then the step fails with this error.",
    "no": "The step fails at once with this error.",
}


def _show_reason(reason: str, *, as_json: bool) -> None:
    kind, again = _reasons()[reason]
    if as_json:
        write_json({"reason": reason, "again": again, **facts_of(kind)})
        return
    screen = Screen(sys.stdout)
    screen.line(f"{screen.paint(reason, 'cyan')}  the reason why an agent's attempt failed")
    screen.paragraph(_AGAIN[again])
    screen.line()
    _show(kind)


def meaning_of(kind: type[BartackError]) -> str:
    """Return the meaning of an error: the docstring of its class."""
    return inspect.cleandoc(kind.__doc__ or "")


def summary_of(kind: type[BartackError]) -> str:
    """The first sentence of the meaning."""
    return meaning_of(kind).partition("\n\n")[0].partition(". ")[0].rstrip(".")


def by_hundred() -> list[tuple[str, list[type[BartackError]]]]:
    """Return all errors, grouped by the hundred of their code."""
    groups = groupby(iter_errors(), key=lambda kind: int(kind.code.removeprefix("BT")) // 100)
    return [(HUNDREDS[hundred], list(kinds)) for hundred, kinds in groups]


def facts_of(kind: type[BartackError]) -> dict[str, object]:
    """Return all facts about an error, for programs."""
    return {
        "code": kind.code,
        "name": kind.__name__,
        "meaning": " ".join(meaning_of(kind).split()),
        "help": kind.remedy,
        "retryable": kind.retryable,
        "exit_code": int(exit_code_of(kind)),
    }


def retry_sentence(kind: type[BartackError]) -> str:
    """Return a sentence about whether the same call can succeed later."""
    return (
        "The same call may succeed later."
        if kind.retryable
        else "The same call fails again until the cause is gone."
    )


def _near(digits: str) -> tuple[str, ...]:
    """The codes with the longest common prefix, best first."""
    asked = f"BT{digits}"
    shared = {kind.code: len(commonprefix([kind.code, asked])) for kind in iter_errors()}  # noqa: RUF071 - no paths
    close = [code for code, length in shared.items() if length > len("BT0")]
    return tuple(sorted(close, key=lambda code: (-shared[code], -int(code[2:])))[:3])


def _list_all(*, as_json: bool) -> None:
    if as_json:
        write_json([facts_of(kind) for kind in iter_errors()])
        return
    screen = Screen(sys.stdout)
    width = max(len(kind.__name__) for kind in iter_errors())
    for heading, kinds in by_hundred():
        screen.line(screen.paint(heading.capitalize(), "bold"))
        for kind in kinds:
            name = f"  {kind.code:<6}  {kind.__name__:<{width}}  "
            screen.line(screen.paint(name, "cyan") + screen.fit(summary_of(kind), len(name)))
        screen.line()
    screen.line("'bartack explain CODE' explains one of them.")


def _show_diagnostic(code: str, *, as_json: bool) -> None:
    from bartack.language import CATALOGUE, examples  # noqa: PLC0415 - only these codes need it

    if code not in CATALOGUE:
        near = [known for known in CATALOGUE if known.startswith(code[:4])]
        raise UnknownCodeError(code, tuple(near[:3]))
    severity, title = CATALOGUE[code].severity, CATALOGUE[code].title
    if as_json:
        write_json({"code": code, "severity": severity, "meaning": title, **examples()[code]._asdict()})
        return
    screen = Screen(sys.stdout)
    screen.line(f"{screen.paint(code, 'cyan')}  {screen.paint(severity, 'bold')}")
    for heading, text in (
        ("What it means", f"In a Patchwork program: {title}."),
        ("What to do", _WHAT_TO_DO[severity]),
    ):
        screen.line()
        screen.line(screen.paint(heading, "bold"))
        screen.paragraph(text)
    for heading, program in (("Wrong", examples()[code].wrong), ("Right", examples()[code].right)):
        screen.line()
        screen.line(screen.paint(heading, "bold"))
        for line in program.splitlines():
            screen.line(f"  {line}".rstrip())


_WHAT_TO_DO = {
    "error": "The message shows the place and, if one is known, the correct form. A program with errors is not run.",
    "warning": "The program runs as it is. Change it, or write `# pw: ignore[CODE]` at the end of the line.",
    "note": "The program runs as it is. `bartack fmt --upgrade` rewrites it in the modern spelling.",
}


def _show(kind: type[BartackError]) -> None:
    screen = Screen(sys.stdout)
    code = exit_code_of(kind)
    screen.line(f"{screen.paint(kind.code, 'cyan')}  {screen.paint(kind.__name__, 'bold')}")
    for heading, text in (
        ("What it means", meaning_of(kind)),
        ("What to do", kind.remedy),
        ("Try again?", retry_sentence(kind)),
        ("Exit code", f"{code:d}: {MEANINGS[code]}."),
    ):
        screen.line()
        screen.line(screen.paint(heading, "bold"))
        screen.paragraph(text)

"""What the language says about a program: diagnostics, and the catalogue of their codes.

Owns the codes, severities and order of diagnostics; how they look is in `render.py`.

Who reports what, so that nothing is said twice:

- `_parser*.py` (text alone decides): PW100-PW112, PW114, PW115 for text after a script block, PW150, PW152-PW158,
  PW200, PW204, PW214, PW218, PW219, PW224, PW290, PW291, PW293, PW294, and PW292 for `await task` and `spawn`.
- `_check*.py` (names, types, other modules): all others. In particular PW115 for statements in an imported module,
  PW116 and PW205 (annotations), PW123 (targets), PW151 and PW220 (program text), PW208, PW209, PW217, PW221 (`Write`,
  and `ReadFile` unless its name is declared), PW225, and PW292 or PW130 for a call with `old_self`; a chain whose
  `spelled` is not empty has its PW292 already, also for the `old_self` of its calls.
- the compiler: PW190.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Source, Span

Severity: TypeAlias = Literal["error", "warning", "note"]

MOST_SHOWN = 100
"""How many diagnostics of one file are shown."""


class Fix(NamedTuple):
    """Text that can stand instead of a span to settle a diagnostic."""

    start: int
    end: int
    text: str


class Secondary(NamedTuple):
    """A further span that explains a diagnostic; in another file when `file` is not empty."""

    span: Span
    label: str
    file: str = ""


class Diagnostic(NamedTuple):
    """One thing to say about one place of a program.

    `file` is the name of its source, `label` stands beside the carets, `helps` and `notes` below the source.
    """

    code: str
    severity: Severity
    message: str
    file: str
    span: Span
    label: str = ""
    helps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    secondary: tuple[Secondary, ...] = ()
    fix: Fix | None = None


def diagnose(
    code: str,
    message: str,
    file: str,
    span: Span,
    *,
    label: str = "",
    helps: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    secondary: tuple[Secondary, ...] = (),
    fix: Fix | None = None,
) -> Diagnostic:
    """Make a diagnostic with the severity its code has in the catalogue."""
    return Diagnostic(
        code, CATALOGUE[code].severity, message, file, span, label, helps, notes, secondary, fix
    )


class Entry(NamedTuple):
    """What the catalogue says of a code."""

    severity: Severity
    title: str


_ERRORS = {
    "PW100": "the file is not UTF-8 text",
    "PW101": "a character without meaning",
    "PW102": "a string that is never closed",
    "PW103": "a prompt that is never closed",
    "PW104": "a bracket that does not match",
    "PW105": "something else was expected",
    "PW106": "`else` or `catch` without its `if` or `try`",
    "PW107": "not a number",
    "PW108": "not a Unicode character",
    "PW109": "nested too deeply",
    "PW110": "the file is too large",
    "PW111": "a reserved sign",
    "PW112": "a keyword as a name",
    "PW114": "not an import path",
    "PW115": "a statement where only declarations may stand",
    "PW116": "an annotation with a wrong argument",
    "PW120": "a name that is not defined",
    "PW121": "a name that is declared twice",
    "PW122": "a variable that is used before its `var`",
    "PW123": "a target that cannot be assigned to",
    "PW124": "a member that `self` or its session does not have",
    "PW125": "a module that is not found",
    "PW126": "a name that a module does not export",
    "PW127": "a module outside the project",
    "PW128": "two default exports",
    "PW129": "a skill or command that is declared twice",
    "PW130": "`self` as a value",
    "PW131": "`break` or `continue` outside a loop",
    "PW132": "leaving a prompt from a `do` block",
    "PW133": "an unknown type",
    "PW134": "a type that is defined only by itself",
    "PW135": "a function as a value",
    "PW138": "`restart` outside the body of a worker",
    "PW139": "a version without a fixed name",
    "PW140": "a wrong number of arguments",
    "PW141": "a value of a wrong type",
    "PW142": "a required parameter after a default",
    "PW143": "an unknown option",
    "PW144": "something other than a worker in a delegate",
    "PW145": "a value that cannot be sent",
    "PW146": "a member that a built-in kind does not have",
    "PW150": "shell syntax that is not supported",
    "PW151": "a value that would be run as shell code",
    "PW152": "`$@{…}` inside a word",
    "PW153": "a shell builtin as a program",
    "PW154": "a word of the language as a program",
    "PW155": "`;` between commands",
    "PW156": "an empty command",
    "PW157": "a redirect without a target",
    "PW158": "a shell parameter",
    "PW170": "no entry point",
    "PW171": "several entry points",
    "PW172": "statements beside `main`",
    "PW190": "too complex to compile",
}
_WARNINGS = {
    "PW200": "`=` in a condition",
    "PW201": "a variable that is never read",
    "PW202": "an import that is never used",
    "PW203": "code that is never reached",
    "PW204": "an unknown escape",
    "PW205": "an unknown annotation or `@arg`",
    "PW206": "a trait without the base `Agent`",
    "PW207": "a declaration that hides a built-in",
    "PW208": "a variable's name as a command",
    "PW209": "a condition that tests output",
    "PW210": "a mailbox that is never received from",
    "PW211": "a mailbox that is never sent to",
    "PW212": "a message without a field its receivers match",
    "PW213": "a key that binds nothing",
    "PW214": "a chained comparison",
    "PW215": "a statement without effect",
    "PW216": "a member after a variable in text",
    "PW217": "`cd` without effect",
    "PW218": "braces that are not expanded",
    "PW219": "`&&` and `||` mixed in a command",
    "PW220": "a value that becomes program text",
    "PW221": "a file by redirection",
    "PW222": "text that looks like a secret",
    "PW223": "a key that is given twice",
    "PW224": "a `do` block that does not start its line",
    "PW225": "an assignment as a value",
    "PW226": "a `catch` that cannot save the run",
    "PW227": "a result that is never returned",
}
_NOTES = {
    "PW290": "an old word for `worker`",
    "PW291": "`fail` instead of `throw`",
    "PW292": "an old spelling of `self.delegate`",
    "PW293": "an old spelling of an array pattern",
    "PW294": "`await` before an expression",
}

CATALOGUE: dict[str, Entry] = {
    **{code: Entry("error", title) for code, title in _ERRORS.items()},
    **{code: Entry("warning", title) for code, title in _WARNINGS.items()},
    **{code: Entry("note", title) for code, title in _NOTES.items()},
}
"""Every code with its severity and a title."""


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


_IGNORE = re.compile(r"#\s*pw:\s*ignore\[([^\]]*)\]")


def settle(found: Iterable[Diagnostic], source: Source, module: tree.Module) -> tuple[Diagnostic, ...]:
    """Put the diagnostics of one file in order and drop warnings and notes that a comment silences.

    `# pw: ignore[PW201]` silences its own line when it stands after code, and the line below when it stands alone.
    Errors are never silenced.
    """
    silenced = silenced_lines(source, module.comments)
    ordered = sorted(found, key=lambda diagnostic: (diagnostic.span, diagnostic.code))
    if not silenced:
        return tuple(ordered)
    return tuple(
        diagnostic
        for diagnostic in ordered
        if diagnostic.severity == "error"
        or diagnostic.code not in silenced.get(source.line_of(diagnostic.span.start), ())
    )


def silenced_lines(source: Source, comments: Iterable[tree.Comment]) -> dict[int, set[str]]:
    """The lines for which comments silence something, and the codes that they name."""
    silenced: dict[int, set[str]] = {}
    for comment in comments:
        matched = _IGNORE.match(comment.text)
        if matched:
            line = source.line_of(comment.start) + comment.alone
            silenced.setdefault(line, set()).update(code.strip() for code in matched[1].split(","))
    return silenced

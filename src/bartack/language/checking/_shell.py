"""Commands: their words and values, values that would become program text, and `cd`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bartack.language.checking._text import check_parts
from bartack.language.checking._types import ANY, RESULT, STRING, Type
from bartack.language.checking._walk import Handler, Walk
from bartack.language.checking.program import Local
from bartack.language.syntax import _tree as tree

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_INTERPRETERS = {
    "python": ("-c",),
    "node": ("-e", "-p", "--eval", "--print", "-c"),
    "perl": ("-e", "-E", "-ne", "-pe", "-c"),
    "ruby": ("-e", "-c"),
}
_CARRIERS = frozenset(
    (
        "env",
        "xargs",
        "find",
        "ssh",
        "sudo",
        "doas",
        "nohup",
        "nice",
        "ionice",
        "time",
        "timeout",
        "setsid",
        "stdbuf",
        "exec",
        "command",
        "chroot",
        "unshare",
        "flock",
        "parallel",
        "strace",
        "busybox",
        "docker",
        "podman",
        "kubectl",
    )
)
"""Programs that run the program among their words."""
_VALUED = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))
"""Options of shells with a word of their own."""
_VALUED_OF_SSH = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw")


def _statement(walk: Walk, node: tree.ShellStatement, _expected: Type | None) -> Type:
    _shell(walk, node.shell)
    return ANY


def _capture(walk: Walk, node: tree.Capture, _expected: Type | None) -> Type:
    _check_name_as_command(walk, node)
    _shell(walk, node.shell)
    return STRING


def _result(walk: Walk, node: tree.ShellResult, _expected: Type | None) -> Type:
    _shell(walk, node.shell)
    return RESULT


def _check_name_as_command(walk: Walk, node: tree.Capture) -> None:
    name = _single_word(node.shell)
    local = walk.find(name) if name is not None else None
    if not isinstance(local, Local):
        return
    walk.body.read.add(local)
    walk.report(
        "PW208",
        f"`$({name})` runs the command `{name}`; the variable is `${name}`",
        node,
        helps=(f"to run the command, write `$('{name}')`",),
    )


def _single_word(shell: tree.ShellList) -> str | None:
    """The text of a command that is just one bare word."""
    if len(shell.pipelines) != 1 or len(shell.pipelines[0].commands) != 1:
        return None
    command = shell.pipelines[0].commands[0]
    if not isinstance(command, tree.Command) or command.assignments or command.redirects:
        return None
    if len(command.words) != 1:
        return None
    return _bare_text(command.words[0])


def _bare_text(word: tree.Word | tree.Splice) -> str | None:
    if isinstance(word, tree.Word) and len(word.parts) == 1 and isinstance(word.parts[0], tree.Bare):
        return word.parts[0].value
    return None


def _shell(walk: Walk, shell: tree.ShellList) -> None:
    outside, walk.in_shell = walk.in_shell, True
    for pipeline in shell.pipelines:
        for command in pipeline.commands:
            _command(walk, command)
    walk.in_shell = outside
    _check_cd(walk, shell)


def _command(walk: Walk, command: tree.Command | tree.ShellGroup | tree.Error) -> None:
    if isinstance(command, tree.Error):
        return
    if isinstance(command, tree.ShellGroup):
        _shell(walk, command.shell)
        walk.in_shell = True
    else:
        for assignment in command.assignments:
            check_parts(walk, assignment.value.parts)
        for word in command.words:
            _word(walk, word)
        _check_program_text(walk, command)
    for redirect in command.redirects:
        if redirect.target is not None:
            check_parts(walk, redirect.target.parts)


def _word(walk: Walk, word: tree.Word | tree.Splice) -> None:
    if isinstance(word, tree.Splice):
        walk.expression(word)
    else:
        check_parts(walk, word.parts)


def _check_cd(walk: Walk, shell: tree.ShellList) -> None:
    last = shell.pipelines[-1].commands if shell.pipelines else ()
    command = last[0] if len(last) == 1 else None
    if isinstance(command, tree.Command) and command.words and _bare_text(command.words[0]) == "cd":
        walk.report(
            "PW217",
            "`cd` has no effect after this line",
            command,
            helps=("write `$ cd dir && command`, or give the command the directory",),
        )


# Values that become program text


def _check_program_text(walk: Walk, command: tree.Command) -> None:
    words = command.words
    first = _program(words, 0)
    if first is None:
        return
    for at in range(len(words)) if first in _CARRIERS else range(1):
        name = _program(words, at)
        flags = None if name is None else _flags_of(name)
        if name is not None and flags is not None:
            code = _code_after(words[at + 1 :], flags)
            value = next(_values_in(code), None) if code is not None else None
            if value is not None:
                _report_code(walk, name, value)
            return
    if first == "ssh":
        _check_remote(walk, words)


def _check_remote(walk: Walk, words: Sequence[tree.Word | tree.Splice]) -> None:
    """The words after the host are joined and run by a shell on the remote host."""
    rest = iter(words[1:])
    for word in rest:
        text = static_text(word)
        if text is None or not text.startswith("-"):
            break
        if text in _VALUED_OF_SSH:
            next(rest, None)
    value = next((value for word in rest for value in _values_in(word)), None)
    if value is not None:
        text = f"{_shown(walk, value)} becomes program text: `ssh` passes it to a shell on the remote host"
        walk.report("PW220", text, value, helps=("send it through stdin, or as a file",))


def _program(words: Sequence[tree.Word | tree.Splice], at: int) -> str | None:
    text = static_text(words[at]) if at < len(words) else None
    return text.rpartition("/")[2] if text else None


def _flags_of(name: str) -> tuple[str, ...] | None:
    """The options of a program that take program text; None for other programs."""
    if name in _SHELLS:
        return ("-c",)
    return _INTERPRETERS.get(name.rstrip("0123456789.") if name.startswith("python") else name)


def _code_after(
    words: Sequence[tree.Word | tree.Splice], flags: tuple[str, ...]
) -> tree.Word | tree.Splice | None:
    """The word that is run as program text."""
    rest = iter(enumerate(words))
    for at, word in rest:
        text = static_text(word)
        if text is None or not text.startswith(("-", "+")):
            return None
        if text in _VALUED:
            next(rest, None)
            continue
        joined = not text.startswith("--") and len(text) > 2 and f"-{text[-1]}" in flags
        if text in flags or joined:
            return words[at + 1] if at + 1 < len(words) else None
    return None


def _values_in(word: tree.Word | tree.Splice) -> Iterator[tree.Node]:
    if isinstance(word, tree.Splice):
        yield word
        return
    for part in word.parts:
        inner = part.parts if isinstance(part, tree.String) else (part,)
        yield from (
            one
            for one in inner
            if isinstance(one, (tree.Variable, tree.Interpolation, tree.Splice, tree.Capture))
        )


def _report_code(walk: Walk, name: str, value: tree.Node) -> None:
    shown = _shown(walk, value)
    if name in _SHELLS:
        text = f"{shown} would be run as shell code by `{name} -c`"
        helps = ("call the program directly, or use `unsafe_shell(text)`",)
        walk.report("PW151", text, value, helps=helps)
    else:
        text = f"{shown} becomes program text of `{name}`"
        walk.report("PW220", text, value, helps=("pass it as an argument after the program text",))


def _shown(walk: Walk, value: tree.Node) -> str:
    shown = walk.module.source[value.span]
    return f"`{shown}`" if len(shown) <= 30 and "\n" not in shown else "this"


def static_text(word: tree.Word | tree.Splice) -> str | None:
    """The text of a word without values in it."""
    if isinstance(word, tree.Splice):
        return None
    texts: list[str] = []
    for part in word.parts:
        if isinstance(part, (tree.Bare, tree.Escape)):
            texts.append(part.value)
        elif isinstance(part, tree.String) and part.literal is not None:
            texts.append(part.literal)
        else:
            return None
    return "".join(texts)


HANDLERS: dict[type[tree.Node], Handler] = {
    tree.ShellStatement: _statement,
    tree.Capture: _capture,
    tree.ShellResult: _result,
}

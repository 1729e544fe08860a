"""Commands as Python expressions: what a form is made of, word by word.

A pipeline of plain commands is a list of lists of words; the runtime has a function for everything beyond that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final

from bartack.language.compiling._nodes import Maker
from bartack.language.syntax import _tree as tree

_PATTERN: Final = re.compile(r"[*?\[]")
_DESCRIPTORS: Final = {"<": (0, "<"), ">": (1, ">"), ">>": (1, ">>"), "1>": (1, ">"), "1>>": (1, ">>")}
_DESCRIPTORS_2: Final = {"2>": (2, ">"), "2>>": (2, ">>")}
_DUPLICATES: Final = {"2>&1": (2, 1), "1>&2": (1, 2), ">&2": (1, 2)}


class Commands:
    """Compiles the commands of one module."""

    def __init__(
        self,
        make: Maker,
        value: Callable[[tree.Expression], ast.expr],
        variable: Callable[[tree.Variable], ast.expr],
    ) -> None:
        self._make = make
        self._value = value
        self._variable = variable

    def form(self, shell: tree.ShellList) -> ast.expr:
        """A whole form."""
        first = self._pipeline(shell.pipelines[0])
        if not shell.operators:
            return first
        parts = [first]
        for operator, pipeline in zip(shell.operators, shell.pipelines[1:], strict=True):
            parts += [self._make.constant(operator, operator.symbol), self._pipeline(pipeline)]
        return self._make.rt(shell, "commands", *parts)

    def _pipeline(self, pipeline: tree.Pipeline) -> ast.expr:
        return self._make.listed(pipeline, [self._command(command) for command in pipeline.commands])

    def _command(self, command: tree.Command | tree.ShellGroup | tree.Error) -> ast.expr:
        make = self._make
        if isinstance(command, tree.Error):
            return make.listed(command, [])
        redirects = self._redirects(command)
        if isinstance(command, tree.ShellGroup):
            return make.rt(command, "group", self.form(command.shell), redirects=redirects)
        words = make.listed(command, [self._argument(word) for word in command.words])
        assignments = [
            make.tupled(one, [make.constant(one.name, one.name.name), self._word(one.value)])
            for one in command.assignments
        ]
        if not assignments and redirects is None:
            return words
        env = make.listed(command, assignments) if assignments else None
        return make.rt(command, "command", words, env=env, redirects=redirects)

    def _redirects(self, command: tree.Command | tree.ShellGroup) -> ast.expr | None:
        if not command.redirects:
            return None
        return self._make.listed(command, [self._redirect(redirect) for redirect in command.redirects])

    def _redirect(self, redirect: tree.Redirect) -> ast.expr:
        make = self._make
        if redirect.target is None:
            to, source = _DUPLICATES[redirect.operator]
            return make.tupled(redirect, [make.constant(redirect, to), make.constant(redirect, source)])
        fd, operator = _DESCRIPTORS.get(redirect.operator) or _DESCRIPTORS_2[redirect.operator]
        parts = [make.constant(redirect, fd), make.constant(redirect, operator), self._word(redirect.target)]
        return make.tupled(redirect, parts)

    def _argument(self, word: tree.Word | tree.Splice) -> ast.expr:
        if isinstance(word, tree.Splice):
            return self._make.starred(word, self._make.rt(word, "arguments", self._value(word.value)))
        return self._word(word)

    def _word(self, word: tree.Word) -> ast.expr:
        """A word: a plain text as itself, anything else by its parts."""
        parts: list[ast.expr] = []
        texts: list[str] = []
        for place, part in enumerate(word.parts):
            for found in self._parts(part, first=place == 0):
                if isinstance(found, str):
                    texts.append(found)
                else:
                    self._flush(word, parts, texts)
                    parts.append(found)
        if not parts:
            return self._make.constant(word, "".join(texts))
        self._flush(word, parts, texts)
        return self._make.rt(word, "word", *parts)

    def _flush(self, word: tree.Word, parts: list[ast.expr], texts: list[str]) -> None:
        text = "".join(texts)
        if text:
            parts.append(self._make.constant(word, text))
        texts.clear()

    def _parts(self, part: tree.WordPart | tree.TextPart, *, first: bool) -> list[ast.expr | str]:
        """What a part of a word is made of: exact texts, and expressions."""
        made: list[ast.expr | str] = []
        match part:
            case tree.Bare():
                patterned = _PATTERN.search(part.value) or (first and part.value.startswith("~"))
                made.append(self._bare(part) if patterned else part.value)
            case tree.Escape() | tree.Text():
                made.append(part.value)
            case tree.String():
                # An empty string is a part, too: it keeps a word that is otherwise nothing.
                made.append("")
                for inner in part.parts:
                    made += self._parts(inner, first=False)
            case tree.Variable():
                made.append(self._variable(part))
            case tree.Interpolation():
                made.append(self._value(part.value))
            case tree.Splice():
                made.append(self._make.rt(part, "spliced", self._value(part.value)))
            case tree.Capture():
                made.append(self._make.rt(part, "nested", self.form(part.shell)))
            case tree.Error():
                pass
        return made

    def _bare(self, part: tree.Bare) -> ast.expr:
        return self._make.rt(part, "bare", self._make.constant(part, part.value))

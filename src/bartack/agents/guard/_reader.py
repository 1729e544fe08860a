"""Reads a shell text into its commands: lists, pipes, groups, loops, functions, redirections, here-documents.

The text is read as ``bash`` reads it, without executing anything. Whatever is not understood is an error, never a guess, so that a
rule can count on what it is given. Words are read in ``_words.py``; what the commands mean is decided in ``_judge.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from bartack.agents.guard._redirects import BETWEEN, BLANKS, RedirectReader
from bartack.agents.guard._syntax import Compound, Node, Script, SimpleCommand, Step
from bartack.agents.guard._text import expand_braces
from bartack.agents.guard._words import not_parsed

LONGEST: Final = 512 * 1024
"""A longer text is not read."""

_RUN: Final = re.compile(r"""[^\s;&|<>()$`"'\\*?\[{}~#]+(?:[ \t]+[^\s;&|<>()$`"'\\*?\[{}~#]+)*""")
"""Words without anything special in them: most commands are read by this alone."""
_LINES: Final = re.compile(r"(?:[ \t\n]+|\\\n|#[^\n]*)*")
_SEPARATORS: Final = re.compile(r"(?:[ \t\n;]+|\\\n|#[^\n]*)*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_FUNCTION: Final = re.compile(r"[ \t]*\([ \t]*\)")
_END: Final = r"(?=[\s;&|<>()]|\Z)"
_OPENER: Final = re.compile(rf"(?:if|while|until|for|select|case|function|time|coproc|!|\{{|\[\[){_END}")
_CLOSER: Final = re.compile(rf"(?:then|elif|else|fi|do|done|esac|\}}){_END}")
_OPENER_STARTS: Final = frozenset("iwufsct!{[")
_CLOSER_STARTS: Final = frozenset("tefd}")
_IN: Final = re.compile(rf"in{_END}")
_DO: Final = re.compile(rf"do{_END}|\{{{_END}")
_ESAC: Final = re.compile(rf"esac{_END}")
_COPROC_NAME: Final = re.compile(r"[A-Za-z_]\w*[ \t]+(?=[{(]|(?:if|while|until|for|select|case)\s)")
_TIME_OPTIONS: Final = re.compile(r"(?:[ \t]+(?:-p|--)(?=\s))*")
_STOPS: Final = frozenset("\n;&|)")
_CONTINUES: Final = frozenset("$`\"'\\*?[{}~#")
_MAY_REDIRECT: Final = frozenset("<>&{0123456789")


def read(text: str, depth: int = 0) -> Script:
    """Read a text.

    Raises:
        NotParsedError: It cannot be read.
    """
    if len(text) > LONGEST:
        not_parsed("it is too long")
    return ScriptReader(text, depth).whole()


class ScriptReader(RedirectReader):
    """Reads commands from a place in a text on."""

    def below(self, text: str) -> ScriptReader:
        """See ``WordReader``."""
        self._enter()
        self.depth -= 1
        return ScriptReader(text, self.depth + 1)

    def whole(self) -> Script:
        """See ``WordReader``."""
        return self._script(frozenset())[0]

    def script_until(self, closer: str) -> Script:
        """See ``WordReader``."""
        return self._script(frozenset({closer}))[0]

    def _script(self, closers: frozenset[str]) -> tuple[Script, str]:
        """The commands up to one of the closers, which is taken, and the closer."""
        text, size = self.text, len(self.text)
        script: Script = []
        operator = ";"
        while True:
            self.skip(BLANKS)
            if self.pos >= size:
                if closers:
                    not_parsed("it ends too early")
                return script, ""
            char = text[self.pos]
            if char not in _STOPS or text.startswith("&>", self.pos):
                closer = self._closer(closers) if char in _CLOSER_STARTS else ""
                if closer:
                    return script, closer
                script.append(Step(operator, self._command()))
                operator = ";"
            elif char == ")":
                if ")" not in closers:
                    not_parsed("a parenthesis that nothing opened")
                self.pos += 1
                return script, ")"
            elif text.startswith(";;", self.pos) or text.startswith(";&", self.pos):
                if ";;" not in closers:
                    not_parsed("';;' outside of a case")
                self.pos += 3 if text.startswith(";;&", self.pos) else 2
                return script, ";;"
            else:
                operator = self._operator(char, script, operator)

    def _operator(self, char: str, script: Script, before: str) -> str:
        text = self.text
        if char == "\n":
            self.pos += 1
            self.here_documents()
            return before
        if text.startswith(("&&", "||", "|&"), self.pos):
            found = text[self.pos : self.pos + 2]
            self.pos += 2
            return "|" if found == "|&" else found
        self.pos += 1
        if char == "&" and script:
            script[-1].is_background = True
        return "|" if char == "|" else ";"

    def _closer(self, closers: frozenset[str]) -> str:
        found = _CLOSER.match(self.text, self.pos)
        if found is None:
            return ""
        if found[0] not in closers:
            not_parsed(f"unexpected {found[0]!r}")
        self.pos = found.end()
        return found[0]

    # Commands.

    def _command(self) -> Node:
        text = self.text
        while self.pos < len(text):
            char = text[self.pos]
            if char == "(":
                return self._parenthesised()
            found = _OPENER.match(text, self.pos) if char in _OPENER_STARTS else None
            if found is None:
                return self._simple()
            self.pos = found.end()
            if found[0] not in {"!", "time", "coproc"}:
                return self._compound(found[0])
            if found[0] == "time":
                self.pos = self.end_of(_TIME_OPTIONS)
            self.skip(BLANKS)
            if found[0] == "coproc":
                named = _COPROC_NAME.match(text, self.pos)
                self.pos = named.end() if named else self.pos
        return SimpleCommand([])

    def _simple(self) -> Node:
        text, size = self.text, len(self.text)
        command = SimpleCommand([])
        while True:
            self.pos = self.end_of(BETWEEN)
            if self.pos >= size:
                break
            char = text[self.pos]
            if char == "#" or (char in _STOPS and not text.startswith("&>", self.pos)):
                break
            if char in _MAY_REDIRECT and self.redirect(command):
                continue
            if char == "(":
                return self._function(command)
            self._words(command)
        if command.words and "=" in command.words[0]:
            self._split_assignments(command)
        if self.nested:
            command.nested += self.taken()
        return command

    def _words(self, command: SimpleCommand) -> None:
        """The next words: as many plain ones as there are, or one that is not."""
        text = self.text
        found = _RUN.match(text, self.pos)
        if found is not None:
            end = found.end()
            words = found[0].split()
            following = text[end : end + 1]
            last = words[-1]
            if (
                following in _CONTINUES
                or (following in {"<", ">"} and last.isdigit())
                or (following == "(" and last[-1] in "=@+!")
            ):
                end -= len(words.pop())
            if end > self.pos:
                command.words += words
                self.pos = end
                return
        self._word_into(command)

    def _word_into(self, command: SimpleCommand) -> None:
        start = self.pos
        word = self.word()
        if self.pos == start:
            not_parsed("a character in a place where it means nothing")
        if not command.words and _ASSIGNMENT.match(self.text, start):
            command.assigns.append(word)
        elif word.isascii():
            command.words.append(word)
        else:
            command.words += expand_braces(word)

    def _split_assignments(self, command: SimpleCommand) -> None:
        """Take the assignments off the front of words that were read together."""
        words = command.words
        count = 0
        while count < len(words) and _ASSIGNMENT.match(words[count]):
            count += 1
        command.assigns += words[:count]
        del words[:count]

    def _function(self, command: SimpleCommand) -> Compound:
        found = _FUNCTION.match(self.text, self.pos)
        if found is None or len(command.words) != 1 or command.assigns or command.redirects:
            not_parsed("a parenthesis in a place where it means nothing")
        self.pos = found.end()
        return self._function_body(command.words[0])

    def _function_body(self, name: str) -> Compound:
        self._enter()
        self.skip(_LINES)
        body = self._command()
        if isinstance(body, SimpleCommand) and not body.words:
            not_parsed("a function without a body")
        self.depth -= 1
        return Compound("function", [[Step(";", body)]], name)

    def _parenthesised(self) -> Node:
        if self.text.startswith("((", self.pos):
            end = self.end_of_arithmetic(self.pos + 2)
            if end:
                return self._arithmetic(end)
        self._enter()
        self.pos += 1
        compound = Compound("subshell", [self.script_until(")")])
        self.depth -= 1
        return self._trailing(compound)

    def _arithmetic(self, end: int) -> Node:
        command = SimpleCommand(["(("])
        self.pos += 2
        self._skip_expression(end - 2)
        self.pos = end
        command.nested += self.taken()
        return command

    # Compound commands.

    def _compound(self, opener: str) -> Node:
        self._enter()
        node = self._compound_of(opener)
        self.depth -= 1
        return node if isinstance(node, SimpleCommand) or node.kind == "function" else self._trailing(node)

    def _compound_of(self, opener: str) -> Node:
        kinds: dict[str, Callable[[], Node]] = {
            "{": lambda: Compound("group", [self.script_until("}")]),
            "[[": self._test,
            "if": self._if,
            "while": self._while,
            "until": self._while,
            "for": self._for,
            "select": self._for,
            "case": self._case,
            "function": self._named_function,
        }
        return kinds[opener]()

    def _named_function(self) -> Compound:
        self.skip(BLANKS)
        name = self.word()
        self.pos = self.end_of(_FUNCTION)
        return self._function_body(name)

    def _while(self) -> Compound:
        return Compound("loop", [self.script_until("do"), self.script_until("done")])

    def _if(self) -> Compound:
        parts = [self.script_until("then")]
        closers = frozenset({"elif", "else", "fi"})
        while True:
            script, closer = self._script(closers)
            parts.append(script)
            if closer == "fi":
                return Compound("branch", parts)
            if closer == "elif":
                parts.append(self.script_until("then"))
            else:
                closers = frozenset({"fi"})

    def _for(self) -> Compound:
        self.skip(BLANKS)
        if self.text.startswith("((", self.pos):
            end = self.end_of_arithmetic(self.pos + 2)
            if not end:
                not_parsed("an arithmetic expression is not closed")
            nested = self._arithmetic(end).nested
        else:
            self.word()
            self.skip(_LINES)
            self._list_of_loop()
            nested = self.taken()
        self.skip(_SEPARATORS)
        opener = self.expect(_DO)
        compound = Compound("loop", [self.script_until("done" if opener == "do" else "}")])
        compound.nested += nested
        return compound

    def _list_of_loop(self) -> None:
        found = _IN.match(self.text, self.pos)
        if found is None:
            return
        self.pos = found.end()
        while True:
            self.skip(BLANKS)
            start = self.pos
            self.word()
            if self.pos == start:
                return

    def _case(self) -> Compound:
        self.skip(BLANKS)
        self.word()
        self.skip(_LINES)
        self.expect(_IN)
        compound = Compound("branch", [])
        compound.nested += self.taken()
        while True:
            self.skip(_LINES)
            if _ESAC.match(self.text, self.pos):
                self.pos += len("esac")
                return compound
            self._patterns()
            compound.nested += self.taken()
            script, closer = self._script(frozenset({";;", "esac"}))
            compound.parts.append(script)
            if closer == "esac":
                return compound

    def _patterns(self) -> None:
        if self.text.startswith("(", self.pos):
            self.pos += 1
        while True:
            self.skip(BLANKS)
            self.word()
            self.skip(BLANKS)
            char = self.text[self.pos : self.pos + 1]
            self.pos += 1
            if char == ")":
                return
            if char != "|":
                not_parsed("a pattern of a case is not closed")

    def _test(self) -> SimpleCommand:
        """``[[ … ]]``: nothing in it is executed but what is substituted."""
        text = self.text
        while True:
            self.skip(_LINES)
            if self.pos >= len(text):
                not_parsed("'[[' is not closed")
            start = self.pos
            word = self.word()
            if self.pos == start:
                self.pos += 1
            elif word == "]]" and not self.quoted:
                command = SimpleCommand(["[["])
                command.nested += self.taken()
                return command

    def _trailing(self, compound: Compound) -> Compound:
        while True:
            self.pos = self.end_of(BETWEEN)
            if self.text[self.pos : self.pos + 1] not in _MAY_REDIRECT or not self.redirect(compound):
                break
        compound.nested += self.taken()
        return compound

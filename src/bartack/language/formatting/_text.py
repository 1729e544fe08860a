"""How prompts and command lines are laid out: their text and words stay, their place changes."""

from __future__ import annotations

from bartack.language.formatting._layout import Layout, writers
from bartack.language.formatting._sheet import BLANK, LINE, NONE, Sep
from bartack.language.parsing._shell import is_group
from bartack.language.syntax import _tree as tree


class _PromptText:
    """Writes the text of a prompt line by line; `lead` is the indentation of its current line, beside the prompt's own."""

    def __init__(self, layout: Layout) -> None:
        self.sheet = layout.sheet
        self.lead = ""
        self.waiting = 0

    def write(self, text: str) -> None:
        """Write text, which may have several lines."""
        first, *lines = text.split("\n")
        self.segment(first)
        for line in lines:
            self.keep_return()
            self.waiting += 1
            self.segment(line)

    def segment(self, line: str) -> None:
        """Write a stretch of one line."""
        if not line:
            return
        if self.waiting:
            self.lead = line[: len(line) - len(line.lstrip(" \t"))]
        self.begin()
        self.sheet.text(line)

    def keep_return(self) -> None:
        """Double a carriage return at the end of a line, which would be taken for a part of the line end."""
        if not self.waiting and self.sheet.buffer and self.sheet.buffer[-1].endswith("\r"):
            self.sheet.text("\r")

    def begin(self) -> None:
        """Begin the line, if nothing stands on it yet."""
        if self.waiting:
            self.sheet.newlines(self.waiting)
            self.waiting = 0


def prompt(layout: Layout, node: tree.Prompt, sep: Sep) -> None:
    """Write `think { … }`: its text is moved as a whole, one step deeper than where it stands."""
    layout.put(node.word, node.start, sep)
    layout.put("{", node.opener, BLANK)
    raw = _raw_text(layout, node)
    several = "\n" in raw
    if not node.parts:
        layout.put("}", node.end - 1)
        return
    layout.sheet.indent()
    text = _PromptText(layout)
    if several and not raw.split("\n", 1)[0].strip(" \t"):
        text.waiting = 1
    else:
        layout.sheet.separate(BLANK)
    for part in node.parts:
        if isinstance(part, tree.Text):
            text.write(part.value)
        elif isinstance(part, tree.DoBlock):
            _do_block(layout, part, text)
        else:
            _begin_lead(text)
            layout.verbatim(part)
    _end_prompt(layout, text, several=several)
    layout.put("}", node.end - 1)


def _raw_text(layout: Layout, node: tree.Prompt) -> str:
    """The source of a prompt's text, with one character for each part that is not text."""
    pieces: list[str] = []
    at = node.opener + 1
    for part in node.parts:
        if not isinstance(part, tree.Text):
            pieces.extend((layout.source[at : part.start], "\0"))
            at = part.end
    pieces.append(layout.source[at : node.end - 1])
    return "".join(pieces).replace("\r\n", "\n")


def _begin_lead(text: _PromptText) -> None:
    if text.waiting:
        text.lead = ""
    text.begin()


def _do_block(layout: Layout, part: tree.DoBlock, text: _PromptText) -> None:
    """Write a block with the indentation of the line on which it begins."""
    _begin_lead(text)
    layout.put("do", part.start)
    layout.sheet.indent(text.lead)
    layout.node(part.body, BLANK)
    layout.sheet.dedent()


def _end_prompt(layout: Layout, text: _PromptText, *, several: bool) -> None:
    """Go to where the closing brace stands."""
    if several:
        text.keep_return()
        layout.sheet.blank_lines(text.waiting)
    layout.sheet.dedent()
    layout.sheet.separate(LINE if several else BLANK)


# Command lines


def statement(layout: Layout, node: tree.ShellStatement, _sep: Sep) -> None:
    """Write `$ command`; lines are continued after a backslash where they are in the source."""
    layout.put("$", node.start)
    layout.sheet.indent()
    _Commands(layout, in_line=True).list(node.shell, BLANK)
    layout.sheet.dedent()


def capture(layout: Layout, node: tree.Capture, sep: Sep) -> None:
    """Write `$(command)`; a lone group keeps away from the parentheses, since `$((…))` is something else in a shell."""
    edge = BLANK if is_group(node.shell) else NONE
    layout.put("$(", node.start, sep)
    layout.sheet.indent()
    _Commands(layout, in_line=False).list(node.shell, edge)
    layout.sheet.dedent()
    layout.put(")", node.end - 1, edge)


def result(layout: Layout, node: tree.ShellResult, sep: Sep) -> None:
    """Write `($ command)`."""
    layout.put("($", node.start, sep)
    layout.sheet.indent()
    _Commands(layout, in_line=False).list(node.shell, BLANK)
    layout.sheet.dedent()
    layout.put(")", node.end - 1)


class _Commands:
    """Writes commands. `in_line` says that a newline needs a backslash."""

    def __init__(self, layout: Layout, *, in_line: bool) -> None:
        self.layout = layout
        self.in_line = in_line
        self.end = -1  # where the word before ends; none for the first

    def gap(self, start: int, sep: Sep) -> Sep:
        """What stands before a word: a new line where the source has one."""
        if self.end < 0 or not self.layout.breaks(self.end, start):
            return sep
        between = self.layout.source[self.end : start]
        if self.in_line or "\\" in between:
            self.layout.add("\\", BLANK)
        return LINE

    def sign(self, text: str, start: int, sep: Sep) -> None:
        """Write an operator or bracket."""
        self.layout.put(text, start, self.gap(start, sep))
        self.end = start + len(text)

    def word(self, node: tree.Node, sep: Sep) -> None:
        """Write a word as it is."""
        self.layout.verbatim(node, self.gap(node.start, sep))
        self.end = node.end

    def list(self, shell: tree.ShellList, sep: Sep) -> None:
        """Write pipelines."""
        self.pipeline(shell.pipelines[0], sep)
        for operator, pipeline in zip(shell.operators, shell.pipelines[1:], strict=True):
            self.sign(operator.symbol, operator.start, BLANK)
            self.pipeline(pipeline, BLANK)

    def pipeline(self, node: tree.Pipeline, sep: Sep) -> None:
        """Write commands joined by `|`."""
        for index, command in enumerate(node.commands):
            if index:
                at = self.layout.source.index("|", self.end)
                self.sign("|", at, BLANK)
                sep = BLANK
            if isinstance(command, tree.ShellGroup):
                self.group(command, sep)
            elif isinstance(command, tree.Command):
                self.command(command, sep)

    def group(self, node: tree.ShellGroup, sep: Sep) -> None:
        """Write `(commands)`."""
        self.sign("(", node.start, sep)
        self.list(node.shell, NONE)
        self.sign(")", self.layout.source.index(")", self.end), NONE)
        for redirect in node.redirects:
            self.redirect(redirect, BLANK)

    def command(self, node: tree.Command, sep: Sep) -> None:
        """Write a program with its arguments."""
        parts = [*node.assignments, *node.words, *node.redirects]
        for part in sorted(parts, key=lambda part: part.start):
            if isinstance(part, tree.Redirect):
                self.redirect(part, sep)
            else:
                self.word(part, sep)
            sep = BLANK

    def redirect(self, node: tree.Redirect, sep: Sep) -> None:
        """Write `> file`."""
        self.sign(node.operator, node.start, sep)
        if node.target:
            self.word(node.target, BLANK)


TEXT = writers(
    Prompt=prompt,
    ShellStatement=statement,
    Capture=capture,
    ShellResult=result,
)

"""Patchwork for Pygments: colours for documents and terminals.

The tree decides: what the parser read as a string, a prompt or a command is coloured as one, so the lexer cannot disagree with the
language. What no node covers (keywords, signs, text that made no sense) is read word by word. Pygments finds the lexer by its entry
point; nothing else of the language loads this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
    _TokenType,
)

from bartack.language.parsing._parser import parse
from bartack.language.syntax import _tree as tree

Mark: TypeAlias = tuple[int, int, _TokenType]

CONTEXTUAL = frozenset(("try", "catch", "continue", "do", "task", "agent", "fail", "spawn"))
CONSTANTS = frozenset(("true", "false", "null"))
LEFT = re.compile(
    r"(?P<space>\s+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<quote>[\"'])"
    r"|(?P<value>\$@?\{|\$\(|\(\$|\$)|(?P<bracket>[()\[\]{},;:.@])|(?P<sign>[-+*/%=<>!|&?]+)|(?P<other>.)",
    re.DOTALL,
)
KINDS = {
    "space": Whitespace,
    "number": Number,
    "quote": String.Double,
    "value": String.Interpol,
    "bracket": Punctuation,
    "sign": Operator,
    "other": Text,
}


class PatchworkLexer(Lexer):
    """Patchwork, the language of Bartack."""

    name = "Patchwork"
    aliases: ClassVar[Sequence[str]] = ["patchwork", "pw"]
    filenames: ClassVar[Sequence[str]] = ["*.pw"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-patchwork"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """The tokens of a text, any text; one after the other they are the text."""
        at = 0
        for start, end, kind in _marked(text):
            if start >= at:
                yield from _left(text, at, start)
                yield start, kind, text[start:end]
                at = end
        yield from _left(text, at, len(text))


def _marked(text: str) -> list[Mark]:
    """Stretches of text whose kind the tree knows, in order."""
    parsed = parse(text, "")
    shift = len(text) - len(parsed.source.text)
    if shift > 1:  # not read at all
        return []
    found: list[Mark] = []
    for node in tree.walk(parsed.tree):
        mark = MARKS.get(type(node))
        if mark:
            found.extend(mark(node))
    for comment in parsed.tree.comments:
        kind = Comment.Hashbang if comment.start == 0 and comment.text.startswith("#!") else Comment.Single
        found.append((comment.start, comment.end, kind))
    shifted = ((start + shift, end + shift, kind) for start, end, kind in found if end > start)
    return sorted(shifted, key=lambda mark: mark[0])  # of two at one place, that of the parent comes first


def _left(text: str, start: int, end: int) -> Iterator[tuple[int, _TokenType, str]]:
    """The tokens of text that no node covers."""
    for matched in LEFT.finditer(text, start, end):
        group = matched.lastgroup or "other"
        kind = _word(matched[0]) if group == "word" else KINDS[group]
        yield matched.start(), kind, matched[0]


def _word(word: str) -> _TokenType:
    if word in CONSTANTS:
        return Keyword.Constant
    return Keyword if word in tree.KEYWORDS or word in CONTEXTUAL else Name


def _whole(kind: _TokenType) -> Callable[[tree.Node], Iterable[Mark]]:
    return lambda node: ((node.start, node.end, kind),)


def _declaration(node: tree.Declaration) -> Iterable[Mark]:
    yield node.name.start, node.name.end, Name.Function
    yield from ((one.name.start, one.name.end, Name.Variable) for one in node.parameters.items)


def _binding(node: tree.Binding) -> Iterable[Mark]:
    yield node.name.start, node.name.end, Name.Variable


def _class(node: tree.Trait | tree.TypeDeclaration) -> Iterable[Mark]:
    yield node.name.start, node.name.end, Name.Class


def _annotation(node: tree.Annotation) -> Iterable[Mark]:
    yield node.start, node.name.end, Name.Decorator


def _named_type(node: tree.NamedType) -> Iterable[Mark]:
    yield from ((name.start, name.end, Keyword.Type) for name in node.names)


def _literal_type(node: tree.LiteralType) -> Iterable[Mark]:
    kind = String.Double if isinstance(node.value, str) else Keyword.Constant
    yield node.start, node.end, Number if type(node.value) is float else kind


def _chain(node: tree.Chain) -> Iterable[Mark]:
    called = node.links and isinstance(node.links[0], tree.Call)
    if called and isinstance(node.base, tree.Name) and not node.spelled:
        yield node.base.start, node.base.end, Name.Function


def _member(node: tree.Member) -> Iterable[Mark]:
    yield node.name.start, node.name.end, Name.Attribute


def _string(node: tree.String) -> Iterable[Mark]:
    kind = String.Single if node.raw else String.Double
    yield node.start, node.start + 1, kind
    yield from ((part.start, part.end, kind) for part in node.parts if isinstance(part, tree.Text))
    yield node.end - 1, node.end, kind


def _prompt(node: tree.Prompt) -> Iterable[Mark]:
    yield node.start, node.start + len(node.word), Keyword
    for part in node.parts:
        if isinstance(part, tree.Text):
            yield part.start, part.end, String.Heredoc
        elif isinstance(part, tree.DoBlock):
            yield part.start, part.start + 2, Keyword


def _command(node: tree.Command) -> Iterable[Mark]:
    first = node.words[0]
    if isinstance(first, tree.Word) and first.parts and isinstance(first.parts[0], tree.Bare):
        yield first.parts[0].start, first.parts[0].end, Name.Function


def _redirect(node: tree.Redirect) -> Iterable[Mark]:
    yield node.start, node.start + len(node.operator), Operator


def _assignment(node: tree.Assignment) -> Iterable[Mark]:
    yield node.name.start, node.name.end, Name.Variable


def _marks(**methods: Callable[..., Iterable[Mark]]) -> dict[type[tree.Node], Callable[..., Iterable[Mark]]]:
    return {getattr(tree, name): method for name, method in methods.items()}


MARKS = _marks(
    Declaration=_declaration,
    Trait=_class,
    TypeDeclaration=_class,
    Annotation=_annotation,
    NamedType=_named_type,
    LiteralType=_literal_type,
    Key=_whole(Name.Attribute),
    Binding=_binding,
    Number=_whole(Number),
    SelfValue=_whole(Name.Builtin.Pseudo),
    LastStatus=_whole(Name.Variable.Magic),
    Chain=_chain,
    Member=_member,
    String=_string,
    Prompt=_prompt,
    Variable=_whole(Name.Variable),
    Escape=_whole(String.Escape),
    Command=_command,
    Bare=_whole(String.Other),
    Redirect=_redirect,
    Assignment=_assignment,
)

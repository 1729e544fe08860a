"""How a tree is laid out: each node writes its pieces to a sheet, in the order of the source.

Owns everything but prompts and command lines, which are in `_text.py`. Comments are written in front of the first text
whose place in the source is after them: a newline was allowed there, so it still is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from bartack.language.formatting._kept import Kept
from bartack.language.formatting._sheet import BLANK, LINE, NONE, SOFT, SOFT_BLANK, Group, Sep, Sheet
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Source

TRIVIA = re.compile(r"(?:[ \t\r\n;,]+|#[^\n]*)*")
CRLF = re.compile(r"(?<!\r)\r\n")


# Long because it has one short method per kind of node, and all of them write to one sheet with one position in the source.
class Layout:
    """Writes nodes to a sheet. `last` is the end of what has been written, in the source."""

    def __init__(
        self, source: Source, comments: Sequence[tree.Comment], writers: Mapping[type[tree.Node], Writer]
    ) -> None:
        self.source = source.text
        self.writers = writers
        self.comments = comments
        self.following = 0  # the index of the first comment that is not written yet
        self.next_comment = comments[0].start if comments else len(self.source) + 1
        self.last = 0
        self.sheet = Sheet()
        self.kept = Kept(source, comments)

    # Texts, separators and comments

    def put(self, text: str, start: int, sep: Sep = NONE, *, blank: bool = False) -> None:
        """Write a text that begins at `start` in the source, after a separator and the comments before it."""
        if self.next_comment < start:
            self.flush(start, sep, blank=blank)
            blank = self.blank_before(start)
        if sep:
            self.sheet.separate(sep, blank=blank)
        self.sheet.text(text)
        self.last = start + len(text)

    def add(self, text: str, sep: Sep = NONE) -> None:
        """Write a text whose place does not matter: no comment goes before it."""
        self.sheet.separate(sep)
        self.sheet.text(text)

    def verbatim(self, node: tree.Node, sep: Sep = NONE) -> None:
        """Write what the source has, with the comments in it."""
        self.stretch(node.start, node.end, sep)

    def stretch(self, start: int, end: int, sep: Sep = NONE) -> None:
        """Write a stretch of the source as it is, with the comments in it."""
        text = self.source[start:end]
        self.put(CRLF.sub("\n", text) if "\r" in text else text, start, sep)
        self.last = end
        while self.next_comment < end:
            self.step()

    def flush(self, before: int, sep: Sep, *, blank: bool = False) -> None:
        """Write the comments before an offset; `blank` asks for a blank line before the first that stands alone."""
        while self.next_comment < before:
            comment = self.comments[self.following]
            text = comment.text.rstrip(" \t\r")
            spaced = blank or self.blank_before(comment.start)
            self.sheet.comment(text, alone=comment.alone, blank=spaced, deeper=sep < SOFT)
            blank = blank and not comment.alone
            self.last = comment.end
            self.step()
        if blank:
            self.last = -1

    def step(self) -> None:
        """Skip a comment."""
        self.following += 1
        rest = self.following < len(self.comments)
        self.next_comment = self.comments[self.following].start if rest else len(self.source) + 1

    def blank_before(self, start: int) -> bool:
        """Whether a blank line stands between what was written last and `start`."""
        return self.last < 0 or self.source.count("\n", self.last, start) > 1

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a comment that is not written yet lies in a stretch of text."""
        if self.next_comment >= end:
            return False
        at = self.following
        while at < len(self.comments) and self.comments[at].start < start:
            at += 1
        return at < len(self.comments) and self.comments[at].start < end

    def next_token(self, at: int) -> int:
        """Where the token after `at` begins."""
        matched = TRIVIA.match(self.source, at)
        return matched.end() if matched else at

    # Lists

    def list(
        self,
        brackets: str,
        node: tuple[int, int],
        elements: Sequence[tree.Node],
        *,
        broken: bool = False,
        padded: bool = False,
        sep: Sep = NONE,
    ) -> None:
        """Write elements in brackets; `padded` for a blank inside of them."""
        start, end = node
        if self.kept.list(node, elements, broken=broken):
            self.stretch(start, end, sep)
            return
        self.put(brackets[0], start, sep)
        if not elements and not self.has_comment(start, end):
            self.put(brackets[1], end - 1)
            return
        edge = SOFT_BLANK if padded else SOFT
        hugs = len(elements) == 1 and isinstance(elements[0], tree.Array | tree.Object)
        several = broken or self.has_comment(start, end)
        self.sheet.open_group(Group(several, hugs, kept=self.kept.has(start)))
        self.elements(elements, edge)
        if elements:
            self.sheet.last_comma()
        self.flush(end - 1, edge)
        self.sheet.close_group(edge)
        self.put(brackets[1], end - 1)

    def elements(self, elements: Iterable[tree.Node], sep: Sep) -> None:
        """Write the elements of a list and the commas between them."""
        first = True
        for element in elements:
            if not first:
                self.add(",")
                sep = SOFT_BLANK
            self.element(element, sep)
            first = False

    def element(self, element: tree.Node, sep: Sep) -> None:
        """Write one element of a list."""
        blank = self.blank_before(element.start)
        if self.next_comment < element.start:
            self.flush(element.start, sep)
            blank = self.blank_before(element.start)
        self.sheet.separate(sep, blank=blank)
        self.node(element)

    # Modules and declarations

    def module(self, module: tree.Module) -> None:
        """Write a whole file."""
        if module.script:
            self.node(module.script, LINE)
        self.statements(module.units, items=ITEMS)
        self.flush(len(self.source) + 1, LINE)

    def statements(
        self, units: Sequence[tree.Node], items: tuple[type[tree.Node], ...] = (tree.Declaration,)
    ) -> None:
        """Write statements, each on a line of its own; a blank line stands around those that are `items`."""
        before: tree.Node | None = None
        index = 0
        while index < len(units):
            unit, last = units[index], self.kept.together(units, index)
            apart = before is not None and _apart(before, unit, items)
            self.statement(unit, blank=apart, end=units[last].end if last > index else None)
            before = units[last]
            index = last + 1

    def statement(self, unit: tree.Node, *, blank: bool, end: int | None = None) -> None:
        """Write one statement or declaration; `blank` asks for a blank line before it and its comments.

        All up to `end` is written as it is.
        """
        if self.next_comment < unit.start:
            self.flush(unit.start, LINE, blank=blank)
            blank = False
        self.sheet.separate(LINE, blank=blank or self.blank_before(unit.start))
        if end is None:
            self.node(unit)
            self.last = unit.end
        else:
            self.stretch(unit.start, end)

    def import_(self, node: tree.Import, _sep: Sep) -> None:
        """Write `import a, b`."""
        self.put("import", node.start)
        for index, path in enumerate(node.paths):
            if index:
                self.add(",")
            self.node(path, BLANK)

    def file_path(self, node: tree.FilePath, sep: Sep) -> None:
        """Write `./a` or `./{a, b}`."""
        if not node.braced:
            self.verbatim(node, sep)
            return
        brace = self.source.index("{", node.start)
        self.put(self.source[node.start : brace], node.start, sep)
        self.list("{}", (brace, node.end), node.names, broken=node.broken)

    def dotted(self, node: tree.DottedPath, sep: Sep) -> None:
        """Write `a.b`."""
        for index, name in enumerate(node.names):
            if index:
                self.add(".")
            self.put(name.name, name.start, NONE if index else sep)

    def names_from(self, node: tree.NamesFrom, sep: Sep) -> None:
        """Write `{ a, b } from "./m"`."""
        end = self.next_token(node.names[-1].end) + 1
        self.list("{}", (node.start, end), node.names, broken=node.broken, padded=True, sep=sep)
        self.add("from", BLANK)
        self.node(node.path, BLANK)

    def annotations(self, annotations: Iterable[tree.Annotation]) -> None:
        """Write annotations, each on a line of its own."""
        sep = NONE
        for annotation in annotations:
            self.node(annotation, sep)
            sep = LINE

    def annotation(self, node: tree.Annotation, sep: Sep) -> None:
        """Write `@name` and its argument."""
        self.put("@", node.start, sep)
        self.node(node.name)
        if node.parenthesised:
            inside = (node.argument,) if node.argument else node.named
            self.list("()", (self.next_token(node.name.end), node.end), inside)
        elif node.argument:
            self.node(node.argument, BLANK)

    def named(self, node: tree.NamedArgument, _sep: Sep) -> None:
        """Write `name: value`."""
        self.node(node.name)
        self.add(":")
        self.node(node.value, BLANK)

    def head(self, node: tree.Declaration | tree.Trait | tree.TypeDeclaration, word: str) -> None:
        """Write what stands before the name of a declaration, and the name."""
        words: list[str] = []
        if node.export:
            words.append("export")
        if not isinstance(node, tree.TypeDeclaration):
            self.annotations(node.annotations)
            if node.default:
                words.append("default")
        words.append(word)
        if not isinstance(node, tree.TypeDeclaration) and node.annotations:
            self.put(" ".join(words), self.next_token(node.annotations[-1].end), LINE)
        else:
            self.put(" ".join(words), node.start)
        self.node(node.name, BLANK)

    def declaration(self, node: tree.Declaration, _sep: Sep) -> None:
        """Write a worker, skill or fun."""
        self.head(node, node.spelled or node.word)
        parameters = node.parameters
        self.list("()", parameters.span, parameters.items, broken=parameters.broken)
        if node.result:
            self.add(":")
            self.node(node.result, BLANK)
        self.node(node.body, BLANK)

    def trait(self, node: tree.Trait, _sep: Sep) -> None:
        """Write a trait."""
        self.head(node, "trait")
        at = node.name.end
        if node.bases:
            self.add(":")
            at = node.bases[-1].end
            if node.bracketed:
                opened = self.next_token(self.next_token(node.name.end) + 1)
                at = self.next_token(at) + 1
                self.list("[]", (opened, at), node.bases, sep=BLANK)
            else:
                self.node(node.bases[0], BLANK)
        self.braced((self.next_token(at), node.end), node.methods, BLANK)

    def type_declaration(self, node: tree.TypeDeclaration, _sep: Sep) -> None:
        """Write `type name = type`."""
        self.head(node, "type")
        self.add("=", BLANK)
        self.node(node.type, BLANK)

    def parameter(self, node: tree.Parameter, _sep: Sep) -> None:
        """Write `name: type = default`."""
        self.node(node.name)
        if node.type:
            self.add(":")
            self.node(node.type, BLANK)
        if node.default:
            self.add("=", BLANK)
            self.node(node.default, BLANK)

    # Statements

    def block(self, node: tree.Block, sep: Sep) -> None:
        """Write a block."""
        self.braced(node.span, node.statements, sep)

    def braced(self, span: tuple[int, int], statements: Sequence[tree.Node], sep: Sep) -> None:
        """Write statements in braces."""
        start, end = span
        if self.kept.block(span, statements):
            self.stretch(start, end, sep)
            return
        self.put("{", start, sep)
        if not statements and not self.has_comment(start, end):
            self.put("}", end - 1)
            return
        self.sheet.indent()
        self.statements(statements)
        self.flush(end - 1, LINE)
        self.sheet.dedent()
        self.put("}", end - 1, LINE)

    def if_(self, node: tree.If, _sep: Sep) -> None:
        """Write `if` with all its branches."""
        end = node.start
        for index, branch in enumerate(node.branches):
            if index:
                self.after_block("else", end)
            self.put("if", branch.start, BLANK if index else NONE)
            self.node(branch.condition, BLANK)
            self.node(branch.body, BLANK)
            end = branch.end
        if node.otherwise:
            self.after_block("else", end)
            self.node(node.otherwise, BLANK)

    def after_block(self, word: str, end: int) -> None:
        """Write a word that follows the block ending at `end`: on its line, unless comments stand between them."""
        start = self.next_token(end)
        self.put(word, start, LINE if self.next_comment < start else BLANK)

    def for_(self, node: tree.For, _sep: Sep) -> None:
        """Write `for`."""
        self.put("for var" if node.var else "for", node.start)
        self.node(node.pattern, BLANK)
        self.add("in", BLANK)
        self.node(node.iterable, BLANK)
        self.node(node.body, BLANK)

    def while_(self, node: tree.While, _sep: Sep) -> None:
        """Write `while`."""
        self.put("while", node.start)
        self.node(node.condition, BLANK)
        self.node(node.body, BLANK)

    def var(self, node: tree.Var, _sep: Sep) -> None:
        """Write `var pattern = value`."""
        self.put("var", node.start)
        self.node(node.pattern, BLANK)
        if node.value:
            self.add("=", BLANK)
            self.node(node.value, BLANK)

    def return_(self, node: tree.Return, _sep: Sep) -> None:
        """Write `return`."""
        self.put("return", node.start)
        if node.value:
            self.node(node.value, BLANK)

    def try_(self, node: tree.Try, _sep: Sep) -> None:
        """Write `try` and `catch`."""
        self.put("try", node.start)
        self.node(node.body, BLANK)
        self.after_block("catch", node.body.end)
        if node.name:
            self.node(node.name, BLANK)
        self.node(node.handler, BLANK)

    def write(self, node: tree.Write, _sep: Sep) -> None:
        """Write `value > "file"`."""
        self.node(node.value)
        self.put(node.operator.symbol, node.operator.start, BLANK)
        self.node(node.path, BLANK)

    def expression_statement(self, node: tree.ExpressionStatement, sep: Sep) -> None:
        """Write an expression as a statement."""
        self.node(node.value, sep)

    # Patterns and types

    def binding(self, node: tree.Binding, sep: Sep) -> None:
        """Write `name: type`."""
        self.node(node.name, sep)
        if node.type:
            self.add(":")
            self.node(node.type, BLANK)

    def array_pattern(self, node: tree.ArrayPattern, sep: Sep) -> None:
        """Write `[a, b]`."""
        brackets = "()" if node.spelled else "[]"
        self.list(brackets, node.span, node.elements, broken=node.broken, sep=sep)

    def object_pattern(self, node: tree.ObjectPattern, sep: Sep) -> None:
        """Write `{ a, b: type }`."""
        self.list("{}", node.span, node.fields, broken=node.broken, padded=True, sep=sep)

    def field(self, node: tree.PatternField | tree.TypeField, _sep: Sep) -> None:
        """Write one field of a pattern or type."""
        self.node(node.key)
        if node.type:
            self.add("?:" if isinstance(node, tree.TypeField) and node.optional else ":")
            self.node(node.type, BLANK)

    def named_type(self, node: tree.NamedType, sep: Sep) -> None:
        """Write `ns.name<T>`."""
        for index, name in enumerate(node.names):
            if index:
                self.add(".")
            self.node(name, NONE if index else sep)
        if node.argument:
            self.add("<")
            self.node(node.argument)
            self.add(">")

    def array_type(self, node: tree.ArrayType, sep: Sep) -> None:
        """Write `[T]`."""
        self.put("[", node.start, sep)
        self.node(node.element)
        self.put("]", node.end - 1)

    def object_type(self, node: tree.ObjectType, sep: Sep) -> None:
        """Write `{ a: T }`."""
        self.list("{}", node.span, node.fields, broken=node.broken, padded=True, sep=sep)

    def union(self, node: tree.UnionType, sep: Sep) -> None:
        """Write `T | U`, broken where the source is."""
        end = self.last
        indented = False
        for index, member in enumerate(node.members):
            if index or node.leading:
                at = self.next_token(end) if index else node.start
                breaks = self.breaks(end, at)
                if breaks and not indented:
                    self.sheet.indent()
                    indented = True
                self.put("|", at, LINE if breaks else BLANK if index else sep)
                sep = BLANK
            self.node(member, sep)
            end = member.end
        if indented:
            self.sheet.dedent()

    def breaks(self, end: int, start: int) -> bool:
        """Whether a newline stands between two places."""
        return self.source.find("\n", end, start) >= 0

    def paren_type(self, node: tree.ParenType, sep: Sep) -> None:
        """Write `(T)`."""
        self.put("(", node.start, sep)
        self.node(node.type)
        self.put(")", node.end - 1)

    def function_type(self, node: tree.FunctionType, sep: Sep) -> None:
        """Write `fun(T) -> U`."""
        self.put("fun", node.start, sep)
        opened = self.next_token(node.start + 3)
        last = node.parameters[-1].end if node.parameters else opened + 1
        self.list("()", (opened, self.next_token(last) + 1), node.parameters)
        self.add("->", BLANK)
        self.node(node.result, BLANK)

    # Expressions

    def throw(self, node: tree.Throw, sep: Sep) -> None:
        """Write `throw value`, or its old spelling."""
        self.put(node.spelled or "throw", node.start, sep)
        if node.value.start > node.start:
            self.node(node.value, BLANK)

    def assign(self, node: tree.Assign, sep: Sep) -> None:
        """Write `target = value`."""
        self.node(node.target, sep)
        self.put(node.operator.symbol, node.operator.start, BLANK)
        self.node(node.value, BLANK)

    def binary(self, node: tree.Binary, sep: Sep) -> None:
        """Write operands and operators, broken before `||` and `&&` where the source is."""
        self.node(node.operands[0], sep)
        indented = False
        for before, operator, operand in zip(node.operands, node.operators, node.operands[1:], strict=False):
            breaks = operator.symbol in {"||", "&&"} and self.breaks(before.end, operator.start)
            if breaks and not indented:
                self.sheet.indent()
                indented = True
            written = self.source[operator.start : operator.end]
            self.put(written, operator.start, LINE if breaks else BLANK)
            self.node(operand, BLANK)
        if indented:
            self.sheet.dedent()

    def range(self, node: tree.Range, sep: Sep) -> None:
        """Write `low...high`."""
        self.node(node.low, sep)
        self.add("...")
        self.node(node.high)

    def unary(self, node: tree.Unary, sep: Sep) -> None:
        """Write `!x` or `-x`; two signs in a row would be another one."""
        self.put(node.symbol, node.start, sep)
        inner = node.operand
        twice = node.symbol == "-" and isinstance(inner, tree.Unary) and inner.symbol == "-"
        self.node(inner, BLANK if twice else NONE)

    def await_(self, node: tree.Await, sep: Sep) -> None:
        """Write the old prefix `await`."""
        self.put("await", node.start, sep)
        self.node(node.operand, BLANK)

    def chain(self, node: tree.Chain, sep: Sep) -> None:
        """Write a value and what is written after it, broken before `.` where the source is."""
        if node.spelled:
            self.old_delegate(node, sep)
            return
        self.node(node.base, sep)
        end = node.base.end
        indented = False
        for link in node.links:
            breaks = isinstance(link, tree.Member | tree.AwaitMember) and self.breaks(end, link.start)
            if breaks and not indented:
                self.sheet.indent()
                indented = True
            self.node(link, LINE if breaks else NONE)
            end = link.end
        if indented:
            self.sheet.dedent()

    def old_delegate(self, node: tree.Chain, sep: Sep) -> None:
        """Write a delegate in its old spelling."""
        call = cast("tree.Call", node.links[-1])
        calls = cast("tree.Array", call.arguments[0])
        self.put(node.spelled.removesuffix("()"), node.start, sep)
        if node.spelled != "await task":
            self.list("()", calls.span, calls.elements, broken=calls.broken)
            return
        for index, element in enumerate(calls.elements):
            if index:
                self.add(",")
            self.node(element, BLANK)

    def member(self, node: tree.Member, sep: Sep) -> None:
        """Write `.name`."""
        self.put(".", node.start, sep)
        self.node(node.name)

    def await_member(self, node: tree.AwaitMember, sep: Sep) -> None:
        """Write `.await`."""
        self.put(".await", node.start, sep)

    def call(self, node: tree.Call, sep: Sep) -> None:
        """Write `(arguments)`."""
        first = (node.old_self,) if node.old_self else ()
        self.list("()", node.span, (*first, *node.arguments), broken=node.broken, sep=sep)

    def index(self, node: tree.Index, sep: Sep) -> None:
        """Write `[index]`."""
        self.put("[", node.start, sep)
        self.node(node.index)
        self.put("]", node.end - 1)

    def array(self, node: tree.Array, sep: Sep) -> None:
        """Write `[a, b]`."""
        self.list("[]", node.span, node.elements, broken=node.broken, sep=sep)

    def object(self, node: tree.Object, sep: Sep) -> None:
        """Write `{ a: 1 }`."""
        self.list("{}", node.span, node.fields, broken=node.broken, padded=True, sep=sep)

    def object_field(self, node: tree.ObjectField, _sep: Sep) -> None:
        """Write `key: value`."""
        self.node(node.key)
        if not node.short:
            self.add(":")
            self.node(node.value, BLANK)

    def spread(self, node: tree.Spread, _sep: Sep) -> None:
        """Write `...value`."""
        self.put("...", node.start)
        self.node(node.value)

    def paren(self, node: tree.Paren, sep: Sep) -> None:
        """Write `(value)`."""
        self.put("(", node.start, sep)
        self.node(node.value)
        self.put(")", node.end - 1)

    def read_file(self, node: tree.ReadFile, sep: Sep) -> None:
        """Write `json < "file"`."""
        self.node(node.reader, sep)
        self.add("<", BLANK)
        self.node(node.path, BLANK)

    def node(self, node: tree.Node, sep: Sep = NONE) -> None:
        """Write any node."""
        write = self.writers.get(type(node))
        if write is None:
            self.verbatim(node, sep)
        else:
            write(self, node, sep)


def _apart(before: tree.Node, unit: tree.Node, items: tuple[type[tree.Node], ...]) -> bool:
    """Whether a blank line always stands between two units: one of them is an item, and not both are imports."""
    if isinstance(before, tree.Import) and isinstance(unit, tree.Import):
        return False
    return isinstance(before, items) or isinstance(unit, items)


ITEMS = (tree.Import, tree.Declaration, tree.Trait, tree.TypeDeclaration)
Writer: TypeAlias = Callable[[Layout, tree.Node, Sep], None]


def writers(**methods: Callable[..., None]) -> dict[type[tree.Node], Writer]:
    """A table of what writes which kind of node, by the names of the kinds."""
    return {getattr(tree, name): method for name, method in methods.items()}


CODE = writers(
    Import=Layout.import_,
    FilePath=Layout.file_path,
    DottedPath=Layout.dotted,
    NamesFrom=Layout.names_from,
    Annotation=Layout.annotation,
    NamedArgument=Layout.named,
    Declaration=Layout.declaration,
    Trait=Layout.trait,
    TypeDeclaration=Layout.type_declaration,
    Parameter=Layout.parameter,
    Block=Layout.block,
    If=Layout.if_,
    For=Layout.for_,
    While=Layout.while_,
    Var=Layout.var,
    Return=Layout.return_,
    Try=Layout.try_,
    Write=Layout.write,
    ExpressionStatement=Layout.expression_statement,
    Binding=Layout.binding,
    ArrayPattern=Layout.array_pattern,
    ObjectPattern=Layout.object_pattern,
    PatternField=Layout.field,
    TypeField=Layout.field,
    NamedType=Layout.named_type,
    ArrayType=Layout.array_type,
    ObjectType=Layout.object_type,
    UnionType=Layout.union,
    ParenType=Layout.paren_type,
    FunctionType=Layout.function_type,
    Throw=Layout.throw,
    Assign=Layout.assign,
    Binary=Layout.binary,
    Range=Layout.range,
    Unary=Layout.unary,
    Await=Layout.await_,
    Chain=Layout.chain,
    Member=Layout.member,
    AwaitMember=Layout.await_member,
    Call=Layout.call,
    Index=Layout.index,
    Array=Layout.array,
    Object=Layout.object,
    ObjectField=Layout.object_field,
    Spread=Layout.spread,
    Paren=Layout.paren,
    ReadFile=Layout.read_file,
)

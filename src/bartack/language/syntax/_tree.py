"""The syntax tree of Patchwork: one tree for runner, checker, formatter, highlighter and editor.

How to read it:

- Every node has `start` and `end`, offsets into the text of its `Source`; `node.span` gives both. What a node was
  written like is therefore always `source[node.span]`: numbers, strings and names keep their spelling there.
- Nodes are values: nothing changes after parsing. They compare and hash by identity, so a table keyed by node
  (`dict[tree.Node, ...]`) is how later passes keep what they find out.
- Sequences are tuples. A list in brackets has `broken`: the source has a newline after its opener.
- What associates to the left is *flat*, however long: `Binary` holds all operands of one level of precedence, `Chain`
  all members, calls and indexes after a value, `If` all its branches. So the depth of a tree is the depth of what was
  nested in the source, at most `MAX_DEPTH`, and recursive passes are safe.
- Parentheses (`Paren`, `ParenType`) and the old prefix `await` (`Await`) are kept and mean what is inside them;
  `bare()` looks through them.
- Comments are in `Module.comments`, in order; a declaration also has those directly above it as `doc`. Blank lines are
  not kept: the source knows them.
- Old spellings are in the tree as what they mean. What differs in spelling is said by a field `spelled` (empty for the
  modern spelling), so that the formatter can leave them alone.
- Where the text made no sense stands an `Error`; a name that is missing is an `Identifier` with the name "". Both have
  been reported and must stay silent afterwards.

Nodes are listed top down: module and declarations, statements, patterns, types, expressions, text, shell. `parsing/_parser.py`
makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec

from bartack.language.syntax._source import Span

MAX_DEPTH = 200
"""How deep anything may be nested in the source."""

KEYWORDS = frozenset(
    (
        *(
            "import",
            "export",
            "from",
            "var",
            "if",
            "else",
            "for",
            "while",
            "await",
            "worker",
            "trait",
            "skill",
        ),
        *("fun", "default", "type", "return", "succeed", "throw", "break", "self", "in", "true", "false"),
        *("think", "ask"),
    )
)
"""Words that cannot name a declaration, variable or parameter."""


class Node(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Anything in the tree. Covers the text from `start` up to `end`."""

    start: int
    end: int

    @property
    def span(self) -> Span:
        """The text the node covers."""
        return Span(self.start, self.end)


class Comment(Node, frozen=True):
    """From `#` to the end of the line, `text` without the line end; `alone` when nothing stands before it on its line."""

    text: str
    alone: bool


class Identifier(Node, frozen=True):
    """A name where it is declared, or written as a member, key word or part of a path; "" when it is missing."""

    name: str


class Error(Node, frozen=True):
    """Text that made no sense; already reported."""


class Module(Node, frozen=True):
    """A whole file.

    `script` is its one block when the file starts with `{`, and `units` is empty then. `comments` are all comments of
    the file, wherever they stand, in order.
    """

    units: tuple[Unit, ...]
    script: Block | None
    comments: tuple[Comment, ...]


# Declarations


class Import(Node, frozen=True):
    """`import` and what follows it."""

    paths: tuple[ImportPath, ...]


class FilePath(Node, frozen=True):
    """`./a`, `../lib/a`, `./{a, b}`: modules beside or above the importing file.

    `up` is the number of `../`, `folders` the words before the last `/`. `braced` distinguishes `./{a}` from `./a`.
    """

    up: int
    folders: tuple[Identifier, ...]
    names: tuple[Identifier, ...]
    braced: bool
    broken: bool


class DottedPath(Node, frozen=True):
    """`a.b`: the module `a/b.pw`, or a part of the library when the first name is `std`."""

    names: tuple[Identifier, ...]


class NamesFrom(Node, frozen=True):
    """`{x, y} from "./m"`: names out of one module."""

    names: tuple[Identifier, ...]
    path: String
    broken: bool


class Annotation(Node, frozen=True):
    """`@name`, with at most one of: a value after it (`argument`), or named values in parentheses (`named`)."""

    name: Identifier
    argument: Expression | None
    named: tuple[NamedArgument, ...]
    parenthesised: bool


class NamedArgument(Node, frozen=True):
    """`name: value` in the parentheses of an annotation."""

    name: Identifier
    value: Expression


class Parameters(Node, frozen=True):
    """The parameters of a declaration with their parentheses."""

    items: tuple[Parameter, ...]
    broken: bool


class Parameter(Node, frozen=True):
    """`name`, `name: type`, `name: type = default`."""

    name: Identifier
    type: Type | None
    default: Expression | None


class Declaration(Node, frozen=True):
    """A `worker`, `skill` or `fun`, at the top of a module or (a `fun`) in a trait.

    The span begins at the first annotation or modifier. `spelled` is `task` or `agent` for a worker declared by its
    old word. `body` is an `Error` when it is missing.
    """

    word: Literal["worker", "skill", "fun"]
    name: Identifier
    parameters: Parameters
    result: Type | None
    body: Block | Error
    annotations: tuple[Annotation, ...]
    export: bool
    default: bool
    doc: tuple[Comment, ...]
    spelled: Literal["", "task", "agent"]


class Trait(Node, frozen=True):
    """A `trait` with its methods. `bracketed` when the bases stand in `[ ]`."""

    name: Identifier
    bases: tuple[Type, ...]
    bracketed: bool
    methods: tuple[Declaration | Error, ...]
    annotations: tuple[Annotation, ...]
    export: bool
    default: bool
    doc: tuple[Comment, ...]


class TypeDeclaration(Node, frozen=True):
    """`type name = type`, as an item or as a statement."""

    name: Identifier
    type: Type
    export: bool
    doc: tuple[Comment, ...]


# Statements


class Block(Node, frozen=True):
    """`{ … }` with statements. The span includes the braces."""

    statements: tuple[Statement, ...]


class If(Node, frozen=True):
    """`if` with its `else if`s as `branches`, and the last `else` as `otherwise`."""

    branches: tuple[Branch, ...]
    otherwise: Block | Error | None


class Branch(Node, frozen=True):
    """One condition and its block; the span begins at its `if`."""

    condition: Expression
    body: Block | Error


class For(Node, frozen=True):
    """`for pattern in iterable { … }`; `var` when that word was written."""

    var: bool
    pattern: Pattern
    iterable: Expression
    body: Block | Error


class While(Node, frozen=True):
    """`while condition { … }`."""

    condition: Expression
    body: Block | Error


class Var(Node, frozen=True):
    """`var pattern = value`."""

    pattern: Pattern
    value: Expression | None


class Return(Node, frozen=True):
    """`return`, with or without a value."""

    value: Expression | None


class Succeed(Node, frozen=True):
    """`succeed`."""


class Break(Node, frozen=True):
    """`break`."""


class Continue(Node, frozen=True):
    """`continue`."""


class Try(Node, frozen=True):
    """`try { … } catch name { … }`."""

    body: Block | Error
    name: Identifier | None
    handler: Block | Error


class ShellStatement(Node, frozen=True):
    """`$ command`, to the end of its line."""

    shell: ShellList


class Write(Node, frozen=True):
    """`value > "file"` or `value >> "file"` as a statement: write or append."""

    value: Expression
    operator: Operator
    path: String


class ExpressionStatement(Node, frozen=True):
    """An expression as a statement."""

    value: Expression


# Patterns


class Discard(Node, frozen=True):
    """`_`."""


class Binding(Node, frozen=True):
    """A name that is bound, with the type written after it."""

    name: Identifier
    type: Type | None


class ArrayPattern(Node, frozen=True):
    """`[a, _, {b}]`; `spelled` is `(` for the old `(a, _, b)`."""

    elements: tuple[Pattern, ...]
    broken: bool
    spelled: Literal["", "("]


class ObjectPattern(Node, frozen=True):
    """`{a, b: type}`."""

    fields: tuple[PatternField, ...]
    broken: bool


class PatternField(Node, frozen=True):
    """One field of an object pattern; a key that is a keyword or a string binds nothing."""

    key: Key
    type: Type | None


class Key(Node, frozen=True):
    """The key of a field. `quoted` when it was written as a string; then `name` is the string's value."""

    name: str
    quoted: bool


# Types


class NamedType(Node, frozen=True):
    """`name`, `ns.name`, `array<T>`: one or more names and an optional argument."""

    names: tuple[Identifier, ...]
    argument: Type | None


class LiteralType(Node, frozen=True):
    """A string, number, `true`, `false` or `null` that accepts exactly itself."""

    value: str | float | bool | None


class ArrayType(Node, frozen=True):
    """`[T]`."""

    element: Type


class ObjectType(Node, frozen=True):
    """`{a: T, b?: U}`."""

    fields: tuple[TypeField, ...]
    broken: bool


class TypeField(Node, frozen=True):
    """One field of an object type."""

    key: Key
    optional: bool
    type: Type


class UnionType(Node, frozen=True):
    """`T | U`; `leading` when a `|` stands before the first."""

    members: tuple[Type, ...]
    leading: bool


class ParenType(Node, frozen=True):
    """`(T)`."""

    type: Type


class FunctionType(Node, frozen=True):
    """`fun(T, U) -> V`: part of the grammar, without meaning so far."""

    parameters: tuple[Type, ...]
    result: Type


# Expressions


class Operator(Node, frozen=True):
    """An operator between two operands, as it is meant: `==` for an `=` in a condition."""

    symbol: str


class Throw(Node, frozen=True):
    """`throw value`; `spelled` is `fail` for the old word. A lone `fail` throws the string "failed"."""

    value: Expression
    spelled: Literal["", "fail"]


class Assign(Node, frozen=True):
    """`target = value` and `+=` and so on. Whether the target can be assigned to is not decided here."""

    target: Expression
    operator: Operator
    value: Expression


class Binary(Node, frozen=True):
    """Operands of one level of precedence, from left to right, with the operators between them.

    The levels: `|`; `||`; `&&`; `== != < > <= >=`; `+ -`; `* / %`. There is always one operator less than operands.
    """

    operands: tuple[Expression, ...]
    operators: tuple[Operator, ...]


class Range(Node, frozen=True):
    """`low...high`."""

    low: Expression
    high: Expression


class Unary(Node, frozen=True):
    """`!operand` or `-operand`."""

    symbol: Literal["!", "-"]
    operand: Expression


class Await(Node, frozen=True):
    """The old prefix `await operand`, which means `operand`."""

    operand: Expression


class Chain(Node, frozen=True):
    """A value and what is written after it: members, calls, indexes, `++`, `--`, `.await`.

    `spelled` names the old spelling of a `self.delegate([…])`: `await task a(x), b(y)`, `await task(a(x), b(y))` or
    `spawn(a(x))`. The tree is that of the modern spelling; its array then holds the calls.
    """

    base: Expression
    links: tuple[Link, ...]
    spelled: Literal["", "await task", "await task()", "spawn"]


class Member(Node, frozen=True):
    """`.name`."""

    name: Identifier


class AwaitMember(Node, frozen=True):
    """`.await`, which changes nothing."""


class Call(Node, frozen=True):
    """`(arguments)`.

    A first argument that is just `self`, as it was once written for workers, is `old_self` and not among the arguments.
    """

    arguments: tuple[Expression, ...]
    old_self: SelfValue | None
    broken: bool


class Index(Node, frozen=True):
    """`[index]`."""

    index: Expression


class Increment(Node, frozen=True):
    """`++` or `--`."""

    symbol: Literal["++", "--"]


class Name(Node, frozen=True):
    """A name that is used as a value."""

    name: str


class Number(Node, frozen=True):
    """A number; always finite."""

    value: float


class Boolean(Node, frozen=True):
    """`true` or `false`."""

    value: bool


class Null(Node, frozen=True):
    """`null`."""


class SelfValue(Node, frozen=True):
    """`self`."""


class LastStatus(Node, frozen=True):
    """`$?`."""


class Array(Node, frozen=True):
    """`[a, ...b]`."""

    elements: tuple[Expression | Spread, ...]
    broken: bool


class Object(Node, frozen=True):
    """`{key: value, name, ...rest}`."""

    fields: tuple[ObjectField | Spread, ...]
    broken: bool


class ObjectField(Node, frozen=True):
    """`key: value`; `short` for a lone `name`, whose value is then a `Name` over the same text."""

    key: Key
    value: Expression
    short: bool


class Spread(Node, frozen=True):
    """`...value` in an array or object."""

    value: Expression


class Paren(Node, frozen=True):
    """`(value)`."""

    value: Expression


class ReadFile(Node, frozen=True):
    """`json < "file"`, `cat < "file"`, `read < "file"`.

    Only the names decide whether this is what it looks like: where `reader` is declared by the program, it is a comparison.
    """

    reader: Name
    path: String


class Prompt(Node, frozen=True):
    """`think { … }` or `ask { … }`. `opener` is the offset of the brace."""

    word: Literal["think", "ask"]
    opener: int
    parts: tuple[PromptPart, ...]


class Capture(Node, frozen=True):
    """`$(command)`: a string, in code, strings, prompts and words."""

    shell: ShellList


class ShellResult(Node, frozen=True):
    """`($ command)`: a result object."""

    shell: ShellList


# Text with values in it


class String(Node, frozen=True):
    """`"…"` or `'…'`, with its parts; `raw` for the latter. Adjacent texts are one part."""

    parts: tuple[TextPart, ...]
    raw: bool

    @property
    def literal(self) -> str | None:
        """The value, if it is the same always: no part is computed."""
        if not self.parts:
            return ""
        first = self.parts[0]
        return first.value if len(self.parts) == 1 and isinstance(first, Text) else None


class Text(Node, frozen=True):
    """Text that stands for itself: escapes are resolved, CRLF is LF, and that of a prompt is dedented.

    It is never empty: a text of a prompt that was only indentation is left out.
    """

    value: str


class Variable(Node, frozen=True):
    """`$name` in a string, prompt or word."""

    name: str


class Interpolation(Node, frozen=True):
    """`${value}` in a string, prompt or word."""

    value: Expression


class Splice(Node, frozen=True):
    """`$@{value}`: the elements of a list in a string or prompt; in a command a whole word, one argument for each."""

    value: Expression


class Escape(Node, frozen=True):
    """One character taken literally: `$'c'` in a prompt, a backslash and `c` in a bare word."""

    value: str


class DoBlock(Node, frozen=True):
    """`do { … }` in a prompt: a tool. `number` counts from 1 in its prompt."""

    number: int
    body: Block


# Shell


class ShellList(Node, frozen=True):
    """Pipelines joined by `&&` and `||`, which are equal in precedence and read from left to right."""

    pipelines: tuple[Pipeline, ...]
    operators: tuple[Operator, ...]


class Pipeline(Node, frozen=True):
    """Commands joined by `|`."""

    commands: tuple[Command | ShellGroup | Error, ...]


class Command(Node, frozen=True):
    """A program with its arguments. Redirects may stand between the words; order by `start` gives the source's order."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word | Splice, ...]
    redirects: tuple[Redirect, ...]


class ShellGroup(Node, frozen=True):
    """`( … )` in a command line."""

    shell: ShellList
    redirects: tuple[Redirect, ...]


class Assignment(Node, frozen=True):
    """`NAME=value` before a program; `value` may have no parts."""

    name: Identifier
    value: Word


class Redirect(Node, frozen=True):
    """A redirect as it is written. `target` is missing exactly for `2>&1`, `1>&2` and `>&2`."""

    operator: RedirectOperator
    target: Word | None


class Word(Node, frozen=True):
    """Adjacent parts that make one argument. Only `Bare` parts glob, and only a `~` that starts one is the home directory."""

    parts: tuple[WordPart, ...]


class Bare(Node, frozen=True):
    """Unquoted text of a word. Never contains a backslash that was taken as an escape: that is an `Escape`."""

    value: str


RedirectOperator: TypeAlias = Literal[">", ">>", "<", "1>", "2>", "1>>", "2>>", "2>&1", "1>&2", ">&2"]
ImportPath: TypeAlias = FilePath | DottedPath | NamesFrom | Error
Item: TypeAlias = Import | Declaration | Trait | TypeDeclaration
Statement: TypeAlias = (
    If
    | For
    | While
    | Var
    | TypeDeclaration
    | Return
    | Succeed
    | Break
    | Continue
    | Try
    | ShellStatement
    | Write
    | ExpressionStatement
    | Error
)
Unit: TypeAlias = Item | Statement
Pattern: TypeAlias = Discard | Binding | ArrayPattern | ObjectPattern | Error
Type: TypeAlias = (
    NamedType | LiteralType | ArrayType | ObjectType | UnionType | ParenType | FunctionType | Error
)
Link: TypeAlias = Member | AwaitMember | Call | Index | Increment
Expression: TypeAlias = (
    Throw
    | Assign
    | Binary
    | Range
    | Unary
    | Await
    | Chain
    | Name
    | Number
    | Boolean
    | Null
    | SelfValue
    | LastStatus
    | String
    | Array
    | Object
    | Paren
    | ReadFile
    | Prompt
    | Capture
    | ShellResult
    | Error
)
TextPart: TypeAlias = Text | Variable | Interpolation | Splice | Capture
PromptPart: TypeAlias = TextPart | Escape | DoBlock
WordPart: TypeAlias = Bare | Escape | String | Variable | Interpolation | Capture | Error

N = TypeVar("N", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly inside `node`, field by field; comments are not among them."""
    for field in node.__struct_fields__[2:]:
        value: object = getattr(node, field)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple) and field not in {"comments", "doc"}:
            yield from cast("tuple[Node, ...]", value)


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, parents before children."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(children(node))))


def find(node: Node, kind: type[N]) -> Iterator[N]:
    """All nodes of one kind in `node`, in the order of `walk`."""
    return (found for found in walk(node) if isinstance(found, kind))


def bare(expression: Expression) -> Expression:
    """The expression inside parentheses and old `await`s."""
    while True:
        if isinstance(expression, Paren):
            expression = expression.value
        elif isinstance(expression, Await):
            expression = expression.operand
        else:
            return expression


def same(left: Node, right: Node) -> bool:
    """Whether two trees mean the same: equal but for spans, comments, line breaks in lists and old spellings."""
    while isinstance(left, Await):
        left = left.operand
    while isinstance(right, Await):
        right = right.operand
    kind = type(left)
    if kind is not type(right):
        return False
    get = _MEANING.get(kind) or _meaning(kind)
    return all(map(_same_part, get(left), get(right)))


def _same_part(left: object, right: object) -> bool:
    """Whether two fields are the same: nodes, tuples of nodes, or plain values."""
    if isinstance(left, tuple):
        parts, others = cast("tuple[Node, ...]", left), cast("tuple[Node, ...]", right)
        return len(parts) == len(others) and all(map(same, parts, others))
    if isinstance(left, Node):
        return isinstance(right, Node) and same(left, right)
    return left == right and type(left) is type(right)


_INCIDENTAL = frozenset({"start", "end", "opener", "comments", "doc", "broken", "spelled", "old_self"})
_MEANING: dict[type[Node], Callable[[object], tuple[object, ...]]] = {}


def _meaning(kind: type[Node]) -> Callable[[object], tuple[object, ...]]:
    """What gives the fields of a node that are not incidental."""
    names = tuple(name for name in kind.__struct_fields__ if name not in _INCIDENTAL)

    def get(node: object) -> tuple[object, ...]:
        return tuple(getattr(node, name) for name in names)

    many: Callable[[object], tuple[object, ...]] = attrgetter(*names) if len(names) > 1 else get
    _MEANING[kind] = many
    return many


def shape(node: object) -> object:
    """What a tree means, as `same` compares it: nested tuples of kinds and values."""
    if isinstance(node, Await):
        return shape(node.operand)
    if isinstance(node, Node):
        names = (name for name in node.__struct_fields__ if name not in _INCIDENTAL)
        return (type(node).__name__, *(shape(getattr(node, name)) for name in names))
    if isinstance(node, tuple):
        return tuple(shape(part) for part in cast("tuple[object, ...]", node))
    return node

"""The parser of Patchwork: text goes in, a tree and diagnostics come out.

Owns modules and declarations. Below it, each on top of the next: statements, expressions, types and patterns, command
lines, strings and prompts, and the cursor. All are one object, since all are one grammar over one cursor.

It never raises and it always makes a tree. After an error it continues at the end of the line, at the `}` of a block or at
the next declaration, whichever comes first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from bartack.language.parsing._cursor import NEXT_DECLARATION, WORD, Brackets, TooDeep
from bartack.language.parsing._statement import StatementParser
from bartack.language.parsing._type import Bracketed
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._depth import make_room
from bartack.language.syntax._diagnostics import Diagnostic, Fix, diagnose, settle
from bartack.language.syntax._near import OTHER_TYPES, OTHER_WORDS, OWN_TYPES, nearest
from bartack.language.syntax._source import (
    DIRECTIONS,
    MAX_BYTES,
    Source,
    Span,
    Undecodable,
    decode,
    faults_of,
)

OLD_WORKER = re.compile(rf"[ \t]+{WORD}[ \t]*\(")
FILE_PATH = re.compile(rf"(\./|(?:\.\./)+)((?:{WORD}/)*)")
MOST_PARAMETERS = 100
BODY_FOLLOWS = re.compile(rf"[ \t]+{WORD}[ \t]*\([^()\n]{{0,200}}\)[^\n{{]{{0,80}}\{{")
"""What follows the keyword of a declaration on its line."""
TYPE_PARAMETERS = re.compile(rf"<[ \t]*{WORD}(?:[ \t]*,[ \t]*{WORD}){{0,20}}[ \t]*>")
NAME = re.compile(WORD)


class Parsed(NamedTuple):
    """A file that has been parsed: its tree, what is to be said about it, and its text."""

    tree: tree.Module
    diagnostics: tuple[Diagnostic, ...]
    source: Source


class Modifiers(NamedTuple):
    """What stands before the word of a declaration."""

    start: int
    doc: tuple[tree.Comment, ...]
    annotations: tuple[tree.Annotation, ...]
    export: bool
    default: bool


def parse(text: str | bytes, name: str) -> Parsed:
    """Parse the text of the file `name`.

    Never raises: whatever is wrong is among the diagnostics, which are in the order of their places.
    """
    make_room()
    read = decode(text) if isinstance(text, bytes) else faults_of(text) or text
    if isinstance(read, Undecodable):
        return _unreadable("PW100", read.message, name)
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
    if size > MAX_BYTES:
        return _unreadable("PW110", "this file is larger than 4 MiB", name)
    source = Source(read, name)
    parser = Parser(source)
    module = parser.module()
    if not source.text.isascii():
        parser.found.extend(_hidden_directions(source, parser.found))
    return Parsed(module, settle(parser.found, source, module), source)


def _hidden_directions(source: Source, found: list[Diagnostic]) -> list[Diagnostic]:
    """Report characters that change the direction of text, wherever they stand: also in text and in comments."""
    known = {one.span.start for one in found if one.code == "PW101"}
    return [
        diagnose(
            "PW101",
            f"unexpected character `U+{ord(run[0][0]):04X}` ({unicodedata.name(run[0][0]).lower()})",
            source.name,
            Span(*run.span()),
            helps=(
                f"it changes the order in which text is displayed; leave it out, or write `\\u{{{ord(run[0][0]):X}}}` in a string",
            ),
        )
        for run in DIRECTIONS.finditer(source.text)
        if known.isdisjoint(range(*run.span()))
    ]


def _unreadable(code: str, message: str, name: str) -> Parsed:
    nothing = tree.Module(0, 0, (), None, ())
    return Parsed(nothing, (diagnose(code, message, name, Span(0, 0)),), Source("", name))


# Long because a recursive-descent parser has one method per production, with the recovery of each beside it.
class Parser(StatementParser):
    """Reads modules and their declarations."""

    def module(self) -> tree.Module:
        """Read the whole text."""
        self.advance()
        units: list[tree.Unit] = []
        script: tree.Block | None = None
        if self.kind == "{":
            found = self.safely(self.script)
            if isinstance(found, tree.Block):
                script = found
            else:
                units.append(found)
        while self.kind:
            self.next_unit(units)
        return tree.Module(0, len(self.text), tuple(units), script, tuple(self.comments))

    def script(self) -> tree.Block | tree.Error:
        """Read the block that is a whole program; what follows it is reported and left out."""
        block = self.block("the start")
        if self.kind:
            self.fail("PW115", "nothing may follow a script block")
            self.skip_rest()
        return block

    def skip_rest(self) -> None:
        """Go to the end of the text, keeping the comments of what is left out."""
        nested = Brackets()
        while self.kind:
            self.skip_token(nested)

    def next_unit(self, units: list[tree.Unit]) -> None:
        """Read one unit and what ends it."""
        if self.kind == ";":
            self.advance()
            return
        at = self.start
        self.late = None
        if self.kind == "}":
            self.fail("PW104", "`}` closes nothing")
            self.advance()
            return
        unit = self.safely(self.unit)
        units.append(self.safely(lambda: self.end_unit(unit)))
        if self.start == at and self.kind:
            self.safely(self.skip_unit)

    def skip_unit(self) -> tree.Error:
        """Skip what is not a unit."""
        start = self.start
        self.skip_line()
        return tree.Error(start, self.before)

    def end_unit(self, unit: tree.Unit) -> tree.Unit:
        """Expect the end of a unit; returns what is left of it."""
        if not isinstance(unit, tree.Import | tree.Declaration | tree.Trait):
            return self.ended(unit)
        if not (self.newline or self.kind in {";", "}", ""}):
            self.unexpected("the end of the line")
            if self.kind not in DECLARATIONS:
                self.skip_line()
        return unit

    def safely(self, read: Callable[[], tree.Node]) -> tree.Unit:
        """Read something; when it is nested too deeply, continue at the next declaration."""
        start = self.start
        try:
            return cast("tree.Unit", read())
        except TooDeep:
            self.depth = self.embedded = self.braces = 0
            self.closers.clear()
            self.free = self.equality = self.in_line = False
            reached = self.found[-1].span.start
            following = NEXT_DECLARATION.search(self.text, reached)
            self.resume(following.start() - 1 if following else len(self.text))
            return tree.Error(start, self.before)

    def unit(self) -> tree.Unit:
        """Read a declaration or a statement at the top of the file."""
        if self.kind in DECLARATIONS or self.is_old_worker():
            return self.declaration()
        if (
            self.kind == "name"
            and OTHER_WORDS.get(self.value) == "fun"
            and OLD_WORKER.match(self.text, self.end)
        ):
            self.unexpected("a declaration", *self.advice())
            self.kind = "fun"
            return self.declaration()
        return self.misspelled() or self.statement()

    def misspelled(self) -> tree.Unit | None:
        """Read a declaration whose word is misspelled, and say so; none when no declaration is meant."""
        if self.kind != "name" or not BODY_FOLLOWS.match(self.text, self.end):
            return None
        meant = nearest(self.value, ("worker", "skill", "fun"))
        if meant is None:
            return None
        fix = Fix(self.start, self.end, meant)
        message = f"expected a declaration, found `{self.value}`"
        self.fail("PW105", message, helps=(f"did you mean `{meant}`?",), fix=fix)
        self.kind = meant
        return self.declaration()

    def is_old_worker(self) -> bool:
        """Whether a worker is declared here by an old word."""
        return (
            self.kind == "name"
            and self.value in {"task", "agent"}
            and bool(OLD_WORKER.match(self.text, self.end))
        )

    # Declarations

    def declaration(self) -> tree.Unit:
        """Read a declaration with its annotations and modifiers."""
        if self.kind == "import":
            return self.import_()
        before = self.modifiers()
        if self.kind in {"worker", "skill", "fun"} or self.is_old_worker():
            return self.callable(before)
        if self.kind == "trait":
            return self.trait(before)
        if self.kind == "type":
            found = self.type_declaration(before.start, before.doc, export=before.export)
            if before.annotations or before.default:
                self.report(
                    "PW105", "a `type` takes neither annotations nor `default`", before.start, found.start + 1
                )
            return found
        self.unexpected("a declaration")
        return tree.Error(before.start, self.before)

    def modifiers(self) -> Modifiers:
        """Read annotations, `export` and `default`."""
        start, doc = self.start, self.doc()
        annotations: list[tree.Annotation] = []
        while self.kind == "@":
            annotations.append(self.annotation())
        export = self.kind == "export"
        if export:
            self.advance()
        default = self.kind == "default"
        if default:
            self.advance()
        return Modifiers(start, doc, tuple(annotations), export, default)

    def annotation(self) -> tree.Annotation:
        """Read `@name` and its argument."""
        start = self.start
        self.advance()
        if self.is_word() and not self.newline:
            name = tree.Identifier(self.start, self.end, self.value)
            self.advance()
        else:
            self.unexpected("the name of an annotation")
            name = tree.Identifier(self.before, self.before, "")
        argument: tree.Expression | None = None
        named: tuple[tree.NamedArgument, ...] = ()
        parenthesised = self.kind == "(" and not self.newline
        if parenthesised:
            argument, named = self.annotation_arguments()
        elif not self.newline and not self.is_old_worker() and self.kind in {"name", "number", '"', "'", "-"}:
            argument = self.prefixed() if self.kind == "-" else self.primary()
        return tree.Annotation(start, self.before, name, argument, named, parenthesised)

    def annotation_arguments(self) -> tuple[tree.Expression | None, tuple[tree.NamedArgument, ...]]:
        """Read the parentheses of an annotation: one value, or named ones."""
        start = self.start
        state = self.enter(")", free=True)
        argument: tree.Expression | None = None
        named: list[tree.NamedArgument] = []
        follows = self.follows(")")
        while follows:
            value = self.expression()
            if self.kind == ":" and isinstance(value, tree.Name):
                self.advance()
                name = tree.Identifier(value.start, value.end, value.name)
                value = self.expression()
                named.append(tree.NamedArgument(name.start, value.end, name, value))
            elif argument is None and not named:
                argument = value
            else:
                self.fail("PW105", "expected one value, or named values only", span=value.span)
            follows = self.more(")")
        self.leave(state)
        self.close("(", start, "`,` or `)`")
        return argument, tuple(named)

    def callable(self, before: Modifiers) -> tree.Declaration:
        """Read a worker, skill or fun."""
        spelled: Literal["", "task", "agent"] = ""
        word = self.kind
        if word == "name":
            spelled = "task" if self.value == "task" else "agent"
            word = "worker"
            fix = Fix(self.start, self.end, "worker")
            self.report("PW290", f"`{spelled}` is an old word; write `worker`", self.start, self.end, fix=fix)
        self.advance()
        name = self.identifier(f"the name of the {word}")
        self.type_parameters = self.no_type_parameters() if self.kind == "<" else frozenset()
        parameters = self.parameters(f"{word} {name.name or 'name'}")
        result = None
        if self.kind == ":":
            self.advance()
            result = self.type()
        self.type_parameters = frozenset()
        body = self.block(f"the head of the {word}", before.start)
        kind = cast('Literal["worker", "skill", "fun"]', word)
        start, doc, annotations, export, default = before
        end = max(body.end, self.before)
        return tree.Declaration(
            start, end, kind, name, parameters, result, body, annotations, export, default, doc, spelled
        )

    def no_type_parameters(self) -> frozenset[str]:
        """Report type parameters, and skip them; returns their names."""
        matched = TYPE_PARAMETERS.match(self.text, self.start)
        if not matched:
            return frozenset()
        help_ = f"there are no type parameters; leave `{matched[0]}` out and write `any`, or no type"
        self.fail("PW105", "expected `(`, found `<`", span=Span(*matched.span()), helps=(help_,))
        self.resume(matched.end())
        return frozenset(NAME.findall(matched[0]))

    def parameters(self, head: str) -> tree.Parameters:
        """Read the parameters of a declaration in their parentheses."""
        start = self.start
        if self.kind != "(":
            self.unexpected("`(`", f"parameters stand in parentheses, also if there are none: `{head}()`")
            return tree.Parameters(self.before, self.before, (), False)
        state = self.enter(")", free=True)
        broken = self.newline
        items: list[tree.Parameter] = []
        follows = self.follows(")")
        while follows:
            items.append(self.parameter())
            follows = self.more(")") or (self.kind == "name" and not self.newline)
        self.leave(state)
        end = self.close("(", start, "`,` or `)`")
        if len(items) > MOST_PARAMETERS:
            self.report("PW109", f"more than {MOST_PARAMETERS} parameters", start, end)
        return tree.Parameters(start, end, tuple(items), broken)

    def parameter(self) -> tree.Parameter:
        """Read `name: type = default`."""
        if self.kind == "...":
            self.unexpected(
                "a parameter", "a function takes as many arguments as it has parameters; take an array"
            )
            self.advance()
        name = self.identifier("a parameter")
        found: tree.Type | None = None
        default: tree.Expression | None = None
        if self.kind == "name" and not self.newline:
            if is_type_name(name.name):
                self.unexpected("`,` or `)`", f"a type follows the name: `{self.value}: {name.name}`")
                name = self.identifier("a parameter")
            elif is_type_name(self.value):
                self.unexpected("`:`", f"a type follows `:`; write `{name.name}: {self.value}`")
                found = self.type()
            else:
                self.unexpected("`,` or `)`", "parameters are separated by `,`; a type follows `:`")
        if self.kind == ":":
            self.advance()
            found = self.type()
        if self.kind == "=":
            self.advance()
            default = self.expression()
        return tree.Parameter(name.start, self.before, name, found, default)

    def trait(self, before: Modifiers) -> tree.Unit:
        """Read a trait."""
        self.advance()
        name = self.identifier("the name of the trait")
        bracketed, bases = self.bases()
        opened = self.start
        start, doc, annotations, export, default = before
        if self.kind != "{":
            self.unexpected("`{` after the head of the trait")
            return tree.Trait(
                start, self.before, name, bases, bracketed, (), annotations, export, default, doc
            )
        state = self.enter("}", free=False)
        methods = self.methods()
        self.leave(state)
        end = self.close("{", opened, "`fun` or `}`")
        return tree.Trait(
            start, end, name, bases, bracketed, tuple(methods), annotations, export, default, doc
        )

    def bases(self) -> tuple[bool, tuple[tree.Type, ...]]:
        """Read what follows the `:` of a trait: one base, or several in brackets; returns whether in brackets."""
        if self.kind != ":":
            return False, ()
        self.advance()
        if self.kind != "[":
            return False, (self.type(),)
        bases: Bracketed[tree.Type] = self.bracketed(self.type, some=True)
        return True, bases.items

    def methods(self) -> list[tree.Declaration | tree.Error]:
        """Read the methods of a trait, up to its `}`."""
        found: list[tree.Declaration | tree.Error] = []
        while self.kind not in {"}", ""} and not (self.at_declaration() and self.kind not in {"fun", "@"}):
            if self.kind == ";":
                self.advance()
                continue
            before = self.modifiers()
            if before.export or before.default:
                self.report("PW105", "expected `fun`, found a modifier", before.start, self.before)
            if self.kind == "fun":
                found.append(self.callable(before))
                if not (self.newline or self.kind in {";", "}", ""}):
                    self.unexpected("the end of the method")
                    self.skip_line()
                continue
            self.unexpected("`fun` or `}`")
            if self.kind in {"}", ""}:
                break
            self.skip_line()
            found.append(tree.Error(before.start, self.before))
        return found

    # Imports

    def import_(self) -> tree.Import:
        """Read `import` and its paths."""
        start = self.start
        self.advance()
        paths = [self.import_path()]
        while self.kind == ",":
            self.advance()
            if self.ends_paths():
                break
            paths.append(self.import_path())
        return tree.Import(start, self.before, tuple(paths))

    def ends_paths(self) -> bool:
        """Whether the comma before was the last thing of an import."""
        return self.kind in {";", "}", ""} or (self.newline and self.kind not in {".", "..", "name", "{"})

    def import_path(self) -> tree.ImportPath:
        """Read one path."""
        if self.kind in {".", ".."}:
            return self.file_path()
        if self.kind == "{":
            return self.names_from()
        if self.kind != "name" or self.value == "null":
            return self.no_path()
        start = self.start
        names = [self.identifier()]
        while self.kind == "." and not self.newline:
            self.advance()
            names.append(self.identifier())
        if self.kind in {"/", "from"} and not self.newline:
            return self.no_path(start)
        return tree.DottedPath(start, self.before, tuple(names))

    def no_path(self, start: int = -1) -> tree.Error:
        """Report what is not a path and skip it."""
        start = self.start if start < 0 else start
        silent = self.error_at == self.start
        end = self.end
        while self.kind not in {",", ";", "}", ""} and not self.newline:
            if self.kind in {'"', "'"}:
                self.code_string()
            else:
                self.advance()
            end = self.before
        if not silent:
            end = max(end, start + 1)
            suffixed = self.text.endswith(".pw", start, end) and self.kind != '"'
            helps = ("leave `.pw` out" if suffixed else 'write `./a`, `../lib/a`, `a.b` or `{x} from "./m"`',)
            self.report("PW114", "not an import path", start, end, helps=helps)
            self.error_at = self.start
        return tree.Error(min(start, self.before), self.before)

    def file_path(self) -> tree.ImportPath:
        """Read `./a`, `../lib/a` or `./{a, b}`."""
        start = self.start
        matched = FILE_PATH.match(self.text, start)
        if not matched:
            return self.no_path()
        folders: list[tree.Identifier] = []
        at = matched.start(2)
        for word in matched[2].split("/")[:-1]:
            folders.append(tree.Identifier(at, at + len(word), word))
            at += len(word) + 1
        up = matched[1].count("../")
        self.resume(matched.end())
        if self.start != matched.end():
            return self.no_path(start)
        if self.kind == "{":
            broken, names = self.braced_names()
            return tree.FilePath(start, self.before, up, tuple(folders), names, True, broken)
        if not self.is_word():
            return self.no_path(start)
        names = (self.identifier(),)
        if self.kind == "." and self.start == self.before:
            return self.no_path(start)
        return tree.FilePath(start, self.before, up, tuple(folders), names, False, False)

    def braced_names(self) -> tuple[bool, tuple[tree.Identifier, ...]]:
        """Read `{a, b}`; returns whether a newline follows the brace."""
        names = self.bracketed(self.identifier, some=True)
        return names.broken, names.items

    def names_from(self) -> tree.ImportPath:
        """Read `{x, y} from "./m"`."""
        start = self.start
        broken, names = self.braced_names()
        if self.kind != "from":
            self.unexpected("`from`")
            return self.no_path(start)
        self.advance()
        if self.kind not in {'"', "'"}:
            self.unexpected("the path of a module in quotes")
            return self.no_path(start)
        path = self.code_string()
        if path.literal is None:
            self.report("PW114", "not an import path: it cannot be computed", path.start, path.end)
        return tree.NamesFrom(start, path.end, names, path, broken)


DECLARATIONS = frozenset({"import", "@", "export", "default", "worker", "skill", "fun", "trait"})


def is_type_name(name: str) -> bool:
    """Whether a word surely names a type: one of the language, of another language, or one with a capital."""
    return name in OWN_TYPES or name in OTHER_TYPES or name[:1].isupper()

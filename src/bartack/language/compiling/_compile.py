"""From a checked program to Python: one syntax tree a module, whose nodes are at the places of the Patchwork text.

Owns the door and the declarations; bodies are in `_statements.py`, the readable text is in `_text.py`.
Nothing is evaluated and no text is pasted: values of the program only ever become constants of the tree.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType

import msgspec

from bartack.language.checking.program import CheckedModule, Declared, Program
from bartack.language.compiling._expressions import function_name
from bartack.language.compiling._nodes import Maker, NoCodeError
from bartack.language.compiling._statements import Statements
from bartack.language.compiling._text import python_text
from bartack.language.compiling._types import Keys, TypeTable
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._depth import make_room
from bartack.language.syntax._diagnostics import Diagnostic, diagnose
from bartack.language.syntax._source import Span


class CompiledModule(msgspec.Struct, frozen=True, eq=False):
    """One module as Python.

    `lines` has the line of the Patchwork statement that a Python statement begins; `text` is made of it.
    """

    id: str
    path: str
    python: ast.Module
    lines: dict[ast.stmt, int]

    def code(self) -> CodeType:
        """The module as code that says it comes from its path."""
        make_room()
        return compile(self.python, self.path, "exec", dont_inherit=True)

    @property
    def text(self) -> str:
        """The module as readable Python, the same for the same source."""
        make_room()
        return python_text(self.python, self.lines, self.path)


class Compiled(msgspec.Struct, frozen=True, eq=False):
    """A program as Python, in the order of its modules; `diagnostics` says what could not be compiled.

    `codes` has the code of each module by its id.
    """

    modules: tuple[CompiledModule, ...]
    codes: dict[str, CodeType]
    diagnostics: tuple[Diagnostic, ...] = ()


def compile_program(program: Program) -> Compiled:
    """Make Python of a program that was checked and has no errors."""
    make_room()
    keys = Keys()
    made: list[tuple[CheckedModule, _ModuleCompiler]] = []
    diagnostics: list[Diagnostic] = []
    for module in program.modules:
        compiler = _ModuleCompiler(program, module, keys)
        try:
            compiler.compile()
        except RecursionError:
            diagnostics.append(_too_complex(module, "nested too deeply"))
        except NoCodeError as problem:
            diagnostics.append(_no_code(module, problem.node))
        made.append((module, compiler))
    _define_types(keys, {module.id: compiler for module, compiler in made})
    modules = tuple(compiler.finish() for _, compiler in made)
    codes: dict[str, CodeType] = {}
    for module, compiled in zip(program.modules, modules, strict=True):
        code = _code(compiled)
        if isinstance(code, CodeType):
            codes[module.id] = code
        else:
            diagnostics.append(_too_complex(module, code))
    return Compiled(modules, codes, tuple(diagnostics))


def _define_types(keys: Keys, compilers: dict[str, _ModuleCompiler]) -> None:
    """Define every declared type in its module; a definition may need further ones."""
    done = 0
    while done < len(keys.known):
        named = keys.known[done]
        done += 1
        compilers[named.module].definitions.append(compilers[named.module].types.define(named))


def _code(compiled: CompiledModule) -> CodeType | str:
    """The code of a module, or why Python does not take it."""
    try:
        return compiled.code()
    except (RecursionError, MemoryError):
        return "nested too deeply"
    except (SyntaxError, ValueError, OverflowError) as problem:
        return str(getattr(problem, "msg", problem))


def _too_complex(module: CheckedModule, reason: str) -> Diagnostic:
    return diagnose("PW190", f"too complex to compile: {reason}", module.path, Span(0, 0))


def _no_code(module: CheckedModule, node: tree.Node) -> Diagnostic:
    helps = ("this is a bug in the compiler; write it in another way, and report this",)
    return diagnose("PW190", "the compiler does not support this", module.path, node.span, helps=helps)


class _ModuleCompiler:
    """Makes Python of one module."""

    def __init__(self, program: Program, module: CheckedModule, keys: Keys) -> None:
        self._program = program
        self._module = module
        self._make = Maker(module.source)
        top = tree.Error(0, 0)
        self.types = TypeTable(self._make, keys, top)
        self._statements = Statements(program, module, self._make, self.types)
        self.definitions: list[ast.stmt] = []
        self._body: list[ast.stmt] = []

    def compile(self) -> None:
        """Make Python of all declarations, and of the statements between them."""
        module = self._module.syntax
        loose: list[tree.Statement] = []
        for unit in module.units:
            match unit:
                case tree.Declaration():
                    self._declaration(Declared(self._module.id, unit))
                case tree.Trait():
                    for method in unit.methods:
                        if isinstance(method, tree.Declaration):
                            self._declaration(Declared(self._module.id, method, unit))
                case tree.Import():
                    pass
                case _:
                    loose.append(unit)
        statements = module.script.statements if module.script is not None else loose
        if module.script is not None or any(not isinstance(one, tree.TypeDeclaration) for one in statements):
            self._script(module.script or module, statements)

    def finish(self) -> CompiledModule:
        """The whole module."""
        body = [*self.types.constants, *self.definitions, *self._body]
        python = ast.Module(body, type_ignores=[])
        return CompiledModule(self._module.id, self._module.path, python, self._statements.lines)

    def _script(self, node: tree.Node, statements: tuple[tree.Statement, ...] | list[tree.Statement]) -> None:
        make = self._make
        _, body = self._statements.body((), statements, None, tree.Error(node.end, node.end), tail=True)
        self._body.append(make.function(node, "main", [("rt", False)], body))
        self._register("script", node, [make.name(node, "main")], {})

    def _declaration(self, declared: Declared) -> None:
        node, make = declared.node, self._make
        if not isinstance(node.body, tree.Block):
            return
        result = None if node.result is None else self._module.types.get(node.result)
        end = tree.Error(node.body.end - 1, node.body.end)
        parameters, body = self._statements.body(
            node.parameters.items, node.body.statements, result, end, tail=False
        )
        name = function_name(declared, self._program)
        self._body.append(make.function(node, name, [("rt", False), *parameters], body))
        shown = declared.name if declared.trait is None else f"{declared.trait.name.name}.{declared.name}"
        written = [make.constant(item.name, item.name.name) for item in node.parameters.items]
        named: dict[str, ast.expr | None] = {"params": make.listed(node.parameters, written)}
        named |= self._annotations(declared)
        word = node.word if declared.trait is None else "method"
        self._register(word, node, [make.constant(node.name, shown), make.name(node.name, name)], named)

    def _register(
        self, word: str, node: tree.Node, arguments: list[ast.expr], named: dict[str, ast.expr | None]
    ) -> None:
        make = self._make
        call = make.call(node, make.name(node, f"rt_{word}"), arguments, named)
        self._body.append(make.assign(node, word, call))

    def _annotations(self, declared: Declared) -> dict[str, ast.expr | None]:
        """What the annotations of a declaration, and of the trait around it, say to the runtime."""
        found: dict[str, ast.expr | None] = {}
        outer = () if declared.trait is None else declared.trait.annotations
        for annotation in (*outer, *declared.node.annotations):
            read = _READERS.get(annotation.name.name)
            value = None if read is None else read(annotation)
            if value is not None:
                found[_KEYWORDS[annotation.name.name]] = self._make.constant(annotation, value)
        return found


def _text_argument(annotation: tree.Annotation) -> str | None:
    argument = annotation.argument
    if isinstance(argument, tree.Name):
        return argument.name
    return argument.literal if isinstance(argument, tree.String) else None


def _number_argument(annotation: tree.Annotation) -> float | None:
    argument = None if annotation.argument is None else tree.bare(annotation.argument)
    return argument.value if isinstance(argument, tree.Number) else None


def _flag(_annotation: tree.Annotation) -> bool:
    return True


_READERS: dict[str, Callable[[tree.Annotation], str | float | bool | None]] = {
    "agent": _text_argument,
    "timeout": _number_argument,
    "once": _flag,
}
_KEYWORDS = {"agent": "agent", "timeout": "timeout_ms", "once": "once"}

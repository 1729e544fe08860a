"""A name for a piece of code that people recognise, and the language of a file."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import PurePath
from typing import Final

from bartack.tracking.pattern._pattern import find_lexer, is_kind, language_slug

_LONGEST: Final = 120
_DOCSTRING_LONGEST: Final = 60
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_READ_MOST: Final = 200_000

LANGUAGES: Final = {
    ".py": "python", ".pyi": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
    ".jsx": "javascript", ".ts": "typescript", ".tsx": "typescript", ".go": "go", ".rs": "rust", ".java": "java",
    ".kt": "kotlin", ".rb": "ruby", ".php": "php", ".c": "c", ".h": "c", ".cpp": "cpp", ".cc": "cpp", ".hpp": "cpp",
    ".cs": "csharp", ".fs": "fsharp", ".swift": "swift", ".scala": "scala", ".sh": "bash", ".bash": "bash",
    ".sql": "sql", ".html": "html", ".css": "css", ".scss": "scss", ".sass": "sass", ".json": "json", ".yaml": "yaml",
    ".yml": "yaml", ".toml": "toml", ".md": "markdown", ".hs": "haskell", ".nim": "nim", ".lua": "lua", ".pl": "perl",
    ".r": "r", ".ex": "elixir", ".exs": "elixir", ".erl": "erlang", ".clj": "clojure", ".dart": "dart", ".vue": "vue",
}  # fmt: skip


def language_of(file_path: str) -> str:
    """The language of a file by its extension; ``unknown`` if that says nothing."""
    name = PurePath(file_path).name.lower()
    if name in {"makefile", "dockerfile"}:
        return {"makefile": "make", "dockerfile": "docker"}[name]
    return LANGUAGES.get(PurePath(name).suffix, "unknown")


def name_of(code: str, language: str, pattern_type: str = "code", file_path: str = "") -> str:
    """A name for some code: what it defines, else its file, else what it is. Never empty."""
    slug = language_slug(language)
    found = _python_name(code) if slug == "python" else _defined_name(code, slug)
    for candidate in (found, PurePath(file_path).stem if file_path else ""):
        name = _clean(candidate)
        if name:
            return name
    return _clean(f"{slug.capitalize()} {pattern_type.capitalize() or 'Code'} pattern")


def _clean(name: str) -> str:
    # Half of a surrogate pair is not a character; a name is shown and sent.
    shown = name.encode("utf-8", "replace").decode("utf-8")
    return _CONTROL.sub(" ", shown).strip()[:_LONGEST]


def _python_name(code: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the code's, not ours
            module = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    defined = [
        node
        for node in module.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    public = [node for node in defined if not node.name.startswith("_")]
    if len(public) == 1:
        return public[0].name
    if defined:
        return max(public or defined, key=_lines).name
    docstring = (ast.get_docstring(module) or "").strip()
    return docstring.partition("\n")[0][:_DOCSTRING_LONGEST]


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def _defined_name(code: str, slug: str) -> str:
    lexer = find_lexer(slug)
    if lexer is None:
        return ""
    from pygments.token import Name  # noqa: PLC0415 - slow to load

    function = ""
    for kind, value in lexer.get_tokens(code[:_READ_MOST]):
        if is_kind(kind, Name.Class):
            return value
        if is_kind(kind, Name.Function) and not function:
            function = value
    return function

"""Text with values in it: strings and prompts, do-blocks, and text that looks like a secret."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from bartack.language.checking._library import has_fields
from bartack.language.checking._statements import check_block
from bartack.language.checking._types import ANY, ARRAY, BOOL, STRING, LiteralOf, Type
from bartack.language.checking._walk import Handler, Walk, found_name, is_known, may_be
from bartack.language.checking.program import Builtin, Local
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Fix
from bartack.language.syntax._source import Span


def _string(walk: Walk, node: tree.String, _expected: Type | None) -> Type:
    text = node.literal
    if text is not None:
        return LiteralOf(text)
    check_parts(walk, node.parts)
    return STRING


def check_parts(walk: Walk, parts: Sequence[tree.Node]) -> None:
    """Check the parts of a string, prompt or word."""
    for position, part in enumerate(parts):
        if isinstance(part, tree.Variable):
            following = parts[position + 1] if position + 1 < len(parts) else None
            _variable(walk, part, following)
        elif not isinstance(part, (tree.Text, tree.Bare, tree.Escape)):
            walk.expression(part)


_FIELD = re.compile(r"\.([A-Za-z_]\w*)", re.ASCII)


def _variable(walk: Walk, node: tree.Variable, following: tree.Node | None) -> Type:
    symbol = walk.use(node.name, node)
    if symbol is None:
        return ANY
    if not isinstance(symbol, Local) and symbol is not _args(symbol):
        text = f"`{node.name}` is a function; call it: `${{{node.name}(…)}}`"
        walk.report("PW135", text, node)
        return ANY
    kind = walk.kind_of(symbol)
    if isinstance(following, (tree.Text, tree.Bare)) and has_fields(kind):
        _check_field(walk, node, following)
    return kind


def _args(symbol: object) -> object:
    return symbol if isinstance(symbol, Builtin) and symbol.name == "args" else None


def _check_field(walk: Walk, node: tree.Variable, following: tree.Node) -> None:
    written = _FIELD.match(walk.module.source.text, following.start)
    if written is None or written.end() > following.end:
        return
    meant = f"${{{node.name}{written[0]}}}"
    walk.report(
        "PW216",
        f"`${node.name}{written[0]}` inserts all of `{node.name}`; write `{meant}`",
        Span(node.start, written.end()),
        fix=Fix(node.start, written.end(), meant),
    )


def _interpolation(walk: Walk, node: tree.Interpolation, _expected: Type | None) -> Type:
    outside, walk.in_shell = walk.in_shell, False
    kind = walk.expression(node.value)
    walk.in_shell = outside
    return kind


def _splice(walk: Walk, node: tree.Splice, _expected: Type | None) -> Type:
    outside, walk.in_shell = walk.in_shell, False
    kind = walk.expression(node.value)
    walk.in_shell = outside
    if is_known(kind) and not may_be(kind, ARRAY):
        walk.report("PW141", f"expected `array`, found `{found_name(ARRAY, kind)}`", node.value)
    return ANY


def _read_file(walk: Walk, node: tree.ReadFile, _expected: Type | None) -> Type:
    symbol = walk.use(node.reader.name, node.reader)
    walk.expression(node.path)
    if not isinstance(symbol, Builtin):
        walk.module.comparisons.add(node)
        return BOOL
    meant = "read" if node.reader.name == "cat" else node.reader.name
    walk.report("PW221", f"prefer `{'json(read(path))' if meant == 'json' else 'read(path)'}`", node)
    return ANY if meant == "json" else STRING


def _prompt(walk: Walk, node: tree.Prompt, expected: Type | None) -> Type:
    kind = STRING if expected is None else expected
    walk.module.prompts[node] = kind
    outside, walk.in_shell = walk.in_shell, False
    specs, walk.specs = walk.specs, False
    check_parts(walk, node.parts)
    walk.in_shell, walk.specs = outside, specs
    return kind


def _do_block(walk: Walk, node: tree.DoBlock, _expected: Type | None) -> Type:
    body = walk.body
    loops, outside = body.loops, body.loops_outside
    reads, walk.status_reads = walk.status_reads, []
    risky, walk.risky = walk.risky, []
    body.loops, body.loops_outside = 0, outside + loops
    body.do_depth += 1
    check_block(walk, node.body, value=True)
    body.do_depth -= 1
    body.loops, body.loops_outside = loops, outside
    walk.status_reads, walk.risky = reads, risky
    return ANY


# Secrets

_KEY = re.compile(
    r"""
      sk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{20,}
    | (?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{20,}
    | xox[abprs]-[A-Za-z0-9-]{11,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | AIza[A-Za-z0-9_-]{30,}
    | npm_[A-Za-z0-9]{30,}
    | hf_[A-Za-z0-9]{30,}
    | (?:sk|rk)_live_[A-Za-z0-9]{16,}
    """,
    re.VERBOSE,
)
_BEFORE = re.compile(
    r"""(?:token|secret|passw(?:or)?d|key|bearer|auth(?:orization)?)["']?(?:[ ]?[:=][ ]?|[ ])["']?\Z""",
    re.IGNORECASE,
)
_PRIVATE_KEY = "PRIVATE KEY-----"
_WORD_SIGNS = "+/_-"
_SEPARATORS = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in _WORD_SIGNS)}
_SHORTEST = 16
_LEAST_RANDOM = 32
_LEAST_BITS = 3.0


def report_secrets(walk: Walk) -> None:
    """Say where text looks like a secret: in strings, prompts and commands, not in comments and names."""
    suspects = list(_suspects(walk.module.source.text))
    if not suspects:
        return
    spans = sorted(_texts(walk.module.syntax))
    for suspect in suspects:
        at = bisect_right(spans, (suspect.start, math.inf)) - 1
        if at >= 0 and suspect.start < spans[at][1]:
            helps = ('keep it out of the program and read it with `env("NAME")`',)
            walk.report("PW222", "this looks like a secret", suspect, helps=helps)


def _suspects(text: str) -> Iterator[Span]:
    """Stretches of text that look like secrets. Only long words are looked at, since most are short."""
    at = 0
    for word in text.translate(_SEPARATORS).split():
        if len(word) >= _SHORTEST:
            at = text.find(word, at)
            if _KEY.match(word) or _is_secret(word, text[max(at - 24, 0) : at]):
                yield Span(at, at + len(word))
            at += len(word)
    at = text.find(_PRIVATE_KEY)
    while at >= 0:
        yield Span(at, at + len(_PRIVATE_KEY))
        at = text.find(_PRIVATE_KEY, at + 1)


def _texts(module: tree.Module) -> Iterator[tuple[float, float]]:
    for node in tree.walk(module):
        if isinstance(node, (tree.Text, tree.Bare)):
            yield node.start, node.end


def _is_secret(word: str, before: str) -> bool:
    """Whether a word after `token=` and the like looks random: letters and digits, none of them often."""
    if len(word) < _LEAST_RANDOM or not _BEFORE.search(before):
        return False
    if not any(map(str.isdigit, word)) or not any(map(str.isalpha, word)):
        return False
    shares = [count / len(word) for count in Counter(word).values()]
    return -sum(share * math.log2(share) for share in shares) >= _LEAST_BITS


HANDLERS: dict[type[tree.Node], Handler] = {
    tree.String: _string,
    tree.Interpolation: _interpolation,
    tree.Splice: _splice,
    tree.Prompt: _prompt,
    tree.ReadFile: _read_file,
    tree.DoBlock: _do_block,
}

"""``bartack lineage``: serve, show and search the lineage of patterns. All commands but ``serve`` only read the database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, human_size, printable
from bartack.errors import LineageMissingError, UsageError

if TYPE_CHECKING:
    from bartack.tracking import LineageNode, LineagePicture, LineageStore, TreeLine

Way = Literal["ancestry", "descendants", "both"]

db_option = click.option(
    "--db", metavar="FILE", help="Use this lineage database (default: the one in your state directory)."
)


@click.group(cls=PlainGroup, short_help="Show where code came from, and serve the lineage graph.")
def lineage() -> None:
    """Show where code came from, and serve the lineage graph.

    All commands but 'serve' read the database directly; they need no running service.
    """


@lineage.command(short_help="Serve lineage on this machine.")
@db_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this loopback address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8053,
    show_default=True,
    help="Listen on this port; 0 chooses a free one.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Read the token from this file; it is created, readable only by you, if it is missing.",
)
def serve(db: str | None, host: str, port: int, token_file: str | None) -> None:
    """Serve lineage on this machine.

    The service runs until Ctrl-C. Every request needs the token of the token file; other machines cannot reach the service.
    """
    from bartack.tracking import serve_lineage  # noqa: PLC0415 - only this command needs a server

    database = Path(db) if db else _home() / "lineage.db"
    tokens = Path(token_file) if token_file else _home() / "token"

    def announce(url: str) -> None:
        screen = Screen(sys.stderr)
        screen.line(f"lineage service at {url}")
        screen.line(f"  database  {printable(str(database))}")
        screen.line(f"  token in  {printable(str(tokens))}")
        screen.flush()

    serve_lineage(database, tokens, host=host, port=port, ready=announce)


@lineage.command(short_help="Show the ancestors and descendants of a pattern.")
@click.argument("pattern_id", metavar="ID")
@click.option("--up", "way", flag_value="ancestry", help="Show only the ancestors.")
@click.option("--down", "way", flag_value="descendants", help="Show only the descendants.")
@click.option("--both", "way", flag_value="both", default=True, help="Show both (default).")
@click.option(
    "--depth",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Show at most this many generations.",
)
@click.option("--version", metavar="V", help="Show this version (default: the newest).")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Draw the graph into this file, *.svg or *.html, instead of printing it.",
)
@db_option
@json_option
def show(
    pattern_id: str,
    way: Way,
    depth: int,
    version: str | None,
    output: str | None,
    db: str | None,
    *,
    as_json: bool,
) -> None:
    """Show the ancestors and descendants of a pattern.

    ID is the id of a pattern, as 'bartack lineage search' prints it. In the tree, ↑ marks a node that is shown above already, and
    … marks a node whose relatives are beyond --depth.
    """
    draw = _drawer(output)
    with _open(db) as store:
        picture = store.picture(pattern_id, version, query_type=way, depth=depth)
    if draw is not None and output is not None:
        _write_file(output, draw(picture))
    elif as_json:
        _write_struct(
            {
                "root": picture.root,
                "nodes": list(picture.nodes.values()),
                "edges": picture.edges,
                "cut": sorted(picture.cut),
            }
        )
    else:
        _show_tree(picture, way)


def _drawer(output: str | None) -> Callable[[LineagePicture], str] | None:
    if output is None:
        return None
    from bartack.tracking import draw_page, draw_svg  # noqa: PLC0415 - few command lines draw

    kind = os.path.splitext(output)[1].lower()
    if kind == ".svg":
        return draw_svg
    if kind in {".html", ".htm"}:
        return draw_page
    raise UsageError("bartack lineage show", f"{output!r} ends neither in .svg nor in .html")


def _write_file(path: str, text: str) -> None:
    from bartack.core.files import write_file  # noqa: PLC0415 - few command lines draw

    write_file(path, text.encode(), mode=0o644)


def _show_tree(picture: LineagePicture, way: Way) -> None:
    from bartack.tracking import iter_tree  # noqa: PLC0415 - loaded by now

    screen = Screen(sys.stdout)
    root = picture.root
    facts = f"{root.language}, generation {root.generation}" + (", deprecated" if root.deprecated else "")
    screen.line(f"{_named(screen, root)}  {screen.paint(facts, 'dim')}")
    screen.line(screen.paint(printable(root.pattern_id), "dim"))
    for direction, heading in _SECTIONS[way]:
        screen.line()
        screen.line(heading)
        lines = list(iter_tree(picture, direction))
        for line in lines:
            screen.line(_tree_line(screen, line))
        if not lines:
            screen.line(screen.paint("└─ none", "dim"))


_UP: Final = ("up", "came from")
_DOWN: Final = ("down", "became")
_SECTIONS: Final[dict[Way, tuple[tuple[Literal["up", "down"], str], ...]]] = {
    "ancestry": (_UP,),
    "descendants": (_DOWN,),
    "both": (_UP, _DOWN),
}


def _tree_line(screen: Screen, line: TreeLine) -> str:
    node = line.node
    state = " (not recorded yet)" if node.stub else " (deprecated)" if node.deprecated else ""
    mark = f" {line.mark}" if line.mark else ""
    shown = f"{line.rails}{screen.paint(line.edge_type, 'cyan')}  {_named(screen, node)}{state}{mark}"
    return f"{shown}  {screen.paint(printable(node.pattern_id), 'dim')}" if node.pattern_name else shown


def _named(screen: Screen, node: LineageNode) -> str:
    return f"{screen.paint(printable(node.pattern_name or node.pattern_id), 'bold')} {node.version}"


@lineage.command(short_help="Find patterns by words.")
@click.argument("text")
@click.option("--language", metavar="NAME", help="Only patterns in this language.")
@click.option("--type", "pattern_type", metavar="NAME", help="Only patterns of this type.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Print at most N.")
@db_option
@json_option
def search(
    text: str, language: str | None, pattern_type: str | None, limit: int, db: str | None, *, as_json: bool
) -> None:
    """Find patterns by words.

    All words of TEXT have to occur in name, language, type or code; the last one can be the beginning of a word.
    """
    from bartack.tracking.lineage.wire import SearchRequest  # noqa: PLC0415 - only this command needs it

    with _open(db) as store:
        answer = store.search(SearchRequest(text, language, pattern_type, limit=limit))
    if as_json:
        _write_struct(answer)
        return
    screen = Screen(sys.stdout)
    for found in answer.results:
        name = screen.paint(printable(found.pattern_name or "(no name)"), "bold")
        screen.line(f"{name} {found.version}  {screen.paint(printable(found.pattern_id), 'cyan')}")
        if found.snippet:
            screen.line("  " + screen.paint(screen.fit(printable(" ".join(found.snippet.split())), 2), "dim"))
    more = answer.total - len(answer.results)
    if more or not answer.total:
        screen.line(f"... and {more} more" if more else "nothing found")


@lineage.command(short_help="Count the contents of the database.")
@db_option
@json_option
def stats(db: str | None, *, as_json: bool) -> None:
    """Count the contents of the database."""
    with _open(db) as store:
        found = store.stats()
    if as_json:
        _write_struct(found)
        return
    screen = Screen(sys.stdout)
    rows = [
        ("patterns", str(found.patterns)),
        ("versions", f"{found.nodes} ({found.stubs} not recorded yet, {found.deprecated} deprecated)"),
        ("edges", _counts(found.edges)),
        ("events", _counts(found.events)),
        ("languages", _counts(found.languages)),
        ("deepest generation", str(found.deepest_generation)),
        ("last event", found.last_event_at or "none"),
        ("size", human_size(found.size_bytes)),
    ]
    screen.table([(screen.paint(name, "dim"), value) for name, value in rows], indent=0)


def _counts(counts: dict[str, int]) -> str:
    parts = [
        f"{count} {printable(name).removeprefix('pattern_')}" for name, count in list(counts.items())[:8]
    ]
    return f"{sum(counts.values())}" + (f" ({', '.join(parts)})" if parts else "")


@lineage.command(short_help="Check the graph.")
@db_option
@json_option
def validate(db: str | None, *, as_json: bool) -> Exit:
    """Check the graph for orphans, cycles, wrong generations and versions, and dangling edges.

    The exit code is 1 if the command finds a problem.
    """
    with _open(db) as store:
        answer = store.validate()
    if as_json:
        _write_struct(answer)
    else:
        screen = Screen(sys.stdout)
        for issue in answer.issues:
            screen.line(f"{screen.paint(issue.check, 'yellow')}  {issue.node_id}  {printable(issue.message)}")
        if answer.truncated:
            screen.line("... and more")
        if answer.lineage_valid:
            screen.line("no problems found")
    return Exit.OK if answer.lineage_valid else Exit.FAILED


def _home() -> Path:
    from bartack.core.user_home import user_home  # noqa: PLC0415 - not needed if all files are named

    return user_home()


def _open(db: str | None) -> LineageStore:
    from bartack.tracking import LineageStore  # noqa: PLC0415 - not needed for --help

    path = Path(db) if db else _home() / "lineage.db"
    if not path.exists():
        raise LineageMissingError(str(path))
    return LineageStore(path, read_only=True)


def _write_struct(value: object) -> None:
    import msgspec  # noqa: PLC0415 - see above

    shown: object = msgspec.to_builtins(value)
    write_json(shown)

"""``bartack track``: track patterns by hand, and inspect and repair the outbox and the breakers."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, human_size, printable
from bartack.cli.tracking._daemon import start_on_demand
from bartack.errors import EventNotFoundError, UsageError
from bartack.resilience import (
    CircuitBreaker,
    HealthChecker,
    Outbox,
    PatternCache,
    Settings,
    breaker_names,
    load_settings,
)
from bartack.resilience.link import DaemonLink, register_outbox
from bartack.resilience.mirror import iso

if TYPE_CHECKING:
    from bartack.tracking import PatternTracker

Make = Callable[["PatternTracker", str], Coroutine[object, object, dict[str, object]]]
STATES = ("pending", "leased", "delivered", "dead")
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@click.group(cls=PlainGroup, short_help="Track patterns, and inspect the outbox.")
def track() -> None:
    """Track patterns of code, and inspect the outbox for the lineage service.

    Events are stored on this machine first. The daemon delivers them when the service is available.
    """


@track.command(short_help="Track a file that was written.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
def write(file: str, *, as_json: bool) -> int:
    """Track the content of FILE as a new pattern, or as a change of the pattern that the file held before."""
    return _track(lambda tracker, code: tracker.track_file(code, _context(file)), file, as_json=as_json)


@track.command(short_help="Track a change of a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--pattern", metavar="ID", help="Change this pattern (default: the pattern that the file held before)."
)
@json_option
def edit(file: str, pattern: str | None, *, as_json: bool) -> int:
    """Track the content of FILE as a change of a pattern."""
    return _track(
        lambda tracker, code: tracker.track_file(code, _context(file), pattern_id=pattern),
        file,
        as_json=as_json,
    )


@track.command(short_help="Track that a pattern was used.")
@click.argument("pattern", metavar="ID")
@click.argument("file", type=click.Path())
@json_option
def apply(pattern: str, file: str, *, as_json: bool) -> int:
    """Track that the pattern ID was used, as it is, in FILE."""
    return _track(
        lambda tracker, _: tracker.track_pattern_application(pattern, _context(file)), None, as_json=as_json
    )


@track.command(short_help="Track that several patterns became one.")
@click.argument("parts", nargs=-1, required=True, metavar="ID ID... FILE")
@json_option
def merge(parts: tuple[str, ...], *, as_json: bool) -> int:
    """Track the content of FILE as a merge of the patterns ID."""
    *sources, file = parts
    if not sources:
        raise UsageError("bartack track merge", "give the ids of the merged patterns, then the file")
    return _track(
        lambda tracker, code: tracker.track_pattern_merge(sources, code, _context(file)),
        file,
        as_json=as_json,
    )


@track.command(short_help="Deliver the waiting events now.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Stop after this many seconds.")
@json_option
def sync(timeout: float, *, as_json: bool) -> int:
    """Deliver the waiting events now. The exit code is 1 if events still wait, and 8 if the time ran out."""
    from bartack.tracking import sync_now  # noqa: PLC0415 - only this command delivers

    cache = PatternCache()
    report = asyncio.run(sync_now(cache, load_settings(), timeout))
    if as_json:
        write_json(report._asdict())
    else:
        screen = Screen(sys.stdout)
        screen.line(
            f"{report.delivered} of {report.found} delivered, {report.dead} refused, {report.waiting} waiting"
        )
        for url in report.away:
            screen.line(f"  {printable(_why_away(cache, url))}")
    if report.timed_out:
        return Exit.TIMED_OUT
    return Exit.FAILED if report.waiting else Exit.OK


@track.command(short_help="Show counts, rates and the last errors.")
@json_option
def status(*, as_json: bool) -> None:
    """Show the counts of events, the rates of delivery, and the last errors."""
    from bartack.tracking import analytics_of  # noqa: PLC0415 - only this command shows it

    cache, settings = PatternCache(), load_settings()
    cache.store.check()
    cache.take_in()
    outbox = cache.outbox
    troubled = [row for row in outbox.rows(limit=1000) if row.last_error][-5:]
    found: dict[str, object] = {
        "enabled": settings.enabled,
        "url": settings.url,
        "problem": _unproven(cache, settings.url),
        **cache.get_stats(),
        "rejected_events": outbox.counters().get("rejected", 0),
        "analytics": analytics_of(outbox, settings.url),
        "breakers": [_breaker(outbox, name).details() for name in breaker_names(outbox.store)],
        "daemon_running": DaemonLink().is_running(),
        "last_errors": [{"event_id": row.event_id, "error": row.last_error} for row in troubled],
    }
    if as_json:
        write_json(found)
        return
    _show_status(found)


def _unproven(cache: PatternCache, url: str) -> str:
    """Why no events are sent to a service that answers; empty if they are sent."""
    data = HealthChecker(url, store=cache.store).get_health_status()["last_health_data"]
    facts = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    return str(facts.get("detail", "")) if facts.get("status") == "unproven" else ""


def _why_away(cache: PatternCache, url: str) -> str:
    return _unproven(cache, url) or f"{url} is not available"


def _show_status(found: dict[str, object]) -> None:
    screen = Screen(sys.stdout)
    analytics = found["analytics"]
    rows = [
        ("tracking", "on" if found["enabled"] else "off"),
        ("service", printable(str(found["problem"] or found["url"]))),
        ("daemon", "running" if found["daemon_running"] else "not running"),
        ("waiting", str(found["pending_events"])),
        ("delivered", f"{found['total_synced']} of {found['total_cached']}"),
        ("dead", str(found["dead_events"])),
        ("dropped", str(found["dropped_events"])),
        ("size", human_size(int(str(found["size_bytes"])))),
        ("directory", printable(str(found["cache_dir"]))),
    ]
    if isinstance(analytics, dict):
        rows += [
            (str(name).replace("_", " "), f"{value:.0%}")  # pyright: ignore[reportUnknownArgumentType] - names and numbers
            for name, value in analytics.items()  # pyright: ignore[reportUnknownVariableType] - as above
            if isinstance(value, float)
        ]
    screen.table(rows, indent=0)
    _show_list(
        screen,
        found["breakers"],
        lambda one: f"breaker {one['name']}: {one['state']} ({one['reason'] or 'ok'})",
    )
    _show_list(screen, found["last_errors"], lambda one: f"error {one['event_id']}: {one['error']}")


def _show_list(screen: Screen, items: object, line: Callable[[dict[str, object]], str]) -> None:
    assert isinstance(items, list)
    for item in items:  # pyright: ignore[reportUnknownVariableType] - made a few lines above
        screen.line(printable(line(item)))  # pyright: ignore[reportUnknownArgumentType] - as above


@track.command(name="import", short_help="Import the waiting events of another folder.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@json_option
def import_folder(folder: str, *, as_json: bool) -> None:
    """Import the files pending_*.json of FOLDER. A second import of the same files adds nothing."""
    taken = PatternCache().import_folder(folder)
    if as_json:
        write_json({"imported": taken})
    else:
        Screen(sys.stdout).line(f"{taken} events imported")


@track.group(cls=PlainGroup, short_help="Inspect and repair the outbox.")
def outbox() -> None:
    """Inspect and repair the outbox: the events for the lineage service."""


@outbox.command(name="list", short_help="List events.")
@click.option("--state", type=click.Choice(STATES), help="List only events in this state.")
@click.option("--kind", help="List only events of this kind: pattern or hook.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=100,
    show_default=True,
    help="List at most the newest N events.",
)
@click.option("--payload", is_flag=True, help="Show the payload of each event, too.")
@json_option
def list_events(state: str | None, kind: str | None, limit: int, *, payload: bool, as_json: bool) -> None:
    """List events, the newest last."""
    rows = _outbox().rows(state=state, kind=kind, limit=limit)
    shown = [
        {
            **row._asdict(),
            "created_at": iso(row.created_at),
            "finished_at": iso(row.finished_at),
            "payload": (row.payload or b"").decode("utf-8", "replace") if payload else None,
        }
        for row in rows
    ]
    if as_json:
        for one in shown:
            if not payload:
                del one["payload"]
            write_json(one)
        return
    screen = Screen(sys.stdout)
    for row, one in zip(rows, shown, strict=True):
        note = row.reason or row.last_error or (f"next attempt in {row.wait_s:.0f} s" if row.wait_s else "")
        when = str(one["created_at"])[:19]
        line = f"{when}  {row.state:9}  {row.kind:7}  {row.attempts:2}  {row.event_id}  {note}"
        screen.line(screen.fit(printable(line.rstrip())))
        if payload:
            screen.line(f"  {printable(str(one['payload']))}")


@outbox.command(short_help="Count events.")
@json_option
def stats(*, as_json: bool) -> None:
    """Count events by state, and show the counters since the outbox was created."""
    found = _outbox()
    states, counted = found.count(), found.counters()
    if as_json:
        write_json({"states": states, "counters": counted, "waiting_for": found.waiting()})
        return
    screen = Screen(sys.stdout)
    screen.table([(name, str(count)) for name, count in {**states, **counted}.items()], indent=0)


@outbox.command(short_help="Retry dead events.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all-dead", is_flag=True, help="Retry all dead events.")
@click.option("--reason", help="Retry only events whose reason starts with this text (with --all-dead).")
@json_option
def retry(ids: tuple[str, ...], *, all_dead: bool, reason: str | None, as_json: bool) -> None:
    """Retry dead events as if they were new."""
    if bool(ids) == all_dead:
        raise UsageError("bartack track outbox retry", "give the ids of events, or --all-dead")
    found = _outbox()
    _check_known(found, ids)
    back = found.retry(ids, reason=reason)
    _notify_daemon(found)
    _report(back, "queued again", as_json=as_json)


@outbox.command(short_help="Remove events for good.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--state", type=click.Choice(STATES), help="Remove all events in this state.")
@click.option(
    "--older-than",
    metavar="AGE",
    default="0s",
    help="Remove only events at least this old: 7d, 12h, 30m (with --state).",
)
@click.option("--yes", is_flag=True, help="Remove waiting events without asking.")
@json_option
def purge(ids: tuple[str, ...], state: str | None, older_than: str, *, yes: bool, as_json: bool) -> int:
    """Remove events for good."""
    if bool(ids) == bool(state):
        raise UsageError("bartack track outbox purge", "give the ids of events, or --state")
    found = _outbox()
    _check_known(found, ids)
    age = _seconds(older_than)
    waits = state in {"pending", "leased"} or any(
        row.state in {"pending", "leased"} for row in found.rows(ids=ids) if ids
    )
    if waits and not yes and not _confirmed():
        return Exit.FAILED
    _report(found.purge(ids, state=state or "dead", older_than_s=age), "removed", as_json=as_json)
    return Exit.OK


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("bartack track outbox purge", "waiting events are removed only with --yes")
    return click.confirm("Some of these events still wait for the service. Remove them for good?", err=True)


@track.group(cls=PlainGroup, short_help="Show and reset the circuit breakers.")
def breaker() -> None:
    """Show and reset the circuit breakers, one for each service."""


@breaker.command(name="status", short_help="Show the breakers.")
@click.argument("name", required=False)
@json_option
def breaker_status(name: str | None, *, as_json: bool) -> None:
    """Show the state of one breaker or of all: failures, time to the next probe, and the process that probes."""
    found = _outbox()
    details = [_breaker(found, one).details() for one in _names(found, name)]
    if as_json:
        write_json(details)
        return
    screen = Screen(sys.stdout)
    for one in details:
        next_probe = f", next probe in {one['next_probe_s']} s" if one["state"] == "open" else ""
        why = f" ({one['reason']})" if one["reason"] else ""
        screen.line(f"{one['name']}: {one['state']}{why}, {one['failure_count']} failures{next_probe}")


@breaker.command(short_help="Close a breaker.")
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Close all breakers.")
def reset(name: str | None, *, every: bool) -> None:
    """Close a breaker and forget its failures.

    If another service is configured now, the events that wait for the old one are sent to it.
    """
    if bool(name) == every:
        raise UsageError("bartack track breaker reset", "give the name of a breaker, or --all")
    found, screen = _outbox(), Screen(sys.stdout)
    for one in _names(found, name):
        _breaker(found, one).reset()
        screen.line(f"{one}: closed")
        _readdress(found, one, load_settings(), screen)
    _notify_daemon(found)


def _readdress(found: Outbox, name: str, settings: Settings, screen: Screen) -> None:
    from bartack.resilience.addresses import origin_of  # noqa: PLC0415 - only here

    for url, count in found.waiting().items():
        if origin_of(url) == name and url != settings.url:
            found.readdress(url, settings.url)
            screen.line(f"  {count} events are sent to {settings.url} now")


def _names(found: Outbox, name: str | None) -> list[str]:
    known = breaker_names(found.store)
    if name is not None and name not in known:
        raise EventNotFoundError(name)
    return [name] if name is not None else known


def _breaker(found: Outbox, name: str) -> CircuitBreaker:
    return CircuitBreaker(name=name, store=found.store)


def _outbox() -> Outbox:
    cache = PatternCache()
    cache.take_in()
    return cache.outbox


def _check_known(found: Outbox, ids: tuple[str, ...]) -> None:
    known = found.known(ids)
    for one in ids:
        if one not in known:
            raise EventNotFoundError(one)


def _report(ids: list[str], what: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"events": ids})
    else:
        Screen(sys.stdout).line(f"{len(ids)} events {what}")


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age.strip())
    if found is None:
        raise UsageError("bartack track outbox purge", f"{age!r} is not an age; write 7d, 12h, 30m or 45s")
    return float(found[1]) * _UNITS[found[2]]


def _notify_daemon(found: Outbox) -> None:
    """Notify the running daemon, or register the outbox for the next one."""
    if not DaemonLink().notify(found.store.directory):
        register_outbox(found.store.directory)
        start_on_demand()


def _context(file: str) -> dict[str, object]:
    return {"file_path": str(Path(file).absolute()), "tool_name": "bartack"}


def _track(make: Make, file: str | None, *, as_json: bool) -> int:
    from bartack.tracking import PatternTracker  # noqa: PLC0415 - only commands that track need it

    tracker = PatternTracker()
    tracker.delivery = "daemon"
    code = Path(file).read_bytes().decode("utf-8", "replace") if file is not None else ""
    result = asyncio.run(make(tracker, code))
    if as_json:
        write_json(result)
    elif "pattern_id" in result:
        Screen(sys.stdout).line(str(result["pattern_id"]))
    else:
        Screen(sys.stderr).line(str(result.get("error") or result.get("reason") or result.get("message")))
    if result.get("queued"):
        start_on_demand()
    return Exit.OK if result.get("success") or result.get("queued") else Exit.FAILED

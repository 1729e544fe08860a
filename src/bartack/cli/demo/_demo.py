"""``bartack demo``: show and prove that work survives kill -9.

There are three demos: a team in a git repository (``_team.py``, shown by ``_stage.py``), two nodes of a database (``_nodes.py``,
shown by ``_ground.py``), and the journal alone (``_story.py``). This module shows the last one. ``_custodian.py`` cleans up after a
demo that is killed itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from bartack.cli.app._database import INSECURE_HELP, ON_HELP
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.cli.demo._custodian import open_custodian, remove
from bartack.cli.demo._proof import Check, show_proof
from bartack.cli.demo._story import Ack, Life, iter_lives, plan, prove
from bartack.cli.demo._worker import MOMENTS, Moment
from bartack.errors import UsageError

KILLS: Final[dict[Moment, str]] = {
    "done": "step {step} was done, not yet in the journal",
    "half": "half of step {step}'s line was written",
    "written": "step {step}'s line was written, not yet synced",
    "durable": "step {step} was durable, not yet acknowledged",
}
"""The last event before the process was killed."""

_ALL_ROWS: Final = 40
"""With more steps than this, only those around the kills are listed."""


# Long because its options and its help are part of it.
@click.command(short_help="Watch work survive kill -9, with proof.")
@click.argument("what", type=click.Choice(["team", "journal"]), required=False)
@click.option(
    "--steps",
    type=click.IntRange(len(MOMENTS) + 1, 100_000),
    default=20,
    metavar="N",
    show_default=True,
    help="Execute N steps (with 'journal').",
)
@click.option(
    "--agent",
    metavar="NAME",
    help="Let the agent NAME of bartack.toml in this directory do the work (with 'team'). It costs what the agent costs.",
)
@click.option("--keep", is_flag=True, help="Keep the directory of the demo.")
@click.option("--web", is_flag=True, help="Show the run in the browser, too (with 'team').")
@click.option("--nodes", is_flag=True, help="Show instead how a run survives the death of its node.")
@click.option(
    "--on", default="", metavar="DATABASE", help=f"With --nodes: use {ON_HELP}, and not a server of the demo."
)
@click.option("--insecure", is_flag=True, help=INSECURE_HELP)
@json_option
def demo(
    what: str | None,
    steps: int,
    agent: str | None,
    on: str,
    *,
    keep: bool,
    web: bool,
    nodes: bool,
    insecure: bool,
    as_json: bool,
) -> Exit:
    """Watch work survive kill -9, and see the proof that nothing was lost, done or paid for twice.

    'team' (the default) creates a git repository with a small Python project. A builder, a reviewer and a spec maintainer add a
    feature to it, and its tests decide. Twice, while an agent is at work, all processes of the run are killed, and 'bartack resume'
    continues. The agents are scripted and cost nothing. With --agent NAME a configured agent does the work, and all processes are
    killed once.

    'journal' shows the details: a process that records numbered steps kills itself at four critical moments of a single write.

    With --nodes two nodes take runs from a PostgreSQL database, and the node that has the run is killed. The other one continues it
    when the lease is over. It needs bartack[postgres], and a PostgreSQL server on this machine or a database (--on).

    With --web a link leads to the page of the run, which is read-only. The command then waits for Enter, and the page ends with it.

    The exit code is 1 if the proof fails. Without --keep the directory of the demo is removed, also if the demo itself is killed.
    """
    _check(what, agent, on, web=web, nodes=nodes, insecure=insecure, as_json=as_json)
    directory = tempfile.mkdtemp(prefix="bartack-demo-")
    kept = keep
    with open_custodian(directory, keep=keep):
        try:
            if nodes:
                proved = _perform_nodes(directory, on, insecure=insecure, keep=keep, as_json=as_json)
            elif what != "journal":
                from bartack.cli.demo._stage import perform_team  # noqa: PLC0415 - the other demo does not need the runtime

                proved = perform_team(Path(directory), agent, keep=keep, web=web, as_json=as_json)
            else:
                proved = _perform(directory, steps, keep=keep, as_json=as_json)
            kept = keep or not proved
        finally:
            if not kept:
                remove(directory)
    return Exit.OK if proved else Exit.FAILED


def _check(
    what: str | None, agent: str | None, on: str, *, web: bool, nodes: bool, insecure: bool, as_json: bool
) -> None:
    """Raise unless the options go together."""
    is_team = what != "journal" and not nodes
    if nodes and what is not None:
        raise UsageError("bartack demo", f"--nodes is a demo of its own: leave out {what!r}")
    if (on or insecure) and not nodes:
        raise UsageError("bartack demo", "--on and --insecure are for the demo of nodes: add --nodes")
    if agent is not None and not is_team:
        raise UsageError("bartack demo", "--agent is for the demo 'team'")
    if web and (not is_team or as_json):
        raise UsageError("bartack demo", "--web is for the demo 'team', without --json")


def _perform_nodes(directory: str, on: str, *, insecure: bool, keep: bool, as_json: bool) -> bool:
    from bartack.cli.demo._ground import perform_nodes  # noqa: PLC0415 - the other demos need no database
    from bartack.cli.demo._nodes import NodesError  # noqa: PLC0415 - likewise

    try:
        return perform_nodes(Path(directory), on, insecure=insecure, keep=keep, as_json=as_json)
    except NodesError as error:
        write_note(f"the demo stopped: {printable(str(error))}")
        return False


def _perform(directory: str, steps: int, *, keep: bool, as_json: bool) -> bool:
    """Run the demo of the journal, show it and its proof; return whether the proof holds."""
    screen = None if as_json else Screen(sys.stdout)
    lives: list[Life] = []
    if screen:
        _show_opening(screen, directory, steps)
    for life in iter_lives(directory, steps, as_json=as_json):
        lives.append(life)
        if screen:
            _show_life(screen, life)
    if lives[-1].code > 0:
        raise click.exceptions.Exit(lives[-1].code)  # the process has reported its error on stderr
    checks = prove(lives, directory, steps)
    proved = all(check.ok for check in checks)
    if screen:
        _show_steps(screen, lives, steps)
        show_proof(screen, checks, "from the acknowledgements, the journal and the effects")
        _show_end(screen, directory, kept=keep or not proved)
    else:
        write_json(_as_facts(lives, checks, directory, kept=keep or not proved))
    return proved


def _show_opening(screen: Screen, directory: str, steps: int) -> None:
    screen.line(f"{steps} steps, {len(plan(steps))} times kill -9, one journal in {directory}")
    screen.line()
    screen.flush()


def _show_life(screen: Screen, life: Life) -> None:
    steps = [ack.message.step for ack in life.acks]
    did = f"steps {steps[0]}-{steps[-1]}" if steps else "no step"
    before = screen.paint(f"  process {life.pid:<7}", "dim") + f"{did:<13}"
    if life.death is not None:
        reason = KILLS[life.death.moment].format(step=life.death.step)
        screen.line(f"{before}{screen.paint('kill -9', 'red')}: {reason}")
    else:
        screen.line(f"{before}{screen.paint('done', 'green')}")
    screen.flush()


def _show_steps(screen: Screen, lives: list[Life], steps: int) -> None:
    rows = _step_rows(lives)
    deaths = {death.step for death in plan(steps)}
    near = {step + i for step in deaths for i in (-1, 0, 1)} | {1, steps}
    screen.line()
    head = ("step", "acknowledged", "by process", "entry", "")
    shown = [row for step, row in sorted(rows.items()) if steps <= _ALL_ROWS or step in near]
    screen.table([tuple(screen.paint(name, "bold") for name in head), *shown])


def _step_rows(lives: list[Life]) -> dict[int, tuple[str, str, str, str, str]]:
    """A row for each step; a step that no process acknowledged was found in the journal by the next process."""
    rows: dict[int, tuple[str, str, str, str, str]] = {}
    for life in lives:
        if life.found and life.found not in rows:
            note = f"found in the journal by {life.pid}"
            rows[life.found] = (f"{life.found:>4}", f"{'-':>12}", f"{'-':>10}", f"{'-':>5}", note)
        for ack in life.acks:
            of, after = ack.message, f"{ack.after_s * 1000:>9.1f} ms"
            rows[of.step] = (f"{of.step:>4}", after, f"{ack.pid:>10}", f"{of.seq:>5}", _note(life, ack))
    return rows


def _note(life: Life, ack: Ack) -> str:
    if not ack.message.again:
        return ""
    return "done before; torn line cut off" if life.cut_bytes else "done before, recognised by its key"


def _show_end(screen: Screen, directory: str, *, kept: bool) -> None:
    screen.line()
    if not kept:
        screen.line("The directory was removed; 'bartack demo --keep' keeps it.")
        return
    screen.line("Inspect it:")
    screen.line(f"  bartack journal show {directory}")
    screen.line(f"  bartack journal verify {directory}")
    screen.line(f"  cat {os.path.join(directory, 'effects.log')}")


def _as_facts(lives: list[Life], checks: list[Check], directory: str, *, kept: bool) -> dict[str, object]:
    return {
        "ok": all(check.ok for check in checks),
        "checks": [check._asdict() for check in checks],
        "processes": [_life_facts(life) for life in lives],
        "directory": directory,
        "kept": kept,
    }


def _life_facts(life: Life) -> dict[str, object]:
    return {
        "pid": life.pid,
        "found": life.found,
        "cut_bytes": life.cut_bytes,
        "killed": None if life.death is None else life.death._asdict(),
        "ended_with": life.code,
        "acknowledged": [
            {
                "step": ack.message.step,
                "seq": ack.message.seq,
                "after_s": round(ack.after_s, 6),
                "again": ack.message.again,
            }
            for ack in life.acks
        ],
    }

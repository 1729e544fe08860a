"""A program that starts one run and ends: ``python -m bartack.mcp._starter``, with a request on its standard input.

It makes the run, or finds the one that the same start has made before, and starts its hub. It writes one JSON object: the run,
whether it existed, and its status; or the problem. Starts with one key wait for each other.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from bartack.config.load import Config, find_workspace, load_config
from bartack.core import typed
from bartack.core.flaws import unknown_name
from bartack.errors import AgentConfigError, BartackError, JournalLockedError, TreeLockedError
from bartack.mcp._errors import ToolError, explain
from bartack.mcp._follow import Cursor, Follow
from bartack.mcp._reported import was_reported
from bartack.runtime.client.start_hub import start_hub
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.rundir.find import list_runs, read_state, status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.starts import has_key, one_start


class StartRequest(msgspec.Struct, kw_only=True):
    """What to start.

    Attributes:
        project: The directory of the project.
        program: The file, or ``FILE:WORKER``.
        member: What to run in it; empty for its main worker.
        args: Arguments by name.
        key: What the start is recognised by if it is repeated.
        new: Make a run in any case.
        agent: The default agent of the run, if it is not that of the settings.
        budget_usd: What its agents may cost, if it is not what the settings allow.
    """

    project: str
    program: str
    member: str = ""
    args: dict[str, msgspec.Raw] = {}
    key: str = ""
    new: bool = False
    agent: str = ""
    budget_usd: float | None = None


class StartResult(msgspec.Struct, omit_defaults=True):
    """What became of it."""

    run: str = ""
    existing: bool | None = None
    status: str = ""
    problem: str = ""


def main() -> int:
    """Read the request, start, and write the result."""
    try:
        request = typed.decode(sys.stdin.buffer.read(), type=StartRequest)
        result = start(request)
    except (ToolError, msgspec.DecodeError, OSError) as problem:
        result = StartResult(problem=str(problem))
    except BartackError as error:
        result = StartResult(problem=explain(error))
    with suppress(OSError):  # the server may be gone; the run is started all the same
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def start(request: StartRequest) -> StartResult:
    """Make and start a run, or return the one that the same start has made.

    Raises:
        BartackError: It cannot be started; nothing runs.
        ToolError: The settings of the project do not allow it.
    """
    place = find_workspace(Path(request.project)).resolve()
    sets = _sets(request, load_config(place))
    config = load_config(place, sets)
    with one_start(config.state_dir(place), request.key):
        found = None if request.new else find_started(place, request.key)
        run = found or create_run(_wanted(request), place, config, sets)
        if found is None or _never_ran(run):
            with suppress(JournalLockedError, TreeLockedError):  # another process is about to run it
                start_hub(run)
    return StartResult(run.id, found is not None, status_of(run, read_state(run)))


def find_started(workspace: Path, key: str) -> RunDir | None:
    """The newest run that the same start has made and whose end was not reported to a client, if there is one."""
    for run in list_runs(workspace):
        if has_key(run, key):
            with Follow(run, Cursor()) as follow:
                follow.read()
                if follow.result is None or not was_reported(run, follow.result.seq):
                    return run
    return None


def _never_ran(run: RunDir) -> bool:
    """Whether its starter was killed before a hub ran it."""
    state = read_state(run)
    return state.hub == 0 and state.ended is None


def _wanted(request: StartRequest) -> RunRequest:
    return RunRequest(
        program=request.program, worker=request.member, input=request.args, start_key=request.key
    )


def _sets(request: StartRequest, config: Config) -> list[str]:
    """The settings that a client may choose for a run, in the form of ``--set``."""
    sets: list[str] = []
    if request.agent:
        if request.agent not in config.agents.named:
            flaw = unknown_name((), request.agent, list(config.agents.named), "there is no such agent")
            raise AgentConfigError(request.agent, flaw.problem)
        sets.append(f"agents.default={json.dumps(request.agent)}")
    if request.budget_usd is not None:
        most = config.budget.usd
        if most is not None and request.budget_usd > most:
            raise ToolError(f"budget_usd: bartack.toml allows at most {most:g} (budget.usd).")
        sets.append(f"budget.usd={request.budget_usd!r}")
    return sets


if __name__ == "__main__":
    sys.exit(main())

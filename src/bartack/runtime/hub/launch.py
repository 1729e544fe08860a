"""Running a run: from a directory with a journal to a hub. ``create.py`` makes them."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bartack.config.load import Config, keep_sets
from bartack.config.timeouts import Timeouts
from bartack.core.accounts import Account
from bartack.core.batch import Batch
from bartack.errors import ConfigError, ResumeRefusedError, RunNotFoundError
from bartack.journal import Entry, Journal
from bartack.journal.veil import Veil
from bartack.runtime.hub.agents.prompts import Prompts
from bartack.runtime.hub.clock import HubClock
from bartack.runtime.hub.holding import HOLD_S
from bartack.runtime.hub.hub import Hub, Observer
from bartack.runtime.hub.inbox import take_in
from bartack.runtime.hub.machine import check_machine, workers_room
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.hub.workspace.prepared import Prepared
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.core import Core, check_decided
from bartack.runtime.kernel.delegates import FinalCheck
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.program.environment import check_environment, find_differences
from bartack.runtime.program.pin import finish_update
from bartack.runtime.rundir.find import TERMINAL
from bartack.runtime.rundir.inside import check_may_drive
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.presence import naming_stopped_owner
from bartack.runtime.rundir.run_as import account_of, check_account, share_run
from bartack.runtime.rundir.secret_digests import Digests
from bartack.runtime.rundir.secrets import open_veil
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.units import Caps
from bartack.runtime.state.worker_state import NO_VALUE, UnknownDecision
from bartack.supervision.process.limits import most_files
from bartack.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from bartack.runtime.hub.copier import Copier
    from bartack.runtime.hub.forwarding import RequestForwarder
    from bartack.runtime.hub.leased_clock import LeasedClock
    from bartack.runtime.hub.notices import NoticeFeed

CoreParts = tuple[State, Journal, HubClock, Timeouts, Settings, Telemetry, FinalCheck]
"""What a core is made of."""

EXIT_CODES = {
    "completed": 0,
    "failed": 1,
    "waiting": 3,
    "resting": 3,
    "cancelled": 4,
    "aborted": 4,
    "disk": 6,
    "copies": 130,
    "interrupted": 130,
    "terminated": 143,
}


def drive(
    run: RunDir,
    config: Config,
    observer: Observer,
    unknown: UnknownDecision | None = None,
    workspace: str | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    describe: Describe | None = None,
    sets: Sequence[str] = (),
    *,
    accept_loss: bool = False,
    lease: int | None = None,
    hold_s: float = HOLD_S,
    prepared: Prepared | None = None,
) -> str:
    """Run a run until it ends or is interrupted: be its hub. Returns how it ended.

    Args:
        run: The run.
        config: The settings of its workspace.
        observer: Watches it.
        unknown: What to do with a step whose outcome is not known.
        workspace: Where its workspace is, if it is not where it was.
        telemetry: Takes the events of the run.
        describe: Describes the progress of a run of the pipeline, for run.json.
        sets: Settings in ``config`` that were given for this run now, and hold from now on.
        accept_loss: Resume a run whose journal has lost acknowledged entries with those that are left.
        lease: The descriptor of a lease page: everything stands still while it is not valid (``holding.py``).
        hold_s: How long that may last.
        prepared: How its workspace was prepared for this hub.

    Raises:
        ConfigError: OpenTelemetry is configured, and is not installed.
        JournalLockedError: Another process runs it.
        JournalLostError: Its journal has lost acknowledged entries; nothing was executed or changed.
        BlobMissingError: A large value of it is missing; nothing was executed or changed.
        BlobCorruptError: A large value of it is damaged; nothing was executed or changed.
        HubStoppedError: Another process runs it and is stopped.
        MachineError: This machine lacks something that every run needs; nothing was executed or changed.
        EnvironmentMismatchError: Its settings allow only the versions that it was started with, and others are installed here;
            nothing was executed or changed.
        ResumeRefusedError: It has ended for good, or needs a decision first.
        PeerRefusedError: This process belongs to a run that is not allowed to resume it.
        ForeignRunError: It came from elsewhere, and is not trusted.
        UntrustedError: Another user can change it.
    """
    check_machine(str(run.path), workspace or "")
    check_own(run)
    check_telemetry(config)
    with _tracing(telemetry) if config.telemetry.otel else nullcontext(telemetry) as traced:
        given = run, config, observer, unknown, workspace, traced, describe, sets
        return _drive(*given, accept_loss=accept_loss, lease=lease, hold_s=hold_s, prepared=prepared)


# Long because it opens what a hub needs, each thing with those before it, and closes all of it.
def _drive(
    run: RunDir,
    config: Config,
    observer: Observer,
    unknown: UnknownDecision | None,
    workspace: str | None,
    telemetry: Telemetry,
    describe: Describe | None,
    sets: Sequence[str],
    *,
    accept_loss: bool,
    lease: int | None,
    hold_s: float,
    prepared: Prepared | None,
) -> str:
    check_may_drive(run)
    heartbeat = run.last_sign_of_life_us()
    state = State()
    veil = open_veil(config, str(run.path), workspace or os.getcwd())
    digests = Digests(run.path)
    lease = _open_lease(run) if lease is None else lease
    clock = HubClock() if lease is None else _open_clock(lease, heartbeat)
    journal = _own(run, config, state, telemetry, veil, clock, accept_loss=accept_loss)
    hub: Hub | None = None
    feed: NoticeFeed | None = None
    forwarder: RequestForwarder | None = None
    try:
        last_us = state.last_at
        _make_ready(run, journal, state, observer, unknown)
        run.keep_program()
        keep_sets(run.path, sets)
        _settle(run, state, config)
        assert state.run is not None
        place = run.workspace(state, workspace)
        account = _open_to_account(run, state.run, Path(place))
        settings = _settings_of(config, no_input=state.run.no_input)
        prompts = _open_prompts(run, config, place, state, clock, account, telemetry)
        timeouts = Timeouts(os.environ, config.limits)
        given = state, journal, clock, timeouts, settings, telemetry, prompts.unused
        core, copier = _open_core(run, config, place, given, prompts.save_conversations)
        feed = _open_feed(run, config, place, state.hub + 1)
        make_hub = partial(Hub, run, journal, core, prompts, observer, veil=veil, clock=clock, copier=copier)
        make_hub = partial(make_hub, lease=lease, hold_s=hold_s)
        hub = make_hub(config=_shared(config, veil, clock), describe=describe, account=account, notices=feed)
        forwarder = _open_forwarder(run)
        dead_us = 0 if state.hub == 0 else _dead_us(clock, heartbeat, state, last_us)

        def begin(core: Core, orphans: Sequence[str]) -> None:
            _record_place(core, place, prepared)
            _note_changes(run, core, digests, veil)
            core.start(dead_us, unknown, orphans)
            take_in(run, core)
            if forwarder is not None:
                forwarder.start()

        return hub.run(begin)
    finally:
        if forwarder is not None:
            forwarder.close()
        journal.close()
        if hub is not None:
            hub.write_left()
        if feed is not None:
            feed.close()
        digests.close()
        _close_lease(run, lease)
        _wake_node()


def _record_place(core: Core, place: str, prepared: Prepared | None) -> None:
    if core.state.run is not None and core.state.run.workspace != place:
        core.turn.record((e.RunMoved(workspace=place), NO_VALUE))
    if prepared is not None:
        core.turn.record(prepared.entry())


def _shared(config: Config, veil: Veil, clock: HubClock) -> msgspec.Raw:
    """What all workers get of the settings, and the time of the run."""
    shared = {"timeouts": config.limits, "secrets": veil.secrets, "ahead_us": clock.ahead_us()}
    return msgspec.Raw(msgspec.json.encode(shared))


def _open_forwarder(run: RunDir) -> RequestForwarder | None:
    """For the requests in the database of a run that this process owns there; ``None`` for all others."""
    answerer = None if run.link is not None else run.answerer()
    if answerer is None:
        return None
    from bartack.runtime.hub.forwarding import REPEAT_S, RequestForwarder  # noqa: PLC0415 - other runs start faster without it

    forwarder = RequestForwarder(run, answerer, REPEAT_S)
    forwarder.leave()
    run.on_request(forwarder.wake)
    return forwarder


def _open_core(
    run: RunDir, config: Config, place: str, given: CoreParts, prepare: Callable[[], None]
) -> tuple[Core, Copier | None]:
    """The core of a run, and what makes the copies of its workspace if it keeps them."""
    _calm_collector()
    state, *_ = given
    if state.copies.latest is None:
        return Core(*given), None
    from bartack.runtime.hub.carried import base_of, top_of  # noqa: PLC0415 - other runs start faster without it
    from bartack.runtime.hub.copier import Copier  # noqa: PLC0415 - likewise
    from bartack.runtime.kernel.copies.core import CopyingCore  # noqa: PLC0415 - likewise

    core = CopyingCore(*given, during_s=config.workspace.during_s)
    return core, Copier(
        run, core, top_of(state.copies, place), config.workspace.include, base_of(state.copies), prepare
    )


def _open_lease(run: RunDir) -> int | None:
    """The descriptor of a lease page for a run that is kept in a database: its owner may continue as long as that answers."""
    if run.where is None:
        return None
    from bartack.supervision.process.lease import LeasePage  # noqa: PLC0415 - other runs start faster without it

    run.page, lease = LeasePage.create()
    return lease


def _open_clock(lease: int, seen_us: int | None) -> LeasedClock:
    """The clock of a hub with a lease page."""
    from bartack.runtime.hub.leased_clock import LeasedClock  # noqa: PLC0415 - other runs start faster without it
    from bartack.supervision.process.lease import LeasePage  # noqa: PLC0415 - likewise

    return LeasedClock(LeasePage.open(lease), seen_us)


def _close_lease(run: RunDir, lease: int | None) -> None:
    if run.page is not None and lease is not None:
        os.close(lease)


def _wake_node() -> None:
    """Let a node look at the queue: the run may rest there, and have ended here."""
    from bartack.depot import user_depot  # noqa: PLC0415 - runs start faster without it

    user_depot().nudge()


def _dead_us(clock: HubClock, heartbeat: int | None, state: State, last_us: int) -> int:
    """How long no hub was alive, whose last entry was made then.

    The journal has it for a hub that shut down cleanly, wherever the files were copied since. A copy may lack the heartbeat.
    Where the run has a lease, the owner of that knows it.
    """
    known = clock.dead_us(last_us)
    if known is not None:
        return known
    in_order = state.ended is not None or bool(state.stopped)
    if heartbeat is None or (in_order and last_us < heartbeat):
        return clock.now_us() - last_us
    return clock.now_us() - heartbeat


def _own(
    run: RunDir,
    config: Config,
    state: State,
    telemetry: Telemetry,
    veil: Veil,
    clock: HubClock,
    *,
    accept_loss: bool,
) -> Journal:
    """Own the journal of a run, and read it into ``state``."""

    def add(entry: Entry) -> None:
        add_entry(state, entry)
        clock.not_before(entry.at)

    with naming_stopped_owner(run):
        return run.open_journal(
            durability=config.durability,
            telemetry=telemetry,
            each=add if clock.is_shared else partial(add_entry, state),
            veil=veil,
            accept_loss=accept_loss,
            clock=clock if clock.is_shared else None,
        )


def _make_ready(
    run: RunDir, journal: Journal, state: State, observer: Observer, unknown: UnknownDecision | None
) -> None:
    """Report how the journal was found, complete an interrupted update of the program, and check that the run can be resumed."""
    if state.run is None:
        raise RunNotFoundError(run.id)
    finish_update(run.path, state.next_program)
    observer.reopened(Reopened(journal.recovery, journal.loss, state))
    check_resumable(run, state, unknown)
    if state.run.environment_rule == "strict":
        check_environment(run.id, state.run.environment)


def _note_changes(run: RunDir, core: Core, digests: Digests, veil: Veil) -> None:
    """Report what is not as it was when the run was here, or was created."""
    _note_secrets(core, digests, veil)
    _note_environment(run, core)


def _note_environment(run: RunDir, core: Core) -> None:
    """Report other versions than the run was started with. A run that begins here has those of this process."""
    state = core.state
    if state.run is None or (state.hub == 0 and run.where is None):
        return
    differences = find_differences(state.run.environment)
    if differences:
        text = f"the environment is not the one that the run was started in: {', '.join(differences)}"
        core.turn.after_commit(Show("note", "", text))


def _note_secrets(core: Core, digests: Digests, veil: Veil) -> None:
    """Keep the digests of the secrets, and report those that were changed: nothing of what was read shows that there is another."""
    changed = digests.changed(veil.secrets, veil.given_back)
    digests.add(veil.secrets)
    for name in changed:
        text = f"{name} has changed since the run recorded it; its current value is used instead"
        core.turn.after_commit(Show("note", "", text))


def _settle(run: RunDir, state: State, config: Config) -> None:
    """Make the program of the run durable, unless it was when the run was created.

    The run may be a copy, or have been created without syncs, and the entries to come depend on its program.
    """
    assert state.run is not None
    if config.durability != "power" or (state.hub == 0 and state.run.synced):
        return
    batch = Batch()
    batch.include_tree(str(run.program))
    batch.include_dir(str(run.path))
    batch.settle()


def _open_to_account(run: RunDir, created: e.RunCreated, workspace: Path) -> Account | None:
    """The account of the run's processes, if it is not ours; what it needs of the run is open to it."""
    account = account_of(run, created)
    if account is None:
        return None
    check_account(account, workspace, run.path.parent.parent)
    return share_run(run, account)


def _settings_of(config: Config, *, no_input: bool) -> Settings:
    return Settings(
        no_input=no_input,
        max_usd=config.max_usd,
        reserve_usd=config.reserve_usd,
        min_reserve_usd=config.budget.min_reserve_usd,
        caps=Caps(
            tokens=config.budget.tokens,
            turns=config.budget.turns,
            wall_s=config.budget.wall_s,
            strict=config.budget.strict,
        ),
        agent=config.default_agent,
        letters=config.dead_letters,
        mailboxes=config.mailboxes,
        questions=config.questions,
        prompt_limits=config.agents.prompt_limits,
        secrets=config.redaction.rule,
        environ=dict(os.environ),
        workers=config.workers,
        workers_room=workers_room(most_files()),
    )


def _open_prompts(
    run: RunDir,
    config: Config,
    place: str,
    state: State,
    clock: HubClock,
    account: Account | None,
    telemetry: Telemetry,
) -> Prompts:
    scripted = config.open_scripted(Path(place), run.path)
    if account is not None:
        for agent in scripted.values():
            agent.acting = account.acting
    if not config.agents.named:
        return Prompts(scripted, config.default_agent, place, clock=clock, run_id=run.id)
    from bartack.runtime.hub.agents.programs import Programs  # noqa: PLC0415 - a run without agents starts faster without it

    programs = Programs(
        config,
        folder=run.agents,
        workspace=place,
        environment=run.environment(state),
        environ=None if account is None else account.environment(os.environ),
        memory=None if account is None else run.work,
        telemetry=telemetry,
        from_wall_us=clock.from_wall_us,
        travels=state.copies.latest is not None,
    )
    return Prompts(scripted, config.default_agent, place, clock=clock, programs=programs, run_id=run.id)


def _open_feed(run: RunDir, config: Config, place: str, hub: int) -> NoticeFeed | None:
    if not config.notices.has_ways:
        return None
    from bartack.runtime.hub.notices import open_feed  # noqa: PLC0415 - a run without notices starts faster without it

    return open_feed(run, config, place, hub)


def check_telemetry(config: Config) -> None:
    """Raise unless all configured telemetry is available.

    Raises:
        ConfigError: OpenTelemetry is configured, and is not installed.
    """
    if config.telemetry.otel:
        try:
            importlib.import_module("bartack.telemetry.otel")  # an optional dependency
        except ImportError as error:
            problem = f"OpenTelemetry is not installed ({error.name}); install bartack[otel]"
            raise ConfigError("bartack.toml: telemetry.otel", problem) from None


@contextmanager
def _tracing(telemetry: Telemetry) -> Generator[Telemetry]:
    """Send events to OpenTelemetry, too, while the block is executed."""
    from bartack.telemetry.otel import attach_otel  # noqa: PLC0415 - see above

    traced = telemetry if telemetry is not NO_TELEMETRY else Telemetry()
    bridge = attach_otel(traced)
    try:
        yield traced
    finally:
        bridge.close()


def _calm_collector() -> None:
    """The hub makes many short-lived objects and no cycles: looking for those all the time is wasted."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def check_resumable(run: RunDir, state: State, unknown: UnknownDecision | None) -> None:
    """Raise unless a run has something left to do."""
    if state.ended is not None and state.ended.status in TERMINAL:
        raise ResumeRefusedError(run.id, f"it is {state.ended.status}")
    check_decided(run.id, state, unknown)

"""What holds for every test: a machine may be slow, and nobody's own settings may decide a result."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import verdict

# The public suites assert, too; this must come before anybody imports them.
pytest.register_assert_rewrite("bartack.testing")

# A shell starts its background jobs deaf to Ctrl-C, and what the tests start would be deaf, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So would they be deaf to the end of a terminal if nohup started us. A program that is started never inherits a function.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# The tests start Python thousands of times; without stored bytecode each of them would compile everything anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Runs carry the mark of their user, and users trust directories: the tests are a user of their own.
_CONFIG = "bartack-tests-config-"
if _CONFIG not in os.environ.get("XDG_CONFIG_HOME", ""):
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix=_CONFIG)
    atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

# Nor does git know who they are, and it must not guess: what makes commits has to say in whose name.
for _name in [name for name in os.environ if name.startswith("GIT_") or name == "EMAIL"]:
    del os.environ[_name]
os.environ["GIT_CONFIG_SYSTEM"] = os.devnull
os.environ["GIT_CONFIG_GLOBAL"] = os.path.join(os.environ["XDG_CONFIG_HOME"], "git-without-a-name")
Path(os.environ["GIT_CONFIG_GLOBAL"]).write_text("[user]\n\tuseConfigOnly = true\n", encoding="utf-8")

# A busy machine makes slow examples, and that is no failure. Nor is the weather: the same examples are tried each time, and
# new ones, and four times as many, where somebody asks for them and looks at what they find.
settings.register_profile(
    "bartack",
    max_examples=200 if "SOAK" in os.environ else 50,
    deadline=None,
    print_blob=True,
    derandomize="SOAK" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("bartack")

_PR_GET_CHILD_SUBREAPER = 37

COUNTED = {
    "power_cut_states": "states of the disk after a power cut, all recovered",
    "kills": "kill -9 of a process that appends, nothing acknowledged lost",
    "chaos_kills": "kill -9 of hubs, workers and their parents, every run ended as if nothing had happened",
    "node_kills": "kill -9 of nodes with detached runs, nothing lost and nothing done twice",
    "detached_kills": "kill -9 of hubs of detached runs, likewise",
    "simulated_node_kills": "kills of nodes and hubs in memory, likewise",
    "killed_lines": "kills in memory, one after every line of a journal, same results and nothing done twice",
    "matrix_kills": "kills of runs whose agents misbehave, same results and nothing done twice",
    "append_races": "races of appends and takeovers in a database, no row of a lost owner",
    "database_faults": "cuts and kills of the connections and processes of a database, nothing acknowledged lost or doubled",
    "database_kills": "kill -9 of runs in a database, resumed here or on another machine",
    "fleet_faults": "faults of nodes, hubs and their database while programs ran, never two owners at work and nothing done twice",
    "simulated_fleets": "fleets of nodes with faults in virtual time, likewise",
    "damaged_journals": "damaged journals, each recovered or refused unchanged",
}


REAL_AT_ONCE = 3
REAL_LIMIT_S = 240
"""How long the tests with real programs may take when three of them run at a time."""

LONG = frozenset(f"test_fleet_{name}.py" for name in ("cables", "chaos", "failover", "outage", "upgrade"))
"""Files whose tests each take a minute or so."""

COSTLY = Path(__file__).parent / "costly.txt"
EVERY = 3
_UNTIL = time.monotonic() + 3600 * float(os.environ.get("BARTACK_CHAOS_HOURS", "24"))


@pytest.fixture(scope="session", autouse=True)
def own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The state of the user who runs the tests is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for ``make soak``."""
    if "SOAK" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if not any("::" in word or word.endswith(".py") for word in config.args):
        left_out += further_cases(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]
    begin_long_ones(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def begin_long_ones(items: list[pytest.Item], workers: int) -> None:
    """Put the tests of ``LONG`` where the share of each worker begins: otherwise one waits for them at the end, alone."""
    long = [item for item in items if item.path.name in LONG]
    others = [item for item in items if item.path.name not in LONG]
    items[:] = []
    for number in range(workers):
        first, last = (each * len(others) // workers for each in (number, number + 1))
        items += [*long[number::workers], *others[first:last]]


def further_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """Two of three cases of each test that ``costly.txt`` names."""
    costly = {name: 0 for name in COSTLY.read_text(encoding="utf-8").splitlines() if name[:1] != "#"}
    found: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in costly:
            if costly[name] % EVERY:
                found.append(item)
            costly[name] += 1
    return found


pytest_runtest_makereport = verdict.pytest_runtest_makereport


def pytest_runtest_setup() -> None:
    """Begin nothing when the time is up that somebody has given."""
    if time.monotonic() > _UNTIL:
        pytest.skip("the hours given are over")


@pytest.fixture(autouse=True)
def the_tests_are_no_hub() -> Iterator[None]:
    """A hub ends everything below it: in the process of the tests that would be what other tests have started there."""
    before = _is_subreaper()
    yield
    assert before or not _is_subreaper(), "a test drove a run in this process; it has to have one of its own"


def _is_subreaper() -> bool:
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value != 0


@pytest.fixture(autouse=True)
def what_goes_over_the_wire_is_as_the_schemas_say(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of every test that has a directory: it is looked at when nothing of the test runs any more."""
    yield
    folder = getattr(request.node, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path) and folder.is_dir():
        from tests.wire import faults_below  # noqa: PLC0415 - few tests leave anything to look at

        assert faults_below(folder) == []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much the crash tests have gone through."""
    # Not in tests/crash: the process that shows the summary loads only this file when others run the tests.
    totals = dict.fromkeys(COUNTED, 0)
    slowest = many = 0
    reports: list[pytest.TestReport] = terminalreporter.getreports("passed")
    for report in reports:
        for name, value in report.user_properties:
            if name in totals and isinstance(value, int):
                totals[name] += value
            if name == "long_run":
                terminalreporter.write_line(f"crash suite: {value}")
            if name == "gone_ms" and isinstance(value, int):
                slowest = max(slowest, value)
            if name == "many_gone_ms" and isinstance(value, int):
                many = max(many, value)
    for name, total in totals.items():
        if total:
            terminalreporter.write_line(f"crash suite: {total:,} {COUNTED[name]}")
    for slow, what in ((slowest, "a hub"), (many, "a hub with 300 children")):
        if slow:
            terminalreporter.write_line(
                f"crash suite: no process left at most {slow} ms after {what} was killed"
            )
    say_what_real_programs_take(terminalreporter)


def say_what_real_programs_take(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long the tests with real programs took: all of them, at three at a time, and while any of them was running."""
    kept: dict[str, list[object]] = terminalreporter.stats
    phases = [
        phase
        for outcome in ("", "passed", "failed", "error")  # a clean-up that went well has no name
        for phase in kept.get(outcome, [])
        if isinstance(phase, pytest.TestReport)  # a file that cannot be imported has none
        and "realcli" in phase.keywords
        and phase.when != "setup"  # which waits until the program may start
    ]
    if not phases:
        return
    sum_s = sum(phase.duration for phase in phases)
    wall_s = covered_s([(phase.start, phase.stop) for phase in phases])
    tests = len({phase.nodeid for phase in phases})
    terminalreporter.write_line(
        f"real programs: {tests} tests, {sum_s:.0f} s in all, {sum_s / REAL_AT_ONCE:.0f} s at {REAL_AT_ONCE} at a time "
        f"(of {REAL_LIMIT_S}), {wall_s:.0f} s of wall time"
    )


def covered_s(spans: list[tuple[float, float]]) -> float:
    """How much time spans cover together."""
    total, end = 0.0, 0.0
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


_FOR_TESTS = ("BARTACK_CHAOS_", "BARTACK_TEST_", "BARTACK_REQUIRE_")
for _name in [
    name
    for name in os.environ
    if (name.startswith("BARTACK_") and not name.startswith(_FOR_TESTS))
    or name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
]:
    del os.environ[_name]

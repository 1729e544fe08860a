"""Real agent programs for tests: found or skipped with the reason, a model server for each test, three programs at a time.

``programs.py`` decides about programs that are missing.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol, cast

import pytest
from tests.conftest import REAL_AT_ONCE
from tests.realcli.programs import require_program

from bartack.testing import ClaudeSandbox, ModelServer
from bartack.testing.sandbox._environment import CODEX_MODEL
from bartack.testing.sandbox._network import Network

SLOTS = Path(tempfile.gettempdir()) / f"bartack-realcli-{os.getuid()}"

Scripts = Mapping[str, Sequence[Mapping[str, object]]]
StartServer = Callable[[Scripts], ModelServer]


SOAK = "SOAK" in os.environ
SOAKED = (
    "test_model_server.py::test_claude_code_repeats",
    "test_model_server.py::test_claude_code_gives_up_in_the_end",
    "test_model_server.py::test_claude_code_continues_a_reply_that_is_too_long_three_times",
    "test_model_server.py::test_claude_code_with_a_login_reads_limits_from_the_headers_of_a_step[warned-allowed]",
    "test_model_server.py::test_codex",
    "test_model_server.py::test_claude_agent_acp",
    "test_acp.py::test_a_killed_turn_is_continued_in_its_session[agent-session/load]",
    "test_acp.py::test_a_killed_turn_is_continued_in_its_session[agent-session/resume]",
    "test_acp.py::test_a_killed_turn_is_continued_in_its_session[hub-session/resume]",
    "test_acp.py::test_a_value_is_found_in_the_text",
    "test_acp.py::test_a_cancelled_run_leaves_no_process",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[acp-edit]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[acp-ask]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[acp-auto]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[acp-all]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[codex-edit]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[codex-read]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[claude-ask]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[claude-read]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[claude-auto]",
    "test_decisions.py::test_a_mode_means_the_same_with_every_agent[claude-all]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[acp-read]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[acp-edit]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[acp-all]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[acp-ask]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[codex-read]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[codex-auto]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[codex-all]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[codex-ask]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[claude-read]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[claude-edit]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[claude-all]",
    "test_decisions.py::test_another_user_than_root_gets_the_same_verdicts[claude-ask]",
    "test_decisions.py::test_the_calls_that_an_agent_cannot_make_are_not_possible[acp]",
    "test_claude_crashes.py::test_a_tool_whose_result_the_model_has_is_not_run_again",
    "test_claude_limits.py::test_a_cancelled_run_ends_the_agent_and_its_command",
    "test_codex_limits.py::test_a_run_that_is_cancelled_ends_codex_and_its_commands",
    "test_failures.py::test_what_cannot_get_better_is_not_asked_again[acp]",
    "test_failures.py::test_what_gets_better_is_asked_again_in_its_conversation[acp]",
    "test_failures.py::test_what_never_gets_better_is_asked_a_bounded_number_of_times[claude]",
    "test_failures.py::test_what_never_gets_better_is_asked_a_bounded_number_of_times[acp]",
    "test_failures.py::test_a_wait_for_a_server_that_fails_survives_its_hub[claude]",
    "test_failures.py::test_a_wait_for_a_server_that_fails_survives_its_hub[acp]",
    "test_first_run.py::test_the_example_does_its_task",
    "test_questions.py::test_a_permission_waits_for_a_person_across_restarts[codex-allow]",
    "test_questions.py::test_a_permission_waits_for_a_person_across_restarts[codex-deny]",
    "test_questions.py::test_a_permission_waits_for_a_person_across_restarts[acp-",
    "test_questions.py::test_a_question_of_the_model_is_answered_while_nothing_runs[acp]",
    "test_questions.py::test_without_a_person_what_would_be_asked_is_denied[claude]",
    "test_questions.py::test_without_a_person_what_would_be_asked_is_denied[acp]",
    "test_conversations.py::test_a_fork_continues_a_finished_prompt_and_asks_an_unfinished_one_again[codex]",
    "test_conversations.py::test_a_fork_continues_a_finished_prompt_and_asks_an_unfinished_one_again[acp]",
    "test_conversations.py::test_a_conversation_that_another_process_has_is_left_alone[acp]",
    "test_conversations.py::test_a_conversation_that_another_process_has_is_left_alone[codex]",
    "test_conversations.py::test_a_thread_of_codex_that_is_gone_begins_anew",
    "test_plugin.py::test_a_newer_build",
    "test_plugin.py::test_two_projects",
    "test_plugin.py::test_each_event_is_recorded_once_whichever_hooks_were_installed_first[none]",
)
"""Further cases of what other tests hold already: ``make soak`` runs them, ``make test`` has four minutes for real programs.

Each agent keeps each kind of case. What is left out has a sibling with other parameters, with a program that stands in for the
agent (``tests/unit/plugin``), or among the points of ``test_kills.py``. ``test_soaked.py`` checks that all names
on the list are those of tests.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.realcli)
    later = [item for item in items if not SOAK and _is_soaked(item, here, config)]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]


def _is_soaked(item: pytest.Item, here: Path, config: pytest.Config) -> bool:
    """Whether a test is left for later: not if it is named on the command line."""
    if not item.path.is_relative_to(here) or any(item.path.name in argument for argument in config.args):
        return False
    place = f"{item.path.name}::{item.name}"
    return any(place.startswith(part) for part in SOAKED)


@pytest.fixture
def claude() -> list[str]:
    """The words that start Claude Code."""
    return require_program("claude")


@pytest.fixture
def codex() -> list[str]:
    """The words that start Codex."""
    return require_program("codex")


@pytest.fixture
def acp(claude: list[str]) -> list[str]:
    """The words that start claude-agent-acp; it needs Claude Code, too."""
    assert claude
    return require_program("acp")


@pytest.fixture
def slot() -> Iterator[int]:
    """A right to start one program: three at a time, in all test processes together."""
    SLOTS.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        files = [stack.enter_context((SLOTS / str(number)).open("a")) for number in range(REAL_AT_ONCE)]
        yield take_slot(files)


def take_slot(files: Sequence[IO[str]]) -> int:
    """Lock the first free file; if none is free, wait for the one that the number of this process gives."""
    for number, file in enumerate(files):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return number
    number = os.getpid() % len(files)
    fcntl.flock(files[number], fcntl.LOCK_EX)
    return number


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts model servers that end with the test, which fails if a step did not get what it expects."""
    with ExitStack() as stack:

        def start(scripts: Scripts) -> ModelServer:
            return stack.enter_context(ModelServer(scripts))

        yield start


@pytest.fixture
def model_server(request: pytest.FixtureRequest, start_server: StartServer) -> ModelServer:
    """A model server with the scripts in the variable ``SCRIPTS`` of the test's module."""
    return start_server(cast("Scripts", vars(cast("ModuleType", request.module))["SCRIPTS"]))


class MakeSandbox(Protocol):
    """Makes sandboxes that end with the test. The options are those of ``ClaudeSandbox``."""

    def __call__(
        self,
        name: str = "sandbox",
        *,
        login: bool = False,
        bypass: bool = False,
        env: Mapping[str, str] | None = None,
        codex_model: str = CODEX_MODEL,
        network: Network = "own",
    ) -> ClaudeSandbox: ...


@pytest.fixture
def make_sandbox(tmp_path: Path, model_server: ModelServer, slot: int) -> Iterator[MakeSandbox]:
    assert 0 <= slot < REAL_AT_ONCE
    with ExitStack() as stack:

        def make(name: str = "sandbox", **options: Any) -> ClaudeSandbox:
            return stack.enter_context(ClaudeSandbox(tmp_path / name, model_server, **options))

        yield make


@pytest.fixture
def sandbox(make_sandbox: MakeSandbox) -> ClaudeSandbox:
    """A sandbox in an empty home."""
    return make_sandbox()

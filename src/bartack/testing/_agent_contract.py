"""The promises of an agent, as tests that run on any kind of agents.

A kind is checked by a test class of its own::

    class TestMyAgent(AgentContract):
        def make_engine(self) -> AgentEngine:
            return MyEngine()

pytest finds the tests in it. ``AgentEngine`` is what they need to do with such agents from outside: make them behave badly, kill
the hub above them, count their processes. ``pytest.register_assert_rewrite("bartack.testing")`` in a ``conftest.py`` gives
failures that show their values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from unittest import SkipTest

import msgspec

from bartack.agents import AgentAnswer
from bartack.agents.contract import CallFinished, CallStarted, ToolOutcome
from bartack.errors import (
    AgentBusyError,
    AgentCancelledError,
    AgentDeadlineError,
    AgentError,
    AgentProtocolError,
)
from bartack.testing._agent_harness import PATIENCE_S, AgentEngine, Behaviour, OpenedCall

LATE_S = 10.0
"""How long after its deadline a call may take to be over."""
DETAIL_BYTES = 2048
"""The longest text of an agent that an error may show."""


class AgentContract(ABC):
    """What every kind of agents promises. Subclass it and give it the engine; see the module's text for how."""

    engine: AgentEngine

    @abstractmethod
    def make_engine(self) -> AgentEngine:
        """An engine without calls. Called before each test."""

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self.engine = self.make_engine()

    def teardown_method(self) -> None:
        """Called by pytest after each test."""
        self.engine.close()

    def begin(self, behaviour: Behaviour, **changes: object) -> OpenedCall:
        """Begin a call of a new agent; ``changes`` are of its request."""
        if behaviour not in self.engine.behaviours:
            raise SkipTest(f"such an agent cannot be made to behave like this: {behaviour}")
        request = msgspec.structs.replace(self.engine.request(behaviour), **changes)
        return OpenedCall(self.engine, self.engine.open(behaviour), request)

    def begin_asked(self, behaviour: Behaviour, **changes: object) -> OpenedCall:
        """The same, when its program has taken the prompt."""
        before = self.engine.asked(behaviour)
        opened = self.begin(behaviour, **changes)
        assert self.engine.drive(lambda: self.engine.asked(behaviour) > before, PATIENCE_S), (
            "it was not asked"
        )
        return opened

    # A call is over once.

    def test_a_reply_is_the_result_and_nothing_comes_after_it(self) -> None:
        opened = self.begin("replies")
        sink = opened.finish()
        self.engine.drive(lambda: bool(sink.after_done), 0.5)

        assert sink.result.text == "hello"
        assert len(sink.outcomes) == 1
        assert sink.after_done == []

    def test_events_are_numbered_without_gaps_and_end_with_the_end(self) -> None:
        opened = self.begin("replies")
        sink = opened.finish()

        assert [event.n for event in sink.events] == list(range(1, len(sink.events) + 1))
        assert {event.key for event in sink.events} == {self.engine.request("replies").key}
        assert isinstance(sink.events[0], CallStarted)
        assert isinstance(sink.events[-1], CallFinished)

    def test_a_result_names_the_conversation_and_counts_its_attempts(self) -> None:
        opened = self.begin("replies")
        result = opened.finish().result

        assert result.conversation
        assert (result.attempts, result.harvested) == (1, False)

    def test_an_end_without_a_reply_is_never_a_success(self) -> None:
        opened = self.begin("exits")
        sink = opened.finish()

        assert sink.error.agent == opened.agent.name
        assert len(sink.outcomes) == 1

    # Within the deadline, with no process left.

    def test_a_call_is_over_within_its_deadline_and_a_while(self) -> None:
        opened = self.begin("hangs", timeout_s=1.0)
        sink = opened.finish()

        assert isinstance(sink.error, AgentDeadlineError)
        assert opened.took_s <= 1.0 + LATE_S
        assert sink.left == []

    def test_an_agent_that_resists_is_over_within_the_deadline_too(self) -> None:
        opened = self.begin("resists", timeout_s=2.0)
        sink = opened.finish()

        assert isinstance(sink.error, AgentDeadlineError)
        assert opened.took_s <= 2.0 + LATE_S
        assert sink.left == []

    def test_no_process_of_a_call_lives_when_it_is_over(self) -> None:
        assert self.begin("replies").finish().left == []

    def test_no_process_lives_after_an_end_without_a_reply(self) -> None:
        assert self.begin("exits").finish().left == []

    # One call for a key.

    def test_a_key_that_is_in_use_is_refused(self) -> None:
        opened = self.begin_asked("hangs")
        request = self.engine.request("hangs")
        for agent in (opened.agent, self.engine.open("hangs")):
            try:
                OpenedCall(self.engine, agent, request)
            except AgentBusyError:
                continue
            raise AssertionError("the same key was accepted twice at once")

        assert not opened.sink.is_done
        assert self.engine.asked("hangs") == 1
        opened.call.cancel("user")
        opened.finish()

    def test_a_key_is_free_when_its_call_is_over(self) -> None:
        first = self.begin("hangs", timeout_s=1.0)
        first.finish()
        second = OpenedCall(self.engine, first.agent, self.engine.request("hangs"))
        second.call.cancel("user")

        assert isinstance(second.finish().error, AgentCancelledError)

    # What has a result is not asked again.

    def test_a_result_that_can_still_be_read_is_not_asked_for_again(self) -> None:
        opened = self.begin("replies")
        first = opened.finish().result
        asked = self.engine.asked("replies")
        self.engine.kill(opened.agent)
        again = self.begin("replies", attempt=2)
        result = again.finish().result

        assert (result.text, result.harvested) == ("hello", True)
        assert result.conversation == first.conversation
        assert self.engine.asked("replies") == asked

    def test_a_call_that_was_killed_can_be_made_again(self) -> None:
        opened = self.begin_asked("hangs")
        self.engine.kill(opened.agent)
        assert self.engine.processes() == []
        again = self.begin("hangs", attempt=2, timeout_s=2.0)
        sink = again.finish()

        assert isinstance(sink.error, AgentDeadlineError)
        assert opened.sink.outcomes == []

    # Nothing from the agent is trusted.

    def test_a_line_that_is_too_long_ends_the_call(self) -> None:
        sink = self.begin("floods").finish()

        assert isinstance(sink.error, AgentProtocolError)
        assert len(str(sink.error).encode()) <= 2 * DETAIL_BYTES
        assert sink.left == []

    # Cancelling.

    def test_a_cancel_ends_the_call_and_its_processes(self) -> None:
        opened = self.begin_asked("hangs")
        opened.call.cancel("user")
        sink = opened.finish(2 * LATE_S)

        assert isinstance(sink.error, AgentCancelledError)
        assert sink.error.reason == "user"
        assert sink.left == []

    def test_a_cancel_ends_processes_that_resist(self) -> None:
        opened = self.begin_asked("resists")
        opened.call.cancel("user")
        sink = opened.finish(3 * LATE_S)

        assert isinstance(sink.error, AgentCancelledError)
        assert sink.left == []

    def test_a_second_cancel_changes_nothing(self) -> None:
        opened = self.begin_asked("hangs")
        opened.call.cancel("superseded")
        opened.call.cancel("user")
        sink = opened.finish()
        opened.call.cancel("user")
        self.engine.drive(lambda: len(sink.outcomes) > 1, 0.5)

        assert [type(outcome) for outcome in sink.outcomes] == [AgentCancelledError]
        assert sink.error.reason == "superseded"
        assert sink.after_done == []

    def test_answers_to_what_was_never_asked_change_nothing(self) -> None:
        opened = self.begin_asked("hangs")
        opened.call.tool_ended("unknown", ToolOutcome(result=1))
        opened.call.answered("unknown", AgentAnswer(text="allow"))
        assert not opened.sink.is_done
        opened.call.cancel("user")
        sink = opened.finish()
        opened.call.tool_ended("unknown", ToolOutcome(result=1))
        opened.call.answered("unknown", AgentAnswer(text="allow"))

        assert isinstance(sink.outcomes[0], AgentError)
        assert sink.after_done == []

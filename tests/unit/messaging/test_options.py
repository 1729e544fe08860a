"""The options of a supervised send, strategies, topics and filters: what is taken, and what is refused by name."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.core.backoff import Backoff
from bartack.errors import ConfigError, DeadLetterFilterError, DeliveryOptionError, TopicNameError
from bartack.messaging import DeadLetter, LetterFilter, LetterPolicy
from bartack.messaging.letter import make_filter
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Terms, check_options
from bartack.messaging.strategy import needed, quorum
from bartack.messaging.topic import check_pattern, check_topic, matches

NOW = 1_000_000_000


def test_the_defaults_are_those_of_the_docs() -> None:
    terms = check_options({}, NOW).terms

    assert terms == Terms()
    assert (terms.ack, terms.retries, terms.on_error) == ("accepted", 3, "raise")
    assert [terms.backoff.bound_s(attempt) for attempt in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, 10.0]


def test_moments_are_absolute() -> None:
    utc = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    terms = check_options({"deadline": 2.5, "not_before": utc}, NOW).terms

    assert terms.deadline == NOW + 2_500_000
    assert terms.not_before == int(utc.timestamp() * 1e6)
    assert check_options({"deadline": datetime.timedelta(seconds=1)}, NOW).terms.deadline == NOW + 1_000_000


def test_what_is_written_does_not_depend_on_the_time() -> None:
    options: dict[str, object] = {
        "deadline": 2,
        "backoff": Backoff(1.0, 2.0),
        "metadata": {"a": 1},
        "key": None,
    }

    assert check_options(options, NOW).written == check_options(options, NOW + 1).written


@pytest.mark.requirement("bad-options-are-named")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ack", "seen"),
        ("ack", None),
        ("timeout_s", -1),
        ("timeout_s", math.inf),
        ("timeout_s", math.nan),
        ("timeout_s", "5"),
        ("timeout_s", True),
        ("retries", -1),
        ("retries", 1.5),
        ("retries", True),
        ("retries", 100_000),
        ("backoff", 3),
        ("backoff", Backoff(-1.0)),
        ("backoff", Backoff(1.0, factor=0.5)),
        ("backoff", Backoff(math.inf)),
        ("deadline", datetime.datetime(2026, 1, 1)),  # noqa: DTZ001 - it is to be refused
        ("deadline", -3),
        ("not_before", "tomorrow"),
        ("key", ""),
        ("key", 3),
        ("key", "x" * 257),
        ("on_error", "explode"),
        ("metadata", [1]),
        ("metadata", {"a": object()}),
        ("metadata", {1: 2}),
        ("metadata", {"a": "x" * 5000}),
        ("retrys", 3),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(option: str, value: object) -> None:
    with pytest.raises(DeliveryOptionError) as caught:
        check_options({option: value}, NOW)

    assert caught.value.option == option


def test_strategies_say_how_many_must_be_reached() -> None:
    assert [needed(name, 3) for name in ("all_or_nothing", "best_effort", "at_least_one")] == [3, 0, 1]
    assert needed(quorum(2), 3) == 2


@pytest.mark.parametrize("strategy", ["", "all", "quorum", "quorum(4)", "quorum(0)", "quorum(-1)", None, 3])
def test_an_unknown_strategy_is_refused_with_the_known_ones(strategy: object) -> None:
    with pytest.raises(DeliveryOptionError) as caught:
        needed(strategy, 3)

    assert "quorum" in str(caught.value)


def test_a_quorum_is_at_least_one() -> None:
    with pytest.raises(DeliveryOptionError):
        quorum(0)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("tasks", "tasks"),
        ("@main", "@main"),
        ("main/7.2:analyst", "@main/7.2:analyst"),
        ("main/7.2:analyst#2", "@main/7.2:analyst"),
        ("@main#3", "@main"),
    ],
)
def test_an_address_means_a_mailbox(address: str, name: str) -> None:
    assert mailbox_of(address) == name


# Topics.


@pytest.mark.parametrize(
    ("pattern", "topic", "covered"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("*.b.*", "a.b.c", True),
        ("a.**", "a", True),
        ("a.**", "a.b.c", True),
        ("a.**", "b", False),
        ("**", "a.b", True),
        ("*.**", "a", True),
        ("a.b.**", "a", False),
    ],
)
def test_patterns(pattern: str, topic: str, covered: bool) -> None:
    assert matches(check_pattern(pattern), check_topic(topic)) is covered


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5)


@given(WORDS, WORDS)
def test_a_pattern_without_wildcards_is_one_topic(pattern: list[str], topic: list[str]) -> None:
    assert matches(".".join(pattern), ".".join(topic)) == (pattern == topic)


@given(WORDS)
def test_everything_is_covered_by_two_stars(topic: list[str]) -> None:
    assert matches("**", ".".join(topic))
    assert matches(".".join(["*"] * len(topic)), ".".join(topic))


@pytest.mark.parametrize("pattern", ["", "**.a", "a*", "a..b", "a.***", "ä", 3, ".".join("abcdefghi")])
def test_what_is_not_a_pattern_is_refused(pattern: object) -> None:
    with pytest.raises(TopicNameError):
        check_pattern(pattern)


# Filters.

LETTERS = [
    DeadLetter(
        id="dl-1", message_id="m-1", mailbox="tasks", reason="timeout", attempts=1, first_failed_at=NOW
    ),
    DeadLetter(
        id="dl-2", message_id="m-2", mailbox="text", reason="nack", attempts=3, sender="main", key="k"
    ),
    DeadLetter(id="dl-3", message_id="m-3", mailbox="other", reason="timeout", state="redelivered"),
    DeadLetter(id="dl-4", message_id="m-4", mailbox="other", reason="timeout", state="expired"),
    DeadLetter(id="dl-5", message_id="m-5", mailbox="other", reason="timeout", state="purged"),
]


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ("all", ["dl-1", "dl-2", "dl-4"]),
        ("expired", ["dl-4"]),
        ("dl-3", ["dl-3"]),
        ("dl-5", []),
        ({"mailbox": "t*"}, ["dl-1", "dl-2"]),
        ({"reason": "nack"}, ["dl-2"]),
        ({"sender": "main"}, ["dl-2"]),
        ({"state": "redelivered"}, ["dl-3"]),
        ({"min_attempts": 2}, ["dl-2"]),
        ({"key": "k"}, ["dl-2"]),
        ({"older_than": 500.0}, ["dl-2", "dl-4"]),
        ({"newer_than": 500.0}, ["dl-1"]),
        ({"mailbox": "nowhere"}, []),
    ],
)
def test_filters_choose(chosen: str | Mapping[str, object], ids: list[str]) -> None:
    assert [letter.id for letter in make_filter(chosen).chosen(LETTERS, NOW)] == ids


@pytest.mark.parametrize(
    "chosen", ["some", {"colour": "red"}, {"reason": "boredom"}, {"state": "lost"}, {"min_attempts": "many"}]
)
def test_a_filter_that_cannot_be_is_refused(chosen: str | Mapping[str, object]) -> None:
    with pytest.raises(DeadLetterFilterError):
        make_filter(chosen)


def test_a_filter_stays_what_it_is() -> None:
    assert make_filter(LetterFilter(key="k")) == LetterFilter(key="k")


def test_a_policy_with_a_negative_time_is_refused() -> None:
    with pytest.raises(ConfigError):
        LetterPolicy(base=-1.0)

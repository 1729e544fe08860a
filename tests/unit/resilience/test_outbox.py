from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.errors import OutboxFullError
from bartack.resilience import Backoff, NewEvent, Outbox, StateStore
from bartack.resilience.outbox.outbox import Limits
from bartack.resilience.outbox.row import DELIVERED, RELEASED, Claim, Verdict
from bartack.testing import VirtualClock

URL = "http://service"


def event(event_id: str, payload: bytes = b'{"event_type":"pattern_created","pattern_id":"p"}') -> NewEvent:
    return NewEvent(event_id, "pattern", URL, payload)


def highest(low: float, high: float) -> float:
    del low
    return high


def mirrors(outbox: Outbox) -> list[str]:
    return sorted(path.name for path in outbox.store.directory.glob("pending_*.json"))


def only(claims: list[Claim]) -> Claim:
    (claim,) = claims
    return claim


def settled(outbox: Outbox, claim: Claim, verdict: Verdict) -> str | None:
    (state,) = outbox.settle([(claim, verdict)])
    return state


def test_a_second_insert_of_one_event_is_a_success_that_changes_nothing(outbox: Outbox) -> None:
    assert outbox.put([event("a")]) == [True]
    assert outbox.put([event("a", b'{"other":1}')]) == [False]

    assert only(outbox.claim()).payload == event("a").payload
    assert outbox.counters()["total_cached"] == 1


def test_rows_are_claimed_oldest_first_and_at_most_32(outbox: Outbox) -> None:
    outbox.put([event(f"e{n:03}") for n in range(40)])

    assert [claim.event_id for claim in outbox.claim()] == [f"e{n:03}" for n in range(32)]
    assert [claim.event_id for claim in outbox.claim()] == [f"e{n:03}" for n in range(32, 40)]
    assert outbox.claim() == []


def test_a_delivered_row_stays_as_proof_without_its_payload(outbox: Outbox) -> None:
    outbox.put([event("a")])

    assert settled(outbox, only(outbox.claim()), DELIVERED) == "delivered"

    (row,) = outbox.rows()
    assert (row.state, row.payload, row.size) == ("delivered", b"", 0)
    assert mirrors(outbox) == []
    assert outbox.counters()["total_synced"] == 1


def test_a_transient_failure_waits_for_its_backoff(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.limits = Limits(backoff=Backoff(8.0, 300.0, uniform=highest))
    outbox.put([event("a")])

    assert settled(outbox, only(outbox.claim()), Verdict("transient", "boom")) == "pending"

    assert outbox.claim() == []
    clock.advance(7.9)
    assert outbox.claim() == []
    clock.advance(0.2)
    assert only(outbox.claim()).attempts == 1


def test_retry_after_is_a_floor_for_the_backoff(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.put([event("a")])

    settled(outbox, only(outbox.claim()), Verdict("transient", "slow down", wait_s=120.0))

    clock.advance(119.0)
    assert outbox.claim() == []
    clock.advance(2.0)
    assert only(outbox.claim())


def test_a_clock_set_back_changes_no_wait(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.put([event("a")])
    settled(outbox, only(outbox.claim()), Verdict("transient", "boom", wait_s=10.0))

    clock.set_back(86_400)
    clock.advance(10.1)

    assert only(outbox.claim()).event_id == "a"


def test_the_last_attempt_kills_the_row(outbox: Outbox) -> None:
    outbox.limits = Limits(max_attempts=2, backoff=Backoff(0.0))
    outbox.put([event("a")])

    assert settled(outbox, only(outbox.claim()), Verdict("transient", "boom")) == "pending"
    assert settled(outbox, only(outbox.claim()), Verdict("transient", "boom")) == "dead"

    (row,) = outbox.rows(state="dead")
    assert (row.reason, row.attempts, row.last_error) == ("exhausted", 2, "boom")


def test_a_lease_that_ran_out_is_free_for_others_and_no_attempt(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.put([event("a")])
    lost = only(outbox.claim())

    clock.advance(30.1)
    found = only(outbox.claim())

    assert found.attempts == 0
    assert settled(outbox, lost, DELIVERED) is None
    assert outbox.counters()["stale_results"] == 1
    assert settled(outbox, found, DELIVERED) == "delivered"


def test_a_lease_of_another_boot_is_free_at_once(tmp_path: Path) -> None:
    with StateStore(tmp_path, boot="before") as store:
        Outbox(store).put([event("a")], lease=True)
    with StateStore(tmp_path, boot="after") as store:
        assert only(Outbox(store).claim()).event_id == "a"


def test_a_row_given_back_is_due_at_once(outbox: Outbox) -> None:
    outbox.put([event("a")])

    settled(outbox, only(outbox.claim()), RELEASED)

    assert only(outbox.claim()).attempts == 0


def test_stopping_gives_back_own_leases_only(outbox: Outbox) -> None:
    other = Outbox(outbox.store)
    outbox.put([event("a"), event("b")])
    outbox.claim(limit=1)
    other.claim(limit=1)

    assert outbox.release_own() == 1

    assert outbox.count()["leased"] == 1


def test_old_rows_expire_and_are_not_deleted_unseen(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.put([event("a")])
    clock.advance(7 * 86_400 + 1)
    outbox.put([event("b")])

    assert outbox.expire() == 1

    (row,) = outbox.rows(state="dead")
    assert (row.event_id, row.reason) == ("a", "expired")
    assert mirrors(outbox) == ["pending_b.json"]


def test_dead_rows_live_again_by_retry(outbox: Outbox) -> None:
    outbox.put([event("a"), event("b")])
    first, second = outbox.claim()
    outbox.settle([(first, Verdict("dead", "refused:422")), (second, Verdict("dead", "unparsable"))])

    assert outbox.retry(reason="refused") == ["a"]

    assert only(outbox.claim()).event_id == "a"
    assert mirrors(outbox) == ["pending_a.json"]


def test_dead_rows_go_after_their_days(outbox: Outbox, clock: VirtualClock) -> None:
    outbox.put([event("a")])
    settled(outbox, only(outbox.claim()), Verdict("dead", "refused:400"))

    clock.advance(30 * 86_400 + 1)
    outbox.expire()

    assert outbox.rows() == []


def test_purge_removes_rows_with_their_copies(outbox: Outbox) -> None:
    outbox.put([event("a"), event("b")])

    assert outbox.purge(["a"]) == ["a"]

    assert mirrors(outbox) == ["pending_b.json"]
    assert outbox.counters()["purged"] == 1


def test_what_is_long_is_stored_packed_and_shown_plain(outbox: Outbox) -> None:
    payload = json.dumps({"event_type": "x", "pattern_id": "p", "code": "abc " * 1000}).encode()

    outbox.put([event("a", payload)])

    (row,) = outbox.rows()
    assert row.size < len(payload) // 4
    assert row.payload == payload
    assert json.loads(outbox.mirror.path("a").read_bytes())["event_data"]["code"] == "abc " * 1000


def noise(size: int) -> bytes:
    import os  # noqa: PLC0415 - only here

    return b'{"pattern_id":"%s"}' % os.urandom(size // 2).hex().encode()


@pytest.mark.requirement("quota-holds")
def test_the_quota_holds_and_drops_are_counted(outbox: Outbox) -> None:
    outbox.limits = Limits(quota_bytes=1024 * 1024, compress=False)

    for n in range(30):
        outbox.put([event(f"e{n:02}", noise(100 * 1024))])
        assert outbox.counters()["bytes"] <= 1024 * 1024

    kept = [row.event_id for row in outbox.rows()]
    assert kept == [f"e{n:02}" for n in range(30 - len(kept), 30)]
    assert outbox.counters()["dropped"] == 30 - len(kept)
    assert len(mirrors(outbox)) == len(kept)


def test_finished_rows_are_dropped_before_those_that_wait(outbox: Outbox) -> None:
    outbox.limits = Limits(quota_bytes=3000, compress=False)
    outbox.put([event("waits", noise(1000)), event("dies", noise(1000))])
    claims = {claim.event_id: claim for claim in outbox.claim()}
    outbox.settle([(claims["waits"], RELEASED), (claims["dies"], Verdict("dead", "refused:400"))])

    outbox.put([event("late", noise(1500))])

    assert {row.event_id for row in outbox.rows()} == {"waits", "late"}


@pytest.mark.requirement("quota-holds")
def test_an_event_over_the_whole_quota_is_rejected(outbox: Outbox) -> None:
    outbox.limits = Limits(quota_bytes=1000, compress=False)
    outbox.put([event("small")])

    with pytest.raises(OutboxFullError):
        outbox.put([event("big", noise(2000))])

    assert [row.event_id for row in outbox.rows()] == ["small"]


def test_with_policy_reject_a_full_outbox_says_so(outbox: Outbox) -> None:
    outbox.limits = Limits(quota_bytes=1500, drop_oldest=False, compress=False)
    outbox.put([event("a", noise(1000))])

    with pytest.raises(OutboxFullError):
        outbox.put([event("b", noise(1000))])

    assert [row.event_id for row in outbox.rows()] == ["a"]


def test_recovery_makes_what_waits_due_some_now_and_the_rest_soon(
    outbox: Outbox, clock: VirtualClock
) -> None:
    outbox.put([event(f"e{n}") for n in range(50)])
    claims = [*outbox.claim(), *outbox.claim()]
    outbox.settle([(claim, Verdict("transient", "boom", wait_s=200.0)) for claim in claims])

    assert outbox.wake(URL) == 50

    assert len(outbox.claim(limit=100)) >= 32
    clock.advance(5.0)
    outbox.claim(limit=100)
    assert outbox.count()["leased"] == 50


@pytest.mark.parametrize("event_id", ["a/b", "nul\0nul", "x" * 300, "emoji 🧵", "..", "~", "%2F"])
def test_any_id_is_stored_mirrored_and_found_again(outbox: Outbox, event_id: str) -> None:
    outbox.put([event(event_id)])

    (name,) = mirrors(outbox)
    assert len(name) <= 213
    assert only(outbox.claim()).event_id == event_id
    outbox.purge([event_id])
    assert mirrors(outbox) == []


def test_ids_that_look_alike_have_copies_of_their_own(outbox: Outbox) -> None:
    ids = ["a/b", "a%2Fb", "a_b", "x" * 300 + "1", "x" * 300 + "2"]

    outbox.put([event(one) for one in ids])

    assert len(mirrors(outbox)) == len(ids)


PRODUCER = """
import sys
from bartack.resilience import PatternCache
cache = PatternCache(sys.argv[1])
for _ in range(100):
    cache.keep({"event_type": "pattern_created", "pattern_id": "same"})
"""


def test_two_processes_count_together(tmp_path: Path) -> None:
    done = [subprocess.Popen([sys.executable, "-c", PRODUCER, str(tmp_path)]) for _ in range(2)]

    assert [one.wait(120) for one in done] == [0, 0]

    from bartack.resilience import PatternCache  # noqa: PLC0415 - not before the others are done

    cache = PatternCache(tmp_path)
    cache.take_in()
    assert cache.get_stats()["total_cached"] == 200
    assert cache.get_stats()["pending_events"] == 200


LEASER = """
import sys
from bartack.resilience import NewEvent, Outbox, StateStore
Outbox(StateStore(sys.argv[1])).put([NewEvent("a", "pattern", "http://x", b"{}")], lease=True)
"""


def test_the_leases_of_processes_that_are_gone_are_given_back_at_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEASER, str(tmp_path)], check=True, timeout=120)
    with StateStore(tmp_path) as store:
        outbox = Outbox(store)
        outbox.put([event("mine")], lease=True)
        Outbox(store, owner="7@elsewhere-0").put([event("elsewhere")], lease=True)

        assert outbox.release_dead() == 1

        assert [claim.event_id for claim in outbox.claim()] == ["a"]

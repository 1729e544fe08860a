"""The lineage service is killed, again and again, while events come in: none is lost and none counts twice."""

from __future__ import annotations

import http.client
import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bartack.resilience.tokens import load_token
from bartack.testing._service import hold_port
from bartack.tracking import LineageStore

KILLS = 10
PRODUCERS = 4
BATCH = 5

SERVER = """
import sys
from bartack.tracking import serve_lineage
serve_lineage(sys.argv[1], sys.argv[2], port=int(sys.argv[3]), ready=lambda url: print(url, flush=True))
"""


class Service:
    """A service in a process of its own that can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.db, self.token_file = home / "lineage.db", home / "token"
        self.token = load_token(self.token_file)
        self.port, self._place = hold_port()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.db), str(self.token_file), str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        return process

    def kill_and_start(self) -> None:
        self.end(signal.SIGKILL)
        self._process = self._start()

    def close(self) -> int:
        code = self.end(signal.SIGTERM)
        self._place.close()
        return code

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        code = self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class Producers:
    """Threads that send events until they are told to stop; an event without an answer is sent again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged: list[str] = []
        self._threads = [
            threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, 60), "no progress"

    def _produce(self, producer: int) -> None:
        number = 0
        while not self._stop.is_set():
            events = [event_of(producer, number + offset) for offset in range(1 if producer % 2 else BATCH)]
            ids = [str(event["event_id"]) for event in events]
            while not self._send(events):
                if self._stop.is_set():
                    return
            number += len(events)
            with self._changed:
                self.acknowledged += ids
                self._changed.notify_all()

    def _send(self, events: list[dict[str, object]]) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=60)
        path, body = ("/track/batch", {"events": events}) if len(events) > 1 else ("/track", events[0])
        headers = {"Authorization": f"Bearer {self._service.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", f"/api/pattern-traceability/lineage{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self._stop.wait(0.01)  # nobody listens until the service is back
            return False
        finally:
            connection.close()
        # A busy service may also send an event away; then it is sent again.
        return answer.status == 200 and all(item["success"] for item in told["data"].get("results", []))


def event_of(producer: int, number: int) -> dict[str, object]:
    """Event ``number`` of a producer: a modification of the pattern before it."""
    return {
        "event_id": f"{producer}-{number}",
        "event_type": "pattern_modified",
        "pattern_id": f"p{producer}",
        "pattern_version": f"1.0.{number + 1}",
        "parent_pattern_ids": [f"p{producer}"],
        "parent_versions": [f"1.0.{number}"],
    }


@pytest.mark.requirement("lineage-survives-kills")
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_no_acknowledged_event_is_lost_and_none_counts_twice_whenever_the_service_is_killed(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path)
    producers = Producers(service)
    moments = random.Random(17)
    producers.start()
    try:
        for _ in range(KILLS):
            producers.wait_for(len(producers.acknowledged) + moments.randint(1, 40))
            service.kill_and_start()
        producers.wait_for(len(producers.acknowledged) + 20)
    finally:
        producers.stop()
        code = service.close()

    assert code == 0
    check_database(service.db, producers.acknowledged)


def check_database(path: Path, acknowledged: list[str]) -> None:
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    recorded = [row[0] for row in db.execute("SELECT event_id FROM events")]
    nodes = db.execute("SELECT pattern_id, version_order, generation FROM nodes ORDER BY 1, 2").fetchall()
    db.close()

    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= set(recorded)
    assert len(recorded) == len(set(recorded))
    # What was recorded without an answer can only be what each producer sent last.
    assert len(recorded) - len(acknowledged) <= PRODUCERS * BATCH
    # Each chain is whole: every event made one version, one generation further than the one before.
    for producer in range(PRODUCERS):
        generations = [generation for name, _, generation in nodes if name == f"p{producer}"]
        assert generations == list(range(len(generations)))
        assert len(generations) == 1 + sum(name.startswith(f"{producer}-") for name in recorded)
    with LineageStore(path, read_only=True) as store:
        assert {issue.check for issue in store.validate().issues} <= {"orphans"}

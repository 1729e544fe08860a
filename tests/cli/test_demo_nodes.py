"""``bartack demo --nodes``: the demo itself, and that each part of its proof can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import cluster, new_database

from bartack.cli.demo import _ground
from bartack.cli.demo._nodes import STEPS, Effect, NodesFacts, prove
from bartack.depot.team import ListedNode
from bartack.errors import UsageError

CHECKS = ["killed", "complete", "taken over", "nothing twice", "same keys", "one owner"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.requirement("demo-of-nodes-proves-it")
def test_a_run_survives_the_death_of_its_node_and_nothing_is_left(run: Run, tmp_path: Path) -> None:
    cluster()

    shown = run("demo", "--nodes", "--json", "--on", new_database(), TMPDIR=str(tmp_path))

    facts = json.loads(shown.stdout)
    assert (shown.returncode, facts["ok"], facts["kept"]) == (0, True, False), shown.stdout + shown.stderr
    assert [check["name"] for check in facts["checks"]] == CHECKS
    assert [event["killed"] for event in facts["events"]] == [False, False, False, True, False, False]
    assert [*tmp_path.iterdir()] == []


def test_without_a_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ground, "find_servers", list[Path])

    with pytest.raises(UsageError, match="name a database with --on"):
        _ground.perform_nodes(tmp_path, "", insecure=False, keep=False, as_json=True)


def test_each_part_of_the_proof_can_fail() -> None:
    effects = [Effect(number, f"ik:{number}") for number in range(1, STEPS + 1)]
    effects.insert(5, Effect(5, "ik:5"))
    nodes = [
        ListedNode("alpha", "dead", "1", 2, (), (), 0, 9.0),
        ListedNode("beta", "live", "1", 2, (), (), 0, 0.1),
    ]
    good = NodesFacts("run-1", effects, 5, 4, "alpha", nodes, [1, 2, 4], 4.0, 0, f"{STEPS} steps")

    def failed(facts: NodesFacts) -> list[str]:
        return [check.name for check in prove(facts) if not check.ok]

    assert failed(good) == []
    assert failed(good._replace(nodes=[nodes[0]._replace(state="late"), nodes[1]])) == ["killed"]
    assert failed(good._replace(code=1)) == ["complete"]
    assert failed(good._replace(effects=effects[:-1])) == ["complete"]
    assert failed(good._replace(before=len(effects))) == ["taken over"]
    assert failed(good._replace(finished=5)) == ["nothing twice"]
    assert failed(good._replace(effects=[*effects, Effect(5, "ik:5")])) == ["nothing twice"]
    assert failed(good._replace(effects=[*effects[:5], Effect(5, "ik:other"), *effects[6:]])) == ["same keys"]
    assert failed(good._replace(fences=[1, 4, 2])) == ["one owner"]


@pytest.mark.parametrize(
    "words", [("team", "--nodes"), ("--on", "service:x"), ("--nodes", "--web"), ("--nodes", "--agent", "x")]
)
def test_options_of_other_demos_are_refused(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "demo", *words],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "BT" in done.stderr

"""Nodes of two versions: the schema of their database is migrated while runs do everything, and no run goes back to an older node.

The older version knows the oldest schema that nodes of today work with, and reads journals up to the level before: see
``versioned.py``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.crash.fleet_chaos import PATIENCE_S, Fleet, Member
from tests.postgres import cluster, database_of_version
from tests.waiting import until

from bartack.depot.postgres import _schema
from bartack.depot.taken import READS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

KNOWS: Final = 8
"""The oldest version of the schema that has every table and function that nodes of today use."""
RUNS: Final = 2
ROUNDS: Final = 3
LONG: Final = 200
"""So many moves of an effect take longer than the migration."""
BEATS: Final = 3
LOG_CLAIMS: Final = (
    "CREATE TABLE public.claimed (run bigint, fence int, node int)",
    "CREATE FUNCTION public.log_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.claimed VALUES (NEW.run, NEW.fence, NEW.node); RETURN NULL; END $$",
    "CREATE TRIGGER log_claim AFTER UPDATE ON bartack.owner FOR EACH ROW "
    "WHEN (NEW.state = 'owned' AND OLD.state <> 'owned') EXECUTE FUNCTION public.log_claim()",
)


def version(knows: int, reads: int) -> tuple[str, ...]:
    """What ``bartack`` of a version is, as words after the interpreter."""
    return str(Path(__file__).with_name("versioned.py")), str(knows), str(reads)


OLDER: Final = version(KNOWS, READS)
NEWER: Final = version(_schema.VERSION, READS + 1)


class Upgraded(Fleet):
    """A fleet whose database has an older schema at first.

    Args:
        folder: Where everything is.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, database_of_version(KNOWS), rounds=ROUNDS, long=LONG, program=OLDER)
        for statement in LOG_CLAIMS:
            self.rows(statement)
        self.may_end.clear()

    def older(self, name: str) -> Member:
        """Start a node of the older version, and wait until it has joined."""
        return self._joined(name, OLDER)

    def newer(self, name: str) -> Member:
        """Likewise of the newer one."""
        return self._joined(name, NEWER)

    def _joined(self, name: str, program: tuple[str, ...]) -> Member:
        made = self.add(name, self.url, program=program)
        until(lambda: self.rows("SELECT 1 FROM bartack.node WHERE name = %s", name), f"{name} to join")
        return made

    def migrate(self) -> None:
        """Bring the schema up to date, by the command for it."""
        words = ("db", "migrate", "--on", self.url)
        done = subprocess.run([sys.executable, "-m", "bartack", *words], check=False, timeout=PATIENCE_S)
        assert done.returncode == 0

    def steps(self) -> int:
        """How many effects have ended."""
        return self.witness.read_text("ascii").count(" end\n") if self.witness.exists() else 0

    def owners(self) -> list[str]:
        """The names of the nodes that own runs, one for each run."""
        rows = self.rows(
            "SELECT n.name FROM bartack.owner o JOIN bartack.node n ON n.id = o.node WHERE o.state = 'owned' AND n.state = 'live'"
        )
        return [str(name) for (name,) in rows]

    def wait_for_owners(self, prefix: str) -> None:
        """Wait until live nodes whose names begin so own all runs."""
        until(
            lambda: [name.startswith(prefix) for name in self.owners()] == [True] * RUNS,
            f"all runs to be with {prefix} nodes",
        )

    def is_dead(self, name: str) -> bool:
        """Whether a node was declared dead."""
        return self.rows("SELECT state FROM bartack.node WHERE name = %s", name) == [("dead",)]

    def wait_for_beats(self, name: str) -> None:
        """Wait until a node has had some chances to take what is queued."""
        seen = set[object]()

        def beats() -> bool:
            seen.update(self.rows("SELECT until FROM bartack.node WHERE name = %s", name))
            return len(seen) > BEATS

        until(beats, f"beats of {name}")

    def has_gone_back(self) -> list[tuple[object, ...]]:
        """The runs that a node of the older version has taken after one of the newer version."""
        return self.rows(
            "SELECT DISTINCT later.run FROM public.claimed later JOIN bartack.node old ON old.id = later.node "
            "JOIN public.claimed before ON before.run = later.run AND before.fence < later.fence "
            "JOIN bartack.node young ON young.id = before.node WHERE young.reads > old.reads"
        )


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upgraded]:
    cluster()  # makes databases of today's version for all other tests of this process
    monkeypatch.setattr(_schema, "VERSION", KNOWS)  # this process accompanies the runs
    made = Upgraded(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("fleet-migration")
@pytest.mark.requirement("fleet-upgrade")
def test_a_fleet_is_upgraded_while_it_runs_and_no_run_goes_back(fleet: Upgraded) -> None:
    older = [fleet.older("older1"), fleet.older("older2")]
    fleet.submit(RUNS)
    until(lambda: fleet.steps() >= RUNS, "the first effects")
    assert fleet.rows("SELECT max(version) FROM bartack.level") == [(KNOWS,)]
    fleet.migrate()
    done = fleet.steps()
    until(lambda: fleet.steps() > done, "an effect of an older node after the migration")
    assert set(fleet.owners()) <= {"older1", "older2"}

    first = fleet.newer("newer1")
    for member in older:
        member.kill()
    fleet.wait_for_owners("newer")
    fleet.older("older3")
    first.kill()
    until(lambda: not fleet.owners() and fleet.is_dead("newer1"), "the newer node to be declared dead")
    fleet.wait_for_beats("older3")
    assert fleet.owners() == [], "the only live node is an older one"
    fleet.newer("newer2")
    fleet.wait_for_owners("newer")
    fleet.may_end.set()
    fleet.finish()

    fleet.check()
    assert fleet.rows("SELECT DISTINCT reads FROM bartack.owner") == [(READS + 1,)]
    assert fleet.has_gone_back() == []

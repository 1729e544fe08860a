from __future__ import annotations

from collections.abc import Mapping

from bartack.supervision.process._membership import Membership, TrackedChild
from bartack.supervision.process.facts import ProcessFacts

ME = 100


def process(
    pid: int, ppid: int, *, group: int | None = None, session: int = 5, started: int = 50, state: str = "S"
) -> ProcessFacts:
    return ProcessFacts(pid, ppid, pid if group is None else group, session, state, 1, started, f"p{pid}")


class World:
    """Processes that a membership sees, and the children it knows."""

    def __init__(self, *, subreaper: bool = True) -> None:
        self.processes: list[ProcessFacts] = []
        self.environments: dict[int, Mapping[str, str]] = {}
        self.places: dict[int, int] = {}
        self.membership = Membership(
            scan=lambda: list(self.processes),
            environment=lambda pid: self.environments.get(pid, {}),
            placed=self.places.get,
            subreaper=subreaper,
            me=ME,
        )

    def child(self, token: int, pid: int, started: int = 10, **marks: str) -> TrackedChild:
        tracked = TrackedChild(token, [pid], pid, started, marks)
        self.membership.add(tracked)
        self.processes.append(process(pid, ME, started=started))
        return tracked

    def members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for token, facts in self.membership.iter_members():
            found.setdefault(token, []).append(facts.pid)
        return found


def test_descendants_belong_to_their_child() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes += [process(203, 201), process(204, 203), process(205, 202), process(206, 1)]

    assert world.members() == {1: [201, 203, 204], 2: [202, 205]}


def test_what_was_seen_of_a_child_is_forgotten_with_it_and_nothing_else() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes += [process(203, 201), process(205, 202)]
    world.members()
    world.membership.remove(1)
    world.processes = [process(202, ME), process(203, ME, group=203), process(205, ME, group=7)]

    assert world.members() == {2: [202, 205]}


def test_a_descendant_with_a_lower_number_than_its_parent_is_found() -> None:
    world = World()
    world.processes += [process(50, 51), process(51, 201)]
    world.child(1, 201)

    assert sorted(world.members()[1]) == [50, 51, 201]


def test_an_orphan_belongs_to_the_child_in_whose_control_group_it_is() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202, BARTACK_WORKER="main#2")
    world.processes += [process(210, ME), process(211, ME, group=202), process(212, ME)]
    world.environments[210] = {"BARTACK_WORKER": "main#2"}
    world.places.update({210: 1, 211: 1, 212: 7})

    assert world.members() == {1: [201, 210, 211], 2: [202]}


def test_an_orphan_belongs_to_whose_group_it_is_in() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes.append(process(300, ME, group=202))

    assert world.members()[2] == [202, 300]


def test_an_orphan_is_remembered_from_before_its_parent_died() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes += [process(300, 201), process(301, 300, group=9)]
    world.members()

    world.processes[2:] = [process(301, ME, group=9)]

    assert world.members()[1] == [201, 301]


def test_a_number_that_was_given_again_is_not_remembered() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes += [process(300, 201), process(301, 300, group=9)]
    world.members()

    world.processes[2:] = [process(301, ME, group=9, started=51)]

    assert world.members() == {1: [201], 2: [202]}


def test_an_orphan_in_a_session_that_was_seen_belongs_to_it() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes.append(process(300, 202, session=300))
    world.members()

    world.processes[2:] = [process(301, ME, group=301, session=300)]

    assert world.members()[2] == [202, 301]


def test_an_orphan_belongs_to_whom_its_environment_names() -> None:
    world = World()
    world.child(1, 201, BARTACK_WORKER="main#1")
    world.child(2, 202, BARTACK_WORKER="main#2")
    world.processes.append(process(300, ME))
    world.environments[300] = {"BARTACK_WORKER": "main#2", "PATH": "/bin"}

    assert world.members()[2] == [202, 300]


def test_of_two_children_that_an_environment_fits_the_one_with_more_marks_counts() -> None:
    world = World()
    world.child(1, 201, BARTACK_WORKER="main#1")
    world.child(2, 202, BARTACK_WORKER="main#1", BARTACK_STEP="ik:2")
    world.processes += [process(300, ME), process(301, ME)]
    world.environments[300] = {"BARTACK_WORKER": "main#1", "BARTACK_STEP": "ik:2"}
    world.environments[301] = {"BARTACK_WORKER": "main#1", "BARTACK_STEP": "ik:3"}

    assert world.members() == {1: [201, 301], 2: [202, 300]}


def test_an_environment_that_fits_two_children_alike_decides_nothing() -> None:
    world = World()
    world.child(1, 201, BARTACK_STEP="ik:1")
    world.child(2, 202, BARTACK_STEP="ik:1")
    world.processes.append(process(300, ME))
    world.environments[300] = {"BARTACK_STEP": "ik:1"}

    assert world.members() == {1: [201], 2: [202]}


def test_an_orphan_without_any_trace_ends_with_the_last_that_could_have_started_it() -> None:
    world = World()
    first, second = world.child(1, 201), world.child(2, 202)
    world.child(3, 203, started=60)
    world.processes.append(process(300, ME, started=50))

    first.ending = True
    assert world.members() == {1: [201], 2: [202], 3: [203]}
    second.ending = True
    assert world.members() == {1: [201], 2: [202, 300], 3: [203]}


def test_what_belonged_to_a_removed_child_is_forgotten() -> None:
    world = World()
    world.child(1, 201)
    world.child(2, 202)
    world.processes.append(process(300, 201))
    world.members()

    world.membership.remove(1)
    world.processes[:] = [process(202, ME, started=10), process(300, ME), process(301, ME, group=201)]

    assert world.members() == {2: [202]}


def test_without_a_subreaper_orphans_are_below_the_first_process_and_strangers_are_left_alone() -> None:
    world = World(subreaper=False)
    tracked = world.child(1, 201, BARTACK_STEP="ik:1")
    tracked.ending = True
    world.processes += [process(300, 1, group=201), process(301, 1), process(302, 1), process(303, ME)]
    world.environments[301] = {"BARTACK_STEP": "ik:1"}

    assert world.members() == {1: [201, 300, 301]}


def test_an_orphan_that_just_becomes_a_program_is_given_a_few_looks_to_show_its_environment() -> None:
    world = World()
    world.child(1, 201, BARTACK_STEP="ik:1")
    world.child(2, 202, BARTACK_STEP="ik:2")
    world.processes += [process(300, ME), process(301, ME, state="Z")]

    certainty: list[bool] = []
    for _ in range(5):
        world.members()
        certainty.append(world.membership.certain)
    world.environments[300] = {"BARTACK_STEP": "ik:2"}

    assert certainty == [False, False, False, True, True]
    assert world.members()[2] == [202, 300]


def test_an_orphan_whose_environment_names_no_child_is_not_doubted() -> None:
    world = World()
    world.child(1, 201, BARTACK_STEP="ik:1")
    world.processes.append(process(300, ME))
    world.environments[300] = {"PATH": "/bin"}

    world.members()
    assert world.membership.certain


def test_the_parent_program_itself_belongs_to_no_child() -> None:
    world = World()
    world.child(1, 201).ending = True
    world.processes.append(process(ME, ME))

    assert world.members() == {1: [201]}

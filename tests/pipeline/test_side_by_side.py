"""Tasks side by side, in memory with real git: each in its own worktree, their work brought together, whatever happens between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import AGENTS, APPROVED, GREEN, RED, Reply, Team, begin, outcomes, receipts, wrote
from tests.unit.pipeline.repository import git, make, put

from bartack.config.load import Config, read_settings
from bartack.config.sections import BudgetConfig, ParallelConfig, PipelineConfig, SnapshotConfig, TestsConfig
from bartack.pipeline.records.facts import Fact, make_facts
from bartack.pipeline.records.records import Merged, PipelineOrder, Settings, Spent, Summary, TaskRecord
from bartack.pipeline.records.task_state import Progress, make_progress
from bartack.runtime import ShellResult
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.protocol.steps import AskArgs
from bartack.testing import TestRun

Run = TestRun[Summary]


def settings(parallel: ParallelConfig | None = None, **sections: object) -> Settings:
    made = Settings(
        pipeline=PipelineConfig(on_limit="fail", spec=False),
        tests=TestsConfig(command=["make", "test"]),
        snapshot=SnapshotConfig(source="roots"),
        parallel=parallel or ParallelConfig(tasks=2),
        agents=AGENTS,
    )
    return msgspec.structs.replace(made, **sections)


def order(*tasks: str, using: Settings | None = None) -> PipelineOrder:
    """Tasks by their ids, ``id<other`` for one that depends on another."""
    records: list[TaskRecord] = []
    for told in tasks:
        id_, _, before = told.partition("<")
        records.append(TaskRecord(id=id_, goal=f"do {id_}", depends_on=[before] if before else []))
    return PipelineOrder(settings=using or settings(), tasks=records)


def each(**files: str) -> list[Reply]:
    """A builder that writes a file for each task, named like it."""
    return [{"when": {"task": task}, "times": 0, **wrote(path, f"{task}\n")} for task, path in files.items()]


class GitTeam(Team):
    """A team in a repository with one commit."""

    def __init__(
        self,
        workspace: Path,
        responses: Mapping[str, object] | None = None,
        answers: Mapping[str, object] | None = None,
    ) -> None:
        self._pattern = make(workspace.parent / "pattern", {"README.md": "hello\n"})
        super().__init__(workspace, responses, answers=answers)
        self.touch: Callable[[], object] = lambda: None
        """What the user has done since the last commit."""

    def reset(self) -> None:
        shutil.rmtree(self.workspace, ignore_errors=True)
        shutil.copytree(self._pattern, self.workspace)
        self.touch()
        self.agent = self._make_agent()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "work"


def branch(run: Run, name: str) -> str:
    return f"bartack/{Path(run._scratch.name).name}/{name}"


def log(team: Team, run: Run) -> list[str]:
    """The subjects of the result's commits, the oldest first."""
    words = ("log", "--topo-order", "--reverse", "--format=%s", branch(run, "result"))
    return git(team.workspace, *words).splitlines()


def files(team: Team, run: Run) -> dict[str, str]:
    """The files of the result."""
    ref = branch(run, "result")
    names = git(team.workspace, "ls-tree", "-r", "--name-only", ref).splitlines()
    return {name: git(team.workspace, "show", f"{ref}:{name}") for name in names}


def facts(run: Run) -> list[Fact]:
    store = run._run.store
    return make_facts(run.journal, lambda e: e.value if e.ref is None else store.get(e.ref))


def progress(run: Run) -> Progress:
    return make_progress(facts(run))


@pytest.mark.requirement("tasks-run-side-by-side")
def test_tasks_work_in_worktrees_of_their_own_and_their_work_comes_together_in_order(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt", three="3.txt")})
    with team.running(order("one", "two", "three<one")) as run:
        before = git(team.workspace, "rev-parse", "HEAD")

        assert [(task.id, task.status, task.receipts) for task in run.result.tasks] == [
            ("one", "done", 2),
            ("two", "done", 2),
            ("three", "done", 2),
        ]
        assert run.result.result is not None
        assert run.result.result.command == f"git merge {branch(run, 'result')}"
        assert files(team, run) == {"README.md": "hello", "1.txt": "one", "2.txt": "two", "3.txt": "three"}
        assert log(team, run) == [
            "first",
            "one: implement round 1",
            "two: implement round 1",
            "Merge two",
            "three: implement round 1",
        ]
        assert git(team.workspace, "status", "--porcelain") == ""
        assert git(team.workspace, "rev-parse", "HEAD") == before
        assert git(team.workspace, "rev-parse", "main") == before
        trees = Path(run._scratch.name, "worktrees")
        assert sorted(path.name for path in trees.iterdir()) == ["one", "result", "three", "two"]
        assert run.commands == [["make", "test"]] * 4
        seen = {command.task_id: command for command in team.commands if command.action == "implement"}
        assert (trees / "three/1.txt").exists(), "it begins with the work that it depends on"
        assert not (trees / "two/1.txt").exists()
        key = seen["one"].idempotency_key
        assert f"Bartack-Key: {key}" in git(team.workspace, "log", "-1", "--format=%B", branch(run, "one"))
        assert {(task.id, task.status) for task in progress(run).tasks} >= {("one", "done")}
        assert progress(run).stage == "complete"


def test_no_more_tasks_than_wanted_are_under_way_at_once(place: Path) -> None:
    team = GitTeam(place, {"implement": each(a="a", b="b", c="c")})

    def most(width: int) -> int:
        quick = PipelineConfig(spec=False, review=False)
        run = team.run(order("a", "b", "c", using=settings(ParallelConfig(tasks=width), pipeline=quick)))
        under_way: set[object] = set()
        found = 0
        for entry in run.journal:
            path = entry.data.get("p") or entry.data.get("path")
            if entry.kind == "worker.ended":
                under_way.discard(path)
            elif entry.kind.startswith("step.") and str(path).endswith(":task"):
                under_way.add(path)
            found = max(found, len(under_way))
        return found

    assert (most(2), most(3)) == (2, 3)


def test_what_is_not_committed_is_there_in_every_worktree_and_stays_as_it_is(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})

    def touch() -> None:
        put(team.workspace, {"README.md": "edited\n", "new.txt": "new\n"})
        git(team.workspace, "add", "README.md")

    team.touch = touch
    with team.running(order("one", "two")) as run:
        assert git(team.workspace, "status", "--porcelain") == "M  README.md\n?? new.txt"
        assert files(team, run) == {"README.md": "edited", "new.txt": "new", "1.txt": "one", "2.txt": "two"}
        assert run.result.result is not None
        assert run.result.result.dirty


# Conflicts.

CLASH = {
    "implement": each(one="same.txt", two="same.txt"),
    "implement_changes": wrote("same.txt", "one and two\n"),
}


@pytest.mark.requirement("worktrees-conflicts-are-asked")
def test_a_builder_settles_a_conflict_when_a_person_says_so(place: Path) -> None:
    team = GitTeam(place, CLASH, answers={"task two has changed*": "builder"})
    with team.running(order("one", "two")) as run:
        assert [(task.id, task.status, task.receipts) for task in run.result.tasks] == [
            ("one", "done", 2),
            ("two", "done", 4),
        ]
        assert files(team, run)["same.txt"] == "one and two"
        assert [c for c in team.actions if c[3] == "conflict"] == [
            ("two", "implement_changes", 1, "conflict")
        ]
        assert [receipt.step for receipt in receipts(run) if receipt.task_id == "two"] == [1, 2, 3, 4]
        assert log(team, run)[-1] == "two: implement_changes round 1"
        assert "<<<<<<<" not in git(team.workspace, "log", "--patch", branch(run, "result"))


@pytest.mark.requirement("fleet-pipeline-lanes")
def test_a_workspace_that_travels_has_the_result_and_its_conflicts_are_not_for_a_person(place: Path) -> None:
    team = GitTeam(place, CLASH)
    team.touch = lambda: put(team.workspace, {"README.md": "edited\n"})
    with team.start(order("one", "two", using=settings(carried=True))) as run:
        run.start()
        with pytest.raises(Exception, match="waits"):
            run.finish()
        asked = [fact.value for fact in facts(run) if fact.kind == "question"]
        assert [
            args.options for _, args in msgspec.convert(msgspec.to_builtins(asked), list[tuple[str, AskArgs]])
        ] == [["builder", "abort"]]
        run.answer("task two has changed*", "builder")
        run.finish()

        assert run.result.result is not None
        assert run.result.result.moved
        assert (team.workspace / "same.txt").read_text() == "one and two\n"
        assert (team.workspace / "README.md").read_text() == "edited\n"
        assert git(team.workspace, "status", "--porcelain") == ""
        assert git(team.workspace, "rev-parse", "main") == git(
            team.workspace, "rev-parse", branch(run, "result")
        )


def test_conflict_marks_that_are_left_are_sent_back_to_the_builder(place: Path) -> None:
    lazy: Reply = {"times": 1, **wrote("other.txt", "x\n")}
    team = GitTeam(
        place,
        {**CLASH, "implement_changes": [lazy, {"times": 0, **wrote("same.txt", "both\n")}]},
        answers={"task two has changed*": "builder"},
    )
    with team.running(order("one", "two")) as run:
        assert [(c[1], c[3]) for c in team.actions if c[1] == "implement_changes"] == [
            ("implement_changes", "conflict"),
            ("implement_changes", "tests"),
        ]
        assert files(team, run)["same.txt"] == "both"


def test_while_a_conflict_is_open_the_run_waits_and_says_which_task_it_is(place: Path) -> None:
    team = GitTeam(place, CLASH)
    with team.start(order("one", "two")) as run:
        run.start()
        with pytest.raises(Exception, match="waits"):
            run.finish()

        shown = progress(run)
        assert (shown.stage, shown.task_id) == ("merge", "two")
        assert [(task.id, task.status) for task in shown.tasks] == [("one", "done"), ("two", "conflict")]
        merges = [msgspec.json.decode(data, type=Merged) for data in outcomes(run, "merge")]
        assert [merge.conflicts for merge in merges] == [[], ["same.txt"]]

        run.answer("task two has changed*", "abort")
        run.finish()
        assert run.status == "aborted"
        assert git(team.workspace, "show", f"{branch(run, 'two')}:same.txt") == "two"


def test_a_person_settles_a_conflict_and_it_is_looked_at_again(place: Path) -> None:
    team = GitTeam(place, CLASH)
    with team.start(order("one", "two")) as run:
        run.start()
        with pytest.raises(Exception, match="waits"):
            run.finish()
        run.answer("task two has changed*", "manual")
        with pytest.raises(Exception, match="waits"):
            run.finish()
        run.answer("task two: in *", "done")
        with pytest.raises(Exception, match="waits"):
            run.finish()  # nothing was settled: it is asked again
        run.answer("task two has changed*", "manual")
        tree = Path(run._scratch.name, "worktrees/two")
        git(tree, "merge", "--quiet", "--strategy=ours", branch(run, "result"))
        with pytest.raises(Exception, match="waits"):
            run.finish()
        run.answer("task two: in *", "done")
        run.finish()

        assert files(team, run)["same.txt"] == "two"


# Failures.


def test_a_task_that_fails_fails_the_run_and_the_others_go_on_when_it_is_resumed(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    broken = place.parent / "broken"
    broken.touch()
    team.shell = lambda argv: RED if broken.exists() else GREEN
    using = settings(pipeline=PipelineConfig(on_limit="fail", spec=False, max_fix_rounds=0))
    with team.running(order("one", "two", using=using)) as run:
        assert run.error is not None
        assert run.error.kind == "TestsGateError"
        broken.unlink()

        run.resume()
        run.finish()

        assert files(team, run).keys() == {"README.md", "1.txt", "2.txt"}
        assert [command.action for command in team.commands].count("implement") == 2


def test_others_go_on_without_a_task_that_fails_and_what_depends_on_it_is_skipped(place: Path) -> None:
    refusing: Reply = {
        "when": {"task": "one"},
        "times": 1,
        "error": {"code": "invalid_inputs", "retryable": False},
    }
    replies = [refusing, *each(one="1.txt", two="2.txt", three="3.txt")]
    team = GitTeam(place, {"implement": replies})
    using = settings(
        pipeline=PipelineConfig(on_limit="fail", spec=False, review=False, on_task_failure="continue")
    )
    with team.running(order("one", "two", "three<one", using=using)) as run:
        assert run.error is not None
        assert run.error.kind == "TasksFailedError"
        assert "one failed" in run.error.message
        assert "three skipped: one is not done" in run.error.message
        assert files(team, run).keys() == {"README.md", "2.txt"}

        run.resume()
        run.finish()

        assert [(task.id, task.status) for task in run.result.tasks] == [
            ("one", "done"),
            ("two", "done"),
            ("three", "done"),
        ]
        assert files(team, run).keys() == {"README.md", "1.txt", "2.txt", "3.txt"}


def test_a_task_that_failed_goes_on_in_its_worktree_behind_what_it_has_finished(place: Path) -> None:
    refusing: Reply = {
        "when": {"task": "one"},
        "times": 1,
        "error": {"code": "invalid_inputs", "retryable": False},
    }
    replies = {"implement": each(one="1.txt", two="2.txt"), "review": [refusing, {"times": 0, **APPROVED}]}
    team = GitTeam(place, replies)
    using = settings(pipeline=PipelineConfig(on_limit="fail", spec=False, on_task_failure="continue"))
    with team.running(order("one", "two", using=using)) as run:
        assert run.error is not None
        before = len(team.commands)

        run.resume()
        run.finish()

        assert files(team, run).keys() == {"README.md", "1.txt", "2.txt"}
        assert [(task, action) for task, action, _, _ in team.actions[before:]] == [("one", "review")]
        assert team.commands[before].idempotency_key in {c.idempotency_key for c in team.commands[:before]}
        assert sorted((r.task_id, r.step) for r in receipts(run)) == [
            ("one", 1),
            ("one", 2),
            ("two", 1),
            ("two", 2),
        ]


def test_the_tests_run_once_more_on_all_work_together_and_a_person_can_mend_it(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    found: list[Path] = []

    def shell(argv: list[str]) -> ShellResult:
        tree = found[0] / "worktrees/result"
        return RED if tree.exists() and not (tree / "glue.txt").exists() else GREEN

    team.shell = shell
    with team.start(order("one", "two")) as run:
        found.append(Path(run._scratch.name))
        begin(run)
        assert run.error is not None
        assert (run.error.kind, "work of all tasks together" in run.error.message) == ("TestsGateError", True)
        put(found[0] / "worktrees/result", {"glue.txt": "glue\n"})

        run.resume()
        run.finish()

        assert files(team, run)["glue.txt"] == "glue"
        assert run.result.result is not None
        assert run.result.result.commit == git(team.workspace, "rev-parse", branch(run, "result"))


def test_a_worktree_that_vanished_is_an_error_of_its_task(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    found: list[Path] = []

    def shell(argv: list[str]) -> ShellResult:
        shutil.rmtree(found[0] / "worktrees/two", ignore_errors=True)
        return GREEN

    team.shell = shell
    with team.start(order("one", "two")) as run:
        found.append(Path(run._scratch.name))
        begin(run)

        assert run.error is not None
        assert run.error.kind == "WorktreeError"
        assert f"the branch {branch(run, 'two')} has its last commit" in run.error.message


def test_a_command_that_fails_because_its_worktree_vanished_says_so_and_is_given_again(place: Path) -> None:
    failure = {"when": {"task": "two"}, "times": 1, "error": "invalid_inputs"}
    team = GitTeam(place, {"implement": [failure, *each(two="2.txt")]})
    team.dedupe = False
    with team.start(order("two")) as run:
        tree = Path(run._scratch.name, "worktrees/two")
        run.start()
        run.wait_for("step.started", step="think")
        shutil.rmtree(tree)
        run.finish()

        assert run.error is not None
        assert run.error.kind == "WorktreeError"
        assert f"git worktree add -f {str(tree)!r} {branch(run, 'two')}" in run.error.message
        git(team.workspace, "worktree", "add", "-f", str(tree), branch(run, "two"))
        run.resume()
        run.finish()

        assert files(team, run) == {"README.md": "hello", "2.txt": "two"}


# Settings.


def test_a_command_prepares_each_worktree_once(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    using = settings(ParallelConfig(tasks=2, setup=["make", "ready"]))
    run = team.run(order("one", "two", using=using))
    assert run.commands.count(["make", "ready"]) == 3, "two tasks and the result"
    assert run.commands.count(["make", "test"]) == 3


def test_a_worktree_that_could_not_be_prepared_is_prepared_by_a_resume(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt")})
    results = [RED]
    team.shell = lambda argv: results.pop() if results else GREEN
    using = settings(ParallelConfig(tasks=2, setup=["make", "ready"]))
    with team.running(order("one", using=using)) as run:
        assert run.error is not None
        assert "parallel.setup" in run.error.message

        run.resume()
        run.finish()

        assert run.status == "completed"


def test_worktrees_go_at_the_end_where_they_are_not_to_be_kept(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    with team.running(order("one", "two", using=settings(ParallelConfig(tasks=2, keep=False)))) as run:
        assert git(team.workspace, "worktree", "list").count("\n") == 0
        assert files(team, run).keys() == {"README.md", "1.txt", "2.txt"}


def test_the_users_branch_is_moved_to_the_result_where_that_is_wanted(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    using = settings(ParallelConfig(tasks=2, merge="fast-forward"))
    with team.running(order("one", "two", using=using)) as run:
        assert run.result.result is not None
        assert (run.result.result.moved, run.result.result.command) == (True, "")
        assert (team.workspace / "1.txt").exists()
        assert git(team.workspace, "rev-parse", "main") == run.result.result.commit


def test_one_task_at_a_time_works_in_the_workspace_itself(place: Path) -> None:
    team = GitTeam(place, {"implement": each(one="1.txt", two="2.txt")})
    with team.running(order("one", "two", using=settings(ParallelConfig(tasks=1)))) as run:
        assert run.result.result is None
        assert (team.workspace / "1.txt").exists()
        assert git(team.workspace, "branch", "--list", "bartack/*") == ""


def test_a_budget_is_that_of_all_tasks_together(place: Path) -> None:
    def spends(task: str) -> Reply:
        event = {
            "type": "builder.completed",
            "payload": {"tests": {"status": "pass"}},
            "usage": {"input_tokens": 60},
        }
        return {"when": {"task": task}, "times": 0, "events": [event]}

    team = GitTeam(place, {"implement": [spends("one"), spends("two")]})
    using = settings(budget=BudgetConfig(tokens=100))
    with team.running(order("one", "two", using=using)) as run:
        assert run.error is not None
        assert (run.error.kind, "budget.tokens is used up: 120 of 100" in run.error.message) == (
            "AgentBudgetError",
            True,
        )
        reviews = [command.task_id for command in team.commands if command.action == "review"]
        assert len(reviews) < 2, "at most what was under way when the last token was used"

    run = team.run(order("one", "two", using=settings(budget=BudgetConfig(tokens=200))))
    assert [task.spent.tokens for task in run.result.tasks] == [60, 60]
    assert Spent(tokens=1, turns=2) + Spent(tokens=3, wall_s=4.0) == Spent(tokens=4, turns=2, wall_s=4.0)


# Killed.

GIT_STEPS = {"base", "worktree", "commit", "merge", "mark_conflicts", "deliver", "remove_worktrees"}


@pytest.mark.requirement("worktrees-survive-kill")
def test_killed_behind_any_line_around_git_it_comes_to_the_same_end(place: Path) -> None:
    team = GitTeam(place, {**CLASH, "review": APPROVED}, answers={"task two has changed*": "builder"})
    what = order("one", "two", using=settings(ParallelConfig(tasks=2, keep=False)))

    def end(run: Run) -> tuple[object, ...]:
        done = sorted((r.task_id, r.step, r.action, r.cause) for r in receipts(run))
        return log(team, run), files(team, run), done, git(team.workspace, "worktree", "list").count("\n")

    with team.running(what) as run:
        whole = end(run)
        seqs = {name: [step.seq for step in run.steps if step.about == name] for name in GIT_STEPS}
        ends = {found[-1] if name in {"commit", "merge"} else found[0] for name, found in seqs.items()}
        # Behind the line before the one in which a step is finished: it was done, and nobody knows.
        cuts = sorted(sum(last < seq for last in run.lines) for seq in ends)

    assert len(cuts) == len(GIT_STEPS)
    # Behind every third one, the first and the last; behind all of them in ``make soak``.
    for cut in cuts if "SOAK" in os.environ else cuts[::3]:
        with team.start(what, dies_after=cut) as run:
            with pytest.raises(KilledError):
                begin(run)
            paid = {receipt.idempotency_key for receipt in receipts(run)}
            sent = len(team.commands)

            run.resume()
            run.finish()

            assert end(run) == whole, f"killed behind line {cut}"
            assert not [c for c in team.commands[sent:] if c.idempotency_key in paid]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("task = 2", "parallel.task: there is no such key; did you mean 'tasks'?"),
        ("tasks = 0", "`int` >= 1"),
        ('merge = "rebase"', "there is no value 'rebase' (there are: branch, fast-forward)"),
        ('setup = "npm ci"', "Expected `array`, got `str`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "bartack.toml").write_text(f"[parallel]\n{line}\n")
    assert Config().parallel == ParallelConfig(tasks=1, merge="branch", keep=True, setup=[])

    [problem] = read_settings(tmp_path, (), {}).problems
    assert told in f"{problem.setting}: {problem.problem}"
    assert problem.line == 2

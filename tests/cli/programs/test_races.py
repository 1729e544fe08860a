"""Two of everything at once: hubs of one run, resumes, answers. One of them does it, the others are refused with a code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.programs.fakes import KINDS, alive
from tests.cli.programs.workspace import Project
from tests.waiting import until

OWNED, ANSWERED = "error[BT202]", "error[BT324]"


@pytest.mark.requirement("bad-programs-are-survived")
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_one_hub_and_of_two_resumes_one_asks_the_agent(kind: str, tmp_path: Path) -> None:
    project = Project(tmp_path, kind, "hang")
    first = project.start("run", "team.py", "--no-input")
    until(lambda: project.starts, "the program starts", project.root)

    second = project.call("resume", project.run_id)
    first.kill()
    first.communicate()
    until(lambda: not alive(tmp_path), "the program of a dead hub ends")
    project.configure("ok")
    resumes = [project.start("resume", project.run_id) for _ in range(2)]
    ended = [resume.communicate(timeout=60) for resume in resumes]

    assert second.returncode == 5
    assert OWNED in second.stderr
    done, refused = sorted(zip([resume.returncode for resume in resumes], ended, strict=True))
    # The second one may come when the first has ended already.
    assert (done[0], refused[0]) in {(0, 5), (0, 0)}, ended
    assert "fine\n" in {out for out, _ in ended}
    assert not any("Traceback" in told for _, told in ended)
    assert project.starts == ["hang", "ok"]


@pytest.mark.requirement("bad-programs-are-survived")
@pytest.mark.parametrize("kind", KINDS)
def test_of_two_answers_to_one_question_one_counts(kind: str, tmp_path: Path) -> None:
    project = Project(tmp_path, kind, "ask", 'permissions = { mode = "ask" }')
    stopped = project.call("run", "team.py")
    assert stopped.returncode == 3, stopped.stderr

    words = ("allow", "deny")
    answers = [project.start("answer", project.run_id, "q1", word) for word in words]
    told = [answer.communicate(timeout=60)[1] for answer in answers]
    resumed = project.resume()

    codes = [answer.returncode for answer in answers]
    assert sorted(codes) in ([0, 1], [0, 5]), told
    refusal = told[codes.index(max(codes))]
    assert ANSWERED in refusal or OWNED in refusal
    assert resumed.stdout == "fine\n", resumed.stderr
    decided = (tmp_path / "decisions").read_text(encoding="utf-8").split()[1]
    assert {"accept": "allow", "decline": "deny"}.get(decided, decided) == words[codes.index(0)]


IN_THE_WAY = """
import pathlib
if pathlib.Path("block").exists():
    pathlib.Path("block").unlink()
    (run,) = pathlib.Path(".bartack/runs").glob("run-*")
    (run / "agents").mkdir(exist_ok=True)
    (run / "agents" / "a").write_text("a file where a directory is to be")
return await ctx.think("say it")
"""


@pytest.mark.requirement("bad-programs-are-survived")
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_cannot_be_made_fails_the_step_and_the_run_is_resumable(
    kind: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, kind)
    (tmp_path / "block").touch()
    project.program(IN_THE_WAY.strip())

    failed = project.run()

    assert failed.returncode == 1
    assert "AgentPlaceError [BT823]: agent 'a': its files cannot be opened" in failed.stderr
    assert "Restore the directory or its permissions, then resume the run." in failed.stderr
    assert project.starts == []
    (project.runs[0] / "agents" / "a").unlink()
    assert project.resume().stdout == "fine\n"

"""How Patchwork programs take steps: what identifies one, what is replayed, what annotations ask for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bartack.runtime import ShellResult
from bartack.runtime.context.definitions import WorkerCall
from bartack.runtime.patchwork import load_text
from bartack.runtime.protocol.frames import Begin, Done, Note, Out, Step
from bartack.testing import ScriptedAgent, TestRun, run_worker, start_worker


def fine(_words: list[str]) -> ShellResult:
    """Every command goes well."""
    return ShellResult.success("ok")


def program(text: str, name: str = "main") -> WorkerCall[object]:
    return load_text({"t.pw": text}, "t.pw").find_worker(f"t.pw:{name}")()


def fingerprints(text: str) -> list[tuple[int, str]]:
    """The numbers and fingerprints of all steps of a run."""
    run = run_worker(program(text), shell=fine)
    frames = [frame for frame in run.outside.frames if isinstance(frame, Step | Begin | Done | Note | Out)]
    return [(frame.n, frame.fp) for frame in frames]


def asked(run: TestRun[object], kind: str) -> dict[str, object]:
    """What the first step of a kind asked the hub for."""
    step = next(frame for frame in run.outside.frames if isinstance(frame, Step) and frame.step == kind)
    return msgspec.json.decode(step.a, type=dict[str, object])


SOME = """\
fun helper(n) {
    $ make ${n}
    return n
}
worker main() {
    print("begin", time() > 0)
    helper(1)
    self.session.mailbox.m.send({n: 1})
}
"""


def test_lines_may_move_without_making_other_steps() -> None:
    moved = "# A comment.\n\ntype T = int\n" + SOME.replace(
        "    helper(1)", "\n\n    var unused_ = 1\n    helper(1)"
    )

    assert fingerprints(moved) == fingerprints(SOME)
    assert len(fingerprints(SOME)) == 4


def test_the_declaration_around_a_step_is_part_of_what_it_is() -> None:
    elsewhere = SOME.replace("helper", "other")

    before, after = fingerprints(SOME), fingerprints(elsewhere)

    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False, True]


def test_replay_gives_what_was_given_before_though_the_world_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
worker main() {
    print([time(), timestamp(), random(), random(1, 1000000), uuid(), read("f.txt"), env("BARTACK_TEST_X"), exists("g")])
    print(self.session.mailbox.gate.receive())
    print([time() > 0, read("f.txt"), env("BARTACK_TEST_X"), exists("g")])
}
"""
    monkeypatch.chdir(tmp_path)
    Path("f.txt").write_text("old")
    monkeypatch.setenv("BARTACK_TEST_X", "before")

    with start_worker(program(text)) as run:
        run.wait_for("step.started", step="receive")
        first = run.output[0]
        run.crash()
        run.clock.advance(3600)
        Path("f.txt").write_text("new")
        Path("g").touch()
        monkeypatch.setenv("BARTACK_TEST_X", "after")
        run.resume()
        run.send("gate", "go")
        run.finish()

    assert run.output == [first, "go", '[true,"new","after",true]']
    assert first.endswith('"old","before",false]')


def test_annotations_set_the_agent_the_deadline_and_once_of_steps_in_their_declaration() -> None:
    text = """\
@agent reviewer
@timeout 1500
@once
fun careful() {
    $ deploy
    return think { Fine? }
}
worker main() {
    careful()
    $ plain
}
"""
    agent = ScriptedAgent([{"text": "yes"}])

    run = run_worker(program(text), shell=fine, agent=agent)

    shells = [frame for frame in run.outside.frames if isinstance(frame, Step) and frame.step == "shell"]
    first, second = (msgspec.json.decode(frame.a, type=dict[str, object]) for frame in shells)
    assert (first["timeout_s"], first["once"]) == (1.5, True)
    assert {"timeout_s", "once"}.isdisjoint(second)
    think = asked(run, "think")
    assert (think["agent"], think["timeout_s"], think["once"]) == ("reviewer", 1.5, True)


def test_an_agent_that_fails_is_an_error_and_falls_through_to_nobody() -> None:
    agent = ScriptedAgent([{"fail": {"outcome": "transient", "message": "broken"}}])

    run = run_worker(program('worker main() { return think { Anything? } || "else" }'), agent=agent)

    assert run.error is not None
    assert "broken" in run.error.message


def test_a_reply_that_is_mended_is_one_step() -> None:
    agent = ScriptedAgent([{"text": "no json"}, {"text": '{"ok": true}'}])

    run = run_worker(program("worker main() { var r: {ok: bool} = think { Judge }; return r }"), agent=agent)

    assert run.result == {"ok": True}
    assert len(run.prompts) == 2
    assert [step.kind for step in run.steps] == ["think"]


def test_a_person_may_run_the_blocks_of_a_question_before_answering() -> None:
    text = """\
worker main() {
    var n = 0
    var sure: bool = ask {
        Ship it?
        do { n = n + 1; "tests: $n" }
        do { throw "no network" }
    }
    return [sure, n]
}
"""
    with start_worker(program(text)) as run:
        for answer in ("do 1", "do_2", "do 1", "yes"):
            run.wait_for("step.started", step="ask")
            run.answer("*Ship it?*", answer)
        run.finish()

    assert run.result == [True, 2]
    questions = [step.about for step in run.steps if step.kind == "ask"]
    assert "do 1: Ship it?" in questions[0]
    assert "do_1: tests: 1" in questions[1]
    assert "do_2 failed: no network" in questions[2]


def test_a_delivery_that_nobody_settled_goes_back_when_its_worker_throws() -> None:
    text = """\
worker takes(fail) {
    var d = self.session.mailbox.work.delivery(1000)
    if fail { throw "cannot" }
    return [d.value, d.attempt]
}
worker main() {
    self.session.mailbox.work.send("job")
    var first = self.delegate([takes(true)], { on_failure: "collect" })
    return [first[0].ok, takes(false)]
}
"""
    run = run_worker(program(text))

    assert run.result == [False, ["job", 2]]


def test_a_delivery_that_nobody_settled_is_acknowledged_by_the_next_one_and_by_the_end() -> None:
    text = """\
worker takes() {
    var box = self.session.mailbox.work
    var first = box.delivery(0)
    var second = box.delivery(0)
    return [first.value, second.value]
}
worker main() {
    self.session.mailbox.work.send(1)
    self.session.mailbox.work.send(2)
    return takes()
}
"""
    run = run_worker(program(text))

    assert run.result == [1, 2]
    assert [step.kind for step in run.steps if step.p != "main"] == ["receive", "ack", "receive", "ack"]


def test_a_worker_that_gets_other_arguments_than_it_takes_fails_with_an_error() -> None:
    call = load_text({"t.pw": "worker main(n: int) { return n }"}, "t.pw").find_worker("t.pw:main")

    run = run_worker(call("x"))

    assert run.error is not None
    assert (run.error.kind, run.error.message) == ("TypeMismatchError", '$: expected int, found string "x"')

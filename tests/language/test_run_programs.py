"""The programs in ``run/``: each says in its comments what it prints, and prints that after every crash, too.

``# expect: TEXT`` is a line of output, ``# result: JSON`` the result, ``# fails: Kind: message`` the failure. ``# agent:`` and
``# answer:`` lines script agents and people, ``# prompt:`` is a text that an agent gets, ``# steps: KIND N`` counts steps.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from bartack.language import parse
from bartack.runtime import ShellResult, Worker
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import ScriptedAgent, TestRun, assert_survives_crashes, run_worker

HERE = Path(__file__).parent / "run"
PROGRAMS = sorted(path.stem for path in HERE.glob("*.pw"))
NOTE = re.compile(r"# *(expect|result|fails|agent|answer|prompt|steps|shell|workspace): ?(.*)")


LONG = {"edges", "limits"}
"""Programs with many steps of kinds that others have, too: ``make soak`` kills them behind each of these."""


class Case(NamedTuple):
    """What a program says of itself."""

    name: str
    notes: list[tuple[str, str]]

    def all(self, word: str) -> list[str]:
        """The texts of one kind of note, in order."""
        return [text for kind, text in self.notes if kind == word]

    def agent(self) -> ScriptedAgent:
        """The agent that the program is written for."""
        return ScriptedAgent([json.loads(rule) for rule in self.all("agent")])

    def answers(self) -> dict[str, object]:
        """What people answer."""
        pairs = (text.partition(" => ") for text in self.all("answer"))
        return {question: answer for question, _, answer in pairs}


def load_case(name: str) -> Case:
    parsed = parse((HERE / f"{name}.pw").read_bytes(), f"{name}.pw")
    found = (NOTE.fullmatch(comment.text.strip()) for comment in parsed.tree.comments)
    return Case(name, [(match[1], match[2].strip()) for match in found if match])


def load_entry(name: str) -> Worker[..., object]:
    finding = probe(ProbeRequest(str(HERE / f"{name}.pw"), str(HERE)), HERE)
    return load_worker(finding.worker, str(HERE))


def run_real(words: list[str]) -> ShellResult:
    """Run a plain command in this process's directory."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return ShellResult(words, done.returncode, done.stdout, done.stderr)


def run_case(case: Case) -> TestRun[object]:
    shell = run_real if case.all("shell") else None
    return run_worker(load_entry(case.name)(), agent=case.agent(), answers=case.answers(), shell=shell)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = load_case(name)

    run = run_case(case)

    fails = "" if run.error is None else f"{run.error.kind}: {run.error.message}"
    assert "\n".join(case.all("fails")) == fails
    assert [line.rstrip() for line in run.output] == case.all("expect")
    for result in case.all("result"):
        assert run.result == json.loads(result)
    for text in case.all("prompt"):
        assert json.loads(text) in [prompt.text for prompt in run.prompts]
    for counted in case.all("steps"):
        kind, number = counted.split()
        assert sum(step.kind == kind for step in run.steps) == int(number)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if name in LONG else ())
        for name in PROGRAMS
        if not load_case(name).all("fails")
    ],
)
def test_a_program_that_is_killed_behind_any_step_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = load_case(name)
    shell = run_real if case.all("shell") else None

    assert_survives_crashes(load_entry(name)(), agent=case.agent(), answers=case.answers(), shell=shell)

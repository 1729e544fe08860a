"""Every part of the language in programs of a few lines, and what they print.

Lines that start with ``####`` are not part of a program: ``case`` begins one, ``file`` another module of it. ``expect`` is a
line it prints, ``result`` its result, ``fails`` how it fails, ``says`` the code of a warning or note. ``agent``, ``answer`` and
``prompt`` are what an agent and a person say and what the agent gets. With ``only: check`` a program is checked and not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bartack.language import check
from bartack.language.checking.modules import NotLoaded
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import ScriptedAgent, run_worker

HERE = Path(__file__).parent
NOTE = re.compile(r"#### (\w+): ?(.*)")


class Case(NamedTuple):
    """A program and what it says of itself."""

    name: str
    files: dict[str, str]
    notes: list[tuple[str, str]]

    def all(self, word: str) -> list[str]:
        """The texts of one kind of note, in order."""
        return [text for kind, text in self.notes if kind == word]


def cases() -> Iterator[Case]:
    for path in sorted(HERE.glob("*.pw")):
        for part in path.read_text(encoding="utf-8").split("#### case: ")[1:]:
            name, _, text = part.partition("\n")
            yield load_case(f"{path.stem}: {name}", text)


def load_case(name: str, text: str) -> Case:
    case = Case(name, {"main.pw": ""}, [])
    current = "main.pw"
    for line in text.splitlines():
        note = NOTE.fullmatch(line)
        if note is None:
            assert not line.startswith("####"), line
            case.files[current] += f"{line}\n"
        elif note[1] == "file":
            current = note[2]
            case.files[current] = ""
        else:
            case.notes.append((note[1], note[2]))
    return case


CASES = list(cases())
RUN = [case for case in CASES if not case.all("only")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_but_the_expected_is_said_about_a_program(case: Case) -> None:
    checked = check(lambda path: case.files.get(path, NotLoaded("missing")), "main.pw")

    assert [one.code for one in checked.diagnostics] == case.all("says")


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_a_program_does_what_it_says(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in case.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    finding = probe(ProbeRequest(str(tmp_path / "main.pw"), str(tmp_path)), tmp_path)
    agent = ScriptedAgent([json.loads(rule) for rule in case.all("agent")])
    answers = {text.partition(" => ")[0]: text.partition(" => ")[2] for text in case.all("answer")}

    run = run_worker(load_worker(finding.worker, str(tmp_path))(), agent=agent, answers=answers)

    fails = "" if run.error is None else f"{run.error.kind}: {run.error.message}"
    assert fails == "\n".join(case.all("fails"))
    assert "\n".join(run.output).splitlines() == case.all("expect")
    assert fails or [run.result] == [json.loads(text) for text in case.all("result") or ["null"]]
    assert all(json.loads(text) in [prompt.text for prompt in run.prompts] for text in case.all("prompt"))

"""What grows with its input grows in proportion: counted in operations, not in seconds (those are in ``bench/language.py``)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bartack.language import check
from bartack.language.checking import _mail as mail
from bartack.language.checking.modules import NotLoaded
from bartack.language.syntax import _near as near
from bartack.runtime.patchwork import _members, _operators
from bartack.runtime.patchwork import _values as values
from bartack.runtime.patchwork._runtime import Runtime
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import ScriptedAgent, TestRun, run_worker

GROWING = {
    "variable": 'var s = ""\nfor i in 1...50 { s += "line $i" }\nreturn s.length',
    "several parts": 'var s = ""\nfor i in 1...50 { s += "line " + string(i).trim() }\nreturn s.length',
    "field": 'var o = { s: "" }\nfor i in 1...50 { o.s += "line $i" }\nreturn o.s.length',
    "element": 'var xs = [""]\nfor i in 1...50 { xs[0] += "line $i" }\nreturn xs[0].length',
    "shared with a do-block": (
        'var s = ""\nfor i in 1...50 { s += "line $i" }\nthink {\n    Add.\n    do { s += "x" }\n}\nreturn s.length'
    ),
    "deep in loops": (
        'var s = ""\n'
        + "".join(f"for i{n} in [{n}] {{ " for n in range(15))
        + 'for i in 1...50 { s += "line $i" }'
        + " }" * 15
        + "\nreturn s.length"
    ),
}


def _run(directory: Path, body: str) -> TestRun[object]:
    place = directory / "program.pw"
    place.write_text(f"worker main() {{\n{body}\n}}\n")
    worker = load_worker(probe(ProbeRequest(str(place), str(directory)), directory).worker, str(directory))
    return run_worker(worker(), agent=ScriptedAgent([{"text": "no"}]))


@pytest.mark.parametrize("body", GROWING.values(), ids=GROWING)
def test_text_that_grows_in_a_loop_has_one_owner_and_is_not_copied(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[int] = []
    real = _operators.grown

    def counted(box: list[object]) -> str:
        owners.append(sys.getrefcount(box[0]))
        return real(box)

    monkeypatch.setattr(_operators, "grown", counted)
    monkeypatch.setattr(Runtime, "grown", staticmethod(counted))

    run = _run(tmp_path, body)

    assert run.result == sum(len(f"line {i}") for i in range(1, 51))
    # The first text is a constant of the program. After that the box is the only owner, beside the call that counts.
    assert len(owners) == 50
    assert set(owners[1:]) == {2}


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ('var s = "a"\ns += (s = "b")\nreturn s', "ab"),
        ('var s = "a"\ntry { s += throw "x" } catch { }\nreturn s', "a"),
        ("var o = {}\ntry { o += [] } catch { }\nreturn o", {}),
        ('var o = { s: "a" }\no.s += change(o)\nreturn o.s', "ab"),
        ('var s = "a"\nvar t = s\ns += s\nreturn [s, t]', ["aa", "a"]),
        ('var o = { s: "a" }\nvar t = o.s\no.s += o.s\nreturn [o.s, t]', ["aa", "a"]),
        ("var n = 1\nn += 2\nreturn n", 3),
        ("var o = { n: 1 }\no.n += 2\nreturn o.n", 3),
        ("var xs = [1]\nxs[-1] += 2\nreturn xs", [3]),
        ('var o = {}\ntry { o.s += {} } catch { }\nreturn has(o, "s")', False),
        ('var s = 1\ns += "a"\ns += 2\nreturn s', "1a2"),
    ],
)
def test_a_sum_that_is_assigned_is_what_it_was(tmp_path: Path, body: str, result: object) -> None:
    body += '\n}\nfun change(o) {\n    o.s = "c"\n    return "b"'

    run = _run(tmp_path, body)

    assert run.error is None
    assert run.result == result


def _no_function(function: object, argument: object) -> object:
    raise AssertionError("unique() applies no function")


def test_unique_compares_each_object_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    real = values.equal

    def counted(left: object, right: object) -> bool:
        nonlocal compared
        compared += 1
        return real(left, right)

    monkeypatch.setattr(_members, "equal", counted)
    rows: list[object] = [{"id": n % 500, "tags": [n % 500, {"a": None}]} for n in range(1_000)]

    found = _members.call_method(rows, "unique", (), _no_function, "rows")

    assert found == rows[:500]
    assert compared <= len(rows)


def test_unique_keeps_what_differs_and_one_of_what_is_equal() -> None:
    own: list[object] = []
    own.append(own)
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    given: list[object] = [
        [1],
        [True],
        [1.0],
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        ["1"],
        [None],
        [],
        {},
        [[]],
        own,
        deep,
        own,
        [deep],
        [],
    ]

    found = _members.call_method(given, "unique", (), _no_function, "values")

    kept = [0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 13]
    assert values.is_array(found)
    assert [id(one) for one in found] == [id(given[place]) for place in kept]


def test_the_check_of_mailboxes_looks_for_near_names_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = 0
    real = near.nearest

    def counted(name: str, known: list[str]) -> str | None:
        nonlocal searched
        searched += 1
        return real(name, known)

    monkeypatch.setattr(mail, "nearest", counted)
    sends = "".join(f"    self.session.mailbox.box_{n}.send({n})\n" for n in range(400))
    text = f"worker main() {{\n{sends}    self.session.mailbox.bx_0.receive()\n}}\n"

    found = check(lambda path: text if path == "main.pw" else NotLoaded("missing"), "main.pw").diagnostics

    assert sum(one.code == "PW210" for one in found) == 400
    assert found[0].label == "did you mean `bx_0`?"
    assert searched <= 100

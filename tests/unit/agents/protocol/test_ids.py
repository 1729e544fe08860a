"""The vectors of keys and conversations: other programs compute the same."""

from __future__ import annotations

import json

import pytest

from bartack.agents import command_key
from bartack.agents.protocol.ids import conversation_id, correlation_id, moment, parse_moment
from bartack.errors import CanonicalJsonError

S0, S1 = "snap-7e991e837a4d", "snap-3db0dfa4e65d"
GOAL = "Parse ISO week dates"
FILES = ["src/dates.py"]


def round_of(number: int, cause: str = "start", findings: list[object] | None = None) -> dict[str, object]:
    iteration = {"cause": cause, "findings": findings or [], "round": number}
    return {"goal": GOAL, "iteration": iteration, "task_files": FILES}


FINDING = {
    "id": "F1",
    "line": 12,
    "message": "week 53 is refused",
    "path": "src/dates.py",
    "severity": "major",
}
ODD_TEXT = json.loads(
    r'{"text":"<b> & \u2028 \u007f \u0000\u001f \"q\" \\ / \b\f\n\r\t \u00e9 \ud83e\uddf5"}'
)
ODD_NAMES = json.loads(r'{"z":1,"\ufb01":2,"\ud83e\uddf5":3,"Z":4,"":5,"10":6,"9":7,"\u00e9":8,"e\u0301":9}')
NUMBERS = json.loads(
    '{"n":[1.0,-0.0,0.1,1e21,1e20,0.000001,1e-7,123456789012345680000.0,5e-324,1.7976931348623157e308,'
    "9007199254740991,-2.50,333333333.33333329]}"
)
DEEP = json.loads('{"a":true,"b":{"x":{},"y":[{"c":[],"d":1}]}}')


# Long because it is one table.
@pytest.mark.parametrize(
    ("action", "task", "snapshot", "inputs", "key"),
    [
        (
            "implement",
            "T-7",
            S0,
            round_of(1),
            "f7da6c9a7ffe964e7f59fe23ec56dfe2f59934c7f663207eb94c4db2509137ca",
        ),
        (
            "review",
            "T-7",
            S1,
            round_of(1),
            "9834fc8abe3a8e03481f75a3f0cba7cfdc5f9782ad44e5c7033b0fcf5999288d",
        ),
        (
            "review",
            "T-7",
            S1,
            round_of(2),
            "e3c6c6a5dec37917ba901a748dc4bd5468cda874c35613cba9b1d0e2612c6a83",
        ),
        (
            "implement_changes",
            "T-7",
            S1,
            round_of(1, "review", [FINDING]),
            "9c2af4abbfa654eae32501a7b09efeb25707b1196929d00486d85aceaf927339",
        ),
        (
            "prompt",
            "main/0:writer",
            S0,
            ODD_TEXT,
            "5083a2a80fc9249e28393182e43532052f082a9de7aa81f75ee41d561ec2cf5f",
        ),
        (
            "prompt",
            "main/0:writer",
            S0,
            ODD_NAMES,
            "c1a054db46200ce484a58bf8ccf2e94e35666b46826df9b31e8c2fd10b855fcb",
        ),
        (
            "prompt",
            "main/0:writer",
            S0,
            NUMBERS,
            "a40f26c742e72cdd955b104cca4f294fe113b6a32a33004e31113790acdc5394",
        ),
        (
            "implement",
            "T-7",
            S0,
            {"clarifications": None, "goal": "x"},
            "752aec056053d7009f79d512577a50d3b423b75385648b2276212da12f0fcdec",
        ),
        (
            "implement",
            "T-7",
            S0,
            {"clarifications": [], "goal": "x"},
            "22cbd19fee1e78613595b310443b1bbad36ced50ee8b9abd6da50a428249d933",
        ),
        (
            "implement",
            "T-7",
            S0,
            {"goal": "x"},
            "68069dc450d62d547edf73892408534160566fc4599510137eec83ec9b4fdc6d",
        ),
        (
            "implement",
            "T-7.b_2",
            S0,
            DEEP,
            "219ac115b49cf97cfe036194ad2c16b77d9dc0a5bf93a3ad49d1609e5eb1f229",
        ),
        (
            "prompt",
            "main/3.1:writer",
            "none",
            {"iteration": {"epoch": 0, "step": 4}, "text": "next idea"},
            "d1ec7cd6152eaf5f6ff2472acb8bfc01c216718da0b22be1df9adea65badcec1",
        ),
        (
            "prompt",
            "main/3.1:writer",
            "none",
            {"iteration": {"epoch": 0, "step": 9}, "text": "next idea"},
            "ec5021d5ef112b9bffd2fb411bb2a5baf4b9fe7f6ba5b56ba8060c6472d2baed",
        ),
    ],
)
@pytest.mark.requirement("keys-are-the-same-everywhere")
def test_a_key_is_what_everybody_computes(
    action: str, task: str, snapshot: str, inputs: dict[str, object], key: str
) -> None:
    assert command_key(action, task, snapshot, inputs) == f"ik:{key}"


@pytest.mark.requirement("keys-are-the-same-everywhere")
def test_no_inputs_and_no_outputs_are_the_same_as_empty_ones() -> None:
    expected = "ik:f049ba762f2b18cd9ee7560059c8430cf5e9dce43db2248aa684737f7f7f7557"

    assert command_key("task_discovery", "intake", S0) == expected
    assert command_key("task_discovery", "intake", S0, {}, []) == expected


@pytest.mark.parametrize(
    "first", [{"path": "SPEC.md"}, {"path": "SPEC.md", "required": None, "description": ""}]
)
@pytest.mark.requirement("keys-are-the-same-everywhere")
def test_expected_outputs_are_normalised(first: dict[str, object]) -> None:
    second = {"path": "notes/a<b>.md", "required": False, "description": "why & how", "more": 1}

    key = command_key("update_spec", "T-7", S1, {"goal": "x"}, [first, second])

    assert key == "ik:70cbe6cb6f6bde7a374a27e9b8f670098c40080f165b9c3b31bd0fc9062174e5"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 2**53, {1: 2}], ids=repr)
def test_what_has_no_canonical_form_has_no_key(value: object) -> None:
    with pytest.raises(CanonicalJsonError):
        command_key("implement", "T-7", S0, {"x": value})


def test_names_have_no_control_characters() -> None:
    with pytest.raises(ValueError, match="control"):
        command_key("implement", "T-7\n", S0)


@pytest.mark.parametrize(
    ("run", "key", "generation", "expected"),
    [
        (
            "run-20261115-091402-5f0c2a9e",
            "ik:f7da6c9a7ffe964e7f59fe23ec56dfe2f59934c7f663207eb94c4db2509137ca",
            0,
            "a5f59263-2c7f-59cb-ac49-cb09f0889cd4",
        ),
        (
            "run-20260301-101500-0badcafe",
            "ik:b0d51c58c8b9c1f458fadf16c7d375630ef51da4df81915893b05c0fa4ed8bc6",
            0,
            "e8703451-97e2-5d35-9788-584022bbdb7a",
        ),
        (
            "run-20260301-101500-0badcafe",
            "ik:b0d51c58c8b9c1f458fadf16c7d375630ef51da4df81915893b05c0fa4ed8bc6",
            1,
            "78f2065a-e380-58e2-82f8-8690ef8fb041",
        ),
    ],
)
def test_a_conversation_has_the_id_that_everybody_computes(
    run: str, key: str, generation: int, expected: str
) -> None:
    assert conversation_id(run, key, generation) == expected


def test_a_correlation_is_the_same_on_all_attempts_and_differs_between_steps() -> None:
    first = correlation_id("run", "T" * 90, "review", "main", 0, 1)

    assert first == correlation_id("run", "T" * 90, "review", "main", 0, 1)
    assert first != correlation_id("run", "T" * 90, "review", "main", 0, 2)
    assert len(first) <= 128


def test_moments_are_written_with_six_digits_and_read_with_up_to_nine() -> None:
    assert moment(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    assert parse_moment("2023-11-14T22:13:20.000001999Z") == 1_700_000_000_000_001
    assert parse_moment("2023-11-14T22:13:20Z") == 1_700_000_000_000_000
    assert parse_moment("soon") is None

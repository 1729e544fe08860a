"""Arguments of a Patchwork program, from the command line to its parameters."""

from __future__ import annotations

import msgspec
import pytest

from bartack.errors import UsageError
from bartack.language import check, find_entry
from bartack.language.checking.program import EntryPoint
from bartack.runtime.patchwork._arguments import Signature, bind, bind_together

SOURCE = """\
# Deploys.
# @arg host where to
# @arg tries how often
worker deploy(host, tries: int = 3, dry_run: bool = false, mode: "fast" | "safe" = "safe", rest: [number] = []) {
    return [host, tries, dry_run, mode, rest]
}
worker data(o: {a: int}) { return o }
worker loud(loud: bool, names: [string]) { return [loud, names] }
worker other(host, size: int) { return [host, size] }
"""


def signature_of(name: str) -> Signature:
    program = check(lambda _: SOURCE, "x.pw").program
    entry = find_entry(program, [name])
    assert isinstance(entry, EntryPoint)
    return Signature.of(entry.declared[0], program.entry)


def bound(name: str, *argv: str, **given: object) -> tuple[list[object], dict[str, object]]:
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in given.items()}
    call = bind(signature_of(name), argv, raw)
    return [msgspec.json.decode(value) for value in call.args], {
        key: msgspec.json.decode(value) for key, value in call.kwargs.items()
    }


def test_the_rest_goes_by_position_and_is_converted_by_type() -> None:
    assert bound("deploy", "h", "5", "yes", "fast", "1", "2.5") == (["h", 5, True, "fast", [1, 2.5]], {})


def test_options_go_by_name_with_dashes_for_underscores() -> None:
    assert bound("deploy", "--tries=4", "h", "--mode", "fast") == (["h", 4], {"mode": "fast"})


def test_a_bool_is_a_flag_and_its_contrary() -> None:
    assert bound("deploy", "h", "--dry-run") == (["h"], {"dry_run": True})
    assert bound("deploy", "h", "--no-dry-run") == (["h"], {"dry_run": False})
    assert bound("deploy", "h", "--dry-run=no") == (["h"], {"dry_run": False})


def test_what_is_left_out_has_its_default_in_the_program() -> None:
    assert bound("deploy", "h") == (["h"], {})
    assert bound("loud", "--loud") == ([True, []], {})


def test_other_types_are_json() -> None:
    assert bound("data", '{"a": 1}') == ([{"a": 1}], {})


def test_input_gives_arguments_by_name_and_the_command_line_goes_before_it() -> None:
    assert bound("deploy", "--tries", "9", host="h", tries=1) == (["h", 9], {})


def test_words_behind_two_dashes_are_no_options() -> None:
    assert bound("loud", "true", "--", "--x") == ([True, ["--x"]], {})


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "argument 'host' is missing"),
        (["h", "x"], "argument 'tries': expected int, found string \"x\""),
        (["h", "1", "maybe"], "argument 'dry_run': expected true, false, yes, no, 1 or 0"),
        (["h", "1", "true", "slow"], 'argument \'mode\': expected "fast" | "safe"'),
        (["h", "1", "true", "safe", "x"], "argument 'rest': expected number"),
        (["h", "--nothing"], "unknown argument --nothing"),
        (["--tries"], "--tries needs a value"),
    ],
)
def test_arguments_that_do_not_fit_are_answered_with_how_to_call_it(argv: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as refusal:
        bound("deploy", *argv)

    message = refusal.value.message
    assert problem in message
    assert "usage: deploy HOST [--tries TRIES] [--dry-run] [--mode MODE] [REST…]" in message
    assert "HOST: where to" in message


def test_too_many_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="too many arguments: 3"):
        bound("other", "h", "2", "3")


def test_input_is_checked_by_type_and_name() -> None:
    with pytest.raises(UsageError, match="argument 'size': expected int"):
        bound("other", host="h", size="x")
    with pytest.raises(UsageError, match="unknown argument 'more'"):
        bound("other", host="h", size=1, more=2)


def test_workers_that_run_together_take_what_they_have_by_name() -> None:
    signatures = [signature_of("other"), signature_of("data")]

    call = bind_together(signatures, ["--host", "h", "--size=2", "--o", '{"a": 1}'], {})

    assert [msgspec.json.decode(part) for part in call.args] == [{"args": ["h", 2]}, {"args": [{"a": 1}]}]
    with pytest.raises(UsageError, match="by name only"):
        bind_together(signatures, ["h"], {})
    with pytest.raises(UsageError, match="unknown argument --x"):
        bind_together(signatures, ["--x", "1"], {})


def test_workers_that_run_together_keep_what_is_given_behind_a_default() -> None:
    signatures = [signature_of("deploy"), signature_of("other")]

    call = bind_together(signatures, ["--host=h", "--size=2", "--mode", "fast"], {})

    assert [msgspec.json.decode(part) for part in call.args] == [
        {"args": ["h"], "kwargs": {"mode": "fast"}},
        {"args": ["h", 2]},
    ]

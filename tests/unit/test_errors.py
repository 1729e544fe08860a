from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, cast

import pytest

from bartack import errors
from bartack.errors import BartackError, JournalCorruptError, JournalFullError, iter_errors

ERRORS = pytest.mark.parametrize("cls", iter_errors(), ids=lambda cls: cls.__name__)

MAKERS: dict[str, Callable[[str, int], object]] = {
    "str": lambda name, place: f"{name} {place}",
    "str | None": lambda name, place: f"{name} {place}",
    "object": lambda name, place: {name: place},
    "bool": lambda _name, _place: True,
    "int": lambda _, place: 170 + place,
    "int | None": lambda _, place: 170 + place,
    "float": lambda _, place: 2.5 + place,
    "float | None": lambda _, place: 2.5 + place,
    "tuple[str, ...]": lambda name, place: (f"{name} {place}", f"other {name}"),
    "list[str]": lambda name, place: [f"{name} {place}", f"other {name}"],
    "dict[str, object] | None": lambda name, place: {name: place},
}
"""A value for a fact of each type, with its name and its place among the facts: no two facts of an error are alike."""

ONLY_ATTRIBUTES = {
    ("DeliveryError", "outcome"),
    ("BroadcastError", "result"),
    ("ThrownError", "thrown"),
    ("ProgramFaultError", "report"),
    ("ProgramImportError", "program"),
    ("ReplyInvalidError", "reply"),
    ("TaskNotFoundError", "known"),
    ("WebRefusedError", "status"),
    ("RunBeingReadError", "built"),
}
"""Facts for programs, which the message leaves out, or replaces by something more exact."""

DESTRUCTIVE = re.compile(
    r"\b(rm|rmdir|unlink|del|delete|remove|purge|erase|wipe|destroy|drop|truncate|overwrite|discard|reset)\b"
    r"|\bkill\b(?! -CONT)|\bclean\b(?! up)"
    r"|--(force|hard|yes|no-verify)\b|\bsudo\b|\bchmod\b",
    re.IGNORECASE,
)

TREE_LINE = re.compile(r"    (?P<rails>[│├└─ ]*)(?P<name>\w+) +(?P<code>BT\d+)(?: +\(also (?P<also>\w+)\))?")


class Drawn(NamedTuple):
    """One line of the tree in the module's docstring."""

    name: str
    code: str
    parents: set[str]


def example(cls: type[BartackError]) -> BartackError:
    """An error of this class, with a made-up value for each of its facts."""
    return cls(**samples_of(cls))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - chosen by annotation


def samples_of(cls: type[BartackError]) -> dict[str, object]:
    return {
        name: MAKERS[str(fact.annotation)](name, place)
        for place, (name, fact) in enumerate(facts_of(cls).items())
    }


def facts_of(cls: type[BartackError]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


def drawn_tree() -> list[Drawn]:
    path: list[str] = []
    drawn: list[Drawn] = []
    for found in TREE_LINE.finditer(errors.__doc__ or ""):
        del path[len(found["rails"]) // 4 :]
        parents = {path[-1]} if path else {"Exception"}
        if found["also"]:
            parents.add(found["also"])
        path.append(found["name"])
        drawn.append(Drawn(found["name"], found["code"], parents))
    return drawn


@pytest.mark.requirement("codes-are-stable")
def test_no_number_is_given_twice() -> None:
    codes = [cls.code for cls in iter_errors()]

    assert len(codes) == len(set(codes))


@ERRORS
def test_a_class_states_its_own_code(cls: type[BartackError]) -> None:
    assert "code" in vars(cls)
    assert re.fullmatch(r"BT[1-9]\d{2,3}", cls.code)


@ERRORS
@pytest.mark.requirement("codes-are-stable")
def test_a_number_is_in_the_hundred_of_its_family(cls: type[BartackError]) -> None:
    families = {
        int(parent.code[2:]) // 100
        for parent in cls.__mro__
        if issubclass(parent, BartackError) and parent is not BartackError and parent.code.endswith("00")
    }

    hundred = int(cls.code[2:]) // 100
    assert families <= {hundred}
    assert 1 <= hundred <= 10


def test_the_hundreds_in_use_are_explained() -> None:
    explained = {
        int(number)
        for number in re.findall(r"(?:hundreds: |, )(\d+) [a-z]", (errors.__doc__ or "").replace("\n", " "))
    }

    assert explained >= {int(cls.code[2:]) // 100 for cls in iter_errors()}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    real = [Drawn(cls.__name__, cls.code, {base.__name__ for base in cls.__bases__}) for cls in iter_errors()]

    assert sorted(drawn_tree()) == sorted(real)


@ERRORS
def test_a_class_says_what_happened_and_what_to_do(cls: type[BartackError]) -> None:
    assert "__doc__" in vars(cls)
    assert (cls.__doc__ or "").strip()
    assert cls is BartackError or "remedy" in vars(cls)
    assert cls.remedy.endswith(".")


@ERRORS
def test_a_leaf_is_named_for_what_happened(cls: type[BartackError]) -> None:
    assert cls.__name__.endswith("Error")


@ERRORS
@pytest.mark.requirement("facts-are-attributes")
def test_facts_are_kept_as_attributes_and_told_in_the_message(cls: type[BartackError]) -> None:
    error = example(cls)

    for name, value in samples_of(cls).items():
        assert getattr(error, name) == value
        told = cast("Sequence[object]", value) if isinstance(value, tuple | list) else (value,)
        if not is_only_an_attribute(cls, name):
            assert all(str(part) in str(error) for part in told), name


def is_only_an_attribute(cls: type[BartackError], fact: str) -> bool:
    cost = (
        {"usd", "usd_estimated", "usd_unknown", "turns", "tokens"}
        if issubclass(cls, errors.AgentError)
        else set[str]()
    )
    return fact in {"remedy", *cost} or (cls.__name__, fact) in ONLY_ATTRIBUTES


@ERRORS
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.requirement("facts-are-attributes")
def test_an_error_survives_pickling_with_all_its_facts(cls: type[BartackError], protocol: int) -> None:
    error = example(cls)
    error.add_note("seen in a worker")

    revived: BartackError = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes

    assert type(revived) is cls
    assert (str(revived), revived.args, vars(revived)) == (str(error), error.args, vars(error))


@ERRORS
def test_an_error_can_be_copied(cls: type[BartackError]) -> None:
    error = example(cls)

    for copied in (copy.copy(error), copy.deepcopy(error)):
        assert type(copied) is cls
        assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))


@ERRORS
def test_journals_and_pickles_find_an_error_in_the_package_itself(cls: type[BartackError]) -> None:
    assert cls.__module__ == "bartack.errors"
    assert getattr(errors, cls.__name__) is cls


@ERRORS
def test_an_error_is_in_the_module_of_its_hundred(cls: type[BartackError]) -> None:
    names = [
        "_core",
        "_journal",
        "_run",
        "_messaging",
        "_supervision",
        "_patchwork",
        "_resilience",
        "_agent",
        "_pipeline",
        "_usage",
    ]
    home = names[int(cls.code[2:]) // 100 - 1] if cls is not BartackError else "_root"

    assert vars(import_module(f"bartack.errors.{home}"))[cls.__name__] is cls


def test_facts_are_bound_like_the_arguments_of_a_function() -> None:
    assert errors.RunNotFoundError("r").near == ()
    assert errors.RunNotFoundError("r", wanted="w", near=("n",)).wanted == "w"
    assert errors.ProgramImportError("p", "broken", place="p.py:1").message == "p.py:1: broken"


@pytest.mark.parametrize(
    ("given", "named", "problem"),
    [
        ((), {}, "missing ['program', 'problem']"),
        (("p",), {}, "missing ['problem']"),
        (("p", "q", "r"), {}, "unexpected ['r']"),
        (("p", "q"), {"problem": "r"}, "unexpected ['problem']"),
        (("p", "q"), {"other": "r"}, "unexpected ['other']"),
    ],
)
def test_wrong_arguments_are_refused(given: tuple[str, ...], named: dict[str, str], problem: str) -> None:
    with pytest.raises(TypeError, match=re.escape(problem)):
        errors.ProgramImportError(*given, **named)


def test_help_shows_the_facts_that_an_error_takes() -> None:
    shown = str(inspect.signature(errors.HubStoppedError))

    assert shown == "(run_id: 'str', pid: 'int', asked: 'str' = '')"
    assert str(inspect.signature(errors.RunError)) == "(message: 'str') -> 'None'"


def test_an_error_of_a_program_takes_a_message_and_keeps_its_module() -> None:
    class OwnError(errors.RunNotActiveError):
        where: str

        def __init__(self, where: str) -> None:
            super().__init__("run-1", "failed")
            self.where = where

    class PlainError(errors.RunError):
        where: str = ""

    assert str(PlainError("what happened")) == "what happened"
    assert (str(OwnError("here")), OwnError("here").where) == ("run-1 is not active (failed)", "here")
    assert {OwnError.__module__, PlainError.__module__} == {__name__}
    assert OwnError.code == "BT304"


def test_a_remedy_is_kept_only_where_it_differs_from_that_of_the_class() -> None:
    assert vars(errors.NotInWorkerError("f")).keys() == {"name", "problem", "message"}
    assert errors.NotInWorkerError("f", remedy="").remedy == errors.NotInWorkerError.remedy
    assert vars(errors.NotInWorkerError("f", remedy="Do that."))["remedy"] == "Do that."


def test_unpickling_does_not_call_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = pickle.dumps(JournalCorruptError("journal.ndjson", 17, "checksum does not match"))

    def refuse(*_: object) -> None:
        pytest.fail("the constructor was called")

    monkeypatch.setattr(JournalCorruptError, "__init__", refuse)
    revived: JournalCorruptError = pickle.loads(frozen)  # noqa: S301 - our own bytes

    assert revived.offset == 17


@ERRORS
@pytest.mark.requirement("remedies-are-harmless")
def test_nothing_an_error_says_suggests_a_destructive_command(cls: type[BartackError]) -> None:
    said = f"{example(cls)}\n{cls.remedy}\n{cls.__doc__}"

    assert DESTRUCTIVE.search(said) is None


@pytest.mark.parametrize(
    "text", ["rm -r runs", "kill 17", "kill -9 17", "run it with --force", "Delete the journal.", "git clean"]
)
def test_the_search_for_destructive_commands_finds_them(text: str) -> None:
    assert DESTRUCTIVE.search(text)


def test_errors_are_listed_by_number_without_classes_from_elsewhere() -> None:
    class ForeignError(BartackError):
        """Not one of ours."""

        code = "BT999"

    listed = iter_errors()

    assert ForeignError not in listed
    numbers = [int(cls.code[2:]) for cls in listed]
    assert numbers == sorted(numbers)
    assert numbers[0] == 100


def test_a_poisoned_journal_repeats_its_first_error_as_a_fresh_one() -> None:
    first = JournalFullError("journal.ndjson", "no space left")

    again = JournalFullError.again(first)

    assert again is not first
    assert (type(again), again.path, again.problem) == (JournalFullError, "journal.ndjson", "no space left")


def test_an_agent_without_a_name_is_just_the_agent() -> None:
    assert errors.ReplyInvalidError("", "no number", "one").message == "the agent: no number; it replied: one"
    assert errors.ReplyInvalidError("team", "no number", "one").message.startswith("agent 'team': no number")

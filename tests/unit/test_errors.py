from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Sequence
from typing import NamedTuple, cast

import pytest

from bartack import errors
from bartack.errors import BartackError, JournalCorruptError, JournalFullError, iter_errors

ERRORS = pytest.mark.parametrize("cls", iter_errors(), ids=lambda cls: cls.__name__)

SAMPLES: dict[str, object] = {
    "str": "a fact",
    "bool": True,
    "object": {"any": "fact"},
    "int": 17,
    "int | None": 17,
    "float": 2.5,
    "float | None": 2.5,
    "str | None": "another fact",
    "tuple[str, ...]": ("one", "two"),
    "list[str]": ["one", "two"],
    "dict[str, object] | None": {"some": "fact"},
}

DESTRUCTIVE = re.compile(
    r"\b(rm|rmdir|unlink|del|delete|remove|purge|erase|wipe|destroy|drop|truncate|overwrite|discard|reset|kill(?! -CONT)|clean)\b"
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
    return cls(**{name: SAMPLES[str(fact.annotation)] for name, fact in facts_of(cls).items()})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - chosen by annotation


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

    for name, fact in facts_of(cls).items():
        value = SAMPLES[str(fact.annotation)]
        assert getattr(error, name) == value
        told = cast("Sequence[object]", value) if isinstance(value, tuple | list) else (value,)
        if fact.annotation in {"object", "bool"}:
            continue  # a whole outcome: the message tells it in words
        assert all(str(part) in str(error) for part in told)


@ERRORS
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.requirement("facts-are-attributes")
def test_an_error_survives_pickling_with_all_its_facts(cls: type[BartackError], protocol: int) -> None:
    error = example(cls)
    error.add_note("seen in a worker")

    revived: BartackError = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes

    assert type(revived) is cls
    assert (str(revived), revived.args, vars(revived)) == (str(error), error.args, vars(error))


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

"""Texts that want to be read as code. They stand in every place a value can have in a form, and nothing ever happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.unit.supervision.form_keeper import FormKeeper, captured, form, run, words

from bartack.runtime.patchwork._forms import unsafe_form
from bartack.supervision.forms import Bare, Form, Group, Pipeline, Redirect, SimpleCommand, Word

PAYLOADS = msgspec.json.decode(Path(__file__).with_name("injections.json").read_bytes(), type=list[str])


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FormKeeper]:
    with FormKeeper(tmp_path_factory.mktemp("keeper")) as keeper:
        yield keeper


def joined(joint: Literal["&&", "||"], commands: list[SimpleCommand | Group]) -> Form:
    return Form(Pipeline(commands[:1]), [(joint, Pipeline([one])) for one in commands[1:]])


def inside(text: str) -> Word:
    return [Bare("a"), text, Bare("?b")]


def read_from(name: str) -> SimpleCommand:
    return SimpleCommand(words(":"), redirects=[Redirect(0, "<", [name])])


PLACES: dict[str, Callable[[list[str]], Form]] = {
    "argument": lambda texts: form(run("echo", *texts)),
    "part of an argument": lambda texts: form(run("echo", *map(inside, texts))),
    "pipeline": lambda texts: form(run("echo", *texts), run("tr", *texts[:2]), run("cat")),
    "list": lambda texts: joined("||", [run("false", *texts), run("echo", *texts)]),
    "group": lambda texts: form(Group(joined("&&", [run("true", *texts), run("echo", *texts)])), run("cat")),
    "form inside a word": lambda texts: form(run("echo", captured(run("echo", *texts)))),
    "program": lambda texts: joined("||", [run(text) for text in texts]),
    "directory": lambda texts: joined("||", [run("cd", text) for text in texts]),
    "name to find": lambda texts: joined("||", [run("command", "-v", text) for text in texts]),
    "file": lambda texts: joined("||", [read_from(text) for text in texts]),
    "variable": lambda texts: form(
        SimpleCommand(words("env"), env=[(f"V{n}", [text]) for n, text in enumerate(texts)]), run("cat")
    ),
}


def test_there_are_enough_of_them() -> None:
    assert len(set(PAYLOADS)) >= 200


@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_never_code(keeper: FormKeeper, tmp_path: Path, place: str) -> None:
    done = keeper.run(PLACES[place](PAYLOADS), tmp_path)

    assert done.status in {0, 1, 127}
    assert os.listdir(tmp_path) == []


def test_the_canary_sings_when_a_shell_reads_one(keeper: FormKeeper, tmp_path: Path) -> None:
    keeper.run(unsafe_form(f"echo x{PAYLOADS[0]}"), tmp_path)

    assert os.listdir(tmp_path) == ["canary"]

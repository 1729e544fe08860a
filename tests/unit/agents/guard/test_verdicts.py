"""What the guard decides about several hundred commands, each of which is in ``verdicts.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agents.guard.project import Project, make_project

TABLE: dict[str, dict[str, list[str]]] = tomllib.loads(
    (Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8")
)


def rows() -> Iterator[tuple[str, str]]:
    for section in TABLE.values():
        for wanted, commands in section.items():
            yield from ((wanted, command) for command in commands)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("guard"))


@pytest.mark.requirement("guard-denies-destruction")
@pytest.mark.parametrize(("wanted", "command"), list(rows()), ids=lambda value: repr(value)[:60])
def test_every_command_of_the_table_has_its_verdict(project: Project, wanted: str, command: str) -> None:
    verdict = project.judge(command)

    assert f"{verdict.decision} {verdict.rule}".strip() == wanted


@pytest.mark.parametrize("command", [command for wanted, command in rows() if wanted == "ask unparsed"])
def test_where_no_person_can_be_asked_what_cannot_be_read_is_denied(project: Project, command: str) -> None:
    assert project.judge(command, strict=True).decision == "deny"

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.cli.app._app import COMMANDS
from bartack.cli.app._exit import MEANINGS
from bartack.cli.app._reference import PAGES, main
from bartack.errors import iter_errors

DOCS = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_says_what_the_code_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(name)

    hint = f"python -m bartack.cli.app._reference {name} > docs/reference/{name}.md"
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == capsys.readouterr().out, hint


def test_the_page_of_commands_has_every_command_and_exit_code() -> None:
    page = PAGES["cli"]()

    assert [listed.name for listed in COMMANDS if f"\n### bartack {listed.name}\n" not in page] == []
    assert "\n### bartack journal show\n" in page
    assert [code for code in MEANINGS if f"| {code:d} | " not in page] == []


def test_the_page_of_errors_has_every_error() -> None:
    page = PAGES["errors"]()

    assert [kind for kind in iter_errors() if f"\n### {kind.code} {kind.__name__}\n" not in page] == []

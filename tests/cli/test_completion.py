from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_says_how_to_install_it(call: Call, shell: str) -> None:
    shown = call("completion", shell)

    assert shown.returncode == 0
    first = shown.stdout.splitlines()[0]
    assert first.startswith("# ")
    assert f"bartack completion {shell}" in first
    assert "_BARTACK_COMPLETE" in shown.stdout


def test_the_script_is_valid_bash(call: Call) -> None:
    script = call("completion", "bash").stdout

    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=120)


def completed(run: Call, *words: str) -> list[str]:
    line = ["bartack", *words]
    asked = run(_BARTACK_COMPLETE="bash_complete", COMP_WORDS=" ".join(line), COMP_CWORD=str(len(line) - 1))
    assert asked.returncode == 0
    return [item.partition(",")[2] for item in asked.stdout.split()]


def test_a_shell_is_told_the_commands_and_options(run: Call) -> None:
    assert completed(run, "do") == ["doctor"]
    assert completed(run, "journal", "") == ["show", "verify", "export"]
    assert "--follow" in completed(run, "journal", "show", "--")

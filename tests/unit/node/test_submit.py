"""Which variables of a terminal are kept with a run that is queued there."""

from __future__ import annotations

from bartack.core.redact import SecretRule
from bartack.node import kept_environment


def test_variables_are_kept_except_secrets_those_of_the_terminal_and_those_of_a_run_around_it() -> None:
    environ = {
        "PATH": "/bin",
        "TERM": "xterm",
        "TMUX": "x",
        "A_TOKEN": "secret",
        "MINE": "secret",
        "OPEN_KEY": "public",
        "BARTACK_RUN": "run-1",
        "BARTACK_STEP_TOKEN": "t",
        "BARTACK_BUDGET_USD": "5",
        "BARTACK_STATE_DIR": "state",
    }

    kept, left_out = kept_environment(environ, SecretRule(names=("MINE",), exempt=("OPEN_KEY",)))

    assert kept == {
        "PATH": "/bin",
        "OPEN_KEY": "public",
        "BARTACK_BUDGET_USD": "5",
        "BARTACK_STATE_DIR": "state",
    }
    assert left_out == ["A_TOKEN", "BARTACK_STEP_TOKEN", "MINE"]

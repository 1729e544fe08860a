"""Secrets of the workspace are nowhere in what the server sends, whichever field they are in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.web.hostile import below, fill
from tests.web.journals import RUN, finished, written_run
from tests.web.live import run, serve
from tests.web.sites import make_site

from bartack.core.redact import Redactor
from bartack.runtime.protocol.step_key import step_key
from bartack.web._hide import CUT_BYTES, Hider
from bartack.web.models._run import RunRow

SECRET = "hunter2-correct-horse"  # noqa: S105 - it guards nothing


@pytest.mark.requirement("web-hides-secrets")
def test_a_secret_of_the_environment_is_in_no_answer_and_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", SECRET)

    async def look() -> None:
        with written_run(tmp_path) as writer:
            fill(writer, SECRET)
            seq = writer.write(finished(9), value="x" * CUT_BYTES + SECRET)
            async with serve(make_site(tmp_path)) as served:
                key = step_key(RUN, "main", 2, 0)
                letters = (await served.get(f"/api/v1/runs/{RUN}/letters")).json
                paths = [
                    *below(tmp_path),
                    f"/talk/{key}",
                    f"/talk/ik:{'0' * 64}",
                    f"/talk/ik:{'0' * 64}?raw=true",
                    f"/letters/{letters[0]['id']}",
                    "/step?p=main&n=2",
                    "/step?p=main&n=3",
                    f"/value/{seq}",
                    f"/value/{seq}?download=true",
                ]
                for path in paths:
                    answer = await served.get(f"/api/v1/runs/{RUN}{path}")
                    assert answer.status == 200, (path, answer.body[:300])
                    assert SECRET.encode() not in answer.body, path
                for path in ("/api/v1/runs", "/api/v1/questions"):
                    assert SECRET.encode() not in (await served.get(path)).body, path
                for query in ("since=4", "since=4&view=steps", f"view=talk&talk=ik:{'0' * 64}"):
                    async with served.stream(f"/api/v1/runs/{RUN}/events?{query}") as reader:
                        await reader.next()
                        events = [await reader.next()]
                        while "since" in query and events[-1].name != "bars":
                            events.append(await reader.next())
                        assert SECRET not in str([event.data for event in events])
                        assert "$env:SHOP_TOKEN" in str([event.data for event in events])
                shutil.rmtree(writer.run.agents)

    run(look)


@pytest.mark.requirement("web-hides-secrets")
def test_a_secret_in_the_settings_of_tests_is_hidden_too(tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text(f'[tests]\nenv = {{ API_KEY = "{SECRET}" }}\n')

    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.write(finished(1, about=f"curl {SECRET}"), value=SECRET)
            async with serve(make_site(tmp_path)) as served:
                for path in ("/steps", "/step?p=main&n=1", "/entries"):
                    answer = await served.get(f"/api/v1/runs/{RUN}{path}")
                    assert SECRET.encode() not in answer.body
                    assert b"$env:API_KEY" in answer.body

    run(look)


def test_words_of_ours_are_never_taken_for_secrets() -> None:
    hider = Hider(Redactor({"MY_TOKEN": "completed"}))

    shown = hider.hide(RunRow(run="run-1", status="completed", error="it completed"))
    assert (shown.status, shown.error) == ("completed", "it $env:MY_TOKEN")


def test_numbers_that_look_like_a_secret_stay_numbers() -> None:
    hider = Hider(Redactor({"PIN_KEY": "123456789"}))

    shown = hider.hide(RunRow(run="run-1", status="completed", created_at=123456789, project="123456789"))
    assert (shown.created_at, shown.project) == (123456789, "$env:PIN_KEY")


def test_halves_of_characters_become_text() -> None:
    hider = Hider(Redactor({"MY_TOKEN": "a secret of ours"}))

    shown = hider.hide(
        RunRow(run="run-1", status="completed", ws="/tmp/\udcff", error="\ud800 a secret of ours")
    )
    assert (shown.ws, shown.error) == ("/tmp/\\xff", "? $env:MY_TOKEN")


def test_a_secret_across_the_cut_of_a_long_value_is_hidden() -> None:
    hider = Hider(Redactor({"MY_TOKEN": SECRET}))
    encoded = b'"' + b"x" * (CUT_BYTES - 10) + SECRET.encode() + b"y" * 100 + b'"'

    shown = hider.show(encoded)
    assert shown.cut
    assert SECRET[:9] not in shown.text

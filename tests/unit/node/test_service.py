"""The files of the service: what is in them, how odd paths are written, and whose they are."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bartack.errors import ServiceError
from bartack.node._service import MARK, Service, describe_service, quote_unit

ENVIRON = {"PATH": "/usr/local/bin:relative:/usr/bin", "HOME": "/ann", "API_TOKEN": "hunter2", "LANG": "de"}


def linux(executable: str = "/usr/bin/python3", environ: Mapping[str, str] = ENVIRON) -> Service:
    return describe_service("linux", executable, environ, Path("/log"), 1000)


def mac(executable: str = "/usr/bin/python3") -> Service:
    return describe_service("darwin", executable, ENVIRON, Path("/a b/log"), 501)


@pytest.mark.requirement("service-file-is-plain")
def test_the_unit_runs_this_interpreter_with_the_path_of_the_terminal_and_no_secret() -> None:
    lines = linux().text.splitlines()

    assert lines[0] == MARK
    assert "ExecStart=/usr/bin/python3 -P -s -m bartack node run" in lines
    assert "Environment=PATH=/usr/local/bin:/usr/bin" in lines
    assert "Environment=LANG=de" in lines
    assert {"Type=simple", "Restart=on-failure", "KillMode=mixed", "TimeoutStopSec=90"} <= set(lines)
    assert "WantedBy=default.target" in lines
    assert "hunter2" not in linux().text
    assert "HOME" not in linux().text


def test_the_unit_is_where_systemd_looks_for_units_of_users() -> None:
    named = linux(environ={**ENVIRON, "XDG_CONFIG_HOME": "/ann/config"})

    assert named.path == Path("/ann/config/systemd/user/bartack-node.service")
    assert linux().path == Path("~/.config/systemd/user/bartack-node.service").expanduser()
    assert linux(environ={"XDG_CONFIG_HOME": "relative"}).path == linux().path
    assert "Environment=XDG_CONFIG_HOME=/ann/config" in named.text


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("", '""'),
        ("a b", '"a b"'),
        ("100%", '"100%%"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("it's; #1", '"it\'s; #1"'),
        ("line\nbreak", '"line\\x0abreak"'),
        ("füße", '"füße"'),
    ],
)
def test_a_word_of_a_unit_is_quoted(text: str, quoted: str) -> None:
    assert quote_unit(text) == quoted


def test_a_path_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ServiceError, match="not valid UTF-8"):
        linux(os.fsdecode(b"/caf\xe9/python"))


@pytest.mark.requirement("service-file-is-plain")
@pytest.mark.parametrize("folder", ["plain", "with space", "100%h", "pay $HOME $$ ${X}", "a=b;c#d", "füße"])
def test_systemd_finds_the_interpreter_wherever_it_is(tmp_path: Path, folder: str) -> None:
    unit, python = installed(tmp_path, folder)

    good = verify(unit)
    python.unlink()
    bad = verify(unit)

    assert (good.returncode, good.stderr) == (0, "")
    # systemd has looked for it at the right place: there it is not any more.
    assert bad.returncode != 0
    assert str(python) in bad.stderr


@pytest.mark.requirement("service-file-is-plain")
@pytest.mark.parametrize("folder", ['a "quoted" $one', "it's", "a\\b", "line\nbreak"])
def test_an_interpreter_that_systemd_refuses_to_name_is_started_by_env(tmp_path: Path, folder: str) -> None:
    unit, python = installed(tmp_path, folder)

    good = verify(unit)

    assert (good.returncode, good.stderr) == (0, "")
    quoted = quote_unit(str(python).replace("$", "$$"))
    assert f"ExecStart=/usr/bin/env {quoted} -P -s -m bartack node run" in unit.read_text()


def test_an_interpreter_that_neither_can_start_is_refused() -> None:
    with pytest.raises(ServiceError, match="in another directory"):
        linux("/it's/a=b/python3")


def installed(place: Path, folder: str) -> tuple[Path, Path]:
    """A unit for an interpreter in an odd place."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT CHECKED: systemd-analyze is not installed, so no unit was verified")
    python, unit = place / folder / "python3", place / "bartack-node.service"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    unit.write_text(linux(str(python), {"PATH": f"/bin:/100%:/{folder}"}).text)
    return unit, python


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(unit.parent), "XDG_RUNTIME_DIR": str(unit.parent)},
    )


def test_the_agent_of_launchd_starts_at_login_and_again_after_a_crash() -> None:
    agent = plistlib.loads(mac("/a b/<python>").text.encode())

    assert agent["ProgramArguments"] == ["/a b/<python>", "-P", "-s", "-m", "bartack", "node", "run"]
    assert agent["RunAtLoad"] is True
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["EnvironmentVariables"] == {"PATH": "/usr/local/bin:/usr/bin", "LANG": "de"}
    assert agent["StandardErrorPath"] == "/a b/log"
    assert mac().path.name == "bartack.node.plist"
    assert mac().enable[0][:3] == ("launchctl", "bootstrap", "gui/501")


@pytest.mark.parametrize("service", [linux(), mac()], ids=["systemd", "launchd"])
def test_a_file_of_another_origin_is_not_ours(service: Service) -> None:
    assert service.is_own(service.text)
    assert not service.is_own("")
    assert not service.is_own("[Service]\nExecStart=/bin/true\n")
    assert not service.is_own("<plist><dict/></plist>")
    assert not service.is_own(plistlib.dumps({"Label": "other"}).decode())
    assert not service.is_own("<!DOCTYPE")


def test_other_systems_have_no_service() -> None:
    with pytest.raises(ServiceError, match="neither systemd nor launchd"):
        describe_service("freebsd14", "/usr/bin/python3", {}, Path("/log"), 0)

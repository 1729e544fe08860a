"""Which remotes may be used by other machines, and how branches get there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.copies.places import Host, git, make_repository

from bartack.errors import WorkspaceKeepError, WorkspaceRemoteError
from bartack.runtime.copies import _repository
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._home import make_home
from bartack.runtime.copies.remotes import Pushed, check_url, find_url, push_commits

AT_S = 1_700_000_000


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository with a hook."""
    place = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", "--template=", str(place))
    for name in ("pre-receive", "update", "post-receive"):
        hook = place / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
        hook.chmod(0o755)
    return place


@pytest.mark.requirement("remotes-are-plain")
@pytest.mark.parametrize(
    ("url", "carried"),
    [
        ("https://host/a.git", "https://host/a.git"),
        ("https://me@host:8443/a b.git", "https://host:8443/a b.git"),
        ("ssh://git@host:2222/a.git", "ssh://git@host:2222/a.git"),
        ("ssh://[::1]/a.git", "ssh://[::1]/a.git"),
        ("git@host:team/a.git", "git@host:team/a.git"),
        ("host:/srv/a.git", "host:/srv/a.git"),
        ("file:///srv/a.git", "file:///srv/a.git"),
        ("/srv/a b.git", "file:///srv/a%20b.git"),
        ("../a.git", "file:///top/a.git"),
    ],
)
def test_the_url_of_a_remote_travels_without_what_is_the_users_own(url: str, carried: str) -> None:
    assert check_url(url, Path("/top/here"), "origin") == carried


@pytest.mark.requirement("remotes-are-plain")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "-oProxyCommand=touch started",
        "--upload-pack=touch started",
        "ext::sh -c 'touch started'",
        "fd::7",
        "https::https://host/a",
        "http://host/a.git",
        "git://host/a.git",
        "ftp://host/a.git",
        "HTTPS+x://host/a",
        "https://me:hunter2@host/a.git",
        "https://:hunter2@host/a.git",
        "ssh://me:hunter2@host/a.git",
        "https://host/a.git?key=hunter2",
        "https://host/a.git#hunter2",
        "https:///a.git",
        "https://host:port/a.git",
        "ssh://-oProxyCommand=x/a.git",
        "ssh://-l@host/a.git",
        "-host:a.git",
        "host:-a.git",
        "me:hunter2@host:a.git",
        "file://host/a.git",
        "https://host/a\nb",
    ],
)
def test_a_url_that_is_a_command_or_has_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(WorkspaceRemoteError) as caught:
        check_url(url, Path("/top/here"), "origin")

    assert "hunter2" not in str(caught.value)


def test_the_url_for_pushing_comes_before_the_other_one(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "repository")
    git(place, "remote", "add", "origin", "https://host/a.git")
    git(place, "config", "remote.both.url", "https://host/b.git")
    git(place, "config", "remote.both.pushurl", "https://host/c.git")

    assert find_url(place, "origin", pushes=True) == "https://host/a.git"
    assert find_url(place, "both", pushes=True) == "https://host/c.git"
    assert find_url(place, "both") == "https://host/b.git"
    with pytest.raises(WorkspaceRemoteError, match="no such remote"):
        find_url(place, "upstream")
    with pytest.raises(WorkspaceRemoteError, match="not in a git repository"):
        find_url(tmp_path, "origin")


def _work(here: Host, there: Host) -> tuple[str, str]:
    """A run that has made a file and a commit elsewhere; its first copy and its last one, which both have."""
    make_repository(here.workspace)
    base = here.copies.take(here.sources, "").commit
    here.send(there, base)
    (there.workspace / "made.txt").write_text("by an agent\n")
    git(there.workspace, "branch", "side")
    git(there.workspace, "commit", "--quiet", "--allow-empty", "-m", "on main")
    last = there.copies.take(there.sources, base).commit
    here.copies.add_pack(there.copies.pack(last, base))
    return base, last


def push_main(host: Host, remote: Path, branch: str) -> None:
    """As a person does, without the hooks of the remote."""
    program = "--receive-pack=git -c core.hooksPath=/ receive-pack"
    git(host.workspace, "push", "--quiet", program, str(remote), f"main:{branch}")


@pytest.mark.requirement("fleet-push")
@pytest.mark.requirement("fleet-push-once")
def test_branches_that_were_pushed_before_stay_as_they_are(
    here: Host, there: Host, remote: Path, tmp_path: Path
) -> None:
    base, last = _work(here, there)

    first = there.copies.publish(last, f"file://{remote}", "run-1", base, AT_S)
    refs = git(remote, "for-each-ref")
    second = here.copies.publish(last, f"file://{remote}", "run-1", base, AT_S)

    names = ("bartack/run-1/workspace", "bartack/run-1/heads/main", "bartack/run-1/heads/side")
    assert first == second == Pushed(names, ())
    assert git(remote, "for-each-ref") == refs, "another machine has made the same commits"
    assert git(remote, "show", f"{names[0]}:made.txt") == "by an agent"
    assert git(remote, "log", "-1", "--format=%at %ct", names[0]) == f"{AT_S} {AT_S}"
    assert git(remote, "rev-parse", f"{names[0]}~") == git(there.workspace, "rev-parse", "main")
    assert not (tmp_path / "started").exists(), "hooks are not executed"
    assert not there.copies.directory.with_name("push.git").exists()


def test_a_branch_that_has_other_commits_is_left_alone(here: Host, there: Host, remote: Path) -> None:
    base, last = _work(here, there)
    taken = "bartack/run-1/workspace"
    git(here.workspace, "commit", "--quiet", "--allow-empty", "-m", "of a person")
    push_main(here, remote, taken)
    before = git(remote, "rev-parse", taken)

    pushed = there.copies.publish(last, f"file://{remote}", "run-1", base, AT_S)

    assert git(remote, "rev-parse", taken) == before
    assert [refused.partition(":")[0] for refused in pushed.refused] == [f"refs/heads/{taken}"]
    assert taken not in pushed.branches
    assert len(pushed.branches) == 2


def test_a_copy_without_the_history_is_pushed_on_top_of_it(
    here: Host, there: Host, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_repository, "AUTO_BYTES", -1)
    make_repository(here.workspace)
    git(here.workspace, "commit", "--quiet", "--allow-empty", "-m", "second")
    git(here.workspace, "commit", "--quiet", "--allow-empty", "-m", "third")
    push_main(here, remote, "main")
    git(here.workspace, "reset", "--quiet", "--hard", "HEAD~")
    base = here.copies.take(here.sources, "").commit
    here.send(there, base)
    (there.workspace / "made.txt").write_text("by an agent\n")
    last = there.copies.take(there.sources, base).commit

    pushed = there.copies.publish(last, f"file://{remote}", "run-1", base, AT_S)

    assert pushed == Pushed(("bartack/run-1/workspace",), ())
    assert git(remote, "log", "--format=%s", pushed.branches[0]).splitlines()[1:] == ["second", "begin"]


@pytest.mark.requirement("remotes-are-plain")
@pytest.mark.parametrize("url", ["ext::touch started", "git://127.0.0.1:1/a", "http://127.0.0.1:1/a"])
def test_git_refuses_every_other_way_by_itself(url: str, tmp_path: Path) -> None:
    own = PlainGit(make_home(tmp_path / "own.git"))

    with pytest.raises(WorkspaceRemoteError):
        push_commits(own, url, {"main": "0" * 40})
    for words in (("push", url, ":main"), ("fetch", url), ("ls-remote", url)):
        with pytest.raises(WorkspaceKeepError, match="not allowed"):
            own.online().run(words)

    assert not (own.directory / "started").exists()


def test_a_repository_that_cannot_be_reached_is_a_problem_that_may_pass(
    here: Host, there: Host, tmp_path: Path
) -> None:
    base, last = _work(here, there)

    with pytest.raises(WorkspaceKeepError, match="nowhere") as caught:
        there.copies.publish(last, f"file://{tmp_path}/nowhere", "run-1", base, AT_S)

    assert caught.value.retryable

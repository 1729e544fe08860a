"""What keeps a run of the pipeline from being done is found before anything is paid for."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.config.load import Config, load_config
from bartack.pipeline.ready import find_obstacles

Prepare = Callable[[Path], object]


def config_of(workspace: Path, text: str) -> Config:
    (workspace / "bartack.toml").write_text(text)
    return load_config(workspace, environ={})


def obstacles(workspace: Path, text: str, environ: dict[str, str] | None = None) -> list[tuple[str, str]]:
    config = config_of(workspace, text)
    known = {"PATH": os.environ["PATH"]} if environ is None else environ
    return [(found.setting, found.problem) for found in find_obstacles(config, workspace, known, [])]


def nothing(workspace: Path) -> None:
    """The workspace is as it is."""


def link(name: str, target: str) -> Prepare:
    return lambda workspace: (workspace / name).symlink_to(target)


def touch(name: str, mode: int = 0o644) -> Prepare:
    def make(workspace: Path) -> None:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("text")
        (workspace / name).chmod(mode)

    return make


def git(*lines: str) -> Prepare:
    def make(workspace: Path) -> None:
        subprocess.run(["git", "init", "--quiet"], cwd=workspace, check=True, timeout=60)
        (workspace / ".gitignore").write_text("\n".join(lines))
        (workspace / "SPEC.md").write_text("# Spec\n")

    return make


@pytest.mark.requirement("check-finds-what-cannot-work")
@pytest.mark.parametrize(
    ("text", "setting", "told", "prepare"),
    [
        ('spec.file = "/etc/hosts"', "spec.file", "absolute", nothing),
        ('spec.file = "../SPEC.md"', "spec.file", "'..'", nothing),
        ('spec.file = "out.md"', "spec.file", "leads out", link("out.md", "/etc/hosts")),
        ('spec.file = "in.md"', "spec.file", "symbolic link", link("in.md", "bartack.toml")),
        ('spec.file = "docs/a.md"', "spec.file", "symbolic link", link("docs", ".")),
        ('spec.file = "./SPEC.md"', "spec.file", "write 'SPEC.md'", nothing),
        ('spec.file = "docs"', "spec.file", "not a file", touch("docs/x")),
        ('snapshot.exclude = ["*.md"]', "spec.file", "snapshot.exclude", nothing),
        ("", "spec.file", "git ignores it", git("SPEC.md")),
        ('snapshot.source = "git"', "snapshot.source", "no git repository", nothing),
        ('snapshot.roots = ["gone"]', "snapshot.roots[0]", "no directory", nothing),
        ('snapshot.roots = [".", "../x"]', "snapshot.roots[1]", "not inside", nothing),
        ("parallel.tasks = 2", "parallel.tasks", "repository", nothing),
        ("parallel.tasks = 2", "parallel.tasks", "no commit yet", git()),
        ('tests.command = ["no-such-program"]', "tests.command", "not found in PATH", nothing),
        ('tests.command = ["./run"]', "tests.command", "not there", nothing),
        ('tests.command = ["./run"]', "tests.command", "not executable", touch("run")),
        ('tests.command = ["./run"]', "tests.command", "not a file", touch("run/x")),
        ('tests.command = ["", "x"]', "tests.command", "empty", nothing),
        ('tests.command = "no-such-program --all"', "tests.command", "not found in PATH", nothing),
        ('tests.mode = "command"', "tests.command", "there is none", nothing),
        ('tests = {command = ["ls"], env = {PATH = "/gone"}}', "tests.command", "not found", nothing),
        ('pipeline.roles.builder = "eve"', "pipeline.roles.builder", "no agent 'eve'", nothing),
        ('pipeline.prompts.review = "gone.txt"', "pipeline.prompts.review", "cannot be read", nothing),
        ('agents.ann.script = "gone.toml"', "agents.ann.script", os.strerror(errno.ENOENT), nothing),
        ('state_dir = "."', "state_dir", "the workspace itself", nothing),
        ('state_dir = "bartack.toml/x"', "state_dir", "not a directory", nothing),
    ],
)
def test_a_setting_that_cannot_work_is_found(
    tmp_path: Path, text: str, setting: str, told: str, prepare: Prepare
) -> None:
    prepare(tmp_path)

    found = obstacles(tmp_path, text)

    assert [name for name, _ in found] == [setting]
    assert told in found[0][1]


@pytest.mark.parametrize(
    "command",
    [
        '["./run", "x"]',
        '"./run x"',
        '"true"',
        '"A=1 no-such-program"',
        '"cd sub && no-such-program"',
        '"hash no-such-program && no-such-program"',
        '"readonly A=1; no-such-program"',
        '"$RUNNER x"',
        '"if no-such-program; then true; fi"',
    ],
)
def test_a_test_command_is_refused_only_if_it_is_plain_that_it_cannot_run(
    tmp_path: Path, command: str
) -> None:
    touch("run", 0o755)(tmp_path)

    assert obstacles(tmp_path, f"tests.command = {command}") == []


def test_git_that_is_missing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    found = obstacles(tmp_path, 'snapshot.source = "git"\nparallel.tasks = 2\n')

    assert [name for name, _ in found] == ["snapshot.source", "parallel.tasks"]
    assert "not installed" in found[1][1]


def test_git_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho git version 2.37.1\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = obstacles(tmp_path, "parallel.tasks = 2\n")

    assert [name for name, _ in found] == ["parallel.tasks"]
    assert "need version 2.38 or newer" in found[0][1]


def test_every_setting_that_cannot_work_is_found_at_once(tmp_path: Path) -> None:
    found = obstacles(
        tmp_path,
        """
        spec.file = "/x"
        tests.command = ["gone"]
        parallel = {tasks = 2, setup = ["./gone"]}
        tasks = [
          {id = "a", goal = "g", depends_on = ["b", "c"]}, {id = "b", goal = "g", depends_on = ["a"]},
          {id = "d", goal = "g"}, {id = "d", goal = "g"},
        ]
        """,
    )

    assert [name for name, _ in found] == [
        "tasks[0].depends_on[1]",
        "tasks[3].id",
        "tasks[0].depends_on",
        "tests.command",
        "spec.file",
        "parallel.tasks",
        "parallel.setup",
    ]
    assert found[2][1] == "these tasks depend on each other: a, b"


def test_what_is_there_is_no_obstacle(tmp_path: Path) -> None:
    git()(tmp_path)
    touch("bin/test", 0o755)(tmp_path)

    assert (
        obstacles(tmp_path, 'state_dir = "kept"\ntests.command = ["bin/test"]\nsnapshot.source = "git"') == []
    )


def test_agents_are_looked_at_for_the_roles_that_are_needed(tmp_path: Path) -> None:
    text = '[agents.ann]\ncommand = "gone"\nroles = ["builder"]\n[agents.bob]\ncommand = "gone"\n'
    config = config_of(tmp_path, text)

    found = find_obstacles(config, tmp_path, {"PATH": ""}, ["builder", "reviewer"])

    assert [one.setting for one in found] == ["pipeline.roles.reviewer", "agents.ann.command"]

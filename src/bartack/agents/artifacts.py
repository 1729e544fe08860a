"""Files that agents say they have left: which paths they may have, and whether what is there is what they say."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from typing import Final

from bartack.agents.contract import AgentRequest, Rejection, Verdict, VerifiedArtifact
from bartack.agents.protocol._flaws import first_few
from bartack.agents.protocol.messages import Artifact
from bartack.core.paths import safe_join
from bartack.errors import UnsafePathError

MAX_BYTES: Final = 1024 * 1024 * 1024
LONGEST_PATH: Final = 1024
CHUNK: Final = 1024 * 1024
NEVER: Final = (".git", ".bartack")
"""No agent leaves anything below these."""


def check_path(root: str, path: str, refused: Sequence[str] = ()) -> str:
    """The absolute path of a file below ``root``, with every symbolic link resolved.

    Raises:
        UnsafePathError: It leads out of ``root``, or into a part of it that is not for agents.
    """
    if len(path.encode("utf-8", "surrogatepass")) > LONGEST_PATH:
        raise UnsafePathError(path[:80], f"it has more than {LONGEST_PATH} bytes")
    if any(part in {"", "."} for part in path.split("/")):
        raise UnsafePathError(path, "it has an empty or '.' part")
    joined = safe_join(root, path)
    real_root = os.path.realpath(root)
    inside = os.path.relpath(os.path.realpath(joined), real_root)
    for place in (*NEVER, *refused):
        for found in (path, inside):
            if found == place or found.startswith(f"{place.rstrip('/')}/"):
                raise UnsafePathError(path, f"agents must not use {place}")
    return os.path.join(real_root, inside)


def open_artifact(root: str, path: str, refused: Sequence[str] = ()) -> int:
    """Open a file below ``root`` for reading; returns the descriptor. Nothing that happens meanwhile leads out of ``root``.

    Raises:
        UnsafePathError: See ``check_path``.
        OSError: The operating system refused, or a symbolic link has appeared on the way.
    """
    real = check_path(root, path, refused)
    # Every link is resolved: one that appears now is not followed.
    return _open_resolved(os.path.realpath(root), real)


def verify_artifacts(
    request: AgentRequest, artifacts: Sequence[Artifact], *, max_bytes: int = MAX_BYTES
) -> Verdict:
    """Verify the files of an answer, and those that were expected.

    Returns:
        All of them, or why the answer is refused: the first few bad paths with what the agent said and what was found, and how
        many more there are.
    """
    problems: list[tuple[str, str]] = []
    verified: list[VerifiedArtifact] = []
    for artifact in artifacts:
        found = _look(request, artifact.path, max_bytes)
        if isinstance(found, VerifiedArtifact):
            problem = _compare(artifact, found)
            if problem:
                problems.append(("artifact_mismatch", problem))
            verified.append(found)
        else:
            problems.append(found)
    listed = {artifact.path for artifact in artifacts}
    for output in request.expected_outputs:
        if output.path in listed:
            continue
        found = _look(request, output.path, max_bytes)
        if isinstance(found, VerifiedArtifact):
            verified.append(VerifiedArtifact(found.path, found.sha256, found.size, found=True))
        elif output.required or found[0] == "path_escape":
            problems.append(found)
    if problems:
        # The worst decides: a path that leads out is never tried again.
        code = "path_escape" if any(code == "path_escape" for code, _ in problems) else problems[0][0]
        worst_first = sorted(problems, key=lambda problem: problem[0] != code)
        return Rejection(code, first_few([text for _, text in worst_first]))
    return verified


def total_size(request: AgentRequest, artifacts: Sequence[Artifact]) -> int:
    """How many bytes there are to be read, whatever the agent says."""
    paths = {artifact.path for artifact in artifacts} | {output.path for output in request.expected_outputs}
    return sum(_size(os.path.join(request.cwd, path)) for path in paths)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def _look(request: AgentRequest, path: str, max_bytes: int) -> VerifiedArtifact | tuple[str, str]:
    try:
        fd = open_artifact(request.cwd, path, request.refused_paths)
        try:
            return _measure(fd, path, max_bytes)
        finally:
            os.close(fd)
    except UnsafePathError as error:
        return "path_escape", error.message
    except OSError as error:
        return "artifact_missing", f"{path}: {error.strerror}"


def _measure(fd: int, path: str, max_bytes: int) -> VerifiedArtifact | tuple[str, str]:
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        return "artifact_missing", f"{path}: it is not a regular file"
    if facts.st_size > max_bytes:
        return "artifact_too_large", f"{path}: {facts.st_size} bytes, at most {max_bytes} are allowed"
    digest, left = hashlib.sha256(), facts.st_size
    # No more than there was: another program may write to it for ever.
    while left > 0 and (data := os.read(fd, min(left, CHUNK))):
        digest.update(data)
        left -= len(data)
    return VerifiedArtifact(path, f"sha256:{digest.hexdigest()}", facts.st_size - left)


def _open_resolved(root: str, real: str) -> int:
    """Open a file part by part below the root, following no link on the way."""
    parts = os.path.relpath(real, root).split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
            )
            os.close(directory)
            directory = below
        # A pipe without a writer must not block.
        return os.open(
            parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory
        )
    finally:
        os.close(directory)


def _compare(said: Artifact, found: VerifiedArtifact) -> str:
    problems: list[str] = []
    if said.size != found.size:
        problems.append(f"reported {said.size} bytes, found {found.size}")
    if said.sha256 != found.sha256:
        problems.append(f"reported {said.sha256}, found {found.sha256}")
    return f"{said.path}: {', '.join(problems)}" if problems else ""

"""Verifying the files of an answer in the loop of a hub: large files are read in a thread, so that nothing waits for them.

What is verified is decided in ``artifacts.py``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from bartack.agents.artifacts import total_size, verify_artifacts
from bartack.agents.contract import AgentRequest, Verdict
from bartack.agents.process.process import Host
from bartack.agents.protocol.messages import Artifact

AT_ONCE: Final = 8 * 1024 * 1024
"""Files with at most this many bytes together are verified without a thread."""


def verify_in_loop(
    host: Host,
    request: AgentRequest,
    artifacts: list[Artifact],
    max_bytes: int,
    judged: Callable[[Verdict], None],
) -> None:
    """Verify the files of an answer, and call ``judged`` with the verdict: at once, or in a later turn of the loop."""

    def verify() -> Verdict:
        return verify_artifacts(request, artifacts, max_bytes=max_bytes)

    if total_size(request, artifacts) > AT_ONCE:
        try:
            _verify_in_thread(host, verify, judged)
        except (OSError, RuntimeError):
            pass  # the system has no descriptor or no thread left: everything else waits meanwhile
        else:
            return
    judged(verify())


def _verify_in_thread(host: Host, verify: Callable[[], Verdict], judged: Callable[[Verdict], None]) -> None:
    """Verify in a thread, whose pipe ends when it is done.

    Raises:
        OSError: No descriptor is left.
        RuntimeError: No thread can be started.
    """
    ready, done = os.pipe()
    found: list[Verdict] = []

    def work() -> None:
        found.append(verify())
        os.close(done)

    def finish() -> None:
        host.unwatch(ready)
        os.close(ready)
        judged(found[0])

    host.watch(ready, finish)
    thread = threading.Thread(  # bartack: allow[unsupervised_thread] its pipe ends when it is done
        target=work, daemon=True
    )
    try:
        thread.start()
    except RuntimeError:
        host.unwatch(ready)
        os.close(ready)
        os.close(done)
        raise

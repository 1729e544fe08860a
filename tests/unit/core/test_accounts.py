"""A process of root that acts as another user, and is root again in one thread for a moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.core.accounts import can_act_as, own_rights, user_of_children

ACTING = """
import json, os, subprocess, sys, threading
from bartack.core.accounts import act_as, find_account, own_rights, user_of_children

account, secret = find_account("nobody"), sys.argv[1]
assert account is not None

def can_read():
    try:
        os.close(os.open(secret, os.O_RDONLY))
    except PermissionError:
        return False
    return True

before = can_read()
inside, read = threading.Event(), threading.Event()

def be_root():
    with own_rights():
        inside.set()
        read.wait(30)
        shown["other thread, in the block"] = can_read()
    shown["other thread, after it"] = can_read()

act_as(account)
shown = {"before": before, "acting": can_read()}
thread = threading.Thread(target=be_root)
thread.start()
inside.wait(30)
shown["meanwhile"] = can_read()
read.set()
thread.join()
child = subprocess.run(["cat", "/proc/self/status"], user=user_of_children(), stdout=subprocess.PIPE, text=True)
facts = dict(line.split(":", 1) for line in child.stdout.splitlines())
shown["child"] = [[int(number) for number in facts[name].split()] for name in ("Uid", "Gid", "Groups")]
shown["expected"] = [[account.uid] * 4, [account.gid] * 4, sorted(account.groups)]
print(json.dumps(shown))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not can_act_as(),
    reason="only root on Linux can act as two users: that was NOT tried",
)
@pytest.mark.requirement("node-run-as")
def test_the_rights_of_root_come_back_in_one_thread_and_block_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)

    done = subprocess.run(
        [sys.executable, "-c", ACTING, str(secret)], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown.pop("child") == shown.pop("expected")
    assert shown == {
        "before": True,
        "acting": False,
        "meanwhile": False,
        "other thread, in the block": True,
        "other thread, after it": False,
    }


def test_a_process_with_one_user_keeps_its_rights() -> None:
    before = os.getuid(), os.geteuid()

    with own_rights():
        assert (os.getuid(), os.geteuid()) == before

    assert user_of_children() is None

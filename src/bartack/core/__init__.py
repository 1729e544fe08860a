"""What everything else stands on: ids, time, canonical JSON, checksums, files, safe paths, redaction, backoff, watches.

Nothing here knows of runs or journals. Importing it is cheap: what is slow to load is loaded by the first
call that needs it.

Read ``_disk.py`` for the interface to the disk, ``_batch.py`` for what becomes durable together.
"""

from bartack.core._accounts import Account, find_account
from bartack.core._backoff import Backoff
from bartack.core._batch import Batch
from bartack.core._checksum import checksum, checksum_file
from bartack.core._clock import Clock, SystemClock
from bartack.core._closing import Closing
from bartack.core._disk import DIR_MODE, FILE_MODE, Disk, RealDisk, birth_of, is_disk_trouble, write_all
from bartack.core._facts import FileFacts
from bartack.core._files import make_file, naming, open_private, replace_file, write_file, write_in_place
from bartack.core._flaws import Flaw, KeyPath, dotted, find_flaws, unknown_name
from bartack.core._git import GIT_SETTINGS, find_git, git_command, git_environment
from bartack.core._git_shield import make_repository, shield
from bartack.core._ids import RunId, claim_run_dir, moment_of, new_run_id, new_token, parse_run_id
from bartack.core._json import canonical
from bartack.core._paths import open_below, safe_join
from bartack.core._redact import Redactor, SecretRule, is_secret_name
from bartack.core._sockets import SOCKET_LIMIT, clear_sockets, is_own_socket, make_own_folder, socket_place
from bartack.core._state_dir import StateDir
from bartack.core._trust import (
    TrustedDirectory,
    add_trusted,
    check_private,
    check_settings,
    config_home,
    is_trusted,
    known_keys,
    list_trusted,
    make_private,
    remove_trusted,
    trusted_owners,
    user_key,
)
from bartack.core._watch import Watch, WatchKind, open_watch, watch_kind

__all__ = [
    "DIR_MODE",
    "FILE_MODE",
    "GIT_SETTINGS",
    "SOCKET_LIMIT",
    "Account",
    "Backoff",
    "Batch",
    "Clock",
    "Closing",
    "Disk",
    "FileFacts",
    "Flaw",
    "KeyPath",
    "RealDisk",
    "Redactor",
    "RunId",
    "SecretRule",
    "StateDir",
    "SystemClock",
    "TrustedDirectory",
    "Watch",
    "WatchKind",
    "add_trusted",
    "birth_of",
    "canonical",
    "check_private",
    "check_settings",
    "checksum",
    "checksum_file",
    "claim_run_dir",
    "clear_sockets",
    "config_home",
    "dotted",
    "find_account",
    "find_flaws",
    "find_git",
    "git_command",
    "git_environment",
    "is_disk_trouble",
    "is_own_socket",
    "is_secret_name",
    "is_trusted",
    "known_keys",
    "list_trusted",
    "make_file",
    "make_own_folder",
    "make_private",
    "make_repository",
    "moment_of",
    "naming",
    "new_run_id",
    "new_token",
    "open_below",
    "open_private",
    "open_watch",
    "parse_run_id",
    "remove_trusted",
    "replace_file",
    "safe_join",
    "shield",
    "socket_place",
    "trusted_owners",
    "unknown_name",
    "user_key",
    "watch_kind",
    "write_all",
    "write_file",
    "write_in_place",
]

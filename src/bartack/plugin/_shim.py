"""Records one hook event: reads it from stdin, makes it durable, exits 0. Run as a file, never imported.

    <python> -I -S bartack-hook.py EVENT

It is copied to the user's state home and runs without the package: a hook lives for milliseconds and must work whatever has
become of the installation. It hands the bytes to the daemon, or to the spool if the daemon does not answer at once. The bytes are
never decoded, parsed or made part of a command. Whatever goes wrong, the agent is not bothered: nothing on stdout or stderr,
exit code 0, one line in ``daemon.log``. On a machine too busy to keep in time what was read, a process of its own finishes that.
"""

import _socket
import os
import signal
import sys
import time

LIMIT_S = 2.0
LATE_S = 60.0
BODY_MOST = 16 * 1024 * 1024
CONNECT_S = 0.05
ANSWER_S = 0.1
RESTART_S = 10.0
LOG_MOST = 1024 * 1024
OFF = ("false", "0", "no", "off")
PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/:._-"


def find_home() -> str:
    """The state home: this file is in its ``bin`` directory, or else where such homes are."""
    here = os.path.abspath(__file__)
    if os.path.basename(here) == "bartack-hook.py":
        return os.path.dirname(os.path.dirname(here))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/bartack")
    base = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.local/state"), "bartack")


def read_stdin() -> tuple[bytes, bool]:
    """Everything on stdin up to the limit, and whether there was more."""
    parts: list[bytes] = []
    size = 0
    truncated = False
    while True:
        try:
            part = os.read(0, 1 << 20)
        except OSError:  # closed from the start
            break
        if not part:
            break
        room = BODY_MOST - size
        truncated = truncated or len(part) > room
        parts.append(part[:room])
        size += len(parts[-1])
    return b"".join(parts), truncated


def quoted(text: bytes) -> bytes:
    """Percent-encoded, so that the header stays one line of ASCII words."""
    return b"".join(b"%c" % byte if byte in PLAIN else b"%%%02X" % byte for byte in text) or b"."


def make_header(event: str, truncated: bool) -> bytes:
    """The line that says what the bytes are, when they came and from where."""
    try:
        folder = os.getcwdb()
    except OSError:
        folder = b"."
    words = [b"bartack-hook", b"1", quoted(os.fsencode(event)), b"%d" % time.time_ns(), quoted(folder)]
    run = os.environ.get("BARTACK_RUN", "")
    chosen = chosen_dir()
    words += [b"run=" + quoted(os.fsencode(run))] if run else []
    words += [b"dir=" + quoted(os.fsencode(chosen))] if chosen else []
    words += [b"truncated"] if truncated else []
    return b" ".join(words)


def chosen_dir() -> str:
    """The state home that the environment asks for, if any."""
    return os.path.expanduser(
        os.environ.get("PATTERN_CACHE_DIR") or os.environ.get("BARTACK_STATE_DIR") or ""
    )


def check_place(path: str) -> None:
    """Refuse a socket that another user can have put there: its directory is this user's and closed to others."""
    folder, socket = os.stat(os.path.dirname(path)), os.lstat(path)
    user = os.geteuid()
    if folder.st_uid != user or folder.st_mode & 0o077 or socket.st_uid != user:
        raise PermissionError("the socket is not in a directory of this user alone")


def send(home: str, data: bytes) -> bytes:
    """Hand the event to the daemon and return its answer."""
    path = os.path.join(home, "daemon.sock")
    if os.path.islink(path):
        path = os.path.join(home, os.readlink(path))
    check_place(path)
    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        client.settimeout(CONNECT_S)
        client.connect(path)
        client.settimeout(ANSWER_S)
        client.sendall(len(data).to_bytes(4, "big") + data)
        return client.recv(256)
    finally:
        client.close()


def spool(home: str, data: bytes) -> None:
    """Keep the event as a file that the next one to look finds."""
    temporary = os.path.join(home, "spool", "tmp")
    ready = os.path.join(home, "spool", "new")
    os.makedirs(temporary, 0o700, exist_ok=True)
    os.makedirs(ready, 0o700, exist_ok=True)
    name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}.evt"
    source = os.path.join(temporary, name)
    descriptor = os.open(source, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        os.rename(source, os.path.join(ready, name))
    except BaseException:
        os.unlink(source)
        raise
    finally:
        os.close(descriptor)
    folder = os.open(ready, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def keep(home: str, data: bytes) -> None:
    """Make the event durable: with the daemon, or in a spool."""
    try:
        answer = send(home, data)
    except OSError:
        answer = b""
    if answer.startswith(b"ok"):
        return
    if answer.startswith(b"full"):
        raise OSError("the outbox is full")
    try:
        spool(chosen_dir() or home, data)
    except OSError:
        if not chosen_dir():
            raise
        spool(home, data)
    start_daemon(home)


def start_daemon(home: str) -> None:
    """Start the daemon, detached, unless that is switched off or was tried a moment ago."""
    stamp = os.path.join(home, "daemon.start")
    if os.path.exists(os.path.join(home, "autostart-off")):
        return
    if os.path.exists(stamp) and abs(time.time() - os.stat(stamp).st_mtime) < RESTART_S:
        return
    os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime(stamp)
    if os.fork():  # bartack: allow[unsupervised_process] the daemon is to outlive the hook
        return
    # In the child: nothing of the hook may stay open, or the agent would wait for it.
    try:
        os.setsid()
        os.chdir("/")
        os.closerange(0, 4096)
        os.open(os.devnull, os.O_RDWR)
        os.dup2(0, 1)
        os.dup2(0, 2)
        os.execv(sys.executable, [sys.executable, "-I", "-m", "bartack", "daemon", "run"])  # noqa: S606 - a fixed command, no shell
    finally:
        os._exit(0)


def log(home: str, event: str, problem: str) -> None:
    """One line for people; where that is impossible, nothing."""
    path = os.path.join(home, "daemon.log")
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if os.fstat(descriptor).st_size < LOG_MOST:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = f"{when} hook {event}: event not kept: {problem}\n"
            os.write(descriptor, line.encode("utf-8", "replace"))
        os.close(descriptor)
    except OSError:
        return


def main() -> None:
    """Record the event that the command line names."""
    if os.environ.get("PATTERN_TRACKING_ENABLED", "").strip().lower() in OFF:
        return
    os.umask(0o077)
    event = sys.argv[1] if len(sys.argv) > 1 else "unknown"
    home = find_home()
    signal.signal(signal.SIGALRM, lambda number, frame: _give_up(home, event))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        body, truncated = read_stdin()
        signal.signal(signal.SIGALRM, lambda number, frame: _release_agent(home, event))
        keep(home, make_header(event, truncated) + b"\n" + body)
    except OSError as error:
        log(home, event, error.strerror or str(error))


def _give_up(home: str, event: str) -> None:
    log(home, event, "no time left")
    os._exit(0)


def _release_agent(home: str, event: str) -> None:
    """Let the agent continue. Work that was in progress when the time was over continues in a process that is not waited for."""
    if os.fork():  # bartack: allow[unsupervised_process] it ends by itself, and must not be waited for
        os._exit(0)
    signal.signal(signal.SIGALRM, lambda number, frame: _give_up(home, event))
    signal.setitimer(signal.ITIMER_REAL, LATE_S)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)

"""The scripted model server as a command: ``python -m bartack.testing.model_server SCRIPTS [--port N] [--log FILE]``.

It prints its address, serves until it is interrupted or terminated, and exits with 1 if a step did not get what it expects.
The server itself is in ``model/_server.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from bartack.errors import BartackError
from bartack.testing.model._record import ModelRequest
from bartack.testing.model._server import ModelServer

_PRIVATE: Final = 0o600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = _parser().parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before there are threads, which inherit it
    try:
        with contextlib.ExitStack() as stack:
            on_request = _writer(stack.enter_context(_open_log(given.log))) if given.log else None
            server = ModelServer(given.scripts, port=given.port, bodies=given.bodies, on_request=on_request)
            with server:
                sys.stdout.write(f"{server.url}\n")
                sys.stdout.flush()
                signal.sigwait(signals)
    except BartackError as error:
        sys.stderr.write(f"{error.code}: {error}\n{error.remedy}\n")
        return 1
    except AssertionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{given.log}: {error.strerror}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bartack.testing.model_server",
        description="Answer the requests of agents from scripts, without a model.",
    )
    parser.add_argument("scripts", type=Path, metavar="SCRIPTS", help="TOML or JSON file of scripts")
    parser.add_argument(
        "--port", type=_port, default=0, help="port of the loopback interface; a free one by default"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="append a JSON line for every answered request"
    )
    parser.add_argument("--bodies", action="store_true", help="write the bodies of requests to the log, too")
    return parser


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return number


def _open_log(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE), "ab", 0)


def _writer(file: BinaryIO) -> Callable[[ModelRequest], None]:
    def write(request: ModelRequest) -> None:
        file.write(msgspec.json.encode(request) + b"\n")

    return write


if __name__ == "__main__":
    sys.exit(main())

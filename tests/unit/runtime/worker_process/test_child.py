"""The process of a worker: joining, importing, reporting, leaving."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bartack.journal import BlobRef
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.worker_process.child import HubConnection

RUN = "run-20260131-235959-0f3a91c7"
START = (
    "import sys\n"
    "from bartack.runtime.worker_process.child import worker_main\n"
    "sys.exit(worker_main(sys.argv[1].encode(), [int(sys.argv[2]), int(sys.argv[3])]))"
)


class Life:
    """A worker's process and the hub's end of its socket."""

    def __init__(self, place: Path) -> None:
        self.root = place / "project"
        self.program = place / "run/program"
        for folder in (self.root, self.program):
            folder.mkdir(parents=True)
        self._ours, self._theirs = socket.socketpair()
        self._ours.settimeout(60)
        self.scoreboard = Scoreboard.create()
        self._reader = f.FrameReader()
        self._bodies: list[bytes] = []
        self._process: subprocess.Popen[str] | None = None

    def begin(
        self,
        code: str,
        *past: f.Past,
        worker: str = "prog:main",
        args: bytes = b'{"args":[]}',
        gate: Path | None = None,
    ) -> None:
        """Start the process and greet it."""
        if gate is not None:
            os.mkfifo(gate)
        (self.program / "prog.py").write_text(
            "from bartack import Context, step, worker\n" + textwrap.dedent(code), encoding="utf-8"
        )
        order = f.Order(
            path="main",
            incarnation=1,
            blobs=str(self.program.parent),
            workspace=str(self.root),
            program=str(self.program),
            root=str(self.root),
        )
        command = [
            sys.executable,
            "-c",
            START,
            msgspec.json.encode(order).decode(),
            str(self._theirs.fileno()),
            str(self.scoreboard.fileno()),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=[self._theirs.fileno(), self.scoreboard.fileno()],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._theirs.close()
        hello = self.hear()
        assert isinstance(hello, f.Hello)
        assert (hello.path, hello.incarnation, hello.pid) == ("main", 1, self._process.pid)
        welcome = f.Welcome(
            run=RUN,
            dir=str(self.program.parent),
            workspace=str(self.root),
            timestamp=0,
            worker=worker,
            v=msgspec.Raw(args),
        )
        self.say(welcome, *([f.History(past=list(past))] if past else []), f.Live())

    def say(self, *frames: f.Frame) -> None:
        self._ours.sendall(b"".join(map(f.encode, frames)))

    def hear(self) -> f.ToHub:
        while not self._bodies:
            data = self._ours.recv(65536)
            assert data, "the worker closed its socket"
            self._bodies += self._reader.feed(data)
        return f.decode_to_hub(self._bodies.pop(0))

    def leave(self) -> tuple[int, str]:
        """Tell the process to exit; its exit code and what it wrote."""
        self.say(f.Leave())
        return self.end()

    def hang_up(self) -> int:
        """Close the connection, as a dying hub does."""
        self._ours.close()
        return self.end()[0]

    def end(self) -> tuple[int, str]:
        assert self._process is not None
        out, err = self._process.communicate(timeout=60)
        assert out == ""
        return self._process.returncode, err

    def failure(self) -> f.Failed:
        failed = self.hear()
        assert isinstance(failed, f.Failed)
        self.leave()
        return failed

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=60)
        self._ours.close()
        self._theirs.close()
        self.scoreboard.close()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    yield made
    made.close()


def test_a_short_body_is_on_the_slate_while_it_runs_and_costs_one_frame(life: Life) -> None:
    life.begin(
        """
        from pathlib import Path

        @step
        def look(place: str) -> int:
            with open(Path(place, "go")) as gate:
                return len(gate.read())

        @worker
        async def main(ctx: Context, place: str) -> int:
            return await look(place)
        """,
        args=msgspec.json.encode({"args": [str(life.root)]}),
        gate=life.root / "go",
    )
    with (life.root / "go").open("w") as gate:
        (line,) = life.scoreboard.read()
        gate.write("abc")
    begin, done = f.decode_to_hub(line), life.hear()

    assert isinstance(begin, f.Begin)
    assert (begin.p, begin.n, begin.step) == ("main", 1, "body")
    assert isinstance(done, f.Done)
    assert (text(done.v), done.about) == ("3", "prog.look")
    assert life.scoreboard.read() == []


def test_bodies_of_branches_are_on_the_slate_beside_each_other(life: Life) -> None:
    gates = [life.root / name for name in ("one", "two")]
    for gate in gates:
        os.mkfifo(gate)
    life.begin(
        """
        from pathlib import Path

        @step
        def look(gate: str) -> int:
            return len(Path(gate).read_text())

        @worker
        async def main(ctx: Context, one: str, two: str) -> list:
            return await ctx.gather(look(one), look(two))
        """,
        args=msgspec.json.encode({"args": [str(gate) for gate in gates]}),
    )
    with gates[0].open("w"), gates[1].open("w"):
        begins = [f.decode_to_hub(line) for line in life.scoreboard.read()]
    done = [life.hear(), life.hear()]

    assert [(begin.p, begin.n) for begin in begins if isinstance(begin, f.Begin)] == [
        ("main.1.1", 1),
        ("main.1.2", 1),
    ]
    assert {frame.p for frame in done if isinstance(frame, f.Done)} == {"main.1.1", "main.1.2"}
    assert life.scoreboard.read() == []


def begin_beside_a_sleep(life: Life) -> Path:
    """A worker with two branches: a body that waits at the gate which is returned, and a step of the hub."""
    gate = life.root / "gate"
    os.mkfifo(gate)
    life.begin(
        """
        from pathlib import Path

        @step
        def look(gate: str) -> int:
            return len(Path(gate).read_text())

        @worker
        async def main(ctx: Context, gate: str) -> None:
            try:
                await ctx.gather(look(gate), ctx.sleep(1))
            finally:
                ctx.print("bye")
        """,
        args=msgspec.json.encode({"args": [str(gate)]}),
    )
    return gate


def test_the_hub_learns_of_a_body_on_the_slate_before_it_is_given_up(life: Life) -> None:
    gate = begin_beside_a_sleep(life)
    sleep = life.hear()
    assert isinstance(sleep, f.Step)
    error = f.ErrorData(type="builtins:OSError", message="no bed")
    with gate.open("w"):
        life.say(f.Refusal(i=sleep.i, e=error))
        begin, cancel = life.hear(), life.hear()

    assert isinstance(begin, f.Begin)
    assert isinstance(cancel, f.Cancel)
    assert (begin.p, begin.n) == (cancel.p, cancel.n) == ("main.1.1", 1)
    assert life.scoreboard.read() == []


def test_a_body_that_runs_when_the_session_fails_is_not_on_the_slate_and_is_waited_for(life: Life) -> None:
    gate = begin_beside_a_sleep(life)
    assert isinstance(life.hear(), f.Step)
    with gate.open("w"):
        assert len(life.scoreboard.read()) == 1
        life.say(f.SessionFailed(e=f.ErrorData(type="builtins:OSError", message="no bed")))
        bye = life.hear()
        assert life.scoreboard.read() == []
    done, end = life.hear(), life.hear()

    assert isinstance(bye, f.Out)
    assert bye.cleanup
    assert isinstance(done, f.Done)
    assert (done.p, done.n, done.i, text(done.v), done.cleanup) == ("main.1.1", 1, 0, "0", False)
    assert isinstance(end, f.Failed)


def text(raw: msgspec.Raw | None) -> str:
    return "" if raw is None else bytes(raw).decode()


def test_a_worker_reports_its_result_and_leaves_when_it_is_told(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context, name: str, *, times: int = 1) -> list[str]:
            await ctx.sleep(1)
            return [name] * times
        """,
        args=b'{"args":["a"],"kwargs":{"times":2}}',
    )
    step = life.hear()
    assert isinstance(step, f.Step)
    life.say(f.Answer(i=step.i))
    result = life.hear()

    assert isinstance(result, f.Result)
    assert text(result.v) == '["a","a"]'
    assert life.leave() == (0, "")


def test_a_worker_ends_when_its_hub_is_gone(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> None:
            await ctx.sleep(1)
        """
    )
    life.hear()

    assert life.hang_up() == 3


def test_a_worker_that_is_told_to_leave_in_the_middle_ends(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> None:
            await ctx.sleep(1)
        """
    )
    life.hear()

    assert life.leave()[0] == 3


def test_an_uncaught_error_is_reported_with_its_origin_and_stack(life: Life) -> None:
    life.begin(
        """
        @step
        def work(x: int) -> int:
            return 1 // x

        @worker
        async def main(ctx: Context) -> int:
            return await work(0)
        """
    )
    done = life.hear()
    assert isinstance(done, f.Done)
    assert done.e is not None
    life.say(f.Refusal(i=done.i, e=done.e))
    failed = life.failure()

    assert (failed.e.type, failed.origin, failed.fatal) == ("builtins:ZeroDivisionError", ("main", 1), False)
    assert [line.text for line in failed.e.stack] == ["return await work(0)", "return 1 // x"]


@pytest.mark.parametrize(
    ("code", "worker", "problem"),
    [
        ("raise ValueError('at the top')", "prog:main", "ValueError: at the top"),
        ("import nowhere_to_be_found", "prog:main", "No module named 'nowhere_to_be_found'"),
        ("x = 5", "prog:main", "it has no worker 'main'"),
        ("x = 5", "gone:main", "No module named 'gone'"),
    ],
)
def test_a_program_that_cannot_be_imported_is_a_failure(
    life: Life, code: str, worker: str, problem: str
) -> None:
    life.begin(code, worker=worker)

    failed = life.failure()

    assert failed.e.type == "bartack.errors:ProgramImportError"
    assert problem in failed.e.message


def test_a_step_that_a_worker_defines_while_it_runs_is_refused_there_too(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> int:
            @step
            def inner(x: int) -> int:
                return x

            return await inner(1)
        """
    )

    assert life.failure().e.type.endswith(":WorkerDefinitionError")


def test_a_module_that_is_not_kept_with_the_run_is_refused(life: Life) -> None:
    (life.root / "later.py").write_text("")
    life.begin(
        f"""
        import sys
        sys.path.append({str(life.root)!r})

        @worker
        async def main(ctx: Context) -> None:
            import later
        """
    )

    failed = life.failure()

    assert failed.e.type == "bartack.errors:ProgramNotPinnedError"
    assert failed.e.facts["module"] == "later"


def test_what_a_program_prints_by_itself_goes_to_stderr_with_its_name(life: Life) -> None:
    life.begin(
        """
        import sys

        @worker
        async def main(ctx: Context) -> None:
            print("one\\ntwo")
            sys.stdout.write("half")
        """
    )
    life.hear()

    assert life.leave() == (0, "main: one\nmain: two\nmain: half\n")


def test_a_replay_prints_nothing(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> None:
            print("before")
            await ctx.sleep(1)
            print("between")
            await ctx.sleep(2)
            print("after")
        """,
        f.Past(p="main", n=1, step="sleep"),
    )
    step = life.hear()
    assert isinstance(step, f.Step)
    assert step.n == 2
    life.say(f.Answer(i=step.i))
    life.hear()

    assert life.leave() == (0, "main: after\n")


def test_a_worker_can_have_a_deadline_as_a_whole(life: Life) -> None:
    life.begin(
        """
        @worker(timeout_s=30)
        async def main(ctx: Context) -> None:
            await ctx.sleep(1)
        """
    )
    begin = life.hear()

    assert isinstance(begin, f.Begin)
    assert (begin.step, begin.timeout_s) == ("timeout", 30.0)


def test_an_asyncio_that_is_imported_late_is_caught_as_well(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> str:
            try:
                import asyncio
                await asyncio.sleep(5)
            except Exception:
                return "swallowed"
            return "slept"
        """
    )

    failed = life.failure()

    assert failed.fatal
    assert failed.e.type == "bartack.errors:ForeignAwaitError"
    assert str(failed.e.facts["where"]).endswith("prog.py:7")


def test_a_difference_to_the_history_is_fatal_and_nothing_else_is_said(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> None:
            await ctx.sleep(1)
        """,
        f.Past(p="main", n=1, step="shell", fp="0" * 64, about="ls"),
    )

    failed = life.failure()

    assert failed.fatal
    assert failed.e.facts["recorded"] == "the command 'ls'"


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ("{1}", "MessageValueError"),
        ("'text'", "TypeMismatchError"),
        ("'x' * 17_000_000", "MessageTooLargeError"),
    ],
)
def test_a_result_that_cannot_travel_is_a_failure(life: Life, returned: str, error: str) -> None:
    life.begin(
        f"""
        @worker
        async def main(ctx: Context) -> {"str" if "*" in returned else "int"}:
            return {returned}
        """
    )

    assert life.failure().e.type == f"bartack.errors:{error}"


def test_a_long_result_is_kept_beside_the_journal(life: Life) -> None:
    life.begin(
        """
        @worker
        async def main(ctx: Context) -> str:
            return "x" * 100_000
        """
    )
    result = life.hear()

    assert isinstance(result, f.Result)
    assert isinstance(result.ref, BlobRef)
    kept = life.program.parent / "blobs" / result.ref.sha256[:2] / result.ref.sha256[2:]
    assert kept.read_bytes() == b'"' + b"x" * 100_000 + b'"'
    life.leave()


def test_bodies_on_other_threads_wake_the_worker(life: Life) -> None:
    life.begin(
        """
        import asyncio

        @step
        async def later(x: int) -> int:
            await asyncio.sleep(0)
            return x

        @worker
        async def main(ctx: Context) -> list[int]:
            return await ctx.gather(later(1), later(2))
        """
    )
    for _ in range(4):
        frame = life.hear()
        if isinstance(frame, f.Done):
            life.say(f.Answer(i=frame.i, v=frame.v))
    result = life.hear()

    assert isinstance(result, f.Result)
    assert text(result.v) == "[1,2]"
    assert life.leave() == (0, "")


def test_reports_that_come_in_numbers_go_out_together() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        link = HubConnection(theirs)
        notes = [f.Note(p="main", n=number, step="now", fp="") for number in (1, 2)]

        with link.together():
            for note in notes:
                link.send(note)
            with pytest.raises(BlockingIOError):
                ours.recv(4096)
        ours.settimeout(30)
        reader, heard = f.FrameReader(), list[f.ToHub]()
        while len(heard) < len(notes):
            heard += map(f.decode_to_hub, reader.feed(ours.recv(4096)))

        assert heard == notes

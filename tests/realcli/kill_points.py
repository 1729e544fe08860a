"""The points of a call to a real agent at which processes are killed, and one run that is stopped at such a point.

A point is a generator: it starts the run and brings it to the point; after the kill it lets everything continue.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from tests.realcli.crew import KINDS, PATIENT, Crew, Kind, own_tool, send, shell
from tests.waiting import until

from bartack.journal import Entry
from bartack.testing import ClaudeSandbox, ModelRequest, ModelServer

Victim = Literal["cli", "worker", "hub", "keeper", "hub and keeper"]
VICTIMS: Final[tuple[Victim, ...]] = ("cli", "worker", "hub", "keeper", "hub and keeper")
STOP, CONTINUE, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
DONE: Final = "all of it is done"
TICK: Final = "until [ -e {gates}/go ]; do date >> ticks; sleep 0.1; done"
CALLING: Final = "now I call it"
TOUCH: Final = "echo ran >> ran"
STOPS_S: Final = 1.0 * PATIENT
"""How long a command may run on after its agent was killed."""


def scripts_of(kind: Kind, gates: Path) -> dict[str, list[dict[str, object]]]:
    """What the model says to one agent."""
    touch: dict[str, object] = {"tools": [shell(kind, TOUCH)]}
    done: dict[str, object] = {"text": DONE}
    return {
        f"{kind}-tick": [{"tools": [shell(kind, TICK.format(gates=gates))]}, done],
        f"{kind}-touch": [touch, done],
        f"{kind}-ask": [touch, touch, done],
        f"{kind}-own": [{"text": CALLING, "tools": [own_tool(kind, "linger")]}, done],
    }


def all_scripts(gates: Path) -> dict[str, list[dict[str, object]]]:
    """What the model says to all agents."""
    return {"plain": [{"text": DONE}], **{k: v for kind in KINDS for k, v in scripts_of(kind, gates).items()}}


THINK: Final = 'return await ctx.think("[[script:{script}]] do it")'
LINGER: Final = (
    "async def linger() -> str:",
    '    "Waits."',
    "    await ctx.shell('sh', '-c', 'touch {gates}/in-tool; until [ -e {gates}/go ]; do sleep 0.05; done')",
    "    return 'lingered'",
    'return await ctx.think("[[script:{script}]] do it", tools=[linger])',
)
BESIDE: Final = (
    "wait = ['sh', '-c', 'until [ -e {gates}/go ]; do sleep 0.05; done']",
    'text, _ = await ctx.gather(ctx.think("[[script:{script}]] do it"), ctx.shell(*wait))',
    "return text",
)
AFTERWARDS: Final = (
    'text = await ctx.think("[[script:{script}]] do it")',
    "await ctx.shell('sh', '-c', 'touch {gates}/in-tool; until [ -e {gates}/go ]; do sleep 0.05; done')",
    "return text",
)
LATER: Final = (
    "import pathlib, time",
    "pathlib.Path('{gates}/ready').touch()",
    "while not pathlib.Path('{gates}/go').exists():",
    "    time.sleep(0.05)",
    THINK,
)


class Scene:
    """One run whose call is stopped at a point, and what is killed there."""

    def __init__(self, kind: Kind, sandbox: ClaudeSandbox, server: ModelServer, victim: Victim) -> None:
        self.server = server
        self.victim: Victim = victim
        self.script = "plain"
        self.crew = Crew(kind, sandbox, server)
        self.gates = self.crew.gates
        self.killed_at = 0.0
        self.resumed_at = 0.0
        """When the run was resumed; 0 if it did not have to be."""
        self.before: list[ModelRequest] = []
        """What the server had been asked when the victim was killed."""
        self.agent: list[int] = []
        """The processes of the agent at that time."""
        self.answers = False
        """Whether the test answers questions until the agent is done."""
        self.run: subprocess.Popen[str] | None = None

    @property
    def ends_the_agent(self) -> bool:
        """Whether the agent dies with the victim. It outlives a worker."""
        return self.victim != "worker"

    @property
    def ends_the_hub(self) -> bool:
        """Whether somebody has to resume the run."""
        return "hub" in self.victim

    def start(
        self, script: str, *lines: str, mode: str = "auto", words: tuple[str, ...] = ("--no-input",)
    ) -> None:
        """Start the run."""
        kind = self.crew.kind
        self.script = script if script == "plain" else f"{kind}-{script}"
        settings = f'permissions = {{ mode = "{mode}" }}'
        self.crew = Crew(kind, self.crew.sandbox, self.server, settings)
        self.crew.program(*(line.format(script=self.script, gates=self.gates) for line in lines or (THINK,)))
        self.run = self.crew.begin("run", "team.py", *words)

    @property
    def hub(self) -> int:
        """The process that runs the run."""
        assert self.run is not None
        return self.run.pid

    @property
    def keeper(self) -> int:
        """The process that starts agents and commands."""
        return self.crew.parts(self.hub).keeper

    def gate(self, name: str) -> Path:
        """A file that the processes and the test see."""
        return self.gates / name

    def wait_for_gate(self, name: str) -> None:
        """Wait until a process has made such a file."""
        until(self.gate(name).exists, name, self.gates)

    def wait_for_entry(self, kind: str) -> None:
        """Wait until the journal has an entry."""
        until(lambda: self.crew.count(kind), kind)

    def wait_for_reply(self, text: str) -> None:
        """Wait until the agent has written a reply down, which it does up to 0.1 s after it has used it."""
        until(lambda: self.crew.conversation_has(text), "the agent has written the reply down")

    def kill(self) -> None:
        """Kill what the case wants to be killed."""
        parts = self.crew.parts(self.hub)
        pids = {
            "cli": lambda: [self.crew.cli_pid()],
            "worker": lambda: list(parts.workers.values()),
            "hub": lambda: [parts.hub],
            "keeper": lambda: [parts.keeper],
            "hub and keeper": lambda: [parts.hub, parts.keeper],
        }[self.victim]()
        assert pids
        assert all(pids)
        self.before = self.server.requests
        self.agent = self.crew.cli_tree() if self.gate("starts").exists() else []
        self.killed_at = time.time()
        send(pids, KILL)

    def wait_until_the_agent_is_gone(self) -> None:
        """Wait until nothing of the agent that was killed is left, so that no reply reaches it."""
        living = self.crew.sandbox.processes
        until(lambda: not any(facts.pid in self.agent for facts in living()), "the agent is gone")

    def wait_until_all_is_gone(self) -> None:
        """Wait until nothing of the run is left after the death of its hub, and check that this was soon."""
        until(lambda: not self.crew.sandbox.processes(), "all processes have ended")
        assert time.time() - self.killed_at < 2 * STOPS_S

    def check_not_run(self) -> None:
        """Check that a command about which nothing was decided is not executed, not even when its agent finds no hub any longer."""
        if self.ends_the_hub:
            self.wait_until_all_is_gone()
        assert not (self.crew.root / "ran").exists()

    def finish(self) -> tuple[str, str]:
        """Wait for the outcome; if there is no hub any longer, look whether anything is left, and resume the run."""
        assert self.run is not None
        if self.ends_the_hub:
            self.run.communicate(timeout=30)
            self.wait_until_all_is_gone()
            self.answer()
            self.resumed_at = time.time()
            self.run = self.crew.begin("resume", self.crew.folder.name)
        until(self.answer, "the agent is done")
        return self.run.communicate(timeout=60)

    def answer(self) -> bool:
        """Allow what the agent asks for; whether nothing is left to be asked."""
        if not self.answers:
            return True
        entries = self.crew.journal()
        settled = {id_of(entry) for entry in entries if entry.kind == "question.settled"}
        for entry in entries:
            if entry.kind == "question.asked" and id_of(entry) not in settled:
                self.crew.call("answer", self.crew.folder.name, id_of(entry), "allow")
        if not any(entry.kind == "step.finished" for entry in entries):
            return False
        self.gate("go").touch()
        ran = (self.crew.root / "ran").read_text(encoding="ascii").splitlines()
        assert 0 < len(ran) <= self.crew.count("question.asked")
        return True

    def end(self) -> None:
        """Kill the hub that is left if something went wrong."""
        if self.run is not None and self.run.poll() is None:
            send(self.hub, KILL)
            self.run.communicate()


Point = Callable[[Scene], Iterator[None]]


def before_start(scene: Scene) -> Iterator[None]:
    """The step is in the journal; the keeper, which is to start the agent, is stopped."""
    scene.start("plain", *LATER)
    scene.wait_for_gate("ready")
    keeper = scene.keeper
    send(keeper, STOP)
    scene.gate("go").touch()
    scene.wait_for_entry("step.started")
    assert not scene.gate("starts").exists()
    yield
    send(keeper, CONTINUE)


def started(scene: Scene) -> Iterator[None]:
    """The process of the agent runs, and has written nothing."""
    scene.gate("hold-start").touch()
    scene.start("plain")
    scene.crew.cli_pid()
    yield
    scene.gate("hold-start").unlink()


def asked(scene: Scene) -> Iterator[None]:
    """The agent has written its first lines, and waits for its model."""
    with scene.server.hold("plain") as hold:
        scene.start("plain")
        hold.wait()
        yield
        if scene.ends_the_agent:
            scene.wait_until_the_agent_is_gone()


def tool_open(scene: Scene) -> Iterator[None]:
    """The agent executes a command."""
    scene.start("tick")
    ticks = scene.crew.root / "ticks"
    until(ticks.exists, "the command runs", scene.crew.root)
    assert scene.crew.pids_of("ticks")
    scene.wait_for_reply("date >> ticks")
    yield
    if scene.ends_the_agent:
        until(lambda: not scene.crew.pids_of("ticks"), "the command is gone")
        assert ticks.stat().st_mtime - scene.killed_at < STOPS_S
    scene.gate("go").touch()


def decision_open(scene: Scene) -> Iterator[None]:
    """The model wants a command, and the hub, which is stopped, has not decided about it."""
    with scene.server.hold(f"{scene.crew.kind}-touch") as hold:
        scene.start("touch")
        hold.wait()
        send(scene.hub, STOP)
    scene.wait_for_reply("ran >> ran")
    yield
    scene.check_not_run()
    send(scene.hub, CONTINUE)


def question_open(scene: Scene) -> Iterator[None]:
    """A person is asked about a command. Another step keeps the run going."""
    scene.start("ask", *BESIDE, mode="ask", words=())
    scene.wait_for_entry("question.asked")
    scene.wait_for_reply("ran >> ran")
    yield
    scene.check_not_run()
    scene.answers = True


def own_tool_runs(scene: Scene) -> Iterator[None]:
    """A function of the program runs, which the agent has called."""
    scene.start("own", *LINGER)
    scene.wait_for_gate("in-tool")
    scene.wait_for_reply(CALLING)
    yield
    scene.gate("go").touch()


def own_reply_on_its_way(scene: Scene) -> Iterator[None]:
    """The function has ended; the agent, which is stopped, has not got what it returned."""
    scene.start("own", *LINGER)
    scene.wait_for_gate("in-tool")
    scene.wait_for_reply(CALLING)
    tree = scene.crew.cli_tree()
    send(tree, STOP)
    scene.gate("go").touch()
    scene.wait_for_entry("tool.finished")
    yield
    send(tree, CONTINUE)


def result_written(scene: Scene) -> Iterator[None]:
    """The agent is done, and the hub, which is stopped, has not read it."""
    with scene.server.hold("plain") as hold:
        scene.start("plain")
        hold.wait()
        send(scene.hub, STOP)
    scene.wait_for_reply(DONE)
    if scene.crew.kind == "claude":
        until(lambda: scene.crew.agent_has('"type":"result"'), "it has written the result")
    elif scene.crew.kind == "codex":
        until(lambda: scene.crew.agent_has("task_complete"), "it has written the result")
    else:
        until(lambda: scene.crew.agent_has('"stopReason"'), "it has written the result")
    yield
    send(scene.hub, CONTINUE)


def result_read(scene: Scene) -> Iterator[None]:
    """The hub has read what the agent has said, whose process has not ended yet."""
    scene.gate("hold-end").touch()
    scene.start("plain")
    scene.wait_for_gate("ended")
    yield
    scene.gate("hold-end").unlink()


def journaled(scene: Scene) -> Iterator[None]:
    """The outcome is in the journal, and the program is at its next step."""
    scene.start("plain", *AFTERWARDS)
    scene.wait_for_gate("in-tool")
    yield
    scene.gate("go").touch()


POINTS: Final[dict[str, Point]] = {
    point.__name__: point
    for point in (
        before_start, started, asked, tool_open, decision_open, question_open, own_tool_runs, own_reply_on_its_way,
        result_written, result_read, journaled,
    )
}  # fmt: skip


def id_of(entry: Entry) -> str:
    """The question that an entry is about."""
    return str(entry.data["id"])

"""The errors of runs, workers, steps and replay: BT300 to BT369. How errors are declared: ``_root.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack.errors._root import BartackError, message

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


class RunError(BartackError, code="BT300"):
    """Something is wrong with a run."""

    remedy = "Inspect the run with 'bartack show RUN'."


@message()
class RunNotFoundError(RunError, code="BT301"):
    """No run has this id, or the ids of several runs begin with it."""

    asked: str
    near: tuple[str, ...] = ()
    wanted: str = ""
    remedy = (
        "'bartack status' lists the runs of this workspace, 'bartack status --all' those of all workspaces; "
        "a unique prefix of an id is enough."
    )

    def describe(self) -> str:
        if self._is_ambiguous():
            return f"{self.asked!r} is a prefix of several run ids: {', '.join(self.near)}"
        if self._is_first():
            return f"there is no run {self.wanted or 'here'}"
        named = f"no run {self.asked!r}" if self.asked or not self.wanted else "there is no run"
        what = f" {self.wanted}" if self.wanted else ""
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"{named}{what}{hint}"

    def advise(self) -> str:
        if self._is_first():
            return (
                "'bartack run FILE' or 'bartack run --goal TEXT' starts one. 'bartack status --all' lists the runs "
                "of all workspaces, and -C DIR chooses another one."
            )
        return "Give more characters of the id, or all of it." if self._is_ambiguous() else ""

    def _is_first(self) -> bool:
        """Whether no run was named: the newest one is meant, and there is none at all."""
        return self.asked == "latest" and not self.near

    def _is_ambiguous(self) -> bool:
        return bool(self.near) and not self.wanted and all(run.startswith(self.asked) for run in self.near)


@message("{run_id} failed in {worker}: {error}: {problem}")
class RunFailedError(RunError, code="BT302"):
    """The run failed."""

    run_id: str
    worker: str
    error: str
    problem: str
    remedy = "'bartack show RUN' names the failed step. Fix the cause, then run 'bartack resume RUN'; it continues at that step."


@message("{run_id} is {status} and has no result yet")
class RunNotFinishedError(RunError, code="BT303", retryable=True):
    """The run has no result yet."""

    run_id: str
    status: str
    remedy = "Wait until the run ends, or resume it if it was interrupted."


_OVER = frozenset({"completed", "cancelled", "aborted"})


@message("{run_id} is not active ({status})")
class RunNotActiveError(RunError, code="BT304"):
    """No hub is running this run, and the request needs one."""

    run_id: str
    status: str
    remedy = "Resume the run with 'bartack resume RUN'. If it cannot be resumed, 'bartack show RUN' shows how it ended."

    def advise(self) -> str:
        if self.status not in _OVER:
            return ""
        return f"The run has ended. 'bartack show {self.run_id}' shows how; 'bartack run' starts a new one."


@message()
class SessionFailedError(RunError, code="BT305"):
    """The session failed. Every wait in it ends with this error."""

    worker: str
    error: str
    problem: str
    remedy = "Fix the cause that the message names, then run 'bartack resume RUN'; it continues at the failed step."

    def describe(self) -> str:
        return f"the session failed in {self.worker or 'a process outside it'}: {self.error}: {self.problem}"


@message("{worker} failed: {error}: {problem}")
class WorkerError(RunError, code="BT306"):
    """A worker that this worker delegated to failed, and the session failed with it."""

    worker: str
    error: str
    problem: str
    remedy = "Fix the cause of the failure and resume, or delegate with on_failure='collect' to receive failures as values."

    @property
    def cause(self) -> BaseException | None:
        """The failure of the worker itself."""
        return self.__cause__


@message()
class ReplayMismatchError(RunError, code="BT307"):
    """During replay the program requested another step than the journal recorded. Nothing was executed."""

    worker: str
    step: str
    recorded: str
    asked: str
    where: str = ""
    source: str = ""
    """The line of the program that requests the step."""
    remedy = (
        "Change the program so that it requests the recorded steps in their order, then run 'bartack resume RUN --update'. A "
        "worker must be deterministic between two steps: read the clock, randomness, files and the environment only through ctx. "
        "To take another path after a recorded step, run 'bartack fork RUN --at STEP --update'."
    )

    def describe(self) -> str:
        place = f" at {self.where}" if self.where else ""
        instead = "the same with other arguments" if self.recorded == self.asked else self.asked
        mismatch = f"the journal has {self.recorded}, the program requests {instead}{place}"
        return f"{self.worker}, step {self.step}: {mismatch}" + (f"\n{self.source}" if self.source else "")


@message()
class VersionError(RunError, code="BT353"):
    """The history of a worker has a version of a name (`ctx.version`) that the program does not have. Nothing was executed."""

    worker: str
    name: str
    number: int
    latest: int
    oldest: int = 0
    where: str = ""
    source: str = ""
    """The line of the program that asks for the version."""
    remedy = (
        "Put the code of the version that the message names back into the program, and keep it until all runs with it have "
        "ended; then run 'bartack resume RUN --update'. 'bartack replay RUN' checks a program without a change to the run."
    )

    @property
    def known(self) -> str:
        """The versions that the program has."""
        return f"version {self.latest}" if self.oldest == self.latest else f"{self.oldest} to {self.latest}"

    def describe(self) -> str:
        place = f" at {self.where}" if self.where else ""
        has = f"{self.worker} has version {self.number} of {self.name!r}"
        problem = f"the program has {self.known}{place}: keep the code of version {self.number}"
        return f"{has}, {problem}" + (f"\n{self.source}" if self.source else "")


_INSTEAD_OF_ASYNCIO = {
    "asyncio.sleep()": "ctx.sleep()",
    "asyncio.gather()": "ctx.gather()",
    "asyncio.create_task()": "ctx.task_group()",
    "asyncio.wait_for()": "ctx.timeout()",
    "asyncio.timeout()": "ctx.timeout()",
}


@message("{where}: a worker cannot await {what}")
class ForeignAwaitError(RunError, code="BT308"):
    """A worker awaited something that is not part of Bartack. Calls of asyncio and of other clients belong inside steps."""

    what: str
    where: str
    remedy = "Put the call into a function with @step and await that function. To wait or to join, use ctx.sleep and ctx.gather."

    def advise(self) -> str:
        instead = _INSTEAD_OF_ASYNCIO.get(self.what)
        return f"Use {instead}; put other calls of asyncio into a function with @step." if instead else ""


@message("{where}: {what} was never awaited, so it did not run")
class ForgottenAwaitError(RunError, code="BT346"):
    """A worker called a step, a method of ctx, another worker or an async helper without 'await'. The call did nothing."""

    what: str
    where: str
    remedy = "Write 'await' before the call. Then run the program again, or continue with 'bartack resume RUN --update'."


@message("{where}: {name}: {problem}")
class WorkerDefinitionError(RunError, TypeError, code="BT309"):
    """A function cannot be a worker or a step."""

    name: str
    where: str
    problem: str
    remedy: str = "A worker is a module-level 'async def' whose first parameter is ctx; a step is a module-level function."


@message()
class ProgramImportError(RunError, code="BT310"):
    """The program could not be loaded."""

    program: str
    problem: str
    _: KW_ONLY
    place: str = ""
    """The file and line that cannot be loaded, if that is known."""
    remedy: str = "Correct the error in the message. Each process of a run imports the program: its top level must have no effects."

    def describe(self) -> str:
        return f"{self.place or self.program}: {self.problem}"


@message("module {module} ({file}) is not part of the program kept with this run")
class ProgramNotPinnedError(RunError, code="BT311"):
    """A worker imported a module of the project that is not in the copy of the program kept with the run."""

    module: str
    file: str
    remedy = "Import the module in the program, or name it there as text ('pkg.plugin'); then run 'bartack resume RUN --update'."


@message("{name} {problem}")
class NotInWorkerError(RunError, code="BT312"):
    """A step or a worker was called outside a run."""

    name: str
    problem: str = "can be awaited only in a worker"
    remedy: str = "Await it in a worker; the plain function of a step is its attribute 'function'."


@message("{name} was called inside the body of a step")
class NestedStepError(RunError, code="BT313"):
    """The body of a step used ctx. A step is recorded as a whole, so its body cannot contain other steps."""

    name: str
    remedy = "Make the call in the worker, before or after the step."


class StepError(RunError, code="BT314"):
    """The body of a step raised an exception that cannot be rebuilt in this process."""

    remedy = "Read the kind and the message. An exception is raised as itself if its class can be imported."

    def __init__(self, kind: str, problem: str, data: dict[str, object] | None = None) -> None:
        self.kind = kind
        self.problem = problem
        self.data = data or {}
        super().__init__(f"{kind}: {problem}" + (f" {data}" if data else ""))


class StepCancelledError(StepError, code="BT315"):
    """The step was cancelled: a sibling failed, a deadline passed, or the worker was cancelled."""

    remedy = "Clean up and re-raise."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__("cancelled", reason)


class LinkedExitError(StepCancelledError, code="BT337"):
    """A linked worker ended abnormally: it failed, was cancelled, or never existed."""

    remedy = "Clean up and re-raise. To receive such exits as messages instead, call 'ctx.trap(True)' first."

    def __init__(self, worker: str, reason: str) -> None:
        self.worker = worker
        self.reason = reason
        super(StepCancelledError, self).__init__("linked exit", f"{worker} ended: {reason}")


class StepCrashedError(StepError, code="BT316"):
    """The process of the worker died repeatedly in the same step."""

    remedy = (
        "Find the cause (memory, a crash in native code) with 'bartack log RUN', fix it, then resume the run."
    )

    def __init__(self, step: str, crashes: int, reason: str) -> None:
        self.step = step
        self.crashes = crashes
        self.reason = reason
        super().__init__("crashed", f"its worker died {crashes} times in step {step} (last: {reason})")


class OutcomeUnknownError(StepError, code="BT317"):
    """A step that must not run twice was in progress when the run was killed. Its outcome is unknown."""

    remedy = "Find out whether the step took effect, then run 'bartack resume RUN --unknown retry', 'done VALUE' or 'fail'."

    def __init__(self, step: str, about: str) -> None:
        self.step = step
        self.about = about
        super().__init__("unknown", f"step {step} ({about}) was in progress when its run was killed")


class ShellError(RunError, code="BT318"):
    """A command exited with a status other than 0."""

    remedy = "Read the error output of the command. With check=False the status is returned as a value."

    def __init__(self, argv: list[str], status: int, stderr: str = "", problem: str = "") -> None:
        self.argv = argv
        self.command = " ".join(argv)
        self.status = status
        self.stdout = ""
        self.stderr = stderr
        self.problem = problem
        why = f": {problem}" if problem else ""
        last = "".join(f"\n{line}" for line in stderr[-4096:].rstrip().splitlines()[-10:])
        super().__init__(f"command failed with status {status}: {self.command}{why}{last}")


def _limit_name(source: str) -> str:
    """Where a limit comes from: the argument of the call, or a setting."""
    return "its argument timeout_s" if source == "explicit" else source


@message()
class DeadlineExceededError(RunError, TimeoutError, code="BT319", retryable=True):
    """A wait exceeded its time limit."""

    kind: str
    waited_s: float
    source: str
    remedy = "Allow more time, or find out what the run waits for with 'bartack show RUN'."

    def describe(self) -> str:
        return f"{self.kind} took longer than {self.waited_s:g} s ({_limit_name(self.source)})"


class StepTimeoutError(DeadlineExceededError, code="BT320"):
    """The body of a step exceeded its time limit."""

    remedy = "Give the step a longer timeout_s, or make its body faster."


class ShellTimeoutError(DeadlineExceededError, ShellError, code="BT321"):
    """A command exceeded its time limit and was terminated with all processes that it had started. Its status is 124."""

    remedy = "Give the command a longer timeout_s, or find out what the command waits for."

    def __init__(self, kind: str, waited_s: float, source: str, argv: list[str]) -> None:
        self.kind = kind
        self.waited_s = waited_s
        self.source = source
        self.argv = argv
        self.command = " ".join(argv)
        self.status = 124
        self.stdout = self.stderr = self.problem = ""
        RunError.__init__(
            self, f"{kind} took longer than {waited_s:g} s ({_limit_name(source)}): {self.command}"
        )


class QuestionTimeoutError(DeadlineExceededError, code="BT322"):
    """A question was not answered in time."""

    remedy = "Answer with 'bartack answer RUN', or give the question a default or more time."


class ReceiveTimeoutError(DeadlineExceededError, code="BT333"):
    """No message arrived in time."""

    remedy = "Give the receive a longer timeout_s, or find out with 'bartack show RUN' why no worker sends."


@message("the run takes no input, so it cannot ask: {question}")
class NoAnswerError(RunError, code="BT323"):
    """A question was asked in a run that takes no input (--no-input)."""

    question: str
    remedy = "Run without --no-input, or give the question a default."


@message()
class QuestionAnsweredError(RunError, code="BT324"):
    """The question was already answered. The first answer counts."""

    question: str
    by: str = ""
    """Who answered it, if that is known."""
    answer: str = ""
    """The answer that counts, as JSON, if it is known."""
    remedy = "'bartack answer RUN' lists the open questions."

    def describe(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"question {self.question} was already answered{by}{f': {self.answer}' if self.answer else ''}"


@message("no open question {question!r}")
class QuestionNotFoundError(RunError, code="BT325"):
    """The run has no such question."""

    question: str
    remedy = "'bartack answer RUN' lists the open questions."


@message("more than {limit} {what}")
class LimitExceededError(RunError, code="BT326"):
    """A worker or a run exceeded one of its limits."""

    what: str
    limit: int
    remedy = "Split the work into child workers, or have a command write its output to a file."


@message("bad frame: {problem}")
class FrameError(RunError, code="BT327"):
    """A process sent data on a socket that does not follow the protocol."""

    problem: str
    remedy = "Use the same version of Bartack on both sides."


@message("{asked} is refused: {reason}")
class PeerRefusedError(RunError, code="BT328"):
    """A process made a request that it is not allowed to make."""

    asked: str
    reason: str
    remedy = (
        "Make the request from a terminal outside all runs. The setting questions.from_runs, if it is set when the run is "
        "started, allows it to other runs."
    )


@message("unknown request {asked!r}")
class UnknownRequestError(RunError, code="BT329"):
    """A process made a request that the run does not know."""

    asked: str
    remedy = "Use the same version of Bartack on both sides."


@message("the workspace {path} does not exist")
class WorkspaceError(RunError, code="BT330"):
    """The workspace of a run does not exist."""

    path: str
    remedy = "Resume the run with --workspace DIR if the workspace was moved."


@message("{run_id} cannot be resumed: {reason}")
class ResumeRefusedError(RunError, code="BT331"):
    """The run cannot be resumed."""

    run_id: str
    reason: str
    remedy = "Read the reason. 'bartack fork RUN --at STEP' makes a new run from the steps up to that one."


@message()
class BudgetExceededError(RunError, code="BT332"):
    """The budget of the run (money, tokens, turns or seconds) does not cover this call."""

    limit_usd: float
    spent_usd: float
    unit: str = "usd"
    remedy = "Raise the budget with --set budget.usd=AMOUNT (or tokens, turns, wall_s) and resume."

    def describe(self) -> str:
        named = f"{self.limit_usd:g} " + ("USD" if self.unit == "usd" else f"(budget.{self.unit})")
        return f"the budget of {named} is used up ({self.spent_usd:g} spent or reserved)"


@message("{run_id} has no step {step!r} with an outcome")
class StepNotFoundError(RunError, code="BT334"):
    """The run has no such step, or the step has no outcome yet."""

    run_id: str
    step: str
    remedy = (
        "'bartack show RUN' lists the steps; a step is named by its worker's path, a colon and its number."
    )


@message()
class DeadlockError(RunError, code="BT335"):
    """In a run in memory all workers wait for each other, and no timer is pending."""

    waits: tuple[str, ...]
    remedy = (
        "Check what each worker waits for. Add the missing answer or message to the test, or fix the program."
    )

    def describe(self) -> str:
        return "all workers wait: " + ("; ".join(self.waits) or "nothing can wake one of them")


@message("the test does not script this command: {argv!r}")
class ShellNotScriptedError(RunError, code="BT336"):
    """A program in a run in memory executed a command that the test does not script."""

    argv: list[str]
    remedy = "Add the command, word by word, to the argument shell of the test."


@message("{path} cannot be written: {problem}; the run is interrupted")
class RunDiskError(RunError, code="BT338"):
    """A file of a run cannot be written: the disk is full, read-only or broken. The run is interrupted, and nothing is lost."""

    path: str
    problem: str
    remedy = "Free space on the disk that holds the run's directory, or fix the disk, then resume the run."


@message()
class SecretMissingError(RunError, code="BT339"):
    """Values of a run refer to a secret, which is never stored with them, and the secret is not set in this environment."""

    name: str
    remedy = "Set the variable to its current value, then repeat the command."

    def describe(self) -> str:
        variable = self.name.removeprefix("tests.")
        where = f"tests.env.{variable} of bartack.toml" if variable != self.name else self.name
        return f"values of the run refer to the secret {where}, which is not set in this environment"


@message()
class HubStoppedError(RunError, code="BT342", retryable=True):
    """The hub of the run is stopped (Ctrl-Z, SIGSTOP, a debugger), so it does not answer.

    If it was stopped before the request, nothing was sent. Otherwise it carries out the request when it continues.
    """

    run_id: str
    pid: int
    asked: str = ""
    remedy = "Continue the process that the message names: 'fg' in its terminal, or 'kill -CONT PID'."

    def describe(self) -> str:
        later = f"; it was asked to {self.asked} and will do so when it continues" if self.asked else ""
        return (
            f"{self.run_id} does not answer: its process {self.pid} is stopped{later}."
            f" Continue it with 'fg' in its terminal, or 'kill -CONT {self.pid}'"
        )


@message("{run} was not created here by you: {reason}. To trust it: bartack trust {directory}")
class ForeignRunError(RunError, code="BT340"):
    """A run was not created here by you: it came with a clone, an archive or a copy. Resuming it would execute its program."""

    run: str
    directory: str
    reason: str
    remedy = "Inspect it with 'bartack show RUN' and read its program directory. If you trust it, run 'bartack trust DIRECTORY'."


@message("a run as {user} is not possible: {problem}. {action}")
class RunAsError(RunError, code="BT341"):
    """A run cannot execute its processes as the user that --run-as names."""

    user: str
    problem: str
    action: str
    remedy = (
        "Start the run as root, for a user that can read Python, Bartack and the workspace, and keep its runs in a directory that "
        "only root can change (BARTACK_STATE_DIR)."
    )


@message("{worker} cannot restart: {reason}")
class RestartRefusedError(RunError, code="BT349"):
    """A worker asked to restart with a new history while some of its work was in progress. The new history would lack that work."""

    worker: str
    reason: str
    remedy = "Restart from the worker's own function, after its branches, blocks (timeout, monitor, delivery) and children."


@message("a run is not possible here: {problem}. {action}")
class MachineError(RunError, code="BT350"):
    """This machine, or this process as it was started, lacks something that every run needs. No run was created or changed."""

    problem: str
    action: str
    remedy = "Follow the advice in the message, then repeat the command. 'bartack doctor' checks everything that a run needs."


@message("{worker} could not be started in {attempts} attempts: {problem}")
class WorkerStartError(RunError, code="BT351", retryable=True):
    """The process of a worker could not be started, even after several attempts."""

    worker: str
    attempts: int
    problem: str
    remedy = (
        "Raise the limit that the message names (ulimit -n for files, ulimit -u for processes, the memory of a container), or give "
        "delegate a limit so that fewer workers run at a time. Then resume."
    )


class WorkerLimitError(LimitExceededError, code="BT352"):
    """A program asked for more workers at a time, or for more levels of nested workers, than its run allows."""

    remedy = (
        "Give delegate a limit, so that fewer workers run at a time, and check that no worker starts itself without end. The "
        "limits are the settings workers.max and workers.max_depth, and the number of files that a process can open (ulimit -n)."
    )


@message("{path} cannot be replayed: {problem}")
class RecordingError(RunError, code="BT354"):
    """A recorded run cannot be replayed against a program: it is not one, is incomplete, or its program is not found."""

    path: str
    problem: str
    remedy = (
        "Name a run, the directory of one, a bundle that was made with 'bartack bundle RUN --prompts', or a directory with some "
        "of them. If the program is elsewhere, name it with --program FILE."
    )


@message()
class WorkspaceCarryError(RunError, code="BT355"):
    """A workspace is too large for other machines, or its repository cannot be copied. Nothing was submitted."""

    workspace: str
    names: tuple[str, ...]
    problem: str
    remedy = (
        "Ignore the files that the message names (.gitignore) if the run does not need them, or follow its advice. A path that all "
        'nodes have needs no copy: carry = "shared".'
    )

    def describe(self) -> str:
        names = f": {', '.join(self.names)}" if self.names else ""
        return f"the workspace {self.workspace} cannot be copied: {self.problem}{names}"


@message("the copy of {workspace} cannot be made or restored: {problem}")
class WorkspaceKeepError(RunError, code="BT356", retryable=True):
    """A copy of a workspace could not be made or restored: its files kept changing, or git refused a command."""

    workspace: str
    problem: str
    remedy = (
        "If the files keep changing, stop the program that writes them, or have git ignore them (.gitignore). Otherwise fix the "
        "problem that the message names, then resume."
    )


@message("no hub of {run_id} began with the request in time")
class RequestLateError(RunError, code="BT357", retryable=True):
    """A request to a run in a database was not carried out in time, and is not going to be."""

    run_id: str
    remedy = "Send it again. 'bartack nodes list --on DATABASE' shows whether there is a node that can run the run."


@message()
class EnvironmentMismatchError(RunError, code="BT358"):
    """A run that continues only with the versions that it was started with would get others. Nothing was executed."""

    run: str
    differences: tuple[str, ...]
    remedy = (
        "Install the versions that the run was started with. Or let it continue with those that are installed where you are: "
        "'bartack resume RUN --update' records them, if the program still matches the recorded steps."
    )

    def describe(self) -> str:
        return f"{self.run} needs the environment that it was started in: {', '.join(self.differences)}"


@message("the environment of {run} cannot be made: {problem}")
class EnvironmentUnavailableError(RunError, code="BT359"):
    """A node could not make the environment of a run from its uv.lock, or Bartack in that environment does not fit the node."""

    run: str
    problem: str
    remedy = (
        "Fix the problem that the message names on the node, then run 'bartack resume RUN --on DATABASE'. If it is one of "
        "pyproject.toml, run 'uv lock', and give the run the new files: 'bartack resume RUN --update --on DATABASE'."
    )


@message("the remote {remote!r} of {workspace} cannot be used: {problem}")
class WorkspaceRemoteError(RunError, code="BT344"):
    """A remote that a run needs cannot be used by nodes. Nothing was submitted."""

    workspace: str
    remote: str
    problem: str
    remedy = (
        "Name a remote of the repository whose URL is https://HOST/PATH, ssh://HOST/PATH, HOST:PATH or a path that all nodes have. "
        "Credentials belong to the nodes, not into the URL."
    )


@message("the workspace of {run_id} was not prepared: {command}: {problem}")
class WorkspaceSetupError(RunError, code="BT343"):
    """The command ``workspace.setup`` failed on a machine that is to continue a run. Nothing of the run was executed."""

    run_id: str
    command: str
    problem: str
    remedy = (
        "Fix what the message shows on that machine, or let a machine take the run that has what the command needs (run.needs). "
        "Then resume the run. All output of the command is in setup.log of the run's directory there."
    )


class NodeError(BartackError, code="BT360"):
    """Something is wrong with the node of this user, its queue or its schedules."""

    remedy = "'bartack node status' shows the node, 'bartack queue' its runs."


@message("a node of this user is running already (process {pid})")
class NodeRunningError(NodeError, code="BT361"):
    """Another node has the runs of this user."""

    pid: int
    remedy = "Use the node that is running, or stop it first with 'bartack node stop'. Its runs continue with the next node."


@message("the queue holds {most} runs and takes no more")
class QueueFullError(NodeError, code="BT362", retryable=True):
    """The queue of this user is full."""

    most: int
    remedy = "Wait until runs have ended; 'bartack queue' lists them."


@message("{run}: {problem}")
class RunNotQueuedError(NodeError, code="BT363"):
    """The queue does not hold this run, or not in a state that the request needs."""

    run: str
    problem: str
    remedy = "'bartack queue' lists the runs in the queue."


@message("schedule {name!r}: {problem}")
class ScheduleError(NodeError, code="BT364"):
    """A schedule cannot be used."""

    name: str
    problem: str
    remedy = "Correct the schedule; five fields say when: minute, hour, day of month, month, day of week ('0 3 * * 1-5')."


@message("no schedule {name!r}")
class ScheduleNotFoundError(NodeError, code="BT365"):
    """No schedule has this name."""

    name: str
    remedy = "'bartack schedule list' names them."


@message("the node did not start: {problem}")
class NodeStartError(NodeError, code="BT366"):
    """The node could not be started. The run stays in the queue."""

    problem: str
    remedy = "Start it in a terminal with 'bartack node run', where it says what is wrong. Queued runs wait for it."


@message("the node is version {found}, this is {version}")
class NodeVersionError(NodeError, code="BT367"):
    """The node that is running belongs to another version of Bartack."""

    found: str
    version: str
    remedy = "Stop it with 'bartack node stop'; the next command starts one of this version, and its runs continue."


@message("{run} cannot be run: its workspace {workspace} is gone")
class WorkspaceGoneError(NodeError, code="BT368"):
    """The workspace of a queued run does not exist any more."""

    run: str
    workspace: str
    remedy = "Bring the workspace back, then run 'bartack queue add RUN'."


@message("{run} waits for a node: {problem}")
class NoNodeError(NodeError, code="BT376"):
    """No node of the database has fitted a run for a minute. The run stays queued, and the first node that fits takes it."""

    run: str
    problem: str
    remedy = (
        "Start a node with that pool and these labels: bartack node --on DATABASE --pool NAME --label LABEL."
    )


@message("{run} is held: {reason}")
class RunHeldError(NodeError, code="BT377"):
    """Nodes do not continue this run by themselves. Nothing of it is lost."""

    run: str
    reason: str
    remedy = "Fix the reason, then give it back to the nodes: bartack resume RUN --on DATABASE."


@message("the service: {problem}")
class ServiceError(NodeError, code="BT379"):
    """The node cannot be installed as a service, or removed from the services."""

    problem: str
    remedy = "Follow the message. Without a service the node is started by the first detached run, or with 'bartack node start'."

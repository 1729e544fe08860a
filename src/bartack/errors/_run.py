"""The errors of runs, workers, steps and replay: BT300 to BT352. How errors are declared: ``_root.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack.errors._root import BartackError, message

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


class RunError(BartackError, code="BT300"):
    """Something is wrong with a run."""

    remedy = "Look at the run with 'bartack show RUN'."


@message()
class RunNotFoundError(RunError, code="BT301"):
    """No run has this id, or more than one begins with it."""

    asked: str
    near: tuple[str, ...] = ()
    wanted: str = ""
    remedy = "'bartack status' lists the runs of this workspace; a unique beginning of an id is enough."

    def describe(self) -> str:
        if self._is_ambiguous():
            return f"{self.asked!r} begins several runs: {', '.join(self.near)}"
        named = f"no run {self.asked!r}" if self.asked or not self.wanted else "there is no run"
        what = f" {self.wanted}" if self.wanted else ""
        hint = f"; it could be {', '.join(self.near)}" if self.near else ""
        return f"{named}{what}{hint}"

    def advise(self) -> str:
        return "Give more of the id, or all of it." if self._is_ambiguous() else ""

    def _is_ambiguous(self) -> bool:
        return bool(self.near) and not self.wanted and all(run.startswith(self.asked) for run in self.near)


@message("{run_id} failed in {worker}: {error}: {problem}")
class RunFailedError(RunError, code="BT302"):
    """The run ended with a failure."""

    run_id: str
    worker: str
    error: str
    problem: str
    remedy = "'bartack show RUN' names the step. When the cause is mended, 'bartack resume RUN' goes on at that step."


@message("{run_id} is {status} and has no result yet")
class RunNotFinishedError(RunError, code="BT303", retryable=True):
    """The run has no result yet."""

    run_id: str
    status: str
    remedy = "Wait for its end, or resume it if it was interrupted."


_OVER = frozenset({"completed", "cancelled", "aborted"})


@message("{run_id} is not active ({status})")
class RunNotActiveError(RunError, code="BT304"):
    """No process runs this run, and what was asked needs one."""

    run_id: str
    status: str
    remedy = "Resume the run with 'bartack resume RUN'. A run that has ended for good is shown by 'bartack show RUN'."

    def advise(self) -> str:
        if self.status not in _OVER:
            return ""
        return f"The run has ended for good. 'bartack show {self.run_id}' shows how; 'bartack run' starts a new one."


@message()
class SessionFailedError(RunError, code="BT305"):
    """The session failed, so every wait in it ends."""

    worker: str
    error: str
    problem: str
    remedy = "Mend the cause that the message names; 'bartack resume RUN' goes on at the failed step."

    def describe(self) -> str:
        return f"the session failed in {self.worker or 'a process outside it'}: {self.error}: {self.problem}"


@message("{worker} failed: {error}: {problem}")
class WorkerError(RunError, code="BT306"):
    """A worker that this one delegated to has failed. The session has failed with it."""

    worker: str
    error: str
    problem: str
    remedy = "Mend the worker's failure and resume; or delegate with on_failure='collect' to handle failures as values."

    @property
    def cause(self) -> BaseException | None:
        """The failure of the worker itself."""
        return self.__cause__


@message()
class ReplayMismatchError(RunError, code="BT307"):
    """On replay the program asked for another step than the journal has. Nothing was executed."""

    worker: str
    step: str
    recorded: str
    asked: str
    where: str = ""
    source: str = ""
    """The line of the program that asks."""
    remedy = (
        "Change the program so that it asks for the recorded steps in their order, then 'bartack resume RUN --update'. Between two "
        "steps a worker must do the same each time: clock, randomness, files and environment only through ctx. To go another way "
        "after a recorded step: 'bartack fork RUN --at STEP --update'."
    )

    def describe(self) -> str:
        place = f" at {self.where}" if self.where else ""
        instead = "the same with other arguments" if self.recorded == self.asked else self.asked
        told = f"the journal has {self.recorded}, the program asks for {instead}{place}"
        return f"{self.worker}, step {self.step}: {told}" + (f"\n{self.source}" if self.source else "")


_INSTEAD_OF_ASYNCIO = {
    "asyncio.sleep()": "ctx.sleep()",
    "asyncio.gather()": "ctx.gather()",
    "asyncio.create_task()": "ctx.task_group()",
    "asyncio.wait_for()": "ctx.timeout()",
    "asyncio.timeout()": "ctx.timeout()",
}


@message("{where}: a worker cannot await {what}")
class ForeignAwaitError(RunError, code="BT308"):
    """A worker awaited something that is not Bartack's: asyncio and other clients live inside steps."""

    what: str
    where: str
    remedy = "Put the call into a function with @step and await that; for waiting and joining use ctx.sleep and ctx.gather."

    def advise(self) -> str:
        instead = _INSTEAD_OF_ASYNCIO.get(self.what)
        return f"Use {instead}; other calls of asyncio belong into a function with @step." if instead else ""


@message("{where}: {what} was never awaited, so it did not happen")
class ForgottenAwaitError(RunError, code="BT346"):
    """A worker called a step, a member of ctx, another worker or a helper of its own without 'await'. The call did nothing."""

    what: str
    where: str
    remedy = "Write 'await' in front of the call. Then run the program anew, or continue with 'bartack resume RUN --update'."


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
    remedy: str = "Correct what the message names. Each process of a run imports the program: its top level must have no effects."

    def describe(self) -> str:
        return f"{self.place or self.program}: {self.problem}"


@message("module {module} ({file}) is not part of the program kept with this run")
class ProgramNotPinnedError(RunError, code="BT311"):
    """A worker imported a module of the project that was not there when the run began."""

    module: str
    file: str
    remedy = "Name the module in the program, by an import or as text ('pkg.plugin'); then 'bartack resume --update'."


@message("{name} {problem}")
class NotInWorkerError(RunError, code="BT312"):
    """A step or a worker was called outside a run."""

    name: str
    problem: str = "can be awaited only in a worker"
    remedy: str = "Await it in a worker; the plain function of a step is its attribute 'function'."


@message("{name} was called inside the body of a step")
class NestedStepError(RunError, code="BT313"):
    """The body of a step used ctx. A body is one step: what it does is not recorded by itself."""

    name: str
    remedy = "Do it in the worker, before or after the step."


class StepError(RunError, code="BT314"):
    """The body of a step raised an exception that cannot be made again here."""

    remedy = "Read the kind and message; an exception class that is importable and takes JSON arguments is raised as itself."

    def __init__(self, kind: str, problem: str, data: dict[str, object] | None = None) -> None:
        self.kind = kind
        self.problem = problem
        self.data = data or {}
        super().__init__(f"{kind}: {problem}" + (f" {data}" if data else ""))


class StepCancelledError(StepError, code="BT315"):
    """The step was cancelled: a sibling failed, a deadline passed, or somebody cancelled the worker."""

    remedy = "Tidy up and let it pass on."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__("cancelled", reason)


class LinkedExitError(StepCancelledError, code="BT337"):
    """A worker that this one is linked with ended abnormally: it failed, was cancelled, or never was there."""

    remedy = "Tidy up and let it pass on; a worker that is to hear of such ends instead calls 'ctx.trap(True)' first."

    def __init__(self, worker: str, reason: str) -> None:
        self.worker = worker
        self.reason = reason
        super(StepCancelledError, self).__init__("linked exit", f"{worker} ended: {reason}")


class StepCrashedError(StepError, code="BT316"):
    """The worker died in this step again and again."""

    remedy = (
        "Look at 'bartack log RUN' for the reason (memory, a crash in native code), mend it, then resume."
    )

    def __init__(self, step: str, crashes: int, reason: str) -> None:
        self.step = step
        self.crashes = crashes
        self.reason = reason
        super().__init__("crashed", f"its worker died {crashes} times in step {step} (last: {reason})")


class OutcomeUnknownError(StepError, code="BT317"):
    """A step that must not happen twice was under way when everything was killed: nobody knows whether it happened."""

    remedy = (
        "Find out whether it happened, then 'bartack resume RUN --unknown retry', 'done VALUE' or 'fail'."
    )

    def __init__(self, step: str, about: str) -> None:
        self.step = step
        self.about = about
        super().__init__("unknown", f"step {step} ({about}) was under way when its run was killed")


class ShellError(RunError, code="BT318"):
    """A command ended with a status other than 0."""

    remedy = "Read its error output; with check=False the status is a value."

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
    """A wait took longer than it was allowed to."""

    kind: str
    waited_s: float
    source: str
    remedy = "Allow more time, or find out what it waits for with 'bartack show RUN'."

    def describe(self) -> str:
        return f"{self.kind} took longer than {self.waited_s:g} s ({_limit_name(self.source)})"


class StepTimeoutError(DeadlineExceededError, code="BT320"):
    """The body of a step took longer than it was allowed to."""

    remedy = "Give the step a longer timeout_s, or make its body end sooner."


class ShellTimeoutError(DeadlineExceededError, ShellError, code="BT321"):
    """A command took longer than it was allowed to, and was ended with everything it had started. Its status is 124."""

    remedy = "Give the command a longer timeout_s, or find out what it waits for."

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
    """Nobody answered a question in time."""

    remedy = "Answer with 'bartack answer RUN', or give the question a default or more time."


class ReceiveTimeoutError(DeadlineExceededError, code="BT333"):
    """No message came in time."""

    remedy = "Give the receive a longer timeout_s, or find out why nobody sends with 'bartack show RUN'."


@message("nobody is there to answer: {question}")
class NoAnswerError(RunError, code="BT323"):
    """A question was asked in a run that has nobody to answer it."""

    question: str
    remedy = "Run without --no-input, or give the question a default."


@message("question {question} was answered already")
class QuestionAnsweredError(RunError, code="BT324"):
    """The question was answered already; the first answer counts."""

    question: str
    remedy = "'bartack answer RUN' lists the open questions."


@message("no open question {question!r}")
class QuestionNotFoundError(RunError, code="BT325"):
    """The run has no such question."""

    question: str
    remedy = "'bartack answer RUN' lists the open questions."


@message("more than {limit} {what}")
class LimitExceededError(RunError, code="BT326"):
    """Something grew beyond what one worker or one run can hold."""

    what: str
    limit: int
    remedy = "Split the work into child workers, or have a command write its output to a file."


@message("bad frame: {problem}")
class FrameError(RunError, code="BT327"):
    """A process said something on a socket that is not the protocol."""

    problem: str
    remedy = "Use the same version of Bartack on both sides."


@message("{asked} is refused: {reason}")
class PeerRefusedError(RunError, code="BT328"):
    """A process asked for something that it has no right to."""

    asked: str
    reason: str
    remedy = (
        "Do it from a terminal outside every run. The setting questions.from_runs allows other runs to do it, if it is set when "
        "the run is started."
    )


@message("unknown request {asked!r}")
class UnknownRequestError(RunError, code="BT329"):
    """A process asked for something that the run does not know."""

    asked: str
    remedy = "Use the same version of Bartack on both sides."


@message("the workspace {path} is not there")
class WorkspaceError(RunError, code="BT330"):
    """The workspace of a run is not there."""

    path: str
    remedy = "Resume with --workspace DIR if it has moved."


@message("{run_id} cannot be resumed: {reason}")
class ResumeRefusedError(RunError, code="BT331"):
    """The run cannot go on as it is."""

    run_id: str
    reason: str
    remedy = "Read the reason; 'bartack fork RUN --at STEP' makes a new run from the part that is good."


@message()
class BudgetExceededError(RunError, code="BT332"):
    """The run has nothing left for this call: no money, tokens, turns or seconds."""

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
    """In a run in memory everybody waits for somebody else, and no timer is left."""

    waits: tuple[str, ...]
    remedy = (
        "See what each worker waits for. Give the test the missing answer or message, or mend the program."
    )

    def describe(self) -> str:
        return "everybody waits: " + ("; ".join(self.waits) or "for nothing that could come")


@message("the test does not say how this command ends: {argv!r}")
class ShellNotScriptedError(RunError, code="BT336"):
    """A program in a run in memory runs a command that the test says nothing about."""

    argv: list[str]
    remedy = "Add the command, word by word, to the shell= of the test."


@message("{path} cannot be written: {problem}; the run is interrupted")
class RunDiskError(RunError, code="BT338"):
    """A file of a run cannot be written: the disk is full, read-only or broken. The run is interrupted, and nothing is lost."""

    path: str
    problem: str
    remedy = "Make room on the disk that holds the run's directory, or mend it, then resume."


@message()
class SecretMissingError(RunError, code="BT339"):
    """Values of a run contain a secret, which is not stored with them, and the secret is not set here."""

    name: str
    remedy = "Set the variable to its present value, then repeat the command."

    def describe(self) -> str:
        variable = self.name.removeprefix("tests.")
        where = f"tests.env.{variable} of bartack.toml" if variable != self.name else self.name
        return f"values of the run contain the secret {where}, which is not set here"


@message()
class HubStoppedError(RunError, code="BT342", retryable=True):
    """The process that runs the run is stopped (Ctrl-Z, SIGSTOP, a debugger), so it answers nothing.

    If it was stopped before it was asked, nothing was asked of it. Otherwise it does what it was asked when it continues.
    """

    run_id: str
    pid: int
    asked: str = ""
    remedy = "Continue the process that the message names: 'fg' in its terminal, or 'kill -CONT PID'."

    def describe(self) -> str:
        later = f"; it was asked to {self.asked} and does that when it continues" if self.asked else ""
        return (
            f"{self.run_id} does not answer: its process {self.pid} is stopped{later}."
            f" Continue it with 'fg' in its terminal, or 'kill -CONT {self.pid}'"
        )


@message("{run} was not made here by you: {reason}. To trust it: bartack trust {directory}")
class ForeignRunError(RunError, code="BT340"):
    """A run was not made here by you: it came with a clone, an archive or a copy, and would execute the program that is in it."""

    run: str
    directory: str
    reason: str
    remedy = "Look at it with bartack show and in its program directory. If you trust it, run bartack trust with its directory."


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
    """A worker asked to begin a new history while something of it was under way that the new history would not know of."""

    worker: str
    reason: str
    remedy = "Restart from the worker's own function, after its branches, its blocks (timeout, monitor, delivery) and its children."


@message("a run is not possible here: {problem}. {action}")
class MachineError(RunError, code="BT350"):
    """This machine, or this process as it was started, lacks something that every run needs. No run was made or changed."""

    problem: str
    action: str
    remedy = "Do what the message says, then repeat the command; 'bartack doctor' checks everything that a run needs."


@message("{worker} could not be started in {attempts} attempts: {problem}")
class WorkerStartError(RunError, code="BT351", retryable=True):
    """The process of a worker could not be started, not even after some more attempts."""

    worker: str
    attempts: int
    problem: str
    remedy = (
        "Raise the limit that the message names (ulimit -n for files, ulimit -u for processes, the memory of a container), or give "
        "delegate a limit so that fewer workers run at a time. Then resume."
    )


class WorkerLimitError(LimitExceededError, code="BT352"):
    """A program asked for more workers at a time, or for more levels of workers below each other, than its run may have."""

    remedy = (
        "Give delegate a limit, so that fewer workers run at a time, and see that a worker does not start itself without end. "
        "The bounds are the settings workers.max and workers.max_depth, and the files that a process may open (ulimit -n)."
    )

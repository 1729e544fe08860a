"""Every error Bartack raises, each with a stable code.

``bartack explain CODE`` prints what a code means and what to do; both texts live here, beside the class.

::

    BartackError                         BT100
    ├── ConfigError                      BT101
    ├── UnsafePathError                  BT102   (also ValueError)
    ├── CanonicalJsonError               BT103   (also ValueError)
    ├── FileAccessError                  BT104
    ├── RunIdError                       BT105   (also ValueError)
    ├── InternalError                    BT106
    ├── UntrustedError                   BT107
    ├── JournalError                     BT200
    │   ├── JournalCorruptError          BT201
    │   │   └── JournalLostError         BT213
    │   ├── JournalLockedError           BT202
    │   ├── JournalPoisonedError         BT203
    │   │   ├── JournalFullError         BT204
    │   │   ├── JournalSyncError         BT205
    │   │   └── JournalOwnershipLostError BT206
    │   ├── JournalFormatError           BT207
    │   ├── JournalNotFoundError         BT208
    │   ├── JournalClosedError           BT209
    │   ├── EntryError                   BT210   (also ValueError)
    │   ├── BlobMissingError             BT211
    │   └── BlobCorruptError             BT212
    ├── RunError                         BT300
    │   ├── RunNotFoundError             BT301
    │   ├── RunFailedError               BT302
    │   ├── RunNotFinishedError          BT303
    │   ├── RunNotActiveError            BT304
    │   ├── SessionFailedError           BT305
    │   ├── WorkerError                  BT306
    │   ├── ReplayMismatchError          BT307
    │   ├── ForeignAwaitError            BT308
    │   ├── WorkerDefinitionError        BT309   (also TypeError)
    │   ├── ProgramImportError           BT310
    │   ├── ProgramNotPinnedError        BT311
    │   ├── NotInWorkerError             BT312
    │   ├── NestedStepError              BT313
    │   ├── StepError                    BT314
    │   │   ├── StepCancelledError       BT315
    │   │   │   └── LinkedExitError      BT337
    │   │   ├── StepCrashedError         BT316
    │   │   └── OutcomeUnknownError      BT317
    │   ├── ShellError                   BT318
    │   ├── DeadlineExceededError        BT319   (also TimeoutError)
    │   │   ├── StepTimeoutError         BT320
    │   │   ├── ShellTimeoutError        BT321   (also ShellError)
    │   │   ├── QuestionTimeoutError     BT322
    │   │   └── ReceiveTimeoutError      BT333
    │   ├── NoAnswerError                BT323
    │   ├── QuestionAnsweredError        BT324
    │   ├── QuestionNotFoundError        BT325
    │   ├── LimitExceededError           BT326
    │   │   └── WorkerLimitError         BT352
    │   ├── FrameError                   BT327
    │   ├── PeerRefusedError             BT328
    │   ├── UnknownRequestError          BT329
    │   ├── WorkspaceError               BT330
    │   ├── ResumeRefusedError           BT331
    │   ├── BudgetExceededError          BT332
    │   ├── StepNotFoundError            BT334
    │   ├── DeadlockError                BT335
    │   ├── ShellNotScriptedError        BT336
    │   ├── RunDiskError                 BT338
    │   ├── SecretMissingError           BT339
    │   ├── HubStoppedError              BT342
    │   ├── ForeignRunError              BT340
    │   ├── RunAsError                   BT341
    │   ├── ForgottenAwaitError          BT346
    │   ├── RestartRefusedError          BT349
    │   ├── MachineError                 BT350
    │   └── WorkerStartError             BT351
    ├── MessagingError                   BT400
    │   ├── MessageValueError            BT401   (also ValueError)
    │   ├── TypeMismatchError            BT402   (also ValueError)
    │   ├── MessageTooLargeError         BT403
    │   ├── MailboxNameError             BT404   (also ValueError)
    │   ├── MailboxFullError             BT405
    │   ├── MailboxClosedError           BT407
    │   ├── MailboxConfigError           BT408
    │   ├── DeliveryError                BT409
    │   ├── BroadcastError               BT410
    │   ├── DeliveryOptionError          BT411   (also ValueError)
    │   ├── TopicNameError               BT412   (also ValueError)
    │   ├── DeadLetterNotFoundError      BT413
    │   ├── DeadLetterFilterError        BT414   (also ValueError)
    │   └── NameTakenError               BT415
    ├── SupervisionError                 BT500
    │   ├── TreeLockedError              BT501
    │   ├── ChildSpecError               BT502   (also ValueError)
    │   ├── ChildStartError              BT503
    │   ├── ChildNotFoundError           BT504
    │   ├── ChildStateError              BT505
    │   ├── SupervisorExhaustedError     BT506
    │   ├── SupervisorNotRunningError    BT507
    │   ├── MonitorUnavailableError      BT508
    │   └── MonitorNotFoundError         BT509
    ├── PatchworkError                   BT600
    │   ├── ThrownError                  BT601
    │   ├── PatternMismatchError         BT603
    │   ├── NumberError                  BT604
    │   ├── IndexRangeError              BT605
    │   └── ProgramFaultError            BT606
    ├── ResilienceError                  BT700
    │   ├── StoreTooNewError             BT701
    │   ├── OutboxFullError              BT702
    │   ├── StoreUnavailableError        BT703
    │   ├── CircuitOpenError             BT704
    │   ├── SettingsError                BT705
    │   ├── TokenScopeError              BT706
    │   ├── UnsafeBindError              BT707
    │   ├── ServiceAnswerError           BT708
    │   ├── EventNotFoundError           BT709
    │   ├── ServiceUnprovenError         BT710
    │   ├── UnsafeSocketError            BT711
    │   └── LineageError                 BT720
    │       ├── LineageCycleError        BT721
    │       ├── PatternNotFoundError     BT722
    │       ├── EventConflictError       BT723
    │       ├── EventInvalidError        BT724   (also ValueError)
    │       │   └── EventValueError      BT727
    │       ├── CursorError              BT725   (also ValueError)
    │       ├── TokenFileError           BT726
    │       └── LineageMissingError      BT728
    ├── AgentError                       BT800
    │   ├── AgentConfigError             BT801
    │   ├── ScriptError                  BT802
    │   ├── ReplyInvalidError            BT803
    │   ├── AgentCapabilityError         BT804
    │   ├── AgentTransientError          BT805
    │   │   ├── AgentExitedError         BT806
    │   │   └── AgentStalledError        BT807
    │   ├── AgentRateLimitedError        BT808
    │   │   └── QuotaExhaustedError      BT809
    │   ├── AgentAuthError               BT810
    │   ├── AgentStartError              BT811
    │   ├── AgentRequestError            BT812
    │   ├── AgentProtocolError           BT813
    │   ├── AgentReplyError              BT814
    │   ├── AgentBusyError               BT815
    │   ├── AgentCancelledError          BT816
    │   │   └── AgentDeadlineError       BT817
    │   ├── VersionMismatchError         BT818
    │   ├── ArtifactMismatchError        BT819
    │   │   └── PathEscapeError          BT820
    │   ├── AgentBudgetError             BT821
    │   └── LineTooLongError             BT822   (also ValueError)
    ├── PipelineError                    BT900
    │   ├── SnapshotError                BT901
    │   │   ├── SnapshotReadError        BT902
    │   │   ├── SnapshotUnstableError    BT903
    │   │   └── ManifestError            BT904
    │   ├── TaskNotFoundError            BT905
    │   ├── WorkspaceBusyError           BT906
    │   ├── LoopLimitError               BT919
    │   │   ├── TestsGateError           BT907
    │   │   ├── ReviewLimitError         BT908
    │   │   ├── SpecLimitError           BT909
    │   │   └── RoundLimitError          BT910
    │   ├── ReadOnlyViolationError       BT911
    │   ├── SpecEditError                BT912
    │   ├── ReceiptConflictError         BT913
    │   ├── ActivationError              BT914
    │   │   └── PlanPathError            BT915
    │   ├── NoCandidatesError            BT916
    │   ├── ProposalError                BT917
    │   ├── TasksFailedError             BT918
    │   └── GitError                     BT920
    │       ├── WorktreeError            BT921
    │       └── WorktreeDirtyError       BT922
    ├── UnknownCodeError                 BT1001
    └── UsageError                       BT1002

Numbers go by hundreds: 1 core and configuration, 2 journal, 3 runs and replay, 4 messaging, 5 supervision, 6 language at
run time, 7 resilience and tracking, 8 agents, 9 pipeline, 10 plugin, CLI and web. A number is never given twice.

An error takes facts, builds its own message and keeps the facts as attributes. Every class survives pickling with all of its
facts, without its constructor being called again.
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Self


class BartackError(Exception):
    """Something went wrong in Bartack. Every other error is a child of this one."""

    code: ClassVar[str] = "BT100"
    retryable: ClassVar[bool] = False
    remedy: str = "Read the message; it names the cause and the place."
    """What to do. One error may have another remedy than its class, if its facts call for it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(cls: type[BartackError], args: tuple[object, ...], facts: dict[str, object]) -> BartackError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class ConfigError(BartackError):
    """A setting has a value that cannot be used."""

    code = "BT101"
    remedy = "Correct the setting that the message names."

    def __init__(self, setting: str, problem: str) -> None:
        self.setting = setting
        self.problem = problem
        super().__init__(f"{setting}: {problem}")


class UnsafePathError(BartackError, ValueError):
    """A path leads, or could lead, out of the directory it has to stay in."""

    code = "BT102"
    remedy = "Give a relative path without '..' that no symbolic link leads out of its directory."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"unsafe path {path!r}: {reason}")


class CanonicalJsonError(BartackError, ValueError):
    """A value has no canonical JSON form (RFC 8785): it is no JSON value, or a number that JSON readers would change."""

    code = "BT103"
    remedy = "Use null, booleans, strings, finite numbers, integers within ±(2^53 - 1), arrays and objects with string keys."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


_FULL = "Make room on the disk that holds the path, then repeat the command, or resume the run."
_FILES = "Raise the limit of open files ('ulimit -n'), or let fewer workers run at a time, then repeat the command."
_FILE_REMEDIES = {
    os.strerror(errno.ENOSPC): _FULL,
    os.strerror(errno.EDQUOT): _FULL,
    os.strerror(errno.EFBIG): _FULL,
    os.strerror(errno.EMFILE): _FILES,
    os.strerror(errno.ENFILE): _FILES,
    os.strerror(
        errno.EROFS
    ): "Mount the file system that holds the path for writing, or give a path elsewhere.",
    os.strerror(errno.EIO): "Check the disk that holds the path, and the system's log.",
    os.strerror(errno.ENOMEM): "Give the machine more memory, or let fewer workers run at a time.",
}


class FileAccessError(BartackError):
    """The operating system refused to read or write a file.

    If the disk is full, there are too many open files, or the disk is broken, the error itself says what to do about that.
    """

    code = "BT104"
    remedy = "Check that the path exists, is of the right kind, and that you may read or write it."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        if reason in _FILE_REMEDIES:
            self.remedy = _FILE_REMEDIES[reason]
        super().__init__(f"{path}: {reason}")


class InternalError(BartackError):
    """Bartack met a failure that it has no name for. That is a defect in Bartack, not in what you did."""

    code = "BT106"
    remedy = "Run the command once more with BARTACK_TRACEBACK=1 set, and report what it prints."

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(f"internal error: {cause}")


class UntrustedError(BartackError):
    """Settings or runs are in a directory that another user made, or can change, and that you have not trusted."""

    code = "BT107"
    remedy = "Look at what is in the directory that the message names. If you trust its owner, run bartack trust with it."

    def __init__(self, path: str, reason: str, directory: str) -> None:
        self.path = path
        self.reason = reason
        self.directory = directory
        super().__init__(f"{path} is not trusted: {reason}. To trust it: bartack trust {directory}")


class RunIdError(BartackError, ValueError):
    """Something was given as the id of a run that does not have its form."""

    code = "BT105"
    remedy = "Give an id as 'bartack run' prints it: run-YYYYMMDD-HHMMSS and eight hex digits."

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no run id; one looks like run-20260131-235959-0f3a91c7")


class JournalError(BartackError):
    """Something is wrong with the journal of a run."""

    code = "BT200"
    remedy = "Look at the journal with 'bartack journal verify PATH'; it changes nothing."


class JournalCorruptError(JournalError):
    """A journal is damaged in a place that was already acknowledged, or is no journal at all. Nothing was changed.

    A line that was still being written when the power went is no corruption: it is cut off and kept beside the journal.
    """

    code = "BT201"
    remedy = (
        "Keep the file as it is. 'bartack journal verify PATH' names the place, 'bartack journal show PATH' prints the "
        "entries before it. Restore the run's directory from a backup, or start a new run."
    )

    def __init__(self, path: str, offset: int, problem: str) -> None:
        self.path = path
        self.offset = offset
        self.problem = problem
        super().__init__(f"{path}: damaged at byte {offset}: {problem}; nothing was changed")


class JournalLostError(JournalCorruptError):
    """Acknowledged entries at the end of a journal are missing: it was cut, overwritten or replaced. Nothing was changed.

    The run's directory keeps how far its journal had got, beside the journal: in ``lock`` and in ``run.json``. A journal that
    holds less than that, or something else at that place, was changed from outside. To execute what follows would repeat
    finished steps.
    """

    code = "BT213"
    remedy = (
        "Restore the run's directory from a backup. The page docs/how-to/corrupt-journal.md explains how to resume without "
        "the missing entries, and what that repeats."
    )

    def __init__(self, path: str, offset: int, held: int, acknowledged: int) -> None:
        self.held = held
        self.acknowledged = acknowledged
        super().__init__(path, offset, _missing(held, acknowledged))


def _missing(held: int, acknowledged: int) -> str:
    if held >= acknowledged:
        return f"entry {acknowledged} is not the one that was acknowledged"
    found = f"the journal ends with entry {held}" if held else "there is no journal"
    return f"{found}, but entry {acknowledged} was acknowledged"


class JournalLockedError(JournalError):
    """Another process owns the journal. A journal has one owner at a time."""

    code = "BT202"
    retryable = True
    remedy = "Wait for the owner to end, or look at what it writes with 'bartack journal show PATH --follow'."

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{path} is owned by {owner}")


class JournalPoisonedError(JournalError):
    """The journal cannot be trusted to keep anything more, so it takes nothing more. What it acknowledged is safe.

    Entries that were not acknowledged may or may not be there when it is opened again.
    """

    code = "BT203"
    remedy = "Mend what the message names, then resume: nothing that was acknowledged is lost."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path} takes no more entries: {problem}")

    @classmethod
    def again(cls, first: Self) -> Self:
        """The error for every call after the one that failed: same facts, fresh traceback."""
        return cls(first.path, first.problem)


class JournalFullError(JournalPoisonedError):
    """There is no space left for the journal."""

    code = "BT204"
    remedy = "Make room on the disk that holds the run's directory, then resume."


class JournalSyncError(JournalPoisonedError):
    """The operating system could not bring the journal to the disk. A failed sync is never tried again."""

    code = "BT205"
    remedy = "Check the disk and the system's log, then resume."


class JournalOwnershipLostError(JournalPoisonedError):
    """The journal no longer belongs to this process: it was deleted, replaced, or taken over by another owner."""

    code = "BT206"
    remedy = "Find out who removed or took over the run's directory. This process has stopped writing."


class JournalFormatError(JournalError):
    """The journal was written in a format that this version of Bartack does not read. Nothing was changed."""

    code = "BT207"
    remedy = "Use the Bartack version that wrote it, or a newer one."

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has journal format {found}; this version reads formats up to {known}")


class JournalNotFoundError(JournalError):
    """There is no journal at this path."""

    code = "BT208"
    remedy = "Give the journal file or the directory of a run."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no journal at {path}")


class JournalClosedError(JournalError):
    """The journal was closed by this process and is used again."""

    code = "BT209"
    remedy = "Open it again."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is closed")


class EntryError(JournalError, ValueError):
    """Something was handed to the journal that cannot be an entry."""

    code = "BT210"
    remedy = "Give a kind, an object of JSON values, and no more than 1 MiB beside the value."

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem
        super().__init__(f"entry {kind!r}: {problem}")


class BlobMissingError(JournalError):
    """A large value that an entry refers to is not there."""

    code = "BT211"
    remedy = "Restore the blobs directory of the run from a backup."

    def __init__(self, sha256: str, where: str) -> None:
        self.sha256 = sha256
        self.where = where
        super().__init__(f"blob {sha256} is missing in {where}")


class BlobCorruptError(JournalError):
    """A large value was changed on disk: its content no longer has the checksum it is stored under."""

    code = "BT212"
    remedy = "Restore the blob from a backup of the run's directory."

    def __init__(self, sha256: str, problem: str) -> None:
        self.sha256 = sha256
        self.problem = problem
        super().__init__(f"blob {sha256}: {problem}")


class RunError(BartackError):
    """Something is wrong with a run."""

    code = "BT300"
    remedy = "Look at the run with 'bartack show RUN'."


class RunNotFoundError(RunError):
    """No run has this id, or more than one begins with it."""

    code = "BT301"
    remedy = "'bartack status' lists the runs of this workspace; a unique beginning of an id is enough."

    def __init__(self, asked: str, near: tuple[str, ...] = (), wanted: str = "") -> None:
        self.asked = asked
        self.near = near
        self.wanted = wanted
        named = f"no run {asked!r}" if asked or not wanted else "there is no run"
        what = f" {wanted}" if wanted else ""
        hint = f"; it could be {', '.join(near)}" if near else ""
        text = f"{named}{what}{hint}"
        if near and not wanted and all(run_id.startswith(asked) for run_id in near):
            text = f"{asked!r} begins several runs: {', '.join(near)}"
            self.remedy = "Give more of the id, or all of it."
        super().__init__(text)


class RunFailedError(RunError):
    """The run ended with a failure."""

    code = "BT302"
    remedy = "'bartack show RUN' names the step. When the cause is mended, 'bartack resume RUN' goes on at that step."

    def __init__(self, run_id: str, worker: str, error: str, problem: str) -> None:
        self.run_id = run_id
        self.worker = worker
        self.error = error
        self.problem = problem
        super().__init__(f"{run_id} failed in {worker}: {error}: {problem}")


class RunNotFinishedError(RunError):
    """The run has no result yet."""

    code = "BT303"
    retryable = True
    remedy = "Wait for its end, or resume it if it was interrupted."

    def __init__(self, run_id: str, status: str) -> None:
        self.run_id = run_id
        self.status = status
        super().__init__(f"{run_id} is {status} and has no result yet")


_OVER = frozenset({"completed", "cancelled", "aborted"})


class RunNotActiveError(RunError):
    """No process runs this run, and what was asked needs one."""

    code = "BT304"
    remedy = "Resume the run with 'bartack resume RUN'. A run that has ended for good is shown by 'bartack show RUN'."

    def __init__(self, run_id: str, status: str) -> None:
        self.run_id = run_id
        self.status = status
        if status in _OVER:
            self.remedy = f"The run has ended for good. 'bartack show {run_id}' shows how; 'bartack run' starts a new one."
        super().__init__(f"{run_id} is not active ({status})")


class SessionFailedError(RunError):
    """The session failed, so every wait in it ends."""

    code = "BT305"
    remedy = "Mend the cause that the message names; 'bartack resume RUN' goes on at the failed step."

    def __init__(self, worker: str, error: str, problem: str) -> None:
        self.worker = worker
        self.error = error
        self.problem = problem
        super().__init__(f"the session failed in {worker or 'a process outside it'}: {error}: {problem}")


class WorkerError(RunError):
    """A worker that this one delegated to has failed. The session has failed with it."""

    code = "BT306"
    remedy = "Mend the worker's failure and resume; or delegate with on_failure='collect' to handle failures as values."

    def __init__(self, worker: str, error: str, problem: str) -> None:
        self.worker = worker
        self.error = error
        self.problem = problem
        super().__init__(f"{worker} failed: {error}: {problem}")

    @property
    def cause(self) -> BaseException | None:
        """The failure of the worker itself."""
        return self.__cause__


class ReplayMismatchError(RunError):
    """On replay the program asked for another step than the journal has. Nothing was executed."""

    code = "BT307"
    remedy = (
        "Change the program so that it asks for the recorded steps in their order, then 'bartack resume RUN --update'. Between two "
        "steps a worker must do the same each time: clock, randomness, files and environment only through ctx. To go another way "
        "after a recorded step: 'bartack fork RUN --at STEP --update'."
    )

    def __init__(
        self, worker: str, step: str, recorded: str, asked: str, where: str = "", source: str = ""
    ) -> None:
        self.worker = worker
        self.step = step
        self.recorded = recorded
        self.asked = asked
        self.where = where
        self.source = source
        """The line of the program that asks."""
        place = f" at {where}" if where else ""
        instead = "the same with other arguments" if recorded == asked else asked
        super().__init__(
            f"{worker}, step {step}: the journal has {recorded}, the program asks for {instead}{place}"
            + (f"\n{source}" if source else "")
        )


_INSTEAD_OF_ASYNCIO = {
    "asyncio.sleep()": "ctx.sleep()",
    "asyncio.gather()": "ctx.gather()",
    "asyncio.create_task()": "ctx.task_group()",
    "asyncio.wait_for()": "ctx.timeout()",
    "asyncio.timeout()": "ctx.timeout()",
}


class ForeignAwaitError(RunError):
    """A worker awaited something that is not Bartack's: asyncio and other clients live inside steps."""

    code = "BT308"
    remedy = "Put the call into a function with @step and await that; for waiting and joining use ctx.sleep and ctx.gather."

    def __init__(self, what: str, where: str) -> None:
        self.what = what
        self.where = where
        instead = _INSTEAD_OF_ASYNCIO.get(what)
        if instead:
            self.remedy = f"Use {instead}; other calls of asyncio belong into a function with @step."
        super().__init__(f"{where}: a worker cannot await {what}")


class ForgottenAwaitError(RunError):
    """A worker called a step, a member of ctx, another worker or a helper of its own without 'await'. The call did nothing."""

    code = "BT346"
    remedy = "Write 'await' in front of the call. Then run the program anew, or continue with 'bartack resume RUN --update'."

    def __init__(self, what: str, where: str) -> None:
        self.what = what
        self.where = where
        super().__init__(f"{where}: {what} was never awaited, so it did not happen")


class WorkerDefinitionError(RunError, TypeError):
    """A function cannot be a worker or a step."""

    code = "BT309"
    remedy = "A worker is a module-level 'async def' whose first parameter is ctx; a step is a module-level function."

    def __init__(self, name: str, where: str, problem: str, remedy: str = "") -> None:
        self.name = name
        self.where = where
        self.problem = problem
        if remedy:
            self.remedy = remedy
        super().__init__(f"{where}: {name}: {problem}")


class ProgramImportError(RunError):
    """The program could not be loaded."""

    code = "BT310"
    remedy = "Correct what the message names. Each process of a run imports the program, so its top level must have no effects."

    def __init__(self, program: str, problem: str, *, place: str = "", remedy: str = "") -> None:
        self.program = program
        self.problem = problem
        self.place = place
        """The file and line that cannot be loaded, if that is known."""
        if remedy:
            self.remedy = remedy
        super().__init__(f"{place or program}: {problem}")


class ProgramNotPinnedError(RunError):
    """A worker imported a module of the project that was not there when the run began."""

    code = "BT311"
    remedy = "Name the module in the program, by an import or as text ('pkg.plugin'); then 'bartack resume --update'."

    def __init__(self, module: str, file: str) -> None:
        self.module = module
        self.file = file
        super().__init__(f"module {module} ({file}) is not part of the program kept with this run")


class NotInWorkerError(RunError):
    """A step or a worker was called outside a run."""

    code = "BT312"
    remedy = "Await it in a worker; the plain function of a step is its attribute 'function'."

    def __init__(self, name: str, problem: str = "can be awaited only in a worker", remedy: str = "") -> None:
        self.name = name
        self.problem = problem
        if remedy:
            self.remedy = remedy
        super().__init__(f"{name} {problem}")


class NestedStepError(RunError):
    """The body of a step used ctx. A body is one step: what it does is not recorded by itself."""

    code = "BT313"
    remedy = "Do it in the worker, before or after the step."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} was called inside the body of a step")


class StepError(RunError):
    """The body of a step raised an exception that cannot be made again here."""

    code = "BT314"
    remedy = "Read the kind and message; an exception class that is importable and takes JSON arguments is raised as itself."

    def __init__(self, kind: str, problem: str, data: dict[str, object] | None = None) -> None:
        self.kind = kind
        self.problem = problem
        self.data = data or {}
        super().__init__(f"{kind}: {problem}" + (f" {data}" if data else ""))


class StepCancelledError(StepError):
    """The step was cancelled: a sibling failed, a deadline passed, or somebody cancelled the worker."""

    code = "BT315"
    remedy = "Tidy up and let it pass on."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__("cancelled", reason)


class LinkedExitError(StepCancelledError):
    """A worker that this one is linked with ended abnormally: it failed, was cancelled, or never was there."""

    code = "BT337"
    remedy = "Tidy up and let it pass on; a worker that is to hear of such ends instead calls 'ctx.trap(True)' first."

    def __init__(self, worker: str, reason: str) -> None:
        self.worker = worker
        self.reason = reason
        super(StepCancelledError, self).__init__("linked exit", f"{worker} ended: {reason}")


class StepCrashedError(StepError):
    """The worker died in this step again and again."""

    code = "BT316"
    remedy = (
        "Look at 'bartack log RUN' for the reason (memory, a crash in native code), mend it, then resume."
    )

    def __init__(self, step: str, crashes: int, reason: str) -> None:
        self.step = step
        self.crashes = crashes
        self.reason = reason
        super().__init__("crashed", f"its worker died {crashes} times in step {step} (last: {reason})")


class OutcomeUnknownError(StepError):
    """A step that must not happen twice was under way when everything was killed: nobody knows whether it happened."""

    code = "BT317"
    remedy = (
        "Find out whether it happened, then 'bartack resume RUN --unknown retry', 'done VALUE' or 'fail'."
    )

    def __init__(self, step: str, about: str) -> None:
        self.step = step
        self.about = about
        super().__init__("unknown", f"step {step} ({about}) was under way when its run was killed")


class ShellError(RunError):
    """A command ended with a status other than 0."""

    code = "BT318"
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


class DeadlineExceededError(RunError, TimeoutError):
    """A wait took longer than it was allowed to."""

    code = "BT319"
    retryable = True
    remedy = "Allow more time, or find out what it waits for with 'bartack show RUN'."

    def __init__(self, kind: str, waited_s: float, source: str) -> None:
        self.kind = kind
        self.waited_s = waited_s
        self.source = source
        super().__init__(f"{kind} took longer than {waited_s:g} s ({_limit_name(source)})")


class StepTimeoutError(DeadlineExceededError):
    """The body of a step took longer than it was allowed to."""

    code = "BT320"
    remedy = "Give the step a longer timeout_s, or make its body end sooner."


class ShellTimeoutError(DeadlineExceededError, ShellError):
    """A command took longer than it was allowed to, and was ended with everything it had started. Its status is 124."""

    code = "BT321"
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


class QuestionTimeoutError(DeadlineExceededError):
    """Nobody answered a question in time."""

    code = "BT322"
    remedy = "Answer with 'bartack answer RUN', or give the question a default or more time."


class ReceiveTimeoutError(DeadlineExceededError):
    """No message came in time."""

    code = "BT333"
    remedy = "Give the receive a longer timeout_s, or find out why nobody sends with 'bartack show RUN'."


class NoAnswerError(RunError):
    """A question was asked in a run that has nobody to answer it."""

    code = "BT323"
    remedy = "Run without --no-input, or give the question a default."

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(f"nobody is there to answer: {question}")


class QuestionAnsweredError(RunError):
    """The question was answered already; the first answer counts."""

    code = "BT324"
    remedy = "'bartack answer RUN' lists the open questions."

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(f"question {question} was answered already")


class QuestionNotFoundError(RunError):
    """The run has no such question."""

    code = "BT325"
    remedy = "'bartack answer RUN' lists the open questions."

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(f"no open question {question!r}")


class LimitExceededError(RunError):
    """Something grew beyond what one worker or one run can hold."""

    code = "BT326"
    remedy = "Split the work into child workers, or have a command write its output to a file."

    def __init__(self, what: str, limit: int) -> None:
        self.what = what
        self.limit = limit
        super().__init__(f"more than {limit} {what}")


class FrameError(RunError):
    """A process said something on a socket that is not the protocol."""

    code = "BT327"
    remedy = "Use the same version of Bartack on both sides."

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"bad frame: {problem}")


class PeerRefusedError(RunError):
    """A process asked for something that it has no right to."""

    code = "BT328"
    remedy = (
        "Do it from a terminal outside every run. The setting questions.from_runs allows other runs to do it, if it is set when "
        "the run is started."
    )

    def __init__(self, asked: str, reason: str) -> None:
        self.asked = asked
        self.reason = reason
        super().__init__(f"{asked} is refused: {reason}")


class UnknownRequestError(RunError):
    """A process asked for something that the run does not know."""

    code = "BT329"
    remedy = "Use the same version of Bartack on both sides."

    def __init__(self, asked: str) -> None:
        self.asked = asked
        super().__init__(f"unknown request {asked!r}")


class WorkspaceError(RunError):
    """The workspace of a run is not there."""

    code = "BT330"
    remedy = "Resume with --workspace DIR if it has moved."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"the workspace {path} is not there")


class ResumeRefusedError(RunError):
    """The run cannot go on as it is."""

    code = "BT331"
    remedy = "Read the reason; 'bartack fork RUN --at STEP' makes a new run from the part that is good."

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"{run_id} cannot be resumed: {reason}")


class BudgetExceededError(RunError):
    """The run has nothing left for this call: no money, tokens, turns or seconds."""

    code = "BT332"
    remedy = "Raise the budget with --set budget.usd=AMOUNT (or tokens, turns, wall_s) and resume."

    def __init__(self, limit_usd: float, spent_usd: float, unit: str = "usd") -> None:
        self.limit_usd = limit_usd
        self.spent_usd = spent_usd
        self.unit = unit
        named = f"{limit_usd:g} USD" if unit == "usd" else f"{limit_usd:g} (budget.{unit})"
        super().__init__(f"the budget of {named} is used up ({spent_usd:g} spent or reserved)")


class StepNotFoundError(RunError):
    """The run has no such step, or the step has no outcome yet."""

    code = "BT334"
    remedy = (
        "'bartack show RUN' lists the steps; a step is named by its worker's path, a colon and its number."
    )

    def __init__(self, run_id: str, step: str) -> None:
        self.run_id = run_id
        self.step = step
        super().__init__(f"{run_id} has no step {step!r} with an outcome")


class DeadlockError(RunError):
    """In a run in memory everybody waits for somebody else, and no timer is left."""

    code = "BT335"
    remedy = (
        "See what each worker waits for. Give the test the missing answer or message, or mend the program."
    )

    def __init__(self, waits: tuple[str, ...]) -> None:
        self.waits = waits
        super().__init__("everybody waits: " + ("; ".join(waits) or "for nothing that could come"))


class ShellNotScriptedError(RunError):
    """A program in a run in memory runs a command that the test says nothing about."""

    code = "BT336"
    remedy = "Add the command, word by word, to the shell= of the test."

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        super().__init__(f"the test does not say how this command ends: {argv!r}")


class RunDiskError(RunError):
    """A file of a run cannot be written: the disk is full, read-only or broken. The run is interrupted, and nothing is lost."""

    code = "BT338"
    remedy = "Make room on the disk that holds the run's directory, or mend it, then resume."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path} cannot be written: {problem}; the run is interrupted")


class SecretMissingError(RunError):
    """Values of a run contain a secret, which is not stored with them, and the secret is not set here."""

    code = "BT339"
    remedy = "Set the variable to its present value, then repeat the command."

    def __init__(self, name: str) -> None:
        self.name = name
        where = (
            f"tests.env.{name.removeprefix('tests.')} of bartack.toml" if name.startswith("tests.") else name
        )
        super().__init__(f"values of the run contain the secret {where}, which is not set here")


class HubStoppedError(RunError):
    """The process that runs the run is stopped (Ctrl-Z, SIGSTOP, a debugger), so it answers nothing.

    If it was stopped before it was asked, nothing was asked of it. Otherwise it does what it was asked when it continues.
    """

    code = "BT342"
    retryable = True
    remedy = "Continue the process that the message names: 'fg' in its terminal, or 'kill -CONT PID'."

    def __init__(self, run_id: str, pid: int, asked: str = "") -> None:
        self.run_id = run_id
        self.pid = pid
        self.asked = asked
        later = f"; it was asked to {asked} and does that when it continues" if asked else ""
        super().__init__(
            f"{run_id} does not answer: its process {pid} is stopped{later}."
            f" Continue it with 'fg' in its terminal, or 'kill -CONT {pid}'"
        )


class ForeignRunError(RunError):
    """A run was not made here by you: it came with a clone, an archive or a copy, and would execute the program that is in it."""

    code = "BT340"
    remedy = "Look at it with bartack show and in its program directory. If you trust it, run bartack trust with its directory."

    def __init__(self, run: str, directory: str, reason: str) -> None:
        self.run = run
        self.directory = directory
        self.reason = reason
        super().__init__(f"{run} was not made here by you: {reason}. To trust it: bartack trust {directory}")


class RunAsError(RunError):
    """A run cannot execute its processes as the user that --run-as names."""

    code = "BT341"
    remedy = (
        "Start the run as root, for a user that can read Python, Bartack and the workspace, and keep its runs in a directory that "
        "only root can change (BARTACK_STATE_DIR)."
    )

    def __init__(self, user: str, problem: str, action: str) -> None:
        self.user = user
        self.problem = problem
        self.action = action
        super().__init__(f"a run as {user} is not possible: {problem}. {action}")


class RestartRefusedError(RunError):
    """A worker asked to begin a new history while something of it was under way that the new history would not know of."""

    code = "BT349"
    remedy = "Restart from the worker's own function, after its branches, its blocks (timeout, monitor, delivery) and its children."

    def __init__(self, worker: str, reason: str) -> None:
        self.worker = worker
        self.reason = reason
        super().__init__(f"{worker} cannot restart: {reason}")


class MachineError(RunError):
    """This machine, or this process as it was started, lacks something that every run needs. No run was made or changed."""

    code = "BT350"
    remedy = "Do what the message says, then repeat the command; 'bartack doctor' checks everything that a run needs."

    def __init__(self, problem: str, action: str) -> None:
        self.problem = problem
        self.action = action
        super().__init__(f"a run is not possible here: {problem}. {action}")


class WorkerStartError(RunError):
    """The process of a worker could not be started, not even after some more attempts."""

    code = "BT351"
    retryable = True
    remedy = (
        "Raise the limit that the message names (ulimit -n for files, ulimit -u for processes, the memory of a container), or give "
        "delegate a limit so that fewer workers run at a time. Then resume."
    )

    def __init__(self, worker: str, attempts: int, problem: str) -> None:
        self.worker = worker
        self.attempts = attempts
        self.problem = problem
        super().__init__(f"{worker} could not be started in {attempts} attempts: {problem}")


class WorkerLimitError(LimitExceededError):
    """A program asked for more workers at a time, or for more levels of workers below each other, than its run may have."""

    code = "BT352"
    remedy = (
        "Give delegate a limit, so that fewer workers run at a time, and see that a worker does not start itself without end. "
        "The bounds are the settings workers.max and workers.max_depth, and the files that a process may open (ulimit -n)."
    )


class MessagingError(BartackError):
    """Something is wrong with a message or a mailbox."""

    code = "BT400"
    remedy = "Read the message; it names the mailbox or the place in the value."


class MessageValueError(MessagingError, ValueError):
    """A value cannot be serialised: it, or something in it, is of a type that has no JSON form."""

    code = "BT401"
    remedy = "Send JSON values, dataclasses, Structs, aware datetimes and the other types of 'Values' in docs/reference/python.md."

    def __init__(self, place: str, problem: str, what: str = "", where: str = "") -> None:
        self.place = place
        self.problem = problem
        self.what = what
        self.where = where
        super().__init__(f"{_about_value(what, where)}{place}: {problem}")


def _about_value(what: str, where: str) -> str:
    """What comes before the place inside a value: which one it is, and where in the program."""
    named = f"{what} cannot be serialised: " if what else ""
    return f"{where}: {named}" if where else named


_RESULT = "the result of "


class TypeMismatchError(MessagingError, ValueError):
    """A value has another type than the one asked for."""

    code = "BT402"
    remedy = "Correct the annotation, or what is sent."

    def __init__(self, place: str, expected: str, found: str, what: str = "", where: str = "") -> None:
        self.place = place
        self.expected = expected
        self.found = found
        self.what = what
        self.where = where
        named = f"{what}: " if what else ""
        inside = "" if place == "$" and what else f"{place}: "
        told = f"{named}{inside}expected {expected}, found {found}"
        if place == "$" and what.startswith(_RESULT):
            told = f"{what.removeprefix(_RESULT)} returned {found}, but its annotation says {expected}"
        super().__init__(f"{where}: {told}".removeprefix(": "))


class MessageTooLargeError(MessagingError):
    """A value takes more than 16 MiB."""

    code = "BT403"
    remedy = "Write it to a file and send the path."

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(f"{what} takes {size} bytes, more than {limit}")


class MailboxNameError(MessagingError, ValueError):
    """No mailbox can have this name."""

    code = "BT404"
    remedy = "A name has letters, digits, '_' and '-', begins with a letter or '_', and is at most 64 long."

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"mailbox {name!r}: {reason}")


class MailboxFullError(MessagingError):
    """The mailbox holds as much as it may."""

    code = "BT405"
    retryable = True
    remedy = "Receive from it, or declare it with a larger capacity."

    def __init__(self, name: str, queued: int) -> None:
        self.name = name
        self.queued = queued
        super().__init__(f"mailbox {name!r} is full ({queued} messages)")


class MailboxClosedError(MessagingError):
    """The mailbox takes no more messages."""

    code = "BT407"
    remedy = "Send before it is closed, or to another mailbox."

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"mailbox {name!r} is closed")


class MailboxConfigError(MessagingError):
    """A mailbox was declared twice, differently."""

    code = "BT408"
    remedy = "Declare it once; the first declaration stands."

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"mailbox {name!r}: {problem}")


class DeliveryError(MessagingError):
    """A supervised send did not come as far as it waited for; ``outcome`` is its ``SendOutcome``."""

    code = "BT409"
    retryable = True
    remedy = "Look at the recipient with 'bartack mailbox list'; on_error=\"dead_letter\" keeps what could not be delivered."

    def __init__(self, recipient: str, problem: str, outcome: object) -> None:
        self.recipient = recipient
        self.problem = problem
        self.outcome = outcome
        super().__init__(f"the message to {recipient} was not delivered: {problem}")


class BroadcastError(MessagingError):
    """A broadcast reached fewer recipients than it had to; ``result`` is its ``BroadcastResult``."""

    code = "BT410"
    retryable = True
    remedy = "The result names the recipients that were not reached; best_effort takes what it gets."

    def __init__(self, strategy: str, succeeded: int, recipients: int, result: object) -> None:
        self.strategy = strategy
        self.succeeded = succeeded
        self.recipients = recipients
        self.result = result
        super().__init__(f"the broadcast ({strategy}) reached {succeeded} of {recipients} recipients")


class DeliveryOptionError(MessagingError, ValueError):
    """An option of a send or a broadcast cannot be used."""

    code = "BT411"
    remedy = "Correct the option that the message names."

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option}: {problem}")


class TopicNameError(MessagingError, ValueError):
    """There cannot be such a topic, or such a pattern of topics."""

    code = "BT412"
    remedy = "A topic is 1 to 8 words joined by '.'; in a pattern a word may be '*', and the last one '**'."

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"topic {topic!r}: {reason}")


class DeadLetterNotFoundError(MessagingError):
    """There is no dead letter of this id."""

    code = "BT413"
    remedy = "'bartack dlq list RUN' shows those that there are."

    def __init__(self, letter: str) -> None:
        self.letter = letter
        super().__init__(f"there is no dead letter {letter!r}")


class DeadLetterFilterError(MessagingError, ValueError):
    """A filter of dead letters cannot be used."""

    code = "BT414"
    remedy = "Use 'all', 'expired', the id of a letter, or the fields that the message names."

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class NameTakenError(MessagingError):
    """A worker that has not ended has this name already."""

    code = "BT415"
    remedy = "Take another name, or wait until that worker has ended."

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        super().__init__(f"the name {name!r} is taken by {owner}")


class AgentError(BartackError):
    """An agent could not do what it was asked.

    ``outcome`` says in a word what becomes of it: transient, rate-limited, terminal or cancelled. ``reason`` is the code of
    the line protocol, where there is one.
    """

    code = "BT800"
    outcome: ClassVar[str] = "terminal"
    remedy = "Read the reason; the call is recorded as failed, and 'bartack resume RUN' makes it anew."

    def __init__(
        self,
        agent: str,
        problem: str,
        reason: str = "",
        stderr_tail: tuple[str, ...] = (),
        attempts: tuple[str, ...] = (),
    ) -> None:
        self.agent = agent
        self.problem = problem
        self.reason = reason
        self.stderr_tail = stderr_tail
        self.usd = 0.0
        self.turns = 0
        """What the call cost all the same, as far as it is known."""
        self.tokens = 0
        self.attempts = attempts
        told = [
            f"agent {agent!r}: {problem}" if agent else f"the agent: {problem}",
            f" [{reason}]" if reason else "",
            f"; attempts: {', '.join(attempts)}" if attempts else "",
            f"; stderr: {' | '.join(stderr_tail)}" if stderr_tail else "",
        ]
        super().__init__("".join(told))


class AgentConfigError(AgentError):
    """An agent is not configured, or not as it must be."""

    code = "BT801"
    remedy = "Correct the agent's section in bartack.toml, or name an agent that it has; 'bartack agents doctor' checks them."


class ScriptError(AgentError):
    """The script of a scripted agent has no reply to a prompt, or cannot be read."""

    code = "BT802"
    remedy = "Correct the script that the message names, or its path in bartack.toml; add a rule for a prompt that none matches."


class ReplyInvalidError(AgentError):
    """An agent's reply is not of the type that was asked for, also after it was asked to mend it."""

    code = "BT803"
    remedy = "Say in the prompt what is wanted, or ask for a wider type."

    def __init__(self, agent: str, problem: str, reply: str = "") -> None:
        reply = reply[:2000]
        super().__init__(agent, problem)
        self.reply = reply
        self.message = f"{self.message}; it replied: {reply}"


class AgentCapabilityError(AgentError):
    """An agent is asked for something that it cannot do; nothing was sent to it."""

    code = "BT804"
    remedy = "Give the prompt to an agent that can do it, or ask for less."


class AgentTransientError(AgentError):
    """An agent failed for a reason that may be gone at the next attempt: it was busy, or its connection broke."""

    code = "BT805"
    retryable = True
    outcome = "transient"
    remedy = "It was tried again already. Look at the agent's own report, then resume the run."


class AgentExitedError(AgentTransientError):
    """The program of an agent ended, or never said a word, before it gave an answer."""

    code = "BT806"
    remedy = (
        "Read the last lines of its stderr in the error; 'bartack agents doctor NAME' checks the program."
    )


class AgentStalledError(AgentTransientError):
    """An agent stopped showing signs of life while it was at work."""

    code = "BT807"
    remedy = "Look at the agent's transcript. Raise stall_s or heartbeat_s of the agent if its work takes that long."


class AgentRateLimitedError(AgentError):
    """An agent may not be asked again before some time; ``until`` says when, if it is known."""

    code = "BT808"
    retryable = True
    outcome = "rate-limited"
    remedy = "Wait until the time that the message names, then resume the run."

    def __init__(self, agent: str, problem: str, reason: str = "", until: str = "") -> None:
        super().__init__(agent, f"{problem}; possible again at {until}" if until else problem, reason)
        self.problem = problem
        self.until = until


class QuotaExhaustedError(AgentRateLimitedError):
    """The quota or the credit of an agent is used up."""

    code = "BT809"
    remedy = "Wait for the quota to be renewed, or raise it with the agent's provider, then resume the run."


class AgentAuthError(AgentError):
    """An agent has no credentials, or they were refused. This is never tried again by itself."""

    code = "BT810"
    remedy = "Log in to the agent, or put the variable with its credentials into the environment, then resume the run."


class AgentStartError(AgentError):
    """The program of an agent could not be started, or does not speak a version of the protocol that we know."""

    code = "BT811"
    remedy = "Correct the agent's command in bartack.toml; 'bartack agents doctor NAME' says what is found."


class AgentRequestError(AgentError):
    """An agent refused what it was asked; ``cause`` is bad_request, too_large, refused or not_found."""

    code = "BT812"
    remedy = "Change what is asked; the same request is refused again."

    def __init__(self, agent: str, problem: str, reason: str = "", cause: str = "bad_request") -> None:
        super().__init__(agent, f"{problem} ({cause})", reason)
        self.problem = problem
        self.cause = cause


class AgentProtocolError(AgentError):
    """What an agent wrote is not the protocol that it has to speak."""

    code = "BT813"
    remedy = "Look at stream.ndjson in the agent's directory of the run; the line with a case is the one that was refused."


class AgentReplyError(AgentError):
    """An agent's answer does not have the form that was asked for."""

    code = "BT814"
    remedy = "Look at the answer in the agent's transcript; make the request clearer, or mend the agent."


class AgentBusyError(AgentError):
    """Another process uses this conversation of the agent. Nothing was started."""

    code = "BT815"
    retryable = True
    remedy = "Wait for the other process to end; 'bartack ps' shows who runs."


class AgentCancelledError(AgentError):
    """A call of an agent was given up: ``reason`` says by whom or why."""

    code = "BT816"
    outcome = "cancelled"
    remedy = "Nothing has to be mended; the call is made anew when the run is resumed."


class AgentDeadlineError(AgentCancelledError):
    """An agent did not answer within the time that was given."""

    code = "BT817"
    remedy = "Give the call more time with timeout_s, or the action in the section timeouts of bartack.toml."


class VersionMismatchError(AgentError):
    """The files changed under an agent: it saw another snapshot than the one it was told of."""

    code = "BT818"
    remedy = "Find out who else writes to the workspace, then resume the run."


class ArtifactMismatchError(AgentError):
    """A file that an agent says it has left is missing, too large, or differs from what it says."""

    code = "BT819"
    remedy = (
        "The message lists every path with what was expected and what was found; look at them, then resume."
    )


class PathEscapeError(ArtifactMismatchError):
    """An agent named a path that leads out of the workspace, or into a part of it that is not for agents."""

    code = "BT820"
    remedy = "Paths of artifacts are relative to the workspace, with '/' between names and no '..'."


class AgentBudgetError(AgentError):
    """An agent used more than was reserved for the call: ``reason`` names what of."""

    code = "BT821"
    remedy = "Raise the budget of the call or of the agent, then resume the run."


class LineTooLongError(AgentError, ValueError):
    """A message to an agent takes more bytes than a line of the protocol may have. Nothing was sent."""

    code = "BT822"
    remedy = "Put large inputs into a file of the workspace and name it in the inputs."

    def __init__(self, agent: str, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(agent, f"a message would take {size} bytes, more than {limit}", "line_too_long")


class SupervisionError(BartackError):
    """Something is wrong with a supervisor, a child of it, or the processes below them."""

    code = "BT500"
    remedy = "Read the reason; it names the supervisor or the child."


class TreeLockedError(SupervisionError):
    """Processes that an earlier attempt at this run has started are still alive, so nothing is executed beside them."""

    code = "BT501"
    retryable = True
    remedy = "Wait until they have ended, then repeat the command. 'fuser' with the path in the message names them."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is held: processes of an earlier attempt at this run are still alive")


class ChildSpecError(SupervisionError, ValueError):
    """A child or a supervisor is described in a way that cannot work."""

    code = "BT502"
    remedy = "Give the field that the message names a value that keeps the rule."

    def __init__(self, owner: str, field: str, rule: str) -> None:
        self.owner = owner
        self.field = field
        self.rule = rule
        super().__init__(f"{owner}: {field}: {rule}")


class ChildStartError(SupervisionError):
    """A child did not get ready, so what was started with it was stopped again."""

    code = "BT503"
    remedy = "Read the reason and what the child wrote; start it by itself to see more."

    def __init__(self, child: str, reason: str, problem: str) -> None:
        self.child = child
        self.reason = reason
        self.problem = problem
        super().__init__(f"{child} did not start ({reason}){': ' if problem else ''}{problem}")


class ChildNotFoundError(SupervisionError):
    """A supervisor has no child with this name."""

    code = "BT504"
    remedy = "Look at which_children(): it names all of them."

    def __init__(self, supervisor: str, child: str) -> None:
        self.supervisor = supervisor
        self.child = child
        super().__init__(f"{supervisor} has no child {child!r}")


class ChildStateError(SupervisionError):
    """A child is in a state in which this cannot be done with it."""

    code = "BT505"
    remedy = "A child that runs is terminated first; one that does not run can be started again or taken off the list."

    def __init__(self, child: str, state: str, wanted: str) -> None:
        self.child = child
        self.state = state
        self.wanted = wanted
        super().__init__(f"{child} is {state} and cannot be {wanted}")


class SupervisorExhaustedError(SupervisionError):
    """Children ended more often than the supervisor may restart them, so it stopped all of them."""

    code = "BT506"
    remedy = (
        "Read the crash reports: they say why the children ended. Then mend that, or allow more restarts."
    )

    def __init__(
        self, supervisor: str, child: str, reason: str, max_restarts: int, max_seconds: float
    ) -> None:
        self.supervisor = supervisor
        self.child = child
        self.reason = reason
        self.max_restarts = max_restarts
        self.max_seconds = max_seconds
        super().__init__(
            f"{supervisor} gave up: more than {max_restarts} restarts in {max_seconds:g} s, the last for {child} ({reason})"
        )


class SupervisorNotRunningError(SupervisionError):
    """A supervisor takes no orders before it has started its children and after it began to stop them."""

    code = "BT507"
    remedy = "Use it inside its 'async with' block."

    def __init__(self, supervisor: str) -> None:
        self.supervisor = supervisor
        super().__init__(f"{supervisor} is not running")


class MonitorUnavailableError(SupervisionError):
    """Whoever keeps the monitors is gone, so nobody knows which there are."""

    code = "BT508"
    retryable = True
    remedy = "Resume the run, or start the supervisor again; then ask once more."

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"the monitors of {owner} cannot be reached")


class MonitorNotFoundError(SupervisionError):
    """A monitor is gone, and no message of it waits: it was received before, or the monitor was let go of."""

    code = "BT509"
    remedy = "Wait for the message of a monitor once, in one place: by its 'down', or in the mailbox."

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor
        super().__init__(f"there is no monitor {monitor}, and no message of it")


class PatchworkError(BartackError):
    """A Patchwork program cannot go on, or cannot even begin."""

    code = "BT600"
    remedy = "Read the message; it names the value and the place in the program."


class ThrownError(PatchworkError):
    """A Patchwork program threw a value, or an assertion of it did not hold."""

    code = "BT601"
    remedy = (
        "The program itself decided to fail; its message says why. A 'try' around the place can handle it."
    )

    def __init__(self, problem: str, thrown: object = None) -> None:
        self.problem = problem
        self.thrown = thrown
        super().__init__(problem)


class PatternMismatchError(PatchworkError):
    """A value does not have the form that a pattern of the program expects."""

    code = "BT603"
    remedy = "Look at who made the value, or make the pattern wider."

    def __init__(self, field: str, expected: str, found: str) -> None:
        self.field = field
        self.expected = expected
        self.found = found
        super().__init__(f"{field}: expected {expected}, found {found}")


class NumberError(PatchworkError):
    """An operation has no finite number as its result."""

    code = "BT604"
    remedy = "Test the operands first; numbers are IEEE doubles, without infinity and NaN."


class IndexRangeError(PatchworkError):
    """An element was assigned that is not in its array."""

    code = "BT605"
    remedy = "Add elements with push(); an assignment only changes those that are there."

    def __init__(self, index: int, length: int) -> None:
        self.index = index
        self.length = length
        super().__init__(f"index {index} is outside an array of {length}")


class ProgramFaultError(PatchworkError):
    """A program, in Patchwork or in Python, has errors that are found without running it. Nothing was run."""

    code = "BT606"
    remedy = "Correct what is reported; 'bartack check FILE' says it again."

    def __init__(self, program: str, report: str) -> None:
        self.program = program
        self.report = report
        super().__init__(f"{program} has errors")


class ResilienceError(BartackError):
    """Something is wrong with what keeps events until they are delivered, or with what they are delivered to."""

    code = "BT700"
    remedy = "Look at 'bartack track status'; it says what waits and why."


class StoreTooNewError(ResilienceError):
    """A database was written by a newer version of Bartack. Nothing was changed."""

    code = "BT701"
    remedy = "Use the Bartack version that wrote it, or a newer one."

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has schema version {found}; this version knows versions up to {known}")


class OutboxFullError(ResilienceError):
    """An event does not fit into the outbox, so it was not kept."""

    code = "BT702"
    remedy = "Raise tracking.max_size_mb, or deliver what waits with 'bartack track sync'."

    def __init__(self, path: str, size_bytes: int, quota_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.quota_bytes = quota_bytes
        super().__init__(f"{path}: an event of {size_bytes} bytes does not fit into {quota_bytes} bytes")


class StoreUnavailableError(ResilienceError):
    """A database cannot be read or written now. What it acknowledged before is safe."""

    code = "BT703"
    retryable = True
    remedy = "Check that the disk has room and that you may write to the directory, then try again."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be used now: {reason}")


class CircuitOpenError(ResilienceError):
    """A call was not made, because the service failed too often a short time ago."""

    code = "BT704"
    retryable = True
    remedy = "Wait for the service to come back; 'bartack track breaker status' says when it is tried next."

    def __init__(self, name: str, state: str, retry_after: float) -> None:
        self.name = name
        self.state = state
        self.retry_after = retry_after
        super().__init__(f"{name}: the circuit is {state}; next try in {retry_after:.1f} s")


class SettingsError(ResilienceError):
    """A settings file of the coding agent cannot be changed safely. It was left as it is."""

    code = "BT705"
    remedy = "Correct the file by hand so that it is valid and has the expected shape, then install again."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}; the file was left as it is")


class TokenScopeError(ResilienceError):
    """A token would have been written into a file that is shared with others."""

    code = "BT706"
    remedy = "Use --scope local or --scope user with --mode http, or another mode."

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(
            f"http hooks carry a token, and the settings of scope {scope!r} are shared with others"
        )


class UnsafeBindError(ResilienceError):
    """A service was told to listen where other machines could reach it."""

    code = "BT707"
    remedy = "Listen on 127.0.0.1. To reach it from elsewhere, put a server with TLS in front of it."

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host} is no loopback address; other machines could reach the service there")


class ServiceAnswerError(ResilienceError):
    """A service answered a call with a failure."""

    code = "BT708"
    retryable = True
    remedy = "Look at the service's own log for the cause."

    def __init__(self, url: str, status: int, retry_after: float | None = None, detail: str = "") -> None:
        self.url = url
        self.status = status
        self.retry_after = retry_after
        self.detail = detail
        told = f"{': ' if detail else ''}{detail}"
        wait = f"; it asks to wait {retry_after} s" if retry_after else ""
        super().__init__(f"{url} answered {status}{told}{wait}")


class EventNotFoundError(ResilienceError):
    """No event of the outbox has this id."""

    code = "BT709"
    remedy = "'bartack track outbox list' shows the ids."

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(f"no event has the id {event_id!r}")


class ServiceUnprovenError(ResilienceError):
    """A service did not prove that it knows the token of this user, so nothing was sent to it. The event is kept."""

    code = "BT710"
    retryable = True
    remedy = (
        "Find out which program listens there; the event is delivered when your own service does. "
        "For a service of another make, set tracking.proof to 'off'."
    )

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        self.problem = problem
        super().__init__(f"{url} is not proved to be a service of this user: {problem}")


class UnsafeSocketError(ResilienceError):
    """The directory of a socket belongs to another user, or other users can enter it."""

    code = "BT711"
    remedy = "Make a directory that belongs to you, with mode 0700, the state home (XDG_STATE_HOME)."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} does not belong to this user alone, so no socket is used there")


class LineageError(ResilienceError):
    """The lineage of patterns was asked for, or told, something that it cannot answer or keep."""

    code = "BT720"
    remedy = "Read the message; it names the pattern, the event or the file."


class LineageCycleError(LineageError):
    """A pattern was said to come from one of its own descendants. Nothing was recorded."""

    code = "BT721"
    remedy = "Give the event a version of its own; returning to earlier code makes a new version of it."

    def __init__(self, parent: str, child: str) -> None:
        self.parent = parent
        self.child = child
        super().__init__(f"{child} cannot come from {parent}, which comes from it")


class PatternNotFoundError(LineageError):
    """No event has told of this pattern, or of this version of it."""

    code = "BT722"
    remedy = "Find the id with 'bartack lineage search TEXT'."

    def __init__(self, pattern_id: str, version: str | None = None) -> None:
        self.pattern_id = pattern_id
        self.version = version
        what = f"version {version} of pattern {pattern_id}" if version else f"pattern {pattern_id}"
        super().__init__(f"{what} is not known")


class EventConflictError(LineageError):
    """An event has the id of another event that says something else. Nothing was recorded."""

    code = "BT723"
    remedy = "Give every event an id of its own, or none: it is then made from what the event says."

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(f"event {event_id} was recorded already, with another content")


class EventInvalidError(LineageError, ValueError):
    """A member of a request is missing, of the wrong type or out of its range. Nothing was recorded."""

    code = "BT724"
    remedy = (
        "Correct the member that the message names; the reference of the lineage service lists all of them."
    )

    def __init__(self, problem: str, field: str = "") -> None:
        self.problem = problem
        self.field = field
        super().__init__(f"{field}: {problem}" if field else problem)


class EventValueError(EventInvalidError):
    """A member of a request has the right type, but none of the values it may have. Nothing was recorded."""

    code = "BT727"
    remedy = "Give the member one of the values that the reference of the lineage service lists."


class CursorError(LineageError, ValueError):
    """A cursor was not made for this query."""

    code = "BT725"
    remedy = "Use a cursor with the very query whose answer it came with, or ask again without one."

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(f"{cursor!r} is no cursor of this query")


class TokenFileError(LineageError):
    """The file with the token of a service cannot be used."""

    code = "BT726"
    remedy = "Name a file that only you can read, with a token of at least 16 characters on its first line."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class LineageMissingError(LineageError):
    """There is no lineage database here: no event was ever delivered to a lineage service that keeps it in this file."""

    code = "BT728"
    remedy = "Name the database with --db, or start the service with 'bartack lineage serve'; it makes one."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no lineage database at {path}")


class PipelineError(BartackError):
    """The pipeline cannot go on."""

    code = "BT900"
    remedy = "The message says what is in the way; the run stays as it is and can be resumed."


class SnapshotError(PipelineError):
    """The workspace could not be captured."""

    code = "BT901"
    remedy = "The message names the file; nothing was changed."


class SnapshotReadError(SnapshotError):
    """A file or directory of the workspace cannot be read. A snapshot is complete or it is not made."""

    code = "BT902"
    remedy = "Make it readable, or leave it out with snapshot.exclude in bartack.toml."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class SnapshotUnstableError(SnapshotError):
    """A file changed each time it was read: somebody is writing it."""

    code = "BT903"
    remedy = (
        "Stop whoever writes the file, or leave it out with snapshot.exclude in bartack.toml, and resume."
    )

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} changes while it is read")


class ManifestError(SnapshotError):
    """A manifest cannot be read, or its files do not have the id that it claims."""

    code = "BT904"
    remedy = "Take the manifest from the run's own directory; one that was changed by hand is of no use."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class TaskNotFoundError(PipelineError):
    """No task has this id."""

    code = "BT905"
    remedy = "Name a task of bartack.toml, or say what is to be done with --goal."

    def __init__(self, task: str, near: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> None:
        self.task = task
        self.near = near
        self.known = known
        listed = f"; there are: {', '.join(known)}" if known else "; none is configured"
        hint = f"; did you mean {' or '.join(near)}?" if near else listed
        super().__init__(f"there is no task {task!r}{hint} (a task that is not configured needs --goal)")


class WorkspaceBusyError(PipelineError):
    """Another run works in this workspace. Two runs in one tree would not know whose change is whose."""

    code = "BT906"
    retryable = True
    remedy = "Wait for the other run ('--wait' does), or look at it with 'bartack status'."

    def __init__(self, workspace: str, owner: str) -> None:
        self.workspace = workspace
        self.owner = owner
        super().__init__(f"{workspace}: {owner or 'another process'} works there")


class LoopLimitError(PipelineError):
    """A loop of the pipeline came to its bound."""

    code = "BT919"
    remedy = (
        "Mend what the findings say, or not; 'bartack resume' grants as many rounds again. The bounds are "
        "pipeline.max_… in bartack.toml."
    )

    def __init__(self, task: str, problem: str, findings: str = "") -> None:
        self.task = task
        self.problem = problem
        self.findings = findings
        super().__init__(f"task {task}: {problem}" + (f"\n{findings}" if findings else ""))


class TestsGateError(LoopLimitError):
    """The tests of a task still fail after as many repairs as are allowed, or cannot be run at all."""

    code = "BT907"
    remedy = "Mend the code or the command, or raise pipeline.max_fix_rounds; 'bartack resume' runs the tests again."
    __test__ = False


class ReviewLimitError(LoopLimitError):
    """The reviewer still wants changes after as many rounds as are allowed."""

    code = "BT908"
    remedy = (
        "Deal with the findings, or raise pipeline.max_review_rounds; 'bartack resume' has it reviewed again."
    )


class SpecLimitError(LoopLimitError):
    """The spec maintainer still wants changes after as many rounds as are allowed."""

    code = "BT909"
    remedy = "Deal with the findings, or raise pipeline.max_spec_rounds; 'bartack resume' asks the spec maintainer again."


class RoundLimitError(LoopLimitError):
    """The builder was commanded as often as one task may command it."""

    code = "BT910"
    remedy = "See why it takes so many rounds, or raise pipeline.max_rounds; 'bartack resume' grants as many again."


class ReadOnlyViolationError(PipelineError):
    """A reviewer changed files that it may only read. The changes are left as they are."""

    code = "BT911"
    remedy = (
        "Undo or keep the file, then resume. If it is undone, the answer counts; if it is kept, the review is made again with "
        "the files as they are. With 'review.isolated' a reviewer has a worktree of its own."
    )

    def __init__(self, task: str, paths: str, who: str = "the reviewer") -> None:
        self.task = task
        self.paths = paths
        self.who = who
        super().__init__(f"task {task}: {who} changed {paths}")


class SpecEditError(PipelineError):
    """A spec maintainer changed something outside of the sections that it may edit. The changes are left as they are."""

    code = "BT912"
    remedy = "Undo the forbidden part of the change, or do that edit yourself, then resume: the step is made again."

    def __init__(self, task: str, problem: str, diff: str = "") -> None:
        self.task = task
        self.problem = problem
        self.diff = diff
        super().__init__(f"task {task}: {problem}" + (f"\n{diff}" if diff else ""))


class ReceiptConflictError(PipelineError):
    """There is another file where a receipt has to be. It was not overwritten."""

    code = "BT913"
    remedy = (
        "Move the file that the message names to another place, then resume. If it is a receipt of this run, two answers claim "
        "its place: set the first one aside with 'bartack resume RUN --again STEP' ('bartack show RUN' lists the steps)."
    )

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is there already, with another content")


class ActivationError(PipelineError):
    """The tasks of a run cannot be begun."""

    code = "BT914"
    remedy = "Correct the tasks: ids are unique, what they depend on exists, and nothing depends on itself."

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class PlanPathError(ActivationError):
    """The plan that was approved is not there, or not in the workspace."""

    code = "BT915"
    remedy = "Put the plan back where it was, then resume."


class NoCandidatesError(PipelineError):
    """No file of the workspace looks like a plan, and intake.require_plan wants one."""

    code = "BT916"
    remedy = (
        "Write the plan to a file such as docs/plan.md, or set intake.require_plan = false in bartack.toml."
    )

    def __init__(self) -> None:
        super().__init__("no file of the workspace looks like a plan")


class ProposalError(PipelineError):
    """An agent proposed tasks that cannot be used."""

    code = "BT917"
    remedy = "Resume to ask the agent again, or say the instruction in other words in a new run."

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the proposal cannot be used: {problem}")


class TasksFailedError(PipelineError):
    """Some tasks of a run failed; the others are done."""

    code = "BT918"
    remedy = "Mend what hindered them, then resume: the tasks that failed or were skipped are begun again."

    def __init__(self, summary: str) -> None:
        self.summary = summary
        super().__init__(summary)


class GitError(PipelineError):
    """Tasks side by side need git, and it is missing, too old, or refused what was asked of it."""

    code = "BT920"
    remedy = "Mend what git complains about and resume, or do one task at a time with parallel.tasks = 1."

    def __init__(self, command: str, problem: str) -> None:
        self.command = command
        self.problem = problem
        super().__init__(f"{command}: {problem}")


class WorktreeError(GitError):
    """The repository, or the worktree of a task, is not in a state in which the task can be done. Nothing was changed."""

    code = "BT921"
    remedy = "Bring it into the state that the message names, then run or resume."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)


class WorktreeDirtyError(GitError):
    """A worktree was not removed: it may hold something that is nowhere else."""

    code = "BT922"
    remedy = "Look into the worktree that the message names; commit what is there, or copy it elsewhere, then try again."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)


class UnknownCodeError(BartackError):
    """No error has this code."""

    code = "BT1001"
    remedy = "'bartack explain' without a code lists all of them."

    def __init__(self, asked: str, near: tuple[str, ...] = ()) -> None:
        self.asked = asked
        self.near = near
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"no error has the code {asked!r}{hint}")


class UsageError(BartackError):
    """A command was called in a way that it does not understand: a wrong name, option or value."""

    code = "BT1002"
    remedy = "Call the command with --help; it shows what it takes."

    def __init__(self, command: str, problem: str, remedy: str = "") -> None:
        self.command = command
        self.problem = problem
        if remedy:
            self.remedy = remedy
        elif "\nusage: " in problem:
            self.remedy = "Give the arguments as the usage shows them; those of a program follow --: bartack run FILE -- ..."
        elif command.startswith("bartack "):
            self.remedy = f"'{command} --help' shows what it takes."
        super().__init__(f"{command}: {problem}")


def iter_errors() -> list[type[BartackError]]:
    """All error classes, in the order of their numbers."""
    found: list[type[BartackError]] = []
    waiting: list[type[BartackError]] = [BartackError]
    while waiting:
        cls = waiting.pop()
        found.append(cls)
        waiting.extend(cls.__subclasses__())
    own = {cls for cls in found if cls.__module__ == __name__}
    return sorted(own, key=lambda cls: int(cls.code.removeprefix("BT")))

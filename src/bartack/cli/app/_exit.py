"""The exit codes with their meanings, and the exit code of each error."""

from __future__ import annotations

from enum import IntEnum

from bartack import errors


class Exit(IntEnum):
    """The exit codes of every command. ``MEANINGS`` describes them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    CANCELLED = 4
    OWNED = 5
    DISK = 6
    NOT_FOUND = 7
    TIMED_OUT = 8
    NOT_ACTIVE = 9
    CORRUPT = 10
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.OK: "the command did its work; the run completed",
    Exit.FAILED: "the command or the run failed, or a fault was found",
    Exit.USAGE: "the command line or a setting is invalid",
    Exit.WAITING: "the run was stopped because it waits for an answer; it can be resumed",
    Exit.CANCELLED: "the run was cancelled or aborted",
    Exit.OWNED: "another process owns the run",
    Exit.DISK: "the disk is full, read-only or failed to sync; nothing acknowledged is lost",
    Exit.NOT_FOUND: "the named run, file or item does not exist",
    Exit.TIMED_OUT: "a deadline passed",
    Exit.NOT_ACTIVE: "the run is not active",
    Exit.CORRUPT: "a journal, or a value it refers to, is damaged",
    Exit.INTERRUPTED: "Ctrl-C; a run can be resumed",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe",
    Exit.TERMINATED: "SIGTERM; a run can be resumed",
}

_BY_ERROR: dict[type[errors.BartackError], Exit] = {
    errors.ConfigError: Exit.USAGE,
    errors.RunIdError: Exit.USAGE,
    errors.UnsafePathError: Exit.USAGE,
    errors.UsageError: Exit.USAGE,
    errors.UntrustedError: Exit.USAGE,
    errors.ForeignRunError: Exit.USAGE,
    errors.RecordingError: Exit.USAGE,
    errors.RunAsError: Exit.USAGE,
    errors.MachineError: Exit.USAGE,
    errors.ScheduleError: Exit.USAGE,
    errors.ScheduleNotFoundError: Exit.NOT_FOUND,
    errors.UnknownCodeError: Exit.NOT_FOUND,
    errors.EventNotFoundError: Exit.NOT_FOUND,
    errors.TokenScopeError: Exit.USAGE,
    errors.JournalLockedError: Exit.OWNED,
    errors.TreeLockedError: Exit.OWNED,
    errors.RunNotFoundError: Exit.NOT_FOUND,
    errors.StepNotFoundError: Exit.NOT_FOUND,
    errors.QuestionNotFoundError: Exit.NOT_FOUND,
    errors.RunNotQueuedError: Exit.NOT_FOUND,
    errors.ScheduleError: Exit.USAGE,
    errors.ScheduleNotFoundError: Exit.NOT_FOUND,
    errors.NodeRunningError: Exit.OWNED,
    errors.RunHeldError: Exit.NOT_ACTIVE,
    errors.DepotSchemaError: Exit.USAGE,
    errors.RunNotActiveError: Exit.NOT_ACTIVE,
    errors.HubStoppedError: Exit.TIMED_OUT,
    errors.RunNotFinishedError: Exit.NOT_ACTIVE,
    errors.DeadlineExceededError: Exit.TIMED_OUT,
    errors.ProgramImportError: Exit.USAGE,
    errors.ProgramFaultError: Exit.USAGE,
    errors.WorkerDefinitionError: Exit.USAGE,
    errors.WorkspaceError: Exit.USAGE,
    errors.AgentConfigError: Exit.USAGE,
    errors.ScriptError: Exit.USAGE,
    errors.MailboxNameError: Exit.USAGE,
    errors.DeliveryOptionError: Exit.USAGE,
    errors.TopicNameError: Exit.USAGE,
    errors.DeadLetterFilterError: Exit.USAGE,
    errors.DeadLetterNotFoundError: Exit.NOT_FOUND,
    errors.MessageValueError: Exit.USAGE,
    errors.TypeMismatchError: Exit.USAGE,
    errors.JournalPoisonedError: Exit.DISK,
    errors.RunDiskError: Exit.DISK,
    errors.JournalOwnershipLostError: Exit.FAILED,
    errors.JournalNotFoundError: Exit.NOT_FOUND,
    errors.JournalCorruptError: Exit.CORRUPT,
    errors.BlobMissingError: Exit.CORRUPT,
    errors.BlobCorruptError: Exit.CORRUPT,
    errors.UnsafeBindError: Exit.USAGE,
    errors.WebPortError: Exit.OWNED,
    errors.TokenFileError: Exit.USAGE,
    errors.PatternNotFoundError: Exit.NOT_FOUND,
    errors.LineageMissingError: Exit.NOT_FOUND,
    errors.TaskNotFoundError: Exit.NOT_FOUND,
    errors.WorkspaceBusyError: Exit.OWNED,
    errors.GitError: Exit.USAGE,
    errors.WorktreeDirtyError: Exit.FAILED,
    errors.NotPipelineError: Exit.USAGE,
}


def exit_code_of(kind: type[errors.BartackError]) -> Exit:
    """Return the exit code of the nearest class that has one, else 1."""
    return next((_BY_ERROR[cls] for cls in kind.__mro__ if cls in _BY_ERROR), Exit.FAILED)

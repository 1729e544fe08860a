"""Every error Bartack raises, each with a stable code.

``bartack explain CODE`` prints what a code means and what to do; both texts live beside the class, in the module of its hundred.

::

    BartackError                         BT100
    ├── ConfigError                      BT101
    │   └── GuardPolicyError             BT108
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
    │   ├── BlobCorruptError             BT212
    │   ├── BlobTooLargeError            BT221
    │   └── DepotError                   BT214
    │       ├── DepotUnavailableError    BT215
    │       │   └── ObjectStoreUnavailableError BT220
    │       ├── DepotSchemaError         BT216
    │       ├── DepotRewoundError        BT217
    │       ├── DepotInsecureError       BT218
    │       └── DepotRefusedError        BT219
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
    │   ├── WorkerStartError             BT351
    │   ├── VersionError                 BT353
    │   ├── RecordingError               BT354
    │   ├── WorkspaceCarryError          BT355
    │   ├── WorkspaceKeepError           BT356
    │   └── RequestLateError             BT357
    ├── NodeError                        BT360
    │   ├── NodeRunningError             BT361
    │   ├── QueueFullError               BT362
    │   ├── RunNotQueuedError            BT363
    │   ├── ScheduleError                BT364
    │   ├── ScheduleNotFoundError        BT365
    │   ├── NodeStartError               BT366
    │   ├── NodeVersionError             BT367
    │   ├── WorkspaceGoneError           BT368
    │   ├── NoNodeError                  BT376
    │   ├── RunHeldError                 BT377
    │   └── ServiceError                 BT379
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
    │   ├── LineTooLongError             BT822   (also ValueError)
    │   └── AgentPlaceError              BT823
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
    │   ├── GitError                     BT920
    │   │   ├── WorktreeError            BT921
    │   │   └── WorktreeDirtyError       BT922
    │   └── NotPipelineError             BT923
    ├── UnknownCodeError                 BT1001
    ├── UsageError                       BT1002
    ├── PluginError                      BT1010
    │   ├── PluginTraitError             BT1011
    │   ├── PluginOutputError            BT1012
    │   ├── PluginDescriptionError       BT1013
    │   ├── PluginInvalidError           BT1014
    │   └── PluginInstallError           BT1015
    ├── EntryNotFoundError               BT1016
    ├── WebPortError                     BT1020
    ├── WebEnterError                    BT1021
    ├── WebRefusedError                  BT1022
    ├── RunBeingReadError                BT1023
    ├── WebQueryError                    BT1024
    └── NotShownError                    BT1025

Numbers go by hundreds: 1 core and configuration, 2 journal, 3 runs, replay and nodes, 4 messaging, 5 supervision, 6 language at
run time, 7 resilience and tracking, 8 agents, 9 pipeline, 10 plugin, CLI and web. A number is never given twice.

An error takes facts, builds its own message and keeps the facts as attributes. Every class survives pickling with all of its
facts, without its constructor being called again. How a class declares its facts and its message: ``_root.py``.
"""

from __future__ import annotations

from bartack.errors._agent import *
from bartack.errors._core import *
from bartack.errors._journal import *
from bartack.errors._messaging import *
from bartack.errors._patchwork import *
from bartack.errors._pipeline import *
from bartack.errors._resilience import *
from bartack.errors._root import BartackError as BartackError
from bartack.errors._run import *
from bartack.errors._supervision import *
from bartack.errors._usage import *


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
